"""Hosts that end in ways of their own, each with trees of processes.

    group_host.py FOLDER END=SHAPE,SHAPE...

Prints `END PID` for each host once its servers are there; the host then waits for a line on its
stdin, `END`, and ends. Ends: `raises`, `exits`, `leaves` (`os._exit`); in any other it waits to be
ended from outside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

# Imported once: what is forked below is a host for itself.
import addendum.tools.mcp.opening
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec

__all__ = ["addendum", "host", "specs"]

SERVER = Path(__file__).with_name("group_server.py")
SHAPES = (
    "alone",
    "child",
    "child that holds the pipes",
    "orphan",
    "stubborn leader",
    "stubborn child",
    "child that comes again",
    "many",
    "shell",
    "pipeline",
)


def spec(shape: str, folder: Path) -> ServerSpec:
    """Return a server of this shape; the processes of its tree are files in `folder`."""
    folder.mkdir(parents=True)
    server = [sys.executable, "-S", "-E", str(SERVER), shape, str(folder)]
    if shape == "shell":
        # A shell that stays for what comes behind.
        server = ["/bin/sh", "-c", 'echo $$ > /dev/null; "$@"; exit 0', "sh", *server]
    if shape == "pipeline":
        server = ["/bin/sh", "-c", 'cat | "$@" | cat', "sh", *server]
    return ServerSpec(name=shape.replace(" ", "-"), command=tuple(server))


def specs(folder: Path, shapes: Sequence[str] = SHAPES) -> list[ServerSpec]:
    """Return a server of each shape, each with a folder of its own."""
    return [spec(shape, folder / shape) for shape in shapes]


async def host(end: str, folder: Path, shapes: list[str], line: int) -> None:
    pool = ServerPool()
    connections = [await pool.acquire(each) for each in specs(folder, shapes)]
    async with anyio.create_task_group() as tasks:
        for connection in connections:
            tasks.start_soon(connection.ready, 60)
    assert all(each.state.status == "ready" for each in connections), [
        each.state for each in connections
    ]
    os.write(1, f"{end} {os.getpid()}\n".encode())
    if end in ("raises", "exits", "leaves"):
        await anyio.to_thread.run_sync(os.read, line, 1)
    if end == "raises":
        raise RuntimeError("as a program does")
    if end == "exits":
        sys.exit(3)
    if end == "leaves":
        os._exit(3)
    await anyio.sleep_forever()


def main(folder: Path, played: list[str]) -> None:
    lines: dict[str, int] = {}
    for each in played:
        end, _, shapes = each.partition("=")
        told, lines[end] = os.pipe()
        if os.fork() == 0:
            for other in lines.values():
                os.close(other)
            sys.stderr = open(os.devnull, "w")  # noqa: PTH123
            anyio.run(host, end, folder / end, shapes.split(","), told)
            os._exit(0)
        os.close(told)
    for line in sys.stdin:
        os.write(lines[line.strip()], b".")
    for _ in played:
        os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
