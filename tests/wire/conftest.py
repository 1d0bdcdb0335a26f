"""A raw HTTP server on loopback that says exactly the bytes a test gives it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest

Script = Callable[["Server", anyio.abc.SocketStream], Awaitable[bool | None]]


class Server:
    """What the server saw.

    Attributes:
        url: Its address.
        heads: Request heads, in order.
        bodies: Request bodies, in order.
        connections: Connections accepted.
        closed: Set when a client closed a connection in mid-answer.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/x"
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.closed = anyio.Event()

    async def until_closed(self, stream: anyio.abc.SocketStream) -> bool:
        """Wait until the client goes away."""
        try:
            while await stream.receive():
                pass
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.closed.set()
        return False


@asynccontextmanager
async def _serve(script: Script) -> AsyncGenerator[Server]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server = Server(listener.extra(anyio.abc.SocketAttribute.local_port))

    async def handle(stream: anyio.abc.SocketStream) -> None:
        server.connections += 1
        kept = b""
        async with stream:
            try:
                while True:
                    while b"\r\n\r\n" not in kept:
                        kept += await stream.receive()
                    head, _, kept = kept.partition(b"\r\n\r\n")
                    fields = [line.partition(b":") for line in head.lower().split(b"\r\n")]
                    size = next(int(v) for name, _, v in fields if name == b"content-length")
                    while len(kept) < size:
                        kept += await stream.receive()
                    server.heads.append(head)
                    server.bodies.append(kept[:size])
                    kept = kept[size:]
                    if await script(server, stream) is False:
                        return
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        try:
            yield server
        finally:
            group.cancel_scope.cancel()


@pytest.fixture
def serve() -> Any:
    """Return `serve(script)`: an async context manager that gives a `Server`."""
    return _serve
