"""One live connection to an MCP server, spoken through the official SDK.

Imports the SDK, which takes about a second: `mcp_pool` imports this module when a server is first
dialled. Everything here is made and used inside the owner's task group.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, cast, runtime_checkable

import anyio
import anyio.abc
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.transport_context import TransportContext
from pydantic import RootModel, ValidationError

from addendum.encoding import MAX_TEXT, mend_surrogates
from addendum.errors import ConfigurationError, ContentError
from addendum.tools.mcp import (
    MAX_LIST_BYTES,
    MAX_TOOLS,
    NOT_AT_TOP,
    CallOutcome,
    Listing,
    RemoteTool,
    ServerSpec,
    limited_instructions,
    limited_notes,
    lost_outcome,
    one_line,
    remote_tool,
    result_text,
    screen_tool,
)
from addendum.tools.mcp_stdio import Child, run_child
from addendum.version import __version__

# The SDK logs each bad line of a server with a traceback. Where the application set up no logging,
# Python would print those into the user's terminal; with a handler of their own they go where the
# application sends them, or nowhere.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_ClientStreams = Any
"""A pair of the SDK's (read, write) streams."""

MAX_PAGES = 1_000
"""Pages that one list may have."""

_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds, the SDK's own: 300 without a byte end a stream, and a subscription is opened again."""

_FALLBACK = "Server returned an error response"
"""The SDK's message for an HTTP error without a JSON-RPC body."""


class _Object(RootModel[dict[str, Any]]):
    """A result as the SDK checked it, in the protocol's own spelling."""


@runtime_checkable
class InProcess(Protocol):
    """A server in this process that makes its own streams."""

    def connect(self) -> AbstractAsyncContextManager[Any]:
        """Return a context manager of the SDK's (read, write) streams."""
        ...


