"""What passes between us and a server, counted: the same for each way to it.

A server may send what nobody asked for, and ask us things, faster than anyone can take it in; an
error may come without the id of what it answers. Both show only where all messages pass.

Imports the MCP SDK: import it only behind `link`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from addendum.errors import ContentError
from addendum.tools.mcp.messages import unasked
from addendum.tools.mcp.peer import Peer

MAX_UNANSWERED = 100
"""Requests of a server's that wait for our answer: it may ask without ever reading one."""


class Flow:
    """Watches one connection.

    Args:
        peer: Told why the connection ends, if it is ended here.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._unasked = unasked()
        self._waiting: set[str] = set()
        self._unanswered = 0

    def goes(self, item: Any) -> None:
        """Note a message of ours."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            if isinstance(message.id, int):
                # Others are the SDK's, for streams that stay open.
                self._waiting.add(str(message.id))
        elif isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._waiting.discard(str((message.params or {}).get("requestId")))

    def answered(self) -> None:
        """Note that an answer of ours has been taken."""
        self._unanswered -= 1

    def comes(self, item: Any) -> bool:
        """Note a message of the server's; say whether the connection may go on."""
        if not isinstance(item, SessionMessage):
            return True
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if message.id is None and len(self._waiting) == 1:
                # It could not read the request, or does not care: only one can be meant.
                message.id = next(iter(self._waiting))
            self._waiting.discard(str(message.id))
            return True
        try:
            self._unasked.take(1)
            if isinstance(message, JSONRPCRequest):
                self._unanswered += 1
                if self._unanswered > MAX_UNANSWERED:
                    raise ContentError(f"the server asks more than {MAX_UNANSWERED} things at once")
        except ContentError as error:
            self._peer.broke(error)
            return False
        return True


class Reads:
    """The SDK's stream of what comes, watched."""

    def __init__(self, inner: Any, flow: Flow) -> None:
        self._inner = inner
        self._flow = flow

    @property
    def last_context(self) -> Any:
        """The context of who sent the last message, in this process."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return await self._inner.receive()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        if not self._flow.comes(item):
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Writes:
    """The SDK's stream of what goes, watched."""

    def __init__(self, inner: Any, flow: Flow) -> None:
        self._inner = inner
        self._flow = flow

    async def send(self, item: Any) -> None:
        """Send a message."""
        # Before it goes: the answer may be there before we go on.
        self._flow.goes(item)
        await self._inner.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._flow.answered()

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()
