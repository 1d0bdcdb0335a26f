"""An MCP server over streamable HTTP: each message a POST, its answer JSON or a stream of events.

Not the SDK's own client, which holds a body of any size, decompressed and read as a whole, and does
not tell what an HTTP error was: here every message is made by `messages`, and a request that
did not come through is answered with an error that carries a `Refused`.

What the protocol demands: the session's id and the protocol's version go with each request; a
stream that ended early is resumed by its last event's id; a redirect is followed within the
origin, method kept; a session is ended by DELETE. Imports the MCP SDK: import it only behind
`link`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, cast

import anyio
import httpx2
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from addendum import net
from addendum.errors import ContentError
from addendum.lines import one_line
from addendum.tools.mcp.framing import Event, Events, decompressor
from addendum.tools.mcp.messages import (
    LINE,
    MAX_MESSAGE,
    Allowance,
    Refused,
    noise,
    read_messages,
    unreadable,
    unusable,
)
from addendum.tools.mcp.peer import Peer
from addendum.tools.mcp.values import ServerSpec

Incoming = MemoryObjectSendStream[SessionMessage | Exception]

_CONNECT = 30.0
"""Seconds to connect, and between two bytes that we send. Between two bytes of an answer there is
no limit: whoever waits for it has one."""

_QUIET = 300.0
"""Seconds without a byte that end a stream nobody waits for; it is opened again."""

_NOTICE = 30.0
"""Seconds that a message without an answer may take to be taken."""

_ERROR_BODY = 64 * 1024
_REDIRECTS = 5
_RESUMES = 2
_SHORTEST_PAUSE, _FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0, 30.0
_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"


class _Place:
    """Where a stream of events stands: enough to resume it."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.pause = _FIRST_PAUSE
        self.broken = ""


class _Post:
    """A request that waits for its answer."""

    def __init__(self, *, modern: bool) -> None:
        self.scope = anyio.CancelScope()
        self.modern = modern


