"""HTTP to a provider: one POST, its answer as events, retries before the first one.

A request is ready bytes; nothing here looks into a body. Retried, while no event has arrived:
failures to connect, a connection that breaks or ends, 408, 409, 429 and 5xx. Not retried: silence
beyond the read timeout or nothing but keep-alives (the request may be running, and be billed), a
redirect, what is spent, and whatever a provider marks `x-should-retry: false`. Whoever reads the
events and finds an error in them goes on with the same attempts (`addendum.wire.retries`).

An endpoint that answers with JSON where a stream was asked for gives one event: its body.

No header and no query of an address ever appears in an error: both carry keys.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from types import TracebackType
from typing import NamedTuple, Protocol, Self, runtime_checkable

import anyio
import httpx2
from msgspec import Struct

from addendum import net
from addendum.checked import checks_arguments
from addendum.errors import ConfigurationError, ProviderError, StreamBroken
from addendum.lines import one_line
from addendum.wire.incoming import Events, Framing, close, framer, lost
from addendum.wire.limits import TransportSettings
from addendum.wire.refusal import MAX_MESSAGE, http_error, refusal_text
from addendum.wire.retries import Retries, Retry
from addendum.wire.sse import SseEvent

ACCEPTED: Mapping[Framing, str] = {
    "sse": "text/event-stream",
    "aws": "application/vnd.amazon.eventstream",
}
"""What a request says that it takes, by the framing of its answer."""

__all__ = [
    "ACCEPTED",
    "Carrier",
    "Framing",
    "Reply",
    "Retries",
    "Retry",
    "SseEvent",
    "Transport",
    "TransportSettings",
    "WireRequest",
    "refusal_text",
]

_DEFAULT_HEADERS = (
    ("accept", "text/event-stream"),
    ("accept-encoding", "identity"),
    ("content-type", "application/json"),
    ("user-agent", "addendum"),
)
_SECRET_HEADERS = frozenset(
    {"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "cookie"}
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~\t]*[!-~])?|")
_ERROR_BODY = 64 * 1024


class WireRequest(Struct, frozen=True):
    """One request, ready to leave.

    Attributes:
        url: The full address.
        headers: Names and values in order. Values hold secrets; the repr leaves them out.
        body: The JSON body.
        credential: Name of the variable that the key was read from, for advice on 401 and 403.
        framing: How the events of its answer are framed.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    credential: str | None = None
    framing: Framing = "sse"

    def __repr__(self) -> str:
        return f"WireRequest({_host(self.url)!r}, {len(self.body):,} bytes)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("host", _host(self.url)), ("bytes", len(self.body))]


class Reply(NamedTuple):
    """An answer that has begun.

    Attributes:
        status: The HTTP status, 2xx.
        headers: The response's headers, names in lower case.
        events: Its events; they end where the connection ends properly.
        retries: The attempts so far, to go on with if an event turns out to be an error.
    """

    status: int
    headers: Mapping[str, str]
    events: AsyncIterator[SseEvent]
    retries: Retries | None = None


