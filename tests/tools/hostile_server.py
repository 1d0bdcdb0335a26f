"""An MCP server that means harm, over each transport. Run as a program, without site-packages.

    hostile_server.py stdio ROW          speaks on stdin and stdout
    hostile_server.py http               prints its port, then serves http://127.0.0.1:PORT/ROW/WAY

WAY is `json` or `sse`, with `+gzip`, `+deflate`, `+br` or `+zstd` behind it where the answer is to
be compressed. A row is what goes wrong, and at which message: `ROWS` names them all. Whatever a
row leaves alone is answered as a harmless server would.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

MB = 1024 * 1024
SIZE = 100 * MB
"""Bytes that an attack would have the host hold, where it has an end at all."""

TOOL = {"name": "echo", "description": "Echo", "inputSchema": {"type": "object"}}
SAID = {"content": [{"type": "text", "text": "heard"}]}

Pieces = Iterable[bytes]


def repeated(piece: bytes, size: int = SIZE) -> Iterator[bytes]:
    """Yield about `size` bytes of a piece again and again."""
    block = piece * max(1, 65536 // len(piece))
    for _ in range(max(1, size // len(block))):
        yield block


def endless(piece: bytes) -> Iterator[bytes]:
    while True:
        yield from repeated(piece)


def result(inside: Pieces, before: bytes = b"", after: bytes = b"") -> Callable[[Any], Pieces]:
    """Return what makes a whole answer around the pieces of its result."""

    def made(ident: Any) -> Pieces:
        yield b'{"jsonrpc":"2.0","id":%s,"result":' % json.dumps(ident).encode()
        yield before
        yield from inside
        yield after
        yield b"}"

    return made


def text(inside: Callable[[], Pieces]) -> Callable[[Any], Pieces]:
    """Return what makes a call's answer with one long text."""
    return lambda ident: result(inside(), b'{"content":[{"type":"text","text":"', b'"}]}')(ident)


def structured(inside: Callable[[], Pieces]) -> Callable[[Any], Pieces]:
    return lambda ident: result(inside(), b'{"content":[],"structuredContent":{"x":', b"}}")(ident)


def tools(count: int, size: int) -> Callable[[Any], Pieces]:
    """Return what makes a list of so many tools, each with a description of `size` bytes."""

    def inside() -> Pieces:
        for number in range(count):
            yield b',{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}' % (
                number,
                b"d" * size,
            )

    def body() -> Pieces:
        first = True
        batch = bytearray()
        for piece in inside():
            batch += piece[1:] if first else piece
            first = False
            if len(batch) > 65536:
                yield bytes(batch)
                batch.clear()
        yield bytes(batch)

    return lambda ident: result(body(), b'{"tools":[', b"]}")(ident)


def pictures() -> Callable[[Any], Pieces]:
    """Return what makes the largest answer that a call may have: four pictures of 3.3 MB."""

    def inside() -> Pieces:
        from pictures import b64, png

        data = b64(png(noise=3_300_000)).encode()
        for number in range(4):
            yield b"," if number else b""
            yield b'{"type":"image","mimeType":"image/png","data":"%s"}' % data

    return lambda ident: result(inside(), b'{"content":[', b"]}")(ident)


def keys(count: int) -> Pieces:
    for start in range(0, count, 1000):
        yield b"".join(b',"k%d":1' % each for each in range(start, start + 1000))


def nested(levels: int) -> Pieces:
    yield from repeated(b"[", levels)
    yield from repeated(b"]", levels)


def failing(ident: Any) -> Pieces:
    yield (
        b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"' % json.dumps(ident).encode()
    )
    yield from repeated(b"e")
    yield b'"}}'


PING = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
NOTICE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


class Row:
    """One attack.

    Attributes:
        method: The message that it answers; `unasked` is behind the handshake, where a stream of
            its own is (GET, or a line on stdout).
        message: The answer, from the request's id; None where `raw` says all.
        raw: By way (`stdio`, `json`, `sse`), the bytes in place of an answer, unframed.
        head: Bytes of a header that an answer over HTTP has.
        status: The HTTP status.
        pages: Whether each list names another page behind it, and how: `same` or `new`.
    """

    def __init__(
        self,
        method: str,
        message: Callable[[Any], Pieces] | None = None,
        *,
        raw: dict[str, Callable[[], Pieces]] | None = None,
        head: int = 0,
        status: int = 200,
        pages: str = "",
    ) -> None:
        self.method = method
        self.message = message
        self.raw = raw or {}
        self.head = head
        self.status = status
        self.pages = pages


def everywhere(pieces: Callable[[], Pieces]) -> dict[str, Callable[[], Pieces]]:
    return {"stdio": pieces, "json": pieces, "sse": pieces}


def framed(message: bytes) -> dict[str, Callable[[], Pieces]]:
    """Return an endless row of one message, framed as each way frames it."""
    return {
        "stdio": lambda: endless(message + b"\n"),
        "json": lambda: itertools.chain([b"["], endless(message + b",")),
        "sse": lambda: endless(b"data: " + message + b"\n\n"),
    }