class Link:
    """A connection that stands: asks for the list, calls, follows changes.

    Attributes:
        lost: Set when the connection has ended.
        child: The server's process, for a server on stdio.
    """

    def __init__(self, spec: ServerSpec, on_change: Callable[[], None]) -> None:
        self._spec = spec
        self._on_change = on_change
        self._session: ClientSession | None = None
        self._notes: list[str] = []
        self._good: list[str] = []
        self.lost = anyio.Event()
        self.child = Child()
        self.http_status: int | None = None

    @property
    def session(self) -> ClientSession:
        """The SDK's session."""
        assert self._session is not None
        return self._session

    async def negotiate(self, session: ClientSession) -> None:
        """Agree on a protocol version: the 2026 one where the server speaks it, else classic."""
        self._session = session
        try:
            await session.discover()
            return
        except (MCPError, ValidationError, RuntimeError):
            # Not this protocol, or not understood: only the handshake can tell.
            pass
        try:
            await session.initialize()
        except MCPError as error:
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            # A slow server answered the first question after we gave it up, and so settled on
            # the 2026 protocol: ask once more.
            await session.discover()

    async def fetch(self) -> Listing:
        """Read the whole list of tools, page by page.

        Raises:
            ContentError: The list is over a limit or never ends.
            MCPError: The server refused.
            pydantic.ValidationError: The answer breaks the protocol.
        """
        notes: list[str] = []
        self._notes = notes
        tools: dict[str, RemoteTool] = {}
        cursor: str | None = None
        size = count = 0
        for _ in range(MAX_PAGES):
            try:
                page = await self.session.list_tools(
                    params=types.PaginatedRequestParams(cursor=cursor)
                )
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND and cursor is None:
                    return Listing((), self._instructions())
                raise
            count += len(page.tools)
            # The SDK leaves out, as the protocol demands, tools with bad `x-mcp-header` fields.
            left = {tool.name for tool in page.tools}
            notes += [
                f"{one_line(name, 80)}: its x-mcp-header fields are not valid"
                for name in self._good
                if name not in left
            ]
            for tool in page.tools:
                given = tool.annotations
                made = remote_tool(
                    tool.name,
                    tool.description or "",
                    tool.input_schema,
                    given and given.model_dump(mode="json", by_alias=True, exclude_none=True),
                )
                size += (
                    len(made.name) + len(made.description.encode()) + len(bytes(made.parameters))
                )
                if tool.name in tools:
                    notes.append(f"{one_line(tool.name, 80)}: listed twice, the first one counts")
                tools.setdefault(tool.name, made)
            if count > MAX_TOOLS or size > MAX_LIST_BYTES:
                raise ContentError(
                    f"the list is over {MAX_TOOLS:,} tools or {MAX_LIST_BYTES:,} bytes"
                )
            cursor = page.next_cursor
            if not cursor:
                ordered = sorted(tools.values(), key=lambda tool: tool.name)
                return Listing(tuple(ordered), self._instructions(), limited_notes(notes))
        raise ContentError(f"the list has more than {MAX_PAGES:,} pages")

    def _instructions(self) -> str | None:
        return limited_instructions(self.session.instructions)

    def screen(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Return a raw `tools/list` result with the good tools only; the SDK refuses all for one.

        What the screen leaves out, such as output schemas, the SDK then does not check either.
        """
        if not isinstance(raw.get("tools"), list):
            return raw
        good: list[dict[str, Any]] = []
        for entry in cast("list[object]", raw["tools"]):
            try:
                good.append(screen_tool(entry))
            except ContentError as error:
                self._notes.append(str(error))
            else:
                self._relieved(cast("dict[str, Any]", entry))
        self._good = [entry["name"] for entry in good]
        return {**raw, "tools": good}

    def _relieved(self, entry: dict[str, Any]) -> None:
        found = [keyword for keyword in NOT_AT_TOP if keyword in entry["inputSchema"]]
        if found:
            name = one_line(entry["name"], 80)
            self._notes.append(f"{name}: {', '.join(found)} at the top of its schema is left out")

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallOutcome:
        """Call a tool and tell its answer; every failure but a cancellation is an outcome."""
        name = self._spec.name
        # Not the session's `call_tool`: for a tool that is not in its list (a catalogue may know
        # more) it reads the list again before it hands out the answer.
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=arguments)
        )
        try:
            try:
                result = (await self.session.send_request(request, _Object)).root
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                # The 2026 protocol's remedy: our copy of the schema is old; list, then once more.
                await self.fetch()
                result = (await self.session.send_request(request, _Object)).root
        except MCPError as error:
            return self._refusal(error)
        except (ValueError, ContentError, RuntimeError) as error:
            # Not pydantic's errors alone: the SDK also writes what it has read, to check it.
            reason = one_line(str(error), 200)
            return CallOutcome(
                f"server {name} sent a malformed answer: {reason}", True, "malformed"
            )
        if result.get("resultType") == "input_required":
            return CallOutcome(
                f"server {name} asked for input in the middle of the call, which nobody can give; "
                "try arguments that need no question",
                True,
                "input_required",
            )
        return CallOutcome(
            result_text(result.get("content", ()), result.get("structuredContent")),
            result.get("isError") is True,
        )

    def _refusal(self, error: MCPError) -> CallOutcome:
        name = self._spec.name
        if error.code == types.CONNECTION_CLOSED:
            return lost_outcome(name)
        if error.message == "Session terminated":
            # The SDK's message for a 404: the server forgot this session. A new one must begin.
            self.lost.set()
            return lost_outcome(name)
        return CallOutcome(f"server {name} refused the call: {self.reason(error)}", True, "refused")

    async def alive(self) -> bool:
        """Ask for a sign of life; any answer is one, also that this protocol has no ping."""
        try:
            await self.session.send_ping()
        except MCPError as error:
            return error.code != types.CONNECTION_CLOSED
        except ValueError:
            return True
        return True

    async def follow(self, delay: float) -> None:
        """Report changes of the list from a `subscriptions/listen` stream, where there is one.

        Classic notifications arrive without it. A stream that ends is opened again after `delay`
        seconds, doubling; nothing is replayed, so each opening counts as a change.
        """
        wait = delay
        while True:
            try:
                async with listen(self.session, tools_list_changed=True) as stream:
                    if not stream.honored.tools_list_changed:
                        return
                    self._on_change()
                    async for _ in stream:
                        wait = delay
                        self._on_change()
            except ListenNotSupportedError:
                return
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            await anyio.sleep(wait)
            wait = min(wait * 2, 30.0)

    async def on_message(self, message: IncomingMessage) -> None:
        """Take what the server sends unasked."""
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    async def on_response(self, response: httpx2.Response) -> None:
        """Mend a body before it is read; keep a failure's status, which the SDK does not tell."""
        if response.status_code >= 400:
            self.http_status = response.status_code
        if "content-encoding" not in response.headers:
            response.stream = _MendedStream(cast("httpx2.AsyncByteStream", response.stream))

    def reason(self, error: BaseException) -> str:
        """Return in one line, without secrets, why something failed."""
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        text = str(error)
        if isinstance(error, MCPError) and error.message == _FALLBACK and self.http_status:
            text = f"HTTP status {self.http_status}"
        elif isinstance(error, TimeoutError):
            text = "no answer in time"
        elif isinstance(error, OSError) and error.strerror:
            text = error.strerror
        told = self._spec.redact(one_line(text or type(error).__name__))
        tail = self._spec.redact(one_line(self.child.tail.decode(errors="replace")[-300:]))
        return f"{told} (its last words: {tail})" if tail else told


class _Screened:
    """The SDK's dispatcher, with lists screened before the SDK checks them, and its end told."""

    def __init__(self, inner: Dispatcher[TransportContext], link: Link) -> None:
        self._inner = inner
        self._link = link

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raw = await self._inner.send_raw_request(method, params, opts)
        return self._link.screen(raw) if method == "tools/list" else raw

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
    link: Link, spec: ServerSpec, *, grace: float, within: float
) -> AsyncGenerator[None]:
    """Connect `link`, agree on the protocol, and close the connection on the way out.

    Args:
        link: A new one.
        spec: The server.
        grace: Seconds that a child has to end.
        within: Seconds that connecting may take.

    Raises:
        Exception: It cannot be connected, or the connection broke: errors of the operating
            system, httpx2 or the SDK, alone or in a group. `Link.reason` puts them in words.
    """
    # The limit must enclose the scopes of the transport, so it is lifted instead of left.
    parting = False
    with anyio.CancelScope(deadline=anyio.current_time() + within) as limit:
        async with AsyncExitStack() as stack:
            reads, writes = await stack.enter_async_context(_streams(spec, link, grace))
            inner: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(reads, writes)
            session = await stack.enter_async_context(
                ClientSession(
                    dispatcher=_Screened(inner, link),
                    message_handler=link.on_message,
                    client_info=types.Implementation(name="addendum", version=__version__),
                )
            )
            await link.negotiate(session)
            limit.deadline = math.inf
            try:
                yield
            finally:
                # Parting (over HTTP, a request that ends the session) is bounded too.
                limit.deadline = anyio.current_time() + grace
                parting = True
    if limit.cancelled_caught and not parting:
        raise TimeoutError


def _streams(
    spec: ServerSpec, link: Link, grace: float
) -> AbstractAsyncContextManager[_ClientStreams]:
    if spec.server is not None:
        return _in_process(spec.server)
    if spec.url is not None:
        return _http(spec, link)
    if spec.command:
        return run_child(spec, link.child, grace)
    raise ConfigurationError(f"server {spec.name} has no command, url or server; give it one")


def _in_process(server: object) -> AbstractAsyncContextManager[_ClientStreams]:
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
async def serve_in_memory(server: Server[Any]) -> AsyncGenerator[_ClientStreams]:
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
async def _http(spec: ServerSpec, link: Link) -> AsyncGenerator[_ClientStreams]:
    assert spec.url is not None
    hooks: dict[str, list[Callable[..., Awaitable[Any]]]] = {"response": [link.on_response]}
    async with (
        httpx2.AsyncClient(
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
