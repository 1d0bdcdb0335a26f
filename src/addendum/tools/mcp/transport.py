"""The ways to an MCP server: a child on stdio, streamable HTTP, a server in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast, runtime_checkable

import anyio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams

from addendum.errors import ConfigurationError
from addendum.tools.mcp.http import http_streams
from addendum.tools.mcp.peer import Peer
from addendum.tools.mcp.stdio import run_child
from addendum.tools.mcp.values import ServerSpec

ClientStreams = Any
"""A pair of the SDK's (read, write) streams."""


@runtime_checkable
class InProcess(Protocol):
    """A server in this process that makes its own streams."""

    def connect(self) -> AbstractAsyncContextManager[Any]:
        """Return a context manager of the SDK's (read, write) streams."""
        ...


def client_streams(
    spec: ServerSpec, peer: Peer, grace: float
) -> AbstractAsyncContextManager[ClientStreams]:
    """Return a context manager of the SDK's streams to a server.

    Args:
        spec: The server.
        peer: Filled with what is known of the other side.
        grace: Seconds that a child has to end.

    Raises:
        ConfigurationError: The spec does not say how to reach it, or names no MCP server.
    """
    if spec.server is not None:
        return _in_process(spec.server)
    if spec.url is not None:
        return http_streams(spec, peer)
    if spec.command:
        return run_child(spec, peer, grace)
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
