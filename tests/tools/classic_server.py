"""A server on stdio for the tests: the classic protocol by hand, so that it may also break it.

Its list is the text of the file named by its first argument, put into the answer as it is: either
an array of tools, or an object of arrays by cursor, beginning with "". Tools that it knows: `echo`,
`hang`, `cancelled`, `pair`, `notify`, `noise`, `die`, `answer` (its argument `result` is the raw
result), `deaf` (reads no more), `environment`.
"""

import json
import os
import sys
import threading
from pathlib import Path

listing = Path(sys.argv[1])
cancelled: list[int] = []
waiting: list[int] = []


def send(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(ident: int, result: str) -> None:
    send(f'{{"jsonrpc":"2.0","id":{ident},"result":{result}}}')


def say(ident: int, text: str) -> None:
    answer(ident, json.dumps({"content": [{"type": "text", "text": text}]}))


def changed() -> None:
    send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')


def call(ident: int, name: str, arguments: dict[str, str]) -> None:
    if name == "echo":
        say(ident, json.dumps(arguments))
    elif name == "cancelled":
        say(ident, str(len(cancelled)))
    elif name == "pair":
        # The first of two is answered only after the second has come.
        waiting.append(ident)
        if len(waiting) == 2:
            for first_last in reversed(waiting):
                say(first_last, str(first_last))
            waiting.clear()
    elif name == "notify":
        for _ in range(int(arguments.get("times", "1"))):
            changed()
        say(ident, "told")
    elif name == "noise":
        send("this is no JSON")
        send('{"jsonrpc": "2.0", "id": ')
        say(ident, "after the noise")
    elif name == "die":
        sys.stderr.write("\x1b[31mfatal: the token s3cret-value is no good\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "answer":
        answer(ident, arguments["result"])
    elif name == "deaf":
        say(ident, "no longer listening")
        threading.Event().wait()
    elif name == "environment":
        say(ident, json.dumps(dict(os.environ)))
    elif name != "hang":
        send(f'{{"jsonrpc":"2.0","id":{ident},"error":{{"code":-32602,"message":"no {name}"}}}}')


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, ident = message["method"], message.get("id")
        params = message.get("params", {})
        if method == "initialize":
            answer(
                ident,
                json.dumps(
                    {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": {"tools": {"listChanged": True}},
                        "serverInfo": {"name": "classic", "version": "1"},
                        "instructions": os.environ.get("INSTRUCTIONS", ""),
                    }
                ),
            )
        elif method == "tools/list":
            text = listing.read_text()
            if text.startswith("{"):
                pages = json.loads(text)
                cursor = params.get("cursor", "")
                following = list(pages).index(cursor) + 1
                result = {"tools": pages[cursor]}
                if following < len(pages):
                    result["nextCursor"] = list(pages)[following]
                text = json.dumps(result)[1:-1]
            else:
                text = f'"tools":{text}'
            answer(ident, f"{{{text}}}")
        elif method == "tools/call":
            call(ident, params["name"], params.get("arguments") or {})
        elif method == "ping":
            answer(ident, "{}")
        elif method == "notifications/cancelled":
            cancelled.append(params["requestId"])
        elif ident is not None:
            send(f'{{"jsonrpc":"2.0","id":{ident},"error":{{"code":-32601,"message":"no"}}}}')


serve()
