"""The event loop's connections to MCP servers: shared by spec, counted, closed when idle."""

from __future__ import annotations

import asyncio
import importlib.util

import anyio.lowlevel
import msgspec

from addendum.checked import Wait, checks_arguments
from addendum.errors import ConfigurationError, MissingExtra, install_hint
from addendum.tools.mcp.connection import Connection, Timings
from addendum.tools.mcp.values import ServerSpec

__all__ = ["Connection", "ServerPool", "Timings", "default_pool"]


class ServerPool:
    """All connections of one event loop, by the key of their spec.

    Args:
        idle_seconds: A connection without users is closed after this.
        timings: The other waits; `idle_seconds` wins over its `idle`.
    """

    @checks_arguments
    def __init__(self, *, idle_seconds: Wait | None = None, timings: Timings | None = None) -> None:
        given = timings or Timings()
        self.timings = (
            given if idle_seconds is None else msgspec.structs.replace(given, idle=idle_seconds)
        )
        self._connections: dict[str, Connection] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._expired: list[Connection] = []
        self.closed = False

    async def acquire(self, spec: ServerSpec) -> Connection:
        """Return the connection for `spec`, counted; it is dialled when it is first needed.

        Raises:
            MissingExtra: The MCP SDK is not installed.
            ConfigurationError: The spec does not say how to reach the server, or the pool is
                closed.
        """
        if importlib.util.find_spec("mcp") is None:
            raise MissingExtra(f"MCP servers need the MCP SDK; {install_hint('mcp')}")
        if self.closed:
            raise ConfigurationError("this pool of MCP servers is closed; make a new one")
        key = spec.key()
        if (timer := self._expiries.pop(key, None)) is not None:
            timer.cancel()
        connection = self._connections.get(key)
        if connection is None or connection.is_closed:
            connection = self._connections[key] = Connection(spec, self.timings)
        connection.users += 1
        return connection

    async def release(self, connection: Connection) -> None:
        """Give a connection back; without users it is closed after `timings.idle` seconds."""
        connection.users -= 1
        key = connection.spec.key()
        if connection.users == 0 and self._connections.get(key) is connection:
            self._expiries[key] = asyncio.get_running_loop().call_later(
                self.timings.idle, self._expire, key
            )

    def _expire(self, key: str) -> None:
        self._expiries.pop(key, None)
        connection = self._connections.pop(key)
        connection.close()
        self._expired = [c for c in self._expired if not c.is_closed] + [connection]

    async def aclose(self) -> None:
        """Close all connections, whoever uses them, and wait until their processes are gone."""
        self.closed = True
        for timer in self._expiries.values():
            timer.cancel()
        self._expiries.clear()
        connections = [*self._connections.values(), *self._expired]
        self._connections.clear()
        self._expired.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.closed()


_default: anyio.lowlevel.RunVar[ServerPool] = anyio.lowlevel.RunVar("addendum_mcp_pool")


def default_pool() -> ServerPool:
    """Return the pool of the running event loop, made when first asked for.

    It needs no closing: when the loop ends, its tasks are cancelled, and each ends its server.
    """
    try:
        pool = _default.get()
        if not pool.closed:
            return pool
    except LookupError:
        pass
    pool = ServerPool()
    _default.set(pool)
    return pool
