"""Opens a connection to an MCP server and closes it again.

Imports the SDK, which takes about a second: `connection` imports this module when a server is
first dialled.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from pydantic import ValidationError

from addendum.tools.mcp.flow import Flow, Reads, Writes
from addendum.tools.mcp.link import Link, broken
from addendum.tools.mcp.transport import client_streams
from addendum.tools.mcp.values import ServerSpec
from addendum.version import __version__

__all__ = ["Link", "open_link"]


SILENCE = 2.0
"""Seconds until a server that says nothing to the first question is told the classic greeting. One
that only starts slowly reads both, and what it answers first counts for nothing."""


class _Screened:
    """The SDK's dispatcher, with results screened before the SDK checks them, and its end told."""

    def __init__(self, inner: Dispatcher[TransportContext], link: Link) -> None:
        self._inner = inner
        self._link = link

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raw = await self._inner.send_raw_request(method, params, opts)
        return self._link.screened(method, raw)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await self._inner.run(
                on_request, on_notify, on_notify_intercept, task_status=task_status
            )
        finally:
            self._link.lost.set()


@asynccontextmanager
async def open_link(
    link: Link, spec: ServerSpec, *, grace: float, within: float, handshake_first: bool = False
) -> AsyncGenerator[None]:
    """Connect `link`, agree on the protocol, and close the connection on the way out.

    Args:
        link: A new one.
        spec: The server.
        grace: Seconds that a child has to end.
        within: Seconds that connecting may take.
        handshake_first: Begin with the classic greeting, for a server that takes no other.

    Raises:
        Exception: It cannot be connected, or the connection broke: errors of the operating
            system, httpx2 or the SDK, alone or in a group. `Link.reason` puts them in words.
    """
    # The limit must enclose the scopes of the transport, so it is lifted instead of left.
    parting = False
    with anyio.CancelScope(deadline=anyio.current_time() + within) as limit:
        async with AsyncExitStack() as stack:
            reads, writes = await stack.enter_async_context(client_streams(spec, link.peer, grace))
            flow = Flow(link.peer)
            inner: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
                Reads(reads, flow), Writes(writes, flow)
            )
            session = await stack.enter_async_context(
                ClientSession(
                    dispatcher=_Screened(inner, link),
                    message_handler=link.on_message,
                    client_info=types.Implementation(name="addendum", version=__version__),
                )
            )
            await _negotiate(link, session, handshake_first=handshake_first)
            limit.deadline = math.inf
            try:
                yield
            finally:
                # Parting (over HTTP, a request that ends the session) is bounded too.
                limit.deadline = anyio.current_time() + grace
                parting = True
    if limit.cancelled_caught and not parting:
        raise TimeoutError


async def _negotiate(link: Link, session: ClientSession, *, handshake_first: bool) -> None:
    """Agree on a protocol version: the 2026 one where the server speaks it, else classic.

    Many classic servers take a first message that is not `initialize` badly: they end, or say
    nothing. Whoever dials may then begin anew, with the handshake first.

    Args:
        link: Told of the session, and that it was asked something.
        session: The SDK's session.
        handshake_first: Do not ask for the 2026 protocol before.
    """
    link.begin(session)
    silent = False
    if not handshake_first:
        link.asked = True
        try:
            with anyio.fail_after(SILENCE):
                await session.discover()
            return
        except TimeoutError:
            silent = True
        except (MCPError, ValidationError, RuntimeError):
            # Not this protocol, or not understood: only the handshake can tell.
            pass
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION and not silent:
            raise
        if link.lost.is_set() or broken(error):
            raise
        # A slow server answered the first question after we gave it up, and so settled on
        # the 2026 protocol: ask once more.
        await session.discover()
