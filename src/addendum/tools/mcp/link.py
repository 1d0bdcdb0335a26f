"""One live connection to an MCP server, spoken through the official SDK.

Imports the SDK, which takes about a second: it is imported when a server is first dialled.
Everything here is made and used inside the owner's task group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import RootModel

from addendum.encoding import encode
from addendum.errors import ContentError, leaves
from addendum.lines import one_line
from addendum.tools.mcp.messages import Refused, Unusable
from addendum.tools.mcp.offers import (
    MAX_OFFERS,
    RemotePrompt,
    RemoteResource,
    prompt_text,
    resource_outcome,
    screen_prompts,
    screen_resources,
)
from addendum.tools.mcp.peer import Peer
from addendum.tools.mcp.raw import BARE, discovery, handshake, husk, tools_page
from addendum.tools.mcp.results import call_outcome, objects
from addendum.tools.mcp.sessions import Verdict, judge
from addendum.tools.mcp.values import (
    MAX_LIST_BYTES,
    MAX_TOOLS,
    CallOutcome,
    Listing,
    RemoteTool,
    ServerSpec,
    limited_instructions,
    limited_notes,
    lost_outcome,
    remote_tool,
    screen_tool,
)

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


def _asked(request: types.Request[Any, Any]) -> str:
    params = request.params
    return f"{request.method} {getattr(params, 'name', '') or getattr(params, 'uri', '')}".strip()


def broken(error: MCPError) -> bool:
    """Whether an error stands for the end of the way to the server, and is no answer of its."""
    why = error.error.data
    if isinstance(why, Refused):
        return why.code is None and (why.status is None or why.status < 400)
    # Servers use the same number for errors of their own.
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


def _has_headers(entry: dict[str, Any]) -> bool:
    return b"x-mcp-header" in encode(entry["inputSchema"])


_held: ContextVar[list[dict[str, Any]] | None] = ContextVar("addendum_mcp_raw", default=None)
"""Takes the raw result of the request that is sent in this context."""


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


class _Absent(Exception):
    """The server has no such method."""


class _Object(RootModel[dict[str, Any]]):
    """A result as the SDK checked it, in the protocol's own spelling."""