LONG = text(lambda: repeated(b"a"))
METHODS = (
    "initialize",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)

ROWS: dict[str, Row] = {
    "harmless": Row("none"),
    **{f"long at {method}": Row(method, LONG) for method in METHODS},
    "long in an error": Row("tools/call", failing),
    "long in the body of an error": Row("tools/call", LONG, status=500),
    "largest text that is taken": Row("tools/call", text(lambda: repeated(b"a", 19 * MB))),
    "largest files that are taken": Row("tools/call", pictures()),
    "largest list that is taken": Row("tools/list", tools(10_000, 300)),
    "wide text": Row(
        "tools/call",
        text(lambda: itertools.chain(["\U0001f600".encode()], repeated(b"a", 19 * MB))),
    ),
    "wide text by escapes": Row(
        "tools/call", text(lambda: itertools.chain([rb"\ud83d\ude00"], repeated(b"a", 19 * MB)))
    ),
    "lone surrogates": Row("tools/call", text(lambda: repeated(rb"\ud83d", 19 * MB))),
    "backslashes": Row("tools/call", text(lambda: repeated(rb"\\", 19 * MB))),
    "quotes": Row("tools/call", structured(lambda: repeated(b'"', 19 * MB))),
    "empty objects": Row(
        "tools/call",
        structured(lambda: itertools.chain([b"[{}"], repeated(b",{}", 19 * MB), [b"]"])),
    ),
    "objects of one key": Row(
        "tools/call",
        structured(lambda: itertools.chain([b"[1"], repeated(b',{"a":1}', 19 * MB), [b"]"])),
    ),
    "many keys": Row(
        "tools/call",
        structured(lambda: itertools.chain([b'{"z":1'], keys(1_200_000), [b"}"])),
    ),
    "many numbers": Row(
        "tools/call",
        structured(lambda: itertools.chain([b"[1"], repeated(b",1.5", 19 * MB), [b"]"])),
    ),
    "empty blocks": Row(
        "tools/call",
        lambda ident: result(
            itertools.chain([b"{}"], repeated(b",{}", 19 * MB)), b'{"content":[', b"]}"
        )(ident),
    ),
    "deep": Row("tools/call", structured(lambda: nested(5 * MB))),
    "deep in a list": Row(
        "tools/list",
        lambda ident: result(
            nested(MB), b'{"tools":[{"name":"echo","inputSchema":{"type":"object","x":', b"}}]}"
        )(ident),
    ),
    "a huge number": Row("tools/call", structured(lambda: repeated(b"7", 19 * MB))),
    "a million tools": Row("tools/list", tools(1_000_000, 1)),
    "tools without end": Row(
        "tools/list",
        lambda ident: result(
            itertools.chain([json.dumps(TOOL).encode()], endless(b"," + json.dumps(TOOL).encode())),
            b'{"tools":[',
        )(ident),
    ),
    "pages in a circle": Row("tools/list", pages="same"),
    "pages without end": Row("tools/list", pages="new"),
    "fat pages without end": Row("tools/list", tools(2, 200_000), pages="new"),
    "offers in a circle": Row("resources/list", pages="same"),
    "an answer without end": Row("tools/call", text(lambda: endless(b"a"))),
    "a line without end": Row("tools/call", raw=everywhere(lambda: endless(b"a"))),
    "nothing but spaces": Row("tools/call", raw=everywhere(lambda: endless(b" "))),
    "nothing but line breaks": Row("tools/call", raw=everywhere(lambda: endless(b"\n"))),
    "nothing but line breaks at initialize": Row(
        "initialize", raw=everywhere(lambda: endless(b"\n"))
    ),
    "lines that are no message": Row("tools/call", raw=everywhere(lambda: endless(b"noise\n"))),
    "signs of life and nothing else": Row(
        "tools/call",
        raw={
            "stdio": lambda: endless(b"{}\n"),
            "json": lambda: endless(b" \n"),
            "sse": lambda: endless(b": ping\n\n"),
        },
    ),
    "data without data": Row(
        "tools/call",
        raw={
            "stdio": lambda: endless(b"null\n"),
            "json": lambda: endless(b"null\n"),
            "sse": lambda: endless(b"data:\n"),
        },
    ),
    "events that are none": Row("tools/call", raw=framed(b"hello")),
    "small messages without end": Row("tools/call", raw=framed(NOTICE)),
    "changes without end": Row("unasked", raw=framed(CHANGED)),
    "questions without end": Row("unasked", raw=framed(PING)),
    "questions in place of an answer": Row("tools/call", raw=framed(PING)),
    "a long message unasked": Row(
        "unasked",
        raw={
            "stdio": lambda: itertools.chain(repeated(b"a", 40 * MB), [b"\n"]),
            "json": lambda: repeated(b"a", 40 * MB),
            "sse": lambda: itertools.chain([b"data: "], repeated(b"a", 40 * MB), [b"\n\n"]),
        },
    ),
    "a huge header": Row(
        "tools/call", raw={"stdio": lambda: repeated(b"a", 40 * MB)}, head=40 * MB
    ),
}


