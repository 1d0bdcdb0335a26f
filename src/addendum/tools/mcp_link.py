"""One live connection to an MCP server, spoken through the official SDK.

Imports the SDK, which takes about a second: it is imported when a server is first dialled.
Everything here is made and used inside the owner's task group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from pydantic import RootModel, ValidationError

from addendum.errors import ContentError
from addendum.tools.mcp import (
    MAX_LIST_BYTES,
    MAX_TOOLS,
    CallOutcome,
    Listing,
    RemoteTool,
    ServerSpec,
    limited_instructions,
    limited_notes,
    lost_outcome,
    one_line,
    remote_tool,
    screen_tool,
)
from addendum.tools.mcp_offers import (
    MAX_OFFERS,
    RemotePrompt,
    RemoteResource,
    prompt_text,
    resource_outcome,
    screen_prompts,
    screen_resources,
)
from addendum.tools.mcp_results import read_content
from addendum.tools.mcp_stdio import Child
from addendum.tools.mcp_transport import mend

# The SDK logs each bad line of a server with a traceback. Where the application set up no logging,
# Python would print those into the user's terminal; with a handler of their own they go where the
# application sends them, or nowhere.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

MAX_PAGES = 1_000
"""Pages that one list may have."""

MAX_OFFER_PAGES = 50
"""Pages that are read of a list of prompts or resources."""

Report = Callable[[float, float | None, str | None], None]
"""Told how far a call is, of how much, and in what words."""

_FALLBACK = "Server returned an error response"
"""The SDK's message for an HTTP error without a JSON-RPC body."""


class _Absent(Exception):
    """The server has no such method."""


class _Object(RootModel[dict[str, Any]]):
    """A result as the SDK checked it, in the protocol's own spelling."""


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
        self._good = [entry["name"] for entry in good]
        return {**raw, "tools": good}

    async def call(
        self, tool: str, arguments: dict[str, Any], report: Report | None = None
    ) -> CallOutcome:
        """Call a tool and tell its answer; every failure but a cancellation is an outcome.

        Args:
            tool: The server's own name for it.
            arguments: What it is called with.
            report: Told of the call's progress.
        """
        # Not the session's `call_tool`: for a tool that is not in its list (a catalogue may know
        # more) it reads the list again before it hands out the answer.
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=arguments)
        )
        result = await self._ask(request, report)
        if isinstance(result, CallOutcome):
            return result
        failed = result.get("isError") is True
        text, media = read_content(
            result.get("content", ()), result.get("structuredContent"), failed=failed
        )
        return CallOutcome(text, failed, media=media)

    async def prompts(self) -> tuple[RemotePrompt, ...] | CallOutcome:
        """Return the server's prompts, or why they cannot be had."""
        found = await self._pages(types.ListPromptsRequest, "prompts")
        return found if isinstance(found, CallOutcome) else screen_prompts(found)

    async def prompt(self, name: str, arguments: dict[str, str]) -> CallOutcome:
        """Return a prompt filled in, as the text of a user message."""
        params = types.GetPromptRequestParams(name=name, arguments=arguments or None)
        result = await self._ask(types.GetPromptRequest(params=params))
        if isinstance(result, CallOutcome):
            return result
        return CallOutcome(prompt_text(result.get("messages", ())))

    async def resources(self) -> tuple[RemoteResource, ...] | CallOutcome:
        """Return the server's resources, templates behind them, or why they cannot be had."""
        found = await self._pages(types.ListResourcesRequest, "resources")
        if isinstance(found, CallOutcome):
            return found
        more = await self._pages(types.ListResourceTemplatesRequest, "resourceTemplates")
        return screen_resources([*found, *([] if isinstance(more, CallOutcome) else more)])

    async def resource(self, uri: str) -> CallOutcome:
        """Return what a resource holds."""
        params = types.ReadResourceRequestParams(uri=uri)
        result = await self._ask(types.ReadResourceRequest(params=params))
        if isinstance(result, CallOutcome):
            return result
        return resource_outcome(result.get("contents", ()))

    async def _pages(
        self, request: Callable[..., types.Request[Any, Any]], key: str
    ) -> list[dict[str, Any]] | CallOutcome:
        """Return the entries of a list, page by page; none where the server has no such list."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_OFFER_PAGES):
            try:
                page = await self._ask(
                    request(params=types.PaginatedRequestParams(cursor=cursor)), absent=True
                )
            except _Absent:
                return found
            if isinstance(page, CallOutcome):
                return page
            found += page.get(key, ())
            cursor = page.get("nextCursor")
            if not cursor or len(found) >= MAX_OFFERS:
                break
        return found

    async def _ask(
        self,
        request: types.Request[Any, Any],
        report: Report | None = None,
        *,
        absent: bool = False,
    ) -> dict[str, Any] | CallOutcome:
        """Return the server's result, or what is told of its failure."""
        name = self._spec.name
        try:
            try:
                result = await self._send(request, report)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                # The 2026 protocol's remedy: our copy of the schema is old; list, then once more.
                await self.fetch()
                result = await self._send(request, report)
        except MCPError as error:
            if absent and error.code == types.METHOD_NOT_FOUND:
                raise _Absent from None
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
        return result

    async def _send(
        self, request: types.Request[Any, Any], report: Report | None
    ) -> dict[str, Any]:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            if report is not None:
                report(progress, total, message)

        # Only who listens asks to be told.
        told = None if report is None else heard
        answer = await self.session.send_request(request, _Object, progress_callback=told)
        return answer.root

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
        mend(response)

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
