"""A server on stdio that is the leader of a tree of processes.

    group_server.py SHAPE FOLDER

Each process of the tree leaves an empty file in FOLDER, named by its process id. Tools: `leave`
(the leader ends), `hang`. With SHAPE `silent` it never answers, with `rubbish` it answers nothing
that could be understood.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

SHAPE, FOLDER = sys.argv[1], sys.argv[2]


def here() -> None:
    with open(os.path.join(FOLDER, str(os.getpid())), "x"):  # noqa: PTH118, PTH123
        pass


def forked(work: Callable[[], None], *, quiet: bool = True) -> None:
    """Run `work` in a child, which says that it is there before we go on."""
    told, tell = os.pipe()
    if os.fork() == 0:
        try:
            os.close(told)
            if quiet:
                nothing = os.open(os.devnull, os.O_RDWR)
                for number in (0, 1, 2):
                    os.dup2(nothing, number)
            here()
            os.write(tell, b".")
            os.close(tell)
            work()
        finally:
            os._exit(0)
    os.close(tell)
    os.read(told, 1)
    os.close(told)


def wait() -> None:
    time.sleep(600)


def stubborn() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def stubborn_child() -> None:
    stubborn()
    wait()


def reborn() -> None:
    """Answer SIGTERM with a child that goes on."""

    def again(*_: object) -> None:
        forked(stubborn_child)
        os._exit(0)

    signal.signal(signal.SIGTERM, again)
    wait()


def grow() -> None:
    match SHAPE:
        case "child":
            forked(wait)
        case "child that holds the pipes":
            forked(wait, quiet=False)
        case "orphan":
            forked(lambda: forked(wait))
        case "stubborn leader":
            stubborn()
        case "stubborn child":
            forked(stubborn_child)
        case "child that comes again":
            forked(reborn)
        case "many":
            for _ in range(5):
                forked(lambda: (forked(wait), wait())[1])
        case "child that left":
            forked(lambda: (os.setsid(), wait())[1])
        case _:
            pass


def answer(ident: object, result: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}), flush=True)


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        ident = message.get("id")
        match message["method"]:
            case _ if SHAPE in ("silent", "rubbish"):
                if SHAPE == "rubbish":
                    print("what?", flush=True)
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "group", "version": "1"}
                answer(ident, {"protocolVersion": version, "capabilities": {}, "serverInfo": info})
            case "tools/list":
                tool = {"name": "leave", "inputSchema": {"type": "object"}}
                answer(ident, {"tools": [tool, {**tool, "name": "hang"}]})
            case "tools/call" if message["params"]["name"] == "leave":
                os._exit(0)
            case "tools/call" | "notifications/initialized" | "notifications/cancelled":
                pass
            case _:
                error = {"code": -32601, "message": "no"}
                print(json.dumps({"jsonrpc": "2.0", "id": ident, "error": error}), flush=True)
    if SHAPE == "stubborn leader":
        wait()


if __name__ == "__main__":
    here()
    grow()
    serve()