@runtime_checkable
class Carrier(Protocol):
    """Carries requests: a `Transport`, or what stands around one."""

    def stream(
        self, request: WireRequest, *, on_retry: Callable[[Retry], None] | None = None
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request and give its answer, as `Transport.stream`."""
        ...


class Transport:
    """Sends requests over one HTTP client, which keeps connections open between them.

    May be used by many tasks at once. Close it, or use it as an async context manager.

    Args:
        settings: Timeouts, retries and sizes.
        client: A client to use instead of an own one; it stays open when the transport closes.
        sleep: Waits some seconds between attempts.
        jitter: Gives a number from 0 to 1.
        clock: Gives the time in seconds since the epoch, to read a `retry-after` date.
    """

    @checks_arguments
    def __init__(
        self,
        settings: TransportSettings | None = None,
        *,
        client: httpx2.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings or TransportSettings()
        self._owned = client is None
        self._client = client or net.client(
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0
            )
        )
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client, unless it was given."""
        if self._owned:
            await self._client.aclose()

    @asynccontextmanager
    async def stream(
        self,
        request: WireRequest,
        *,
        on_retry: Callable[[Retry], None] | None = None,
        retries: Retries | None = None,
    ) -> AsyncGenerator[Reply]:
        """Send a request and give its answer, once the first event is here.

        Leaving the context, by cancellation too, closes the response at once; a connection whose
        answer was read to its end is used again.

        Args:
            request: What to send.
            on_retry: Called before each wait for another attempt.
            retries: The attempts so far; new ones if None.

        Yields:
            Status, headers and events. Iterating the events raises `StreamBroken` if the
            connection breaks, falls silent, or passes a limit.

        Raises:
            ConfigurationError: The address, a header or the proxy is not fit for HTTP.
            ProviderRefused: The provider refused the request (3xx, 4xx).
            ProviderBusy: 408, 409, 429 or 5xx, after the retries.
            StreamBroken: No connection, or it broke before the first event, after the retries.
        """
        outgoing = self._outgoing(request)
        attempts = retries or Retries(
            self._settings,
            sleep=self._sleep,
            jitter=self._jitter,
            clock=self._clock,
            on_retry=on_retry,
        )
        while True:
            events = await self._attempt(request, outgoing, attempts.attempt)
            if isinstance(events, Events):
                break
            await attempts.wait(events.error, events.headers)
        try:
            yield Reply(events.status, events.headers, events, attempts)
        finally:
            await events.aclose()

    async def _attempt(
        self, request: WireRequest, outgoing: tuple[tuple[str, str], ...], attempt: int
    ) -> Events | _Failure:
        """Send once. What cannot be tried again, and cancellation, is raised."""
        host = _host(request.url)
        settings = self._settings
        timeout = httpx2.Timeout(settings.read, connect=settings.connect, write=settings.write)
        response: httpx2.Response | None = None
        try:
            response = await self._client.send(
                self._client.build_request(
                    "POST",
                    request.url,
                    headers=list(outgoing),
                    content=request.body,
                    timeout=timeout,
                ),
                stream=True,
                follow_redirects=False,
            )
            headers = {name.lower(): value for name, value in response.headers.items()}
            if not response.is_success:
                body = _redacted(await self._error_body(response), request)
                error = http_error(
                    response.status_code,
                    body,
                    host=host,
                    attempts=attempt,
                    credential=request.credential,
                )
                if headers.get("x-should-retry", "").lower() == "false":
                    error.again = False
                await close(response)
                return _Failure(error, headers)
            media = headers.get("content-type", "").partition(";")[0].strip().lower()
            if media == "text/html":
                body = _redacted(await self._error_body(response), request)
                said = one_line(body.decode("utf-8", "replace"), MAX_MESSAGE)
                raise StreamBroken(
                    f"{host} answered with {media} instead of an event stream: {said}; "
                    "check the base URL and that the endpoint streams",
                    status=response.status_code,
                )
            parser = framer(media, request.framing, settings.max_event)
            events = Events(response, headers, host, settings, parser)
            await events.prime()
            if events.empty:
                said = one_line(_redacted(events.head, request).decode("utf-8", "replace"), 300)
                await events.aclose()
                what = f"answered without an event{f': {said}' if said else ''}"
                advice = "send the request again or check the base URL"
                error = StreamBroken(f"{host} {what}; {advice}", again=True)
                return _Failure(error, headers)
        except httpx2.TransportError as error:
            if response is not None:
                await close(response)
            return _Failure(lost(error, host + net.through(request.url), attempt), {})
        except BaseException:
            if response is not None:
                await close(response)
            raise
        return events

    def _outgoing(self, request: WireRequest) -> tuple[tuple[str, str], ...]:
        """Return the headers to send, checked: HTTP's own errors would quote a bad value."""
        try:
            url = httpx2.URL(request.url)
        except (httpx2.InvalidURL, ValueError):
            url = httpx2.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigurationError("the base URL is no http(s) address; set it to a full one")
        for name, value in request.headers:
            if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
                advice = f"check {request.credential}" if request.credential else "check the key"
                raise ConfigurationError(
                    f"the header {one_line(name, 60)} holds a character that HTTP does not allow "
                    f"(a line break or a blank at its end, for instance); {advice}"
                )
        given = {name.lower() for name, _ in request.headers}
        defaults = tuple(pair for pair in _DEFAULT_HEADERS if pair[0] not in given)
        return (*defaults, *request.headers)

    async def _error_body(self, response: httpx2.Response) -> bytes:
        """Read the beginning of a body that is no event stream; what cannot be read is left out."""
        parts: list[bytes] = []
        size = 0
        with anyio.move_on_after(self._settings.read):
            try:
                async with aclosing(response.aiter_bytes()) as chunks:
                    async for part in chunks:
                        parts.append(part)
                        size += len(part)
                        if size >= _ERROR_BODY:
                            break
            except (httpx2.TransportError, httpx2.DecodingError):
                pass
        return b"".join(parts)[:_ERROR_BODY]


class _Failure(NamedTuple):
    error: ProviderError
    headers: Mapping[str, str]


def _host(url: str) -> str:
    """Return host and port of an address: all of it that may appear in a message."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        return "the base URL"
    return f"{parsed.host}:{parsed.port}" if parsed.port else parsed.host


def _redacted(body: bytes, request: WireRequest) -> bytes:
    """Return a body without the request's own secrets, in case the provider quotes them."""
    for name, value in request.headers:
        if name.lower() in _SECRET_HEADERS:
            for secret in {value, value.split()[-1] if value else ""}:
                if len(secret) >= 8:
                    body = body.replace(secret.encode(), b"[redacted]")
    return body
