"""One conversation of a probe: changes made in it, each beside a control, and what became of them.

The control is the same request with the change made unknowable, its type or key replaced by one
that no provider has.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal, TypeAlias, cast

from msgspec import Raw, Struct, structs

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.context.sending import send
from addendum.agent.results import RequestFigures
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.cache.spending import Spending
from addendum.errors import ProviderRefused
from addendum.lines import one_line
from addendum.log.events import RouteDowngrade, ToolResult
from addendum.log.values import ToolSchema, Usage
from addendum.routes import Route
from addendum.stores import open_store
from addendum.tools.functions import FunctionTool
from addendum.wire.apis import wire
from addendum.wire.transport import Reply, Retries, Retry, Transport, TransportSettings, WireRequest

What: TypeAlias = Literal["defer", "add", "redefine", "remove", "readd"]
Verdict: TypeAlias = Literal["taken", "refused", "dropped", "unsure", "in words"]
CacheVerdict: TypeAlias = Literal["kept", "lost", "unknown"]

CONTROL = "addendum_control"
"""A block type and a key that no provider has."""

MARGIN = 8
"""Tokens by which a prompt is longer where a change was understood: far fewer than a definition."""

UNREAD = 64
"""Tokens at the end of a prefix that a provider may leave unread; where it reads in steps, one."""

NAME = "probe_note"

_INSTRUCTIONS = """\
Conversation {marker}. Answer every message with one short word. A message of the form \
`/call NAME JSON` asks you to call the tool NAME with the arguments JSON, once, if you have it; \
if you do not have it, say so in one word. What follows is a list of words and asks nothing."""

_LONG = "The desk is where notes lie until somebody reads them and puts them away again. " * 12
_SHORTEST = len(_LONG) // 10
"""Tokens that a definition surely has: nobody's tokens are ten bytes long on average."""

_WORDS = "time year people way day man thing woman life child world school state family student"


class Check(Struct, frozen=True):
    """One change, and what the endpoint made of it.

    Attributes:
        what: The change.
        verdict: `taken`, `refused`, `dropped` (accepted and not read), `unsure`; or `in words`
            where the wire has no other way to tell of it.
        called: Whether the model called the tool as it was defined last; None if it was not asked.
            Behind a removal: whether it still tried to.
        control: Whether the control was `refused` or `accepted`; None if there was none.
        prompt: Prompt tokens of the request that told of the change.
        control_prompt: Those of the control, where it was accepted.
        cache_read: Tokens that the request read.
        cache: Whether it read all that the request before it had left.
        said: The refusal, or the names of the refused fields.
    """

    what: What
    verdict: Verdict
    called: bool | None = None
    control: Literal["refused", "accepted"] | None = None
    prompt: int | None = None
    control_prompt: int | None = None
    cache_read: int | None = None
    cache: CacheVerdict = "unknown"
    said: str = ""