@asynccontextmanager
async def http_streams(spec: ServerSpec, peer: Peer) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield message streams to a server over HTTP; end its session on the way out.

    Args:
        spec: A server with a `url`.
        peer: Told of the session, and why the streams end where it was not us.

    Raises:
        ConfigurationError: The environment's proxy cannot be used.
    """
    assert spec.url is not None
    async with _client(spec) as client, anyio.create_task_group() as tasks:
        incoming_in, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, outgoing_out = anyio.create_memory_object_stream[SessionMessage](0)
        endpoint = _Endpoint(spec.url, client, tasks, incoming_in, peer)
        tasks.start_soon(endpoint.write, outgoing_out)
        try:
            try:
                yield incoming, outgoing
            finally:
                await endpoint.part()
        finally:
            tasks.cancel_scope.cancel()
            for stream in (incoming_in, incoming, outgoing, outgoing_out):
                stream.close()


def _client(spec: ServerSpec) -> httpx2.AsyncClient:
    return net.client(
        headers={**dict(spec.headers), "accept-encoding": "identity"}, verify=net.trusted()
    )


class _Endpoint:
    """One server's endpoint, and the session that it gave us."""

    def __init__(
        self,
        url: str,
        client: httpx2.AsyncClient,
        tasks: TaskGroup,
        incoming: Incoming,
        peer: Peer,
    ) -> None:
        self._url = url
        self._client = client
        self._tasks = tasks
        self._incoming = incoming
        self._peer = peer
        self._session: str | None = None
        self._version: str | None = None
        self._posts: dict[int | str, _Post] = {}
        self._broken = False

    async def write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Send what comes, each message as it comes; answers are waited for beside."""
        async with outgoing:
            async for item in outgoing:
                await self._send(item)

    async def part(self) -> None:
        """End the session, if there is one and the server can be reached."""
        if self._session is None or self._broken:
            return
        with suppress(httpx2.HTTPError, httpx2.InvalidURL):
            async with self._exchange("DELETE", self._headers(), read=_NOTICE):
                pass

    async def _send(self, item: SessionMessage) -> None:
        message = item.message
        own: dict[str, str] = {}
        if isinstance(item.metadata, ClientMessageMetadata):
            own = item.metadata.headers or {}
        if isinstance(message, JSONRPCRequest):
            if message.method == "initialize":
                # It agrees on the version: what the question before it named does not count.
                self._version = None
            self._version = own.get("MCP-Protocol-Version", own.get(_VERSION, self._version))
            post = _Post(modern=self._version in MODERN_PROTOCOL_VERSIONS)
            self._posts[message.id] = post
            self._tasks.start_soon(self._ask, message, own, post)
        elif isinstance(message, JSONRPCNotification) and message.method.endswith("/cancelled"):
            self._cancel(message, own)
        else:
            await self._tell(message, own)
            if (
                isinstance(message, JSONRPCNotification)
                and message.method == "notifications/initialized"
                and self._session is not None
            ):
                self._tasks.start_soon(self._listen)

    def _cancel(self, message: JSONRPCNotification, own: dict[str, str]) -> None:
        post = self._posts.get(cast("Any", message.params or {}).get("requestId"))
        modern = self._version in MODERN_PROTOCOL_VERSIONS if post is None else post.modern
        if not modern:
            self._tasks.start_soon(self._tell, message, own, post)
        elif post is not None:
            # In the 2026 protocol the end of the stream says it.
            post.scope.cancel()

    async def _tell(
        self, message: JSONRPCMessage, own: dict[str, str], post: _Post | None = None
    ) -> None:
        """Send what has no answer; then nobody waits for `post` any more."""
        try:
            with anyio.move_on_after(_NOTICE):
                async with self._exchange("POST", self._headers(own), message):
                    pass
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            self._break(error)
        finally:
            if post is not None:
                post.scope.cancel()

    async def _ask(self, message: JSONRPCRequest, own: dict[str, str], post: _Post) -> None:
        """Send a request and give what answers it to the reader, an error if nothing does."""
        headers = self._headers(own)
        # A stream that nobody waits for must be given up by itself.
        read = _QUIET if message.method == "subscriptions/listen" else None
        reached = False
        try:
            with post.scope:
                async with self._exchange("POST", headers, message, read) as response:
                    reached = True
                    await self._answer(message, response)
        except ContentError as error:
            await self._give(unusable(message.id, str(error)))
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            never = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
            sent = reached or not isinstance(error, (*never, httpx2.UnsupportedProtocol))
            self._peer.refused |= not sent
            why = Refused(None, sent)
            await self._resolve(message, CONNECTION_CLOSED, str(error), why)
            self._break(error)
        finally:
            if self._posts.get(message.id) is post:
                del self._posts[message.id]

    async def _answer(self, message: JSONRPCRequest, response: httpx2.Response) -> None:
        status = response.status_code
        self._peer.refused = status >= 400
        if status >= 400:
            await self._refusal(message, response)
            return
        if response.has_redirect_location:
            where = response.headers["location"].partition("?")[0]
            why = f"it redirects to {one_line(where, 200)}; use that address if it is meant"
            await self._resolve(message, INVALID_REQUEST, why, Refused(status))
            return
        if message.method == "initialize":
            self._session = response.headers.get(_SESSION) or None
            self._peer.session = self._session is not None
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await self._follow(message, response)
            return
        body = await _body(response)
        try:
            messages = read_messages(body)
        except ContentError as error:
            if kind in ("", "application/json"):
                raise
            raise ContentError(f"{kind or 'no type'} and no message: {error}") from None
        finally:
            del body
        answered = False
        for made in messages:
            answered = await self._give(made, message) or answered
        if not answered:
            raise ContentError("there is no answer in it")

    async def _follow(self, message: JSONRPCRequest, response: httpx2.Response) -> None:
        """Read the events of an answer to its end; where it breaks off, resume it."""
        place = _Place()
        answered = await self._events(response, place, message)
        failures = 0
        while not answered and place.last is not None and failures < _RESUMES:
            await anyio.sleep(place.pause)
            failures += 1
            with suppress(httpx2.HTTPError):
                headers = {**self._headers(), "last-event-id": place.last}
                async with self._exchange("GET", headers) as again:
                    if not _streams(again):
                        break
                    failures = 0
                    answered = await self._events(again, place, message)
        if not answered:
            why = place.broken or "the stream ended without an answer"
            await self._resolve(message, CONNECTION_CLOSED, why, Refused(200))

    async def _listen(self) -> None:
        """Follow what the server says unasked, where it has such a stream."""
        place = _Place()
        opened = False
        pause = _FIRST_PAUSE
        while True:
            more = {} if place.last is None else {"last-event-id": place.last}
            with suppress(httpx2.HTTPError, ContentError):
                async with self._exchange("GET", {**self._headers(), **more}, read=_QUIET) as again:
                    if _streams(again):
                        opened, pause = True, _FIRST_PAUSE
                        await self._events(again, place)
                    elif opened and again.status_code in (400, 404):
                        # It had the stream and no longer knows the session: it was started anew.
                        self._break(ConnectionError("the server no longer knows the session"))
                        return
                    elif again.status_code < 500 and again.status_code not in (409, 429):
                        return
            await anyio.sleep(max(pause, place.pause))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _events(
        self, response: httpx2.Response, place: _Place, message: JSONRPCRequest | None = None
    ) -> bool:
        """Give on what a stream says, up to the answer to `message`; say whether that came.

        Raises:
            ContentError: It is over a limit.
        """
        events = Events(noise())
        try:
            async for piece in _pieces(response):
                for event in events.feed(piece):
                    if await self._event(event, place, message, events.noise):
                        return True
            for event in events.last():
                if await self._event(event, place, message, events.noise):
                    return True
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            place.broken = str(error)
        return False

    async def _event(
        self, event: Event, place: _Place, message: JSONRPCRequest | None, allowed: Allowance
    ) -> bool:
        place.last = event.ident or place.last
        if event.retry is not None:
            place.pause = max(_SHORTEST_PAUSE, event.retry)
        if not event.data:
            return False
        try:
            messages = read_messages(event.data)
        except ContentError as error:
            failed = unreadable(event.data, event.data, str(error))
            if failed is None:
                allowed.take(LINE + len(event.data))
                return False
            messages = [failed]
        event.data = bytearray()
        answered = False
        for made in messages:
            answered = await self._give(made, message) or answered
        return answered

    async def _refusal(self, message: JSONRPCRequest, response: httpx2.Response) -> None:
        status = response.status_code
        body = bytearray()
        with suppress(httpx2.HTTPError, httpx2.StreamError, ContentError):
            body = await _body(response, _ERROR_BODY, cut=True)
        error = _error_of(body)
        if error is None:
            # Without a session it is the endpoint's word for a method that it does not have.
            code = METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR
            plain = "html" not in response.headers.get("content-type", "")
            words = one_line(body.decode(errors="replace"), 200) if plain else ""
            text = f"HTTP status {status}: {words}" if words else f"HTTP status {status}"
            await self._resolve(message, code, text, Refused(status))
        elif error.code == UNSUPPORTED_PROTOCOL_VERSION:
            # The SDK reads in its data which versions the server knows.
            await self._give(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
        else:
            refused = Refused(status, code=error.code)
            await self._resolve(message, error.code, error.message, refused)

    async def _resolve(self, message: JSONRPCRequest, code: int, text: str, why: Refused) -> None:
        error = ErrorData(code=code, message=text or "no reason given", data=why)
        await self._give(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))

    async def _give(self, made: JSONRPCMessage, asked: JSONRPCRequest | None = None) -> bool:
        """Give a message to the reader; say whether it answers what was asked."""
        answers = False
        if asked is not None and isinstance(made, JSONRPCResponse | JSONRPCError):
            # Whatever id it bears: one that could not read the request has none to give.
            made.id = asked.id
            answers = True
        # Nobody reads any more where the connection is being closed.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._incoming.send(SessionMessage(made))
        return answers

    def _break(self, error: Exception) -> None:
        self._broken = True
        self._peer.broke(error)
        self._incoming.close()

    def _headers(self, own: dict[str, str] | None = None) -> dict[str, str]:
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        if self._session is not None:
            headers[_SESSION] = self._session
        if self._version is not None:
            headers[_VERSION] = self._version
        return headers | {name.lower(): value for name, value in (own or {}).items()}

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        headers: dict[str, str],
        message: JSONRPCMessage | None = None,
        read: float | None = None,
    ) -> AsyncGenerator[httpx2.Response]:
        """Send a request and yield the response, its body unread."""
        body = None
        if message is not None:
            body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        timeout = httpx2.Timeout(_CONNECT, read=read)
        request = self._client.build_request(
            method, self._url, headers=headers, content=body, timeout=timeout
        )
        response = await self._client.send(request, stream=True)
        for _ in range(_REDIRECTS):
            following = response.next_request
            if following is None or not _same_origin(response.request, following):
                break
            await response.aclose()
            response = await self._client.send(following, stream=True)
        try:
            yield response
        finally:
            await response.aclose()


def _same_origin(sent: httpx2.Request, following: httpx2.Request) -> bool:
    """Whether a redirect may be followed: our headers were meant for this origin alone.

    One that changes the method has lost the message.
    """
    old, new = sent.url, following.url
    if following.method != sent.method or new.userinfo not in (b"", old.userinfo):
        return False
    upgraded = (old.scheme, new.scheme) == ("http", "https") and old.port is new.port is None
    same = (old.scheme, old.port) == (new.scheme, new.port)
    return old.host == new.host and (same or upgraded)


def _streams(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "")
    return response.status_code == 200 and kind.lower().startswith("text/event-stream")


async def _pieces(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield a body decompressed, in small pieces."""
    read = decompressor(response.headers.get("content-encoding", ""))
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            for piece in read(chunk):
                yield piece


async def _body(
    response: httpx2.Response, limit: int = MAX_MESSAGE, *, cut: bool = False
) -> bytearray:
    """Return a body of at most `limit` bytes; one that is longer is cut or refused.

    Raises:
        ContentError: It is longer.
    """
    body = bytearray()
    async with aclosing(_pieces(response)) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > limit:
                if cut:
                    return body[:limit]
                raise ContentError(f"a message of more than {limit:,} bytes")
    return body


def _error_of(body: bytearray) -> ErrorData | None:
    """Return the protocol's error in the body of an HTTP error, if there is one."""
    try:
        made = read_messages(body)[0]
    except ContentError:
        return None
    return made.error if isinstance(made, JSONRPCError) else None
