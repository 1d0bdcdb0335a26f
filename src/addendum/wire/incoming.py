"""The bytes of an answer as they come in: its events, and the limits that they have.

Limits stand behind decompression, which gives its bytes in bounded pieces.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Literal, Protocol, Self, TypeAlias

import anyio
import httpx2
import msgspec

from addendum.errors import StreamBroken
from addendum.lines import one_line
from addendum.wire.aws_event_stream import AwsEventParser
from addendum.wire.events import keeps_alive
from addendum.wire.sse import SseEvent, SseParser

Framing: TypeAlias = Literal["sse", "aws"]
"""How the events of an answer are framed: server-sent events, or AWS's binary event stream."""

_HEAD = 1024
"""Bytes of an answer that are kept for the case that it holds no event."""


class Bounds(Protocol):
    """Limits of an answer; see `addendum.wire.transport.TransportSettings`."""

    @property
    def max_answer(self) -> int:
        """Bytes of all events together."""
        ...

    @property
    def quiet(self) -> float:
        """Seconds of keep-alives alone."""
        ...

    @property
    def max_quiet(self) -> int:
        """Bytes of keep-alives alone."""
        ...


class Body:
    """Collects a body that is JSON: one event at its end, or one for each item of an array.

    A body that says it is JSON and is a stream all the same is read as one.

    Args:
        limit: Bytes that it may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._stream: SseParser | None = None
        self.pending = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take more of the body in.

        Raises:
            StreamBroken: It is over the limit.
        """
        if self._stream is None and not self.pending:
            chunk = chunk.lstrip()
            if chunk and chunk[:1] not in b'{["\xef':
                self._stream = SseParser(self._limit)
        if self._stream is not None:
            return self._stream.feed(chunk)
        self._parts.append(chunk)
        self.pending += len(chunk)
        if self.pending > self._limit:
            raise StreamBroken(
                f"the answer is over the limit of {self._limit:,} bytes; "
                "ask for a shorter answer or raise max_event"
            )
        return []

    def close(self) -> list[SseEvent]:
        """Return the events that the end of the body completes."""
        if self._stream is not None:
            return self._stream.close()
        body = b"".join(self._parts).strip()
        self.pending = 0
        if body[:1] == b"[":
            with contextlib.suppress(msgspec.DecodeError):
                listed = msgspec.json.decode(body, type=list[msgspec.Raw])
                return [SseEvent(None, bytes(raw)) for raw in listed]
        return [SseEvent(None, body)] if body else []


def framer(media: str, framing: Framing, limit: int) -> SseParser | AwsEventParser | Body:
    """Return what makes events of an answer, by what it says that it is."""
    if media == "application/json":
        return Body(limit)
    return AwsEventParser(limit) if framing == "aws" else SseParser(limit)


class Events:
    """The events of a response, read as they are asked for.

    Attributes:
        status: The HTTP status.
        headers: Its headers.
        head: The first bytes of its body.
    """

    def __init__(
        self,
        response: httpx2.Response,
        headers: Mapping[str, str],
        host: str,
        settings: Bounds,
        parser: SseParser | AwsEventParser | Body,
    ) -> None:
        self.status = response.status_code
        self.headers = headers
        self._response = response
        self._host = host
        self._chunks = response.aiter_bytes()
        self._parser = parser
        self._settings = settings
        self._left = settings.max_answer
        self._quiet = 0
        self._since = anyio.current_time()
        self.head = b""
        self._ready: deque[SseEvent] = deque()
        self._ended = False

    @property
    def empty(self) -> bool:
        """Whether there is no further event."""
        return self._ended and not self._ready

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SseEvent:
        if not self._ready:
            try:
                await self.prime()
            except httpx2.TransportError as error:
                self._ended = True
                raise lost(error, self._host, 1, begun=True) from error
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.popleft()

    async def prime(self) -> None:
        """Read until an event is ready or the stream has ended.

        Keep-alives are no events, whether they are comments or data: a stream of nothing else has
        limits of its own.
        """
        while not (self._ready or self._ended):
            chunk = await self._chunk()
            self.head = self.head or chunk[:_HEAD]
            events = self._parser.close() if self._ended else self._parser.feed(chunk)
            self._ready.extend(events)
            self._quiet += len(chunk)
            if not all(map(keeps_alive, events)):
                self._quiet, self._since = 0, anyio.current_time()
            if self._quiet - self._parser.pending > self._settings.max_quiet:
                raise self._silent(f"{self._settings.max_quiet:,} bytes")

    def _silent(self, of: str) -> StreamBroken:
        self._ended = True
        return StreamBroken(f"{self._host} sent {of} of keep-alives and no event; send it again")

    async def _chunk(self) -> bytes:
        """Return more of the answer, decompressed in bounded pieces; nothing at its end."""
        left = self._since + self._settings.quiet - anyio.current_time()
        try:
            with anyio.fail_after(max(left, 0)):
                chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._ended = True
            return b""
        except TimeoutError:
            raise self._silent(f"{self._settings.quiet:g} s") from None
        except httpx2.DecodingError as error:
            self._ended = True
            raise StreamBroken(
                f"{self._host} sent an answer that cannot be decompressed; send it again"
            ) from error
        self._left -= len(chunk)
        if self._left < 0:
            self._ended = True
            raise StreamBroken(
                "the answer is over the limit of max_answer; ask for a shorter answer"
            )
        return chunk

    async def aclose(self) -> None:
        """Close the response; there are no further events."""
        self._ended = True
        self._ready.clear()
        await close(self._response, self._chunks)


async def close(
    response: httpx2.Response, chunks: AsyncGenerator[bytes, None] | None = None
) -> None:
    """Give a connection back, or close it if its answer was not read to the end.

    Shielded, so that a cancelled task leaves the client usable; bounded, since closing has
    nothing to wait for.
    """
    with anyio.move_on_after(2, shield=True):
        if chunks is not None:
            await chunks.aclose()
        await response.aclose()


def lost(
    error: httpx2.TransportError, host: str, attempt: int, *, begun: bool = False
) -> StreamBroken:
    """Return the error for a connection that failed, and whether to try again."""
    reason = type(error).__name__
    if isinstance(error, httpx2.ReadTimeout):
        message = f"{host} fell silent for longer than the read timeout; send it again"
    elif begun:
        message = f"the connection to {host} broke in mid-answer ({reason}); send it again"
    else:
        times = f" {attempt} times" if attempt > 1 else ""
        said = one_line(str(error), 200)
        message = (
            f"no answer from {host}: the connection failed{times} "
            f"({reason}{f': {said}' if said else ''}); check the network and the base URL"
        )
    again = not isinstance(error, httpx2.ReadTimeout | httpx2.UnsupportedProtocol)
    failure = StreamBroken(message, again=again)
    failure.__cause__ = error
    return failure
