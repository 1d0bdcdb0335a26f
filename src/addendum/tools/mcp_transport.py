"""The ways to an MCP server: a child on stdio, streamable HTTP, a server in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast, runtime_checkable

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams

from addendum import net
from addendum.encoding import MAX_TEXT, mend_surrogates
from addendum.errors import ConfigurationError, ContentError
from addendum.tools.mcp import ServerSpec
from addendum.tools.mcp_stdio import Child, run_child

ClientStreams = Any
"""A pair of the SDK's (read, write) streams."""

OnResponse = Callable[[httpx2.Response], Awaitable[None]]
"""Takes an HTTP response whose body has not been read."""

_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds, the SDK's own: 300 without a byte end a stream, and a subscription is opened again."""


@runtime_checkable
class InProcess(Protocol):
    """A server in this process that makes its own streams."""

    def connect(self) -> AbstractAsyncContextManager[Any]:
        """Return a context manager of the SDK's (read, write) streams."""
        ...


def client_streams(
    spec: ServerSpec, child: Child, on_response: OnResponse, grace: float
) -> AbstractAsyncContextManager[ClientStreams]:
    """Return a context manager of the SDK's streams to a server.

    Args:
        spec: The server.
        child: Told of the process, for a server on stdio.
        on_response: Given each HTTP response before its body is read.
        grace: Seconds that a child has to end.

    Raises:
        ConfigurationError: The spec does not say how to reach it, or names no MCP server.
    """
    if spec.server is not None:
        return _in_process(spec.server)
    if spec.url is not None:
        return _http(spec, on_response)
    if spec.command:
        return run_child(spec, child, grace)
    raise ConfigurationError(f"server {spec.name} has no command, url or server; give it one")


def _in_process(server: object) -> AbstractAsyncContextManager[ClientStreams]:
    if isinstance(server, MCPServer):
        # The SDK's own client takes the inner server the same way; nothing public leads to it.
        server = cast("Any", server)._lowlevel_server
    if isinstance(server, Server):
        return serve_in_memory(cast("Server[Any]", server))
    if isinstance(server, InProcess):
        return server.connect()
    raise ConfigurationError(
        f"{type(server).__name__} is no MCP server; pass an mcp Server, MCPServer, or an object "
        "with connect()"
    )


@asynccontextmanager
async def serve_in_memory(server: Server[Any]) -> AsyncGenerator[ClientStreams]:
    """Run an SDK server in this task and yield a client's streams to it."""
    async with (
        create_client_server_memory_streams() as (client, served),
        anyio.create_task_group() as tasks,
    ):
        options = server.create_initialization_options()
        tasks.start_soon(server.run, *served, options)
        try:
            yield client
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _http(spec: ServerSpec, on_response: OnResponse) -> AsyncGenerator[ClientStreams]:
    assert spec.url is not None
    hooks: dict[str, list[Callable[..., Awaitable[Any]]]] = {"response": [on_response]}
    async with (
        net.client(
            # Bodies are mended below as plain text.
            headers={**dict(spec.headers), "accept-encoding": "identity"},
            timeout=_HTTP_TIMEOUT,
            event_hooks=hooks,
        ) as client,
        streamable_http_client(
            spec.url, http_client=client, max_sse_event_size=MAX_TEXT
        ) as streams,
    ):
        yield streams


def mend(response: httpx2.Response) -> None:
    """Have a body's lines bounded and mended as it is read."""
    if "content-encoding" not in response.headers:
        response.stream = _MendedStream(cast("httpx2.AsyncByteStream", response.stream))


class _MendedStream(httpx2.AsyncByteStream):
    """A response body whose lines are bounded and hold no lone surrogates.

    The SDK's JSON reader refuses a whole message for one of them.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # An event ends with a line break, and a body with the stream: whole lines lose no time.
        pending = bytearray()
        async for chunk in self._inner:
            pending += chunk
            end = pending.rfind(b"\n") + 1
            if end:
                yield mend_surrogates(bytes(pending[:end]))
                del pending[:end]
            if len(pending) > MAX_TEXT:
                raise ContentError(f"the server sent a message of more than {MAX_TEXT:,} bytes")
        if pending:
            yield mend_surrogates(bytes(pending))

    async def aclose(self) -> None:
        await self._inner.aclose()