class Link:
    """A connection that stands: asks for the list, calls, follows changes.

    Args:
        spec: The server.
        on_change: Called when the server says that its list changed.
        own_words: What was asked that speaks of sessions in answers of its own: these end none.

    Attributes:
        lost: Set when the connection has ended.
        again: What was asked before, of a server that no longer knew us.
        asked: Whether it was asked something before the handshake.
        stood: Whether the handshake was made.
        peer: What is known of the other side.
    """

    def __init__(
        self, spec: ServerSpec, on_change: Callable[[], None], own_words: set[str] | None = None
    ) -> None:
        self._spec = spec
        self._own_words = set[str]() if own_words is None else own_words
        self._on_change = on_change
        self._session: ClientSession | None = None
        self._notes: list[str] = []
        self._good: list[dict[str, Any]] = []
        self._greeting: list[str] = []
        self.lost = anyio.Event()
        self.again: set[str] = set()
        self.asked = False
        self.stood = False
        self.peer = Peer()

    @property
    def broke_off(self) -> bool:
        """Whether it ended before the handshake was made, though the server could be reached."""
        return not self.stood and not self.peer.refused

    @property
    def session(self) -> ClientSession:
        """The SDK's session."""
        assert self._session is not None
        return self._session

    def begin(self, session: ClientSession) -> None:
        """Take the session that everything is asked through."""
        self._session = session

    async def fetch(self) -> Listing:
        """Read the whole list of tools, page by page.

        Raises:
            ContentError: The list is over a limit or never ends.
            MCPError: The server refused.
            pydantic.ValidationError: The answer breaks the protocol.
        """
        notes: list[str] = [*self._greeting]
        self._notes = notes
        tools: dict[str, RemoteTool] = {}
        cursors: set[str | None] = {None}
        cursor: str | None = None
        size = count = 0
        while len(cursors) <= MAX_PAGES:
            self._good = []
            try:
                page = await self.session.list_tools(
                    params=types.PaginatedRequestParams(cursor=cursor)
                )
            except MCPError as error:
                verdict = self._judged(error, "tools/list")
                absent = error.code == types.METHOD_NOT_FOUND and verdict == "answer"
                if absent and cursor is None:
                    return Listing((), self._instructions())
                raise
            good, self._good = self._good, []
            # The SDK leaves out, as the protocol demands, tools with bad `x-mcp-header` fields.
            kept = {tool.name for tool in page.tools}
            for entry in good:
                name = entry["name"]
                if _has_headers(entry) and name not in kept:
                    notes.append(f"{one_line(name, 80)}: its x-mcp-header fields are not valid")
                    continue
                made = remote_tool(
                    name,
                    entry.get("description", ""),
                    entry["inputSchema"],
                    entry.get("annotations"),
                )
                count += 1
                size += len(name) + len(made.description.encode()) + len(bytes(made.parameters))
                if name in tools:
                    notes.append(f"{one_line(name, 80)}: listed twice, the first one counts")
                tools.setdefault(name, made)
            if count > MAX_TOOLS or size > MAX_LIST_BYTES:
                raise ContentError(
                    f"the list is over {MAX_TOOLS:,} tools or {MAX_LIST_BYTES:,} bytes"
                )
            cursor = page.next_cursor
            if cursor and cursor in cursors:
                notes.append("the list goes round in a circle; what was read of it counts")
            if not cursor or cursor in cursors:
                ordered = sorted(tools.values(), key=lambda tool: tool.name)
                return Listing(tuple(ordered), self._instructions(), limited_notes(notes))
            cursors.add(cursor)
        raise ContentError(f"the list has more than {MAX_PAGES:,} pages")

    def _instructions(self) -> str | None:
        return limited_instructions(self.session.instructions)

    def screened(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Return what the SDK is shown of a raw result; the result itself is kept."""
        match method:
            case "initialize":
                return handshake(raw, HANDSHAKE_PROTOCOL_VERSIONS, self._greeting)
            case "server/discover":
                return discovery(raw)
            case "tools/list":
                return tools_page(self._screen(raw), raw.get("nextCursor"))
            case _:
                shown = husk(method)
                if shown is None:
                    return raw
                holder = _held.get()
                if holder is not None:
                    holder.append(raw)
                return shown

    def _screen(self, raw: dict[str, Any]) -> list[dict[str, Any]]:
        """Keep the good tools of a list; return those whose fields become headers.

        One that is not good costs itself. The SDK would refuse all of them, and needs only those.

        Raises:
            ContentError: It is no list, or over the limit.
        """
        listed: Any = raw.pop("tools", raw.pop(BARE, None))
        if listed is None:
            self._notes.append("an answer without a list of tools; it counts as empty")
        if isinstance(listed, dict):
            # One tool, or tools by name.
            alone = cast("dict[str, Any]", listed)
            listed = [alone] if isinstance(alone.get("name"), str) else list(alone.values())
        if not isinstance(listed, list | None):
            raise ContentError("it is no list of tools")
        entries = cast("list[Any]", listed or [])
        if len(entries) > MAX_TOOLS:
            raise ContentError(f"the list is over {MAX_TOOLS:,} tools")
        for place, entry in enumerate(entries):
            # Not held any longer than needed: a list can be large.
            entries[place] = None
            try:
                self._good.append(screen_tool(entry))
            except ContentError as error:
                self._notes.append(str(error))
        return [entry for entry in self._good if _has_headers(entry)]

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
        return call_outcome(result)

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
        return CallOutcome(prompt_text(result))

    async def resources(self) -> tuple[RemoteResource, ...] | CallOutcome:
        """Return the server's resources, templates behind them, or why they cannot be had."""
        pages = await self._pages(types.ListResourcesRequest, "resources")
        if isinstance(pages, CallOutcome):
            return pages
        more = await self._pages(types.ListResourceTemplatesRequest, "resourceTemplates")
        return screen_resources([*pages, *([] if isinstance(more, CallOutcome) else more)])

    async def resource(self, uri: str) -> CallOutcome:
        """Return what a resource holds."""
        params = types.ReadResourceRequestParams(uri=uri)
        result = await self._ask(types.ReadResourceRequest(params=params))
        if isinstance(result, CallOutcome):
            return result
        return resource_outcome(result)

    async def _pages(
        self, request: Callable[..., types.Request[Any, Any]], key: str
    ) -> list[dict[str, Any]] | CallOutcome:
        """Return the entries of a list, page by page; none where the server has no such list."""
        pages: list[dict[str, Any]] = []
        cursors: set[str | None] = {None}
        cursor: str | None = None
        while len(cursors) <= MAX_OFFER_PAGES and len(pages) < MAX_OFFERS:
            try:
                page = await self._ask(
                    request(params=types.PaginatedRequestParams(cursor=cursor)), absent=True
                )
            except _Absent:
                return pages
            if isinstance(page, CallOutcome):
                return page
            pages += objects(page.get(key, page.get(BARE)))
            following = page.get("nextCursor")
            if not isinstance(following, str) or not following or following in cursors:
                break
            cursor = following
            cursors.add(cursor)
        return pages

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
            verdict = self._judged(error, _asked(request))
            if absent and verdict == "answer" and error.code == types.METHOD_NOT_FOUND:
                raise _Absent from None
            return self._refusal(error, verdict, _asked(request))
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
        raw: list[dict[str, Any]] = []
        token = _held.set(raw)
        try:
            await self.session.send_request(request, _Object, progress_callback=told)
        finally:
            _held.reset(token)
        return raw[0]

    def _refusal(self, error: MCPError, verdict: Verdict, asked: str) -> CallOutcome:
        """Return what is told of an error in place of an answer."""
        name = self._spec.name
        why = error.error.data
        if isinstance(why, Unusable):
            return CallOutcome(
                f"server {name} sent a malformed answer: {error.message}", True, "malformed"
            )
        if verdict == "unsure":
            return lost_outcome(name, self.reason(error) if isinstance(why, Refused) else None)
        text, code = f"server {name} refused the call", "refused"
        if broken(error):
            text, code = f"server {name} is not reachable", "unreachable"
        anew = asked if verdict == "anew" else ""
        return CallOutcome(f"{text}: {self.reason(error)}", True, code, anew=anew)

    def _judged(self, error: MCPError, asked: str) -> Verdict:
        """Say what an error means; where a new connection must begin, this one is lost."""
        why = error.error.data if isinstance(error.error.data, Refused) else None
        if broken(error):
            if why is None or why.status is None:
                self.lost.set()
            return "unsure" if why is None or why.sent else "anew"
        verdict = judge(
            status=why and why.status,
            session=self.peer.session,
            code=error.code if why is None else why.code,
            words=error.message,
        )
        if verdict == "anew" and (asked in self.again or asked in self._own_words):
            # Said to a new session as well, these are no words of a server that forgot us.
            self._own_words.add(asked)
            return "answer"
        if verdict != "answer":
            self.peer.broke(error)
            self.lost.set()
        return verdict

    async def alive(self) -> bool:
        """Ask for a sign of life; any answer is one, also that this protocol has no ping."""
        try:
            await self.session.send_ping()
        except MCPError as error:
            return self._judged(error, "ping") == "answer"
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

    def why(self) -> str:
        """Return in one line why the connection ended."""
        return self.reason(self.peer.fault or ConnectionError("the connection ended"))

    def reason(self, error: BaseException) -> str:
        """Return in one line, without secrets, why something failed."""
        told = dict.fromkeys(self._spec.redact(_words(leaf)) for leaf in leaves(error))
        text = one_line("; ".join(told))
        # Its words as a whole first: half a credential is known to nobody.
        words = self._spec.redact(self.peer.tail.decode(errors="replace"))
        tail = one_line(words[-300:])
        return f"{text} (its last words: {tail})" if tail else text