class Tap:
    """A transport that keeps each request it carries, so that a control can be made of it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.requests: list[WireRequest] = []

    def stream(
        self,
        request: WireRequest,
        *,
        on_retry: Callable[[Retry], None] | None = None,
        retries: Retries | None = None,
    ) -> AbstractAsyncContextManager[Reply]:
        """As `Transport.stream`."""
        self.requests.append(request)
        return self.transport.stream(request, on_retry=on_retry, retries=retries)


class Talk:
    """An open conversation whose tools change."""

    def __init__(self, session: Session, route: Route, tap: Tap, spending: Spending) -> None:
        self._session = session
        self._route = route
        self._tap = tap
        self._spending = spending
        self._version = 1
        self._calls = 0
        self._caches: bool | None = None
        self._last: Usage = Usage()
        self.marker = secrets.token_hex(6)

    @property
    def downgraded(self) -> str:
        """Names of the fields that were refused; empty if none were."""
        events = [each.data for each in self._session.log.events]
        refused = [each.rejected for each in events if isinstance(each, RouteDowngrade)]
        return ", ".join(name for each in refused for name in each)

    async def say(self, text: str) -> tuple[RequestFigures, ...]:
        """Run a turn and return the figures of its requests."""
        self._spending.check()
        result = await self._session.run(text)
        for each in result.requests:
            self._spending.add(each.usage, time.time())
        self._last = result.requests[-1].usage
        return result.requests

    async def begin(self) -> bool | None:
        """Say two things; return whether the second read what the first one left."""
        await self.say(f"Hello, this is {self.marker}.")
        before = self._last
        (second, *_) = await self.say(f"Hello again, this is {self.marker}.")
        self._caches = self._read(before, second.usage)
        return self._caches

    async def check(self, what: What) -> Check:
        """Make a change, tell of it, and ask the model to call the tool."""
        await self._change(what)
        before, sent, results = self._last, len(self._tap.requests), len(self._results())
        field = _field(self._version)
        call = encoding.encode({field: self.marker}).decode()
        try:
            (first, *_) = await self.say(f"/call {NAME} {call}")
        except ProviderRefused as error:
            return refused(what, error)
        if self.downgraded:
            return Check(what, "refused", said=self.downgraded)
        check = judged(what, first.usage, await self.control(what, sent))
        if what in ("add", "redefine") and _less(before, first.usage, _SHORTEST):
            check = structs.replace(check, verdict="dropped")
        if what == "remove" and "remove" not in wire(self._route.wire).unknowable:
            check = structs.replace(check, verdict="in words")
        kept = self._read(before, first.usage) if self._caches else None
        answers = self._results()[results:]
        called = bool(answers) if what == "remove" else any(not each.is_error for each in answers)
        return structs.replace(
            check,
            called=called,
            cache="unknown" if kept is None else "kept" if kept else "lost",
        )

    async def control(self, what: What, sent: int) -> tuple[bool | None, int | None]:
        """Send a request again with its change made unknowable.

        Args:
            what: The change.
            sent: Number of the request among those of this conversation.

        Returns:
            Whether it was accepted, None if there was nothing to replace; and its prompt tokens.
        """
        keys = wire(self._route.wire).unknowable
        key = keys.get(what) or (keys.get("add") if what in ("redefine", "readd") else None)
        request = self._tap.requests[sent]
        at = -1 if key is None else request.body.rfind(key[0])
        if key is None or at < 0:
            return None, None
        other = key[1] % CONTROL.encode()
        body = request.body[:at] + other + request.body[at + len(key[0]) :]
        self._spending.check()
        try:
            answer = await send(
                self._tap.transport,
                wire(self._route.wire),
                structs.replace(request, body=body),
            )
        except ProviderRefused as error:
            refused(what, error)
            return False, None
        self._spending.add(answer.usage, time.time())
        return True, answer.usage.prompt

    async def _change(self, what: What) -> None:
        tools = self._session.tools
        if what == "remove":
            await tools.remove(NAME)
            return
        if what == "redefine":
            self._version += 1
        await tools.add(_tool(NAME, self._version))

    def _results(self) -> list[ToolResult]:
        events = [each.data for each in self._session.log.events]
        return [each for each in events if isinstance(each, ToolResult) and each.name == NAME]

    def _read(self, before: Usage, usage: Usage) -> bool | None:
        if before.prompt is None or usage.cache_read is None:
            return None
        return usage.cache_read >= before.prompt - max(UNREAD, self._route.cache.step)


@asynccontextmanager
async def opened(route: Route, spending: Spending, *, hidden: bool = False) -> AsyncGenerator[Talk]:
    """Open a conversation that nobody had before.

    Args:
        route: The route, with the capabilities that are tried.
        spending: Counts what it costs.
        hidden: Whether the tool list holds a deferred tool from the beginning.
    """
    async with AsyncExitStack() as stack:
        settings = TransportSettings(retries=0)
        tap = Tap(await stack.enter_async_context(Transport(settings)))
        tools = [_tool("probe_clock", 1), *([_tool("probe_hidden", 1, True)] if hidden else [])]
        marker = secrets.token_hex(6)
        agent = Agent(
            route,
            instructions=_instructions(marker, route),
            tools=tools,
            tool_changes="native",
            limits=Limits(steps=4),
            transport=cast("Transport", tap),
        )
        opening = agent.open(f"probe-{marker}", store=await open_store("memory://"))
        yield Talk(await stack.enter_async_context(opening), route, tap, spending)


def _instructions(marker: str, route: Route) -> str:
    """Return instructions that no other conversation has, long enough for the route's cache."""
    # A common word is about one token, and four bytes at least.
    words = _WORDS.split()
    count = max(512, route.cache.minimum) * 3 // 2
    filler = " ".join(words[number % len(words)] for number in range(count))
    return f"{_INSTRUCTIONS.format(marker=marker)}\n{filler}"


def _field(version: int) -> str:
    return "note" if version == 1 else f"note_{version}"


def _tool(name: str, version: int, deferred: bool = False) -> FunctionTool[..., Any]:
    async def run(arguments: dict[str, Any]) -> str:
        return "done"

    field = _field(version)
    schema = {
        "type": "object",
        "properties": {field: {"type": "string", "description": "The note's number."}},
        "required": [field],
        "additionalProperties": False,
    }
    text = f"Puts a note with the given number on the desk, in its version {version}. {_LONG}"
    raw = Raw(encoding.encode(schema))
    return FunctionTool.from_schema(ToolSchema(name, text, raw, deferred or None), run)


def _less(before: Usage, after: Usage, tokens: int) -> bool:
    """Say whether a prompt grew by less than that; what is unknown did not."""
    if before.prompt is None or after.prompt is None:
        return False
    return after.prompt - before.prompt < tokens


def refused(what: What, error: ProviderRefused) -> Check:
    """Return what a refusal says of a change.

    Raises:
        ProviderRefused: It is about the account, the model or the size, and not about the change.
    """
    if error.status not in (400, 422):
        raise error
    return Check(what, "refused", said=one_line(str(error), 500))


def judged(what: What, usage: Usage, control: tuple[bool | None, int | None]) -> Check:
    """Return what a request and its control say of a change."""
    accepted, other = control
    verdict: Verdict = "unsure"
    if accepted is False:
        verdict = "taken"
    elif accepted and usage.prompt is not None and other is not None:
        more = other - usage.prompt if what == "defer" else usage.prompt - other
        verdict = "taken" if more > MARGIN else "unsure" if what == "remove" else "dropped"
    return Check(
        what,
        verdict,
        control=None if accepted is None else "accepted" if accepted else "refused",
        prompt=usage.prompt,
        control_prompt=other,
        cache_read=usage.cache_read,
    )