def harmless(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a server that means no harm; None for what it does not know."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return SAID
        case "prompts/list":
            return {"prompts": [{"name": "p"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
        case "resources/list":
            return {"resources": [{"uri": "mem://a", "name": "a"}]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            return {"contents": [{"uri": "mem://a", "text": "hello"}]}
        case "ping":
            return {}
        case _:
            return None


def answer(row: Row, message: dict[str, Any]) -> Pieces:
    """Return the pieces of the answer to a request, unframed."""
    method, ident = message["method"], message["id"]
    params = message.get("params") or {}
    if method == row.method and row.pages:
        found = row.message(ident) if row.message is not None else None
        key = json.dumps("again" if row.pages == "same" else f"page {ident}")
        if found is None:
            made = json.dumps(harmless(method, params))[:-1]
            yield f'{{"jsonrpc":"2.0","id":{ident},"result":{made},"nextCursor":{key}}}}}'.encode()
        else:
            *first, last = found
            yield from first[:-1]
            yield first[-1].replace(b"]}", b'],"nextCursor":%s}' % key.encode())
            yield last
        return
    if method == row.method and row.message is not None:
        yield from row.message(ident)
        return
    made = harmless(method, params)
    if made is None:
        error = {"code": -32601, "message": "no such method"}
        yield json.dumps({"jsonrpc": "2.0", "id": ident, "error": error}).encode()
    else:
        yield json.dumps({"jsonrpc": "2.0", "id": ident, "result": made}).encode()


def on_stdio(row: Row) -> None:
    out = sys.stdout.buffer
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "notifications/initialized" and row.method == "unasked":
            out.writelines(row.raw["stdio"]())
        if "id" not in message or method is None:
            continue
        if method == row.method and row.raw:
            out.writelines(row.raw["stdio"]())
        else:
            out.writelines(answer(row, message))
        out.write(b"\n")
        out.flush()


class Squeeze:
    """Compresses pieces; what this machine has no library for is only said to be compressed."""

    def __init__(self, name: str) -> None:
        self._inner = {
            "gzip": lambda: zlib.compressobj(9, zlib.DEFLATED, 31),
            "deflate": lambda: zlib.compressobj(9),
        }.get(name, lambda: None)()

    def piece(self, data: bytes) -> bytes:
        return data if self._inner is None else self._inner.compress(data)

    def now(self) -> bytes:
        return b"" if self._inner is None else self._inner.flush(zlib.Z_SYNC_FLUSH)


async def on_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # One request a connection: it is closed behind each answer.
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        verb, path, *_ = head.split(" ")
        _, name, way = path.split("/")
        row = ROWS[unquote(name)]
        kind, _, coding = way.partition("+")
        size = 0
        for line in head.split("\r\n"):
            if line.lower().startswith("content-length:"):
                size = int(line.split(":")[1])
        message = json.loads(await reader.readexactly(size) or b"null")
        await respond(writer, row, verb, message, kind, coding)
    with contextlib.suppress(OSError):
        writer.close()


async def respond(
    writer: asyncio.StreamWriter, row: Row, verb: str, message: Any, kind: str, coding: str
) -> None:
    listens = verb == "GET"
    if verb == "DELETE" or (listens and not (row.method == "unasked" and kind == "sse")):
        writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        return
    # Without a stream of its own, what comes unasked comes in an answer.
    attacked = listens or message.get("method") == row.method
    attacked |= row.method == "unasked" and kind == "json" and message.get("method") == "tools/call"
    if not listens and ("id" not in message or "method" not in message):
        writer.write(b"HTTP/1.1 202 Taken\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        return
    status = row.status if attacked else 200
    lines = [f"HTTP/1.1 {status} X", "connection: close", "mcp-session-id: one"]
    lines.append(f"content-type: {'application/json' if kind == 'json' else 'text/event-stream'}")
    coding = coding if attacked else ""
    if coding:
        lines.append(f"content-encoding: {coding}")
    writer.write("\r\n".join(lines).encode() + b"\r\n")
    if attacked and row.head:
        writer.write(b"x-huge: ")
        for piece in repeated(b"h", row.head):
            writer.write(piece)
            await writer.drain()
        writer.write(b"\r\n")
    writer.write(b"\r\n")
    squeeze = Squeeze(coding)
    if attacked and kind in row.raw:
        pieces = row.raw[kind]()
    elif kind == "sse":
        pieces = itertools.chain([b"data: "], answer(row, message), [b"\n\n"])
    else:
        pieces = answer(row, message)
    for piece in pieces:
        data = squeeze.piece(piece)
        if data:
            writer.write(data)
        await writer.drain()
        if not data:
            # Compressed, an attack writes so little that nothing else would run.
            await asyncio.sleep(0)
    writer.write(squeeze.now())
    await writer.drain()


async def serve() -> None:
    server = await asyncio.start_server(on_http, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Whoever started it holds its stdin.
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        with contextlib.suppress(BrokenPipeError):
            on_stdio(ROWS[sys.argv[2]])
    else:
        asyncio.run(serve())
