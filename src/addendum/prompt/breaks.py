"""Breaks of the prefix, found before they happen and named by their cause.

Where a request stops extending the one before it is a plain comparison of two prompts. Why is
read from the log: a break is declared only with a cause that stands there. A difference without
one is not declared, so that whoever judges the requests sees it as what it is, a fault of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Raw, Struct, structs

from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    CompactionSummary,
    DeveloperMessage,
    EndSeed,
    Event,
    RequestHeader,
    RequestSent,
    Rewind,
    RouteDowngrade,
    Span,
    StepEnd,
    SystemMessage,
    TurnEnd,
    UserMessage,
)
from addendum.log.values import BreakReason, Config, ToolAddition, ToolRemoval
from addendum.prompt.blocks import Block, Change, Marks, Native, Prompt, Text
from addendum.prompt.projector import REASONING
from addendum.prompt.updates import plain

Place: TypeAlias = Literal["tools", "system", "messages", "settings"]

_IN_PREFIX = ("provider", "model", "effort")
"""Settings that are part of what a provider caches. Temperature, output limit and stop words are
none: no provider lists them among what changes a prefix (platform.claude.com, "Prompt caching";
developers.openai.com, "Prompt caching")."""


class Difference(Struct, frozen=True):
    """Where a request stops extending another.

    Attributes:
        at: First part that differs, in cache order.
        seq: For messages, the event of the first block that differs.
        reasoning: Whether reasoning stands behind it.
        detail: For settings, which.
    """

    at: Place
    seq: int | None = None
    reasoning: bool = False
    detail: str = ""


def difference(
    before: Prompt,
    after: Prompt,
    config_before: Config,
    config_after: Config,
    *,
    keyed: bool = False,
) -> Difference | None:
    """Return where `after` stops extending `before`; marks and a moved tail do not count.

    Args:
        before: The last request on the route.
        after: The coming one.
        config_before: Settings of the last one.
        config_after: Settings of the coming one.
        keyed: Whether the route takes a cache key: under another one nothing is read.
    """
    found = _first_difference(before, after)
    changed = [
        name for name in _IN_PREFIX if getattr(config_before, name) != getattr(config_after, name)
    ]
    if before.context.betas != after.context.betas:
        changed.append("betas")
    if before.images != after.images:
        changed.append("images")
    switched = before.context.caching != after.context.caching
    # The key comes and goes with it; without marks nothing is read.
    if switched and (keyed or before.marks != Marks()):
        changed.append("caching")
    elif keyed and after.context.caching and before.cache_key != after.cache_key:
        changed.append("cache key")
    if not changed:
        return found
    detail = ", ".join(changed)
    return Difference(
        "settings", found.seq if found else None, bool(found and found.reasoning), detail
    )


def _first_difference(before: Prompt, after: Prompt) -> Difference | None:
    bound = after.context.reasoning_bound
    if before.context.rendering != after.context.rendering or (
        before.tools is not after.tools and _immediate(before) != _immediate(after)
    ):
        return Difference("tools", reasoning=bound and _reasons(after.blocks))
    if [text.text for text in before.system] != [text.text for text in after.system]:
        return Difference("system", reasoning=bound and _reasons(after.blocks))
    if shapes := (set(before.context.avoids) ^ set(after.context.avoids)) - {"usage-option"}:
        # The prompt's own texts have the shape of parts.
        at: Place = "system" if "text-parts" in shapes else "messages"
        return Difference(at, reasoning=bound and _reasons(after.blocks))
    if before.chain == after.chain:
        start = before.count
        ours: Sequence[Block] = before.open
        theirs: Sequence[Block] = [*after.settled[start : after.count], *after.open]
    else:
        ours, theirs = before.blocks, after.blocks
    places: Sequence[int] = range(len(theirs))
    said = theirs
    if bound and after.context.tail == "moved":
        # Reasoning goes with the tail of the turn it was made in.
        ours = [_paired(block) for block in ours if not _is_reasoning(block)]
        places = [place for place, block in enumerate(theirs) if not _is_reasoning(block)]
        said = [_paired(theirs[place]) for place in places]
    for index, block in enumerate(ours):
        if index >= len(said):
            return Difference("messages", block.seq)
        if said[index] != block:
            behind = theirs[places[index] :]
            return Difference("messages", block.seq, reasoning=bound and _reasons(behind))
    return None


def _immediate(prompt: Prompt) -> list[str]:
    return [tool.identity() for tool in prompt.tools if not tool.defer_loading]


def _is_reasoning(block: Block) -> bool:
    return isinstance(block, Native) and block.kind in REASONING


def _paired(block: Block) -> Block:
    """Return an item as it was before its reasoning went, or what both have in common."""
    if isinstance(block, Native) and (block.unpaired or block.reasons):
        part = -1 - block.part if block.unpaired else block.part
        raw = Raw(b"") if block.reasons else block.raw
        return structs.replace(block, part=part, raw=raw, unpaired=False)
    return block


def _reasons(blocks: Iterable[Block]) -> bool:
    return any(
        isinstance(block, Native) and (block.kind in REASONING or block.reasons) for block in blocks
    )


class _Case(Struct, frozen=True):
    """What a cause is looked for in: a difference, and all that came before it.

    Attributes:
        found: Where the request stops extending the last one.
        before: That request.
        after: The request.
        events: The log since that request was sent.
        headers: What was said of tools there.
        replaced: What took the place of earlier events there.
    """

    found: Difference
    before: Prompt
    after: Prompt
    events: Sequence[Event]
    headers: Sequence[RequestHeader]
    replaced: Sequence[object]

    @property
    def new_head(self) -> bool:
        return any(header.head for header in self.headers)

    @property
    def same_context(self) -> bool:
        return self.before.context == self.after.context

    @property
    def by_value(self) -> bool:
        return self.native and self.after.context.definitions == "by-value"

    @property
    def native(self) -> bool:
        return self.after.context.projection in ("addition-only", "in-history")

    def has(self, kind: type[object]) -> bool:
        return any(isinstance(event.data, kind) for event in self.events)

    def replaces(self, kind: type[object]) -> bool:
        return any(isinstance(data, kind) for data in self.replaced)


def causes(
    found: Difference, events: Sequence[Event], before: Prompt, after: Prompt
) -> tuple[tuple[BreakReason, str], ...]:
    """Return why a request stops extending the last one on its route; nothing if nobody knows.

    What can have moved the part that differs first comes first, in the order of `_CAUSES`; then
    what else happened, which moves no more than what lies behind.

    Args:
        found: Where it does.
        events: The log since that request was sent.
        before: That request.
        after: The request.

    Returns:
        Reasons, each with what it is about in words; these may be empty.
    """
    headers = [event.data for event in events if isinstance(event.data, RequestHeader)]
    replaced: list[object] = [event.data for event in events if isinstance(event.surface_op, Span)]
    case = _Case(found, before, after, events, headers, replaced)
    first: dict[BreakReason, str] = {}
    behind: dict[BreakReason, str] = {}
    for reason, places, holds in _CAUSES:
        detail = holds(case)
        if detail is not None:
            (first if found.at in places else behind).setdefault(reason, detail)
    for reason, detail in behind.items():
        first.setdefault(reason, detail)
    return tuple(first.items())


def _if(holds: bool, detail: str = "") -> str | None:
    return detail if holds else None


def _names(names: Sequence[str]) -> str | None:
    return ", ".join(names) if names else None


def _rendering(case: _Case) -> str | None:
    return _if(case.before.context.rendering != case.after.context.rendering)


def _head_replaced(case: _Case) -> str | None:
    """Nothing else moves a tool of a head by value: neither a compaction nor a rewind."""
    fixed = case.same_context and not case.new_head and not case.after.context.redefine
    if case.found.at == "tools" and case.by_value and fixed:
        return _names(_replaced(case.before, case.after))
    return None


def _head_alone(case: _Case) -> str | None:
    """What moved the messages as well lies behind the head."""
    return _if(case.new_head and case.same_context and case.found.at in ("tools", "settings"))


def _downgrade(case: _Case) -> str | None:
    if case.has(RouteDowngrade):
        return ""
    if case.before.context.avoids != case.after.context.avoids:
        return "shapes of the history that the endpoint refused"
    withheld = case.before.context.withheld != case.after.context.withheld
    return _if(withheld, "definitions that the endpoint refused")


def _dispatcher(case: _Case) -> str | None:
    """The first change that nobody was prepared for brings the dispatcher with it."""
    way = (case.before.context.projection, case.after.context.projection)
    return _if(way == ("rebind", "dispatch"), "the dispatcher is bound from here on")


def _context(case: _Case) -> str | None:
    names = ("projection", "definitions", "tail", "caching", "ttl")
    before, after = case.before.context, case.after.context
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    return _if(before != after, ", ".join(changed))


def _settings(case: _Case) -> str | None:
    # Images that were cut with a part of the history are no setting that somebody changed.
    cut = case.found.detail == "images" and bool(case.replaced)
    return _if(case.found.at == "settings" and not cut, case.found.detail)


def _prompt(case: _Case) -> str | None:
    cut = case.replaces(CompactionSummary) or case.replaces(Rewind) or case.has(EndSeed)
    if cut and _in_force(case.before) == _in_force(case.after):
        # What was appended moves to the front where its place in the history is cut.
        return None
    if case.found.at == "system" or case.replaces(SystemMessage):
        return ""
    return _if(not case.after.context.prompt_update and case.has(SystemMessage))


def _in_force(prompt: Prompt) -> str:
    """Return the instructions that hold at the end of a request, wherever they stand."""
    appended = [
        block.text
        for block in prompt.blocks
        if isinstance(block, Text) and block.purpose == "prompt"
    ]
    return appended[-1] if appended else "\n\n".join(text.text for text in prompt.system)


def _rebinding(case: _Case) -> str | None:
    told = bool(case.headers) and case.after.context.projection == "rebind"
    if told and case.found.at == "tools":
        return _if(set(_immediate(case.before)) != set(_immediate(case.after)))
    return None


def _attempt(case: _Case) -> str | None:
    return _if(case.found.at == "messages" and _failed(case.events))


def _series(case: _Case) -> str | None:
    # One begins behind each of these too.
    begun = case.new_head or case.replaced or case.has(EndSeed) or _prompt(case) is not None
    return _if(not begun and any(header.new_series for header in case.headers))


def _redefinition(case: _Case) -> str | None:
    """By value nothing in front of a change moves, unless a definition has to be replaced."""
    if not (case.headers and case.native):
        return None
    if case.by_value:
        replaceable = not case.after.context.redefine
        return _names(_replaced(case.before, case.after)) if replaceable else None
    if changed := _redefined(case.before, case.after, case.headers):
        return _names(changed)
    # What came in place of a definition that the endpoint refused, or went for one.
    withheld = bool(case.after.context.withheld) and case.found.at == "tools"
    return _if(withheld, "of what the endpoint refused")


def _moved_names(case: _Case) -> tuple[list[str], list[str]]:
    """Return names that left and names that came, where both move what is declared."""
    if case.after.context.projection != "addition-only" or case.by_value:
        return [], []
    blocks = [
        block
        for event in case.events
        if isinstance(event.data, DeveloperMessage)
        for block in event.data.content
    ]
    if blocks or not case.headers:
        gone = [block.tool_name for block in blocks if isinstance(block, ToolRemoval)]
        back = [block.tool_name for block in blocks if isinstance(block, ToolAddition)]
        return gone, back
    # A flag alone has no message: what it defers is no longer in front.
    before, after = _front(case.before), _front(case.after)
    return [n for n in before if n not in after], [n for n in after if n not in before]


def _front(prompt: Prompt) -> list[str]:
    return [tool.name for tool in prompt.tools if not tool.defer_loading]


def _removal(case: _Case) -> str | None:
    return _names(_moved_names(case)[0])


def _restore(case: _Case) -> str | None:
    gone, back = _moved_names(case)
    return _names([] if gone else back)


_FRONT = frozenset({"tools", "messages"})
_ANYWHERE = frozenset({"tools", "system", "messages", "settings"})
_BEHIND = frozenset({"messages"})

_CAUSES: Sequence[tuple[BreakReason, frozenset[str], Callable[[_Case], str | None]]] = (
    ("rendering changed", _ANYWHERE, _rendering),
    ("redefinition", _FRONT, _head_replaced),
    ("removal", frozenset({"tools"}), _removal),
    ("head changed", _ANYWHERE, _head_alone),
    ("compaction", _BEHIND, lambda case: _if(case.replaces(CompactionSummary))),
    ("rewind", _BEHIND, lambda case: _if(case.replaces(Rewind))),
    ("fork", _BEHIND, lambda case: _if(case.has(EndSeed))),
    ("downgrade", _ANYWHERE, _downgrade),
    ("head changed", _ANYWHERE, _dispatcher),
    ("settings changed", _ANYWHERE, _context),
    ("head changed", _ANYWHERE, lambda case: _if(case.new_head)),
    ("settings changed", frozenset({"settings"}), _settings),
    ("prompt rewritten", frozenset({"system", "messages"}), _prompt),
    ("rebinding", _FRONT, _rebinding),
    ("attempt failed", _BEHIND, _attempt),
    ("explicit series", _FRONT, _series),
    ("redefinition", _FRONT, _redefinition),
    ("removal", _FRONT, _removal),
    ("restore", _FRONT, _restore),
)
"""Reasons with the parts that each can move, in the order in which they are asked for: what
explains most first."""


def _replaced(before: Prompt, after: Prompt) -> list[str]:
    """Return names whose definition stands where another one stood."""
    known, now = _definitions(before), _definitions(after)
    return [name for name, identity in now.items() if known.get(name, identity) != identity]


def _definitions(prompt: Prompt) -> dict[str, str]:
    found = {tool.name: plain(tool).identity() for tool in prompt.tools}
    for block in prompt.blocks:
        if isinstance(block, Change) and block.definition is not None:
            found[block.name] = block.definition.identity()
    return found


def _redefined(before: Prompt, after: Prompt, headers: Sequence[RequestHeader]) -> list[str]:
    """Return names whose definition is another one than a declaration or header said before."""
    known = {tool.name: plain(tool).identity() for tool in before.tools}
    changed: dict[str, None] = {}
    for tools in (*(header.header.tools for header in headers), after.tools):
        for tool in tools:
            identity = plain(tool).identity()
            if known.setdefault(tool.name, identity) != identity:
                changed[tool.name] = None
    return list(changed)


def _failed(events: Sequence[Event]) -> bool:
    """Say whether the request that `events` begin with stayed without an answer."""
    for event in events[1:]:
        if isinstance(event.data, AssistantMessage):
            return False
        # A compaction behind a turn or step that failed has no message of its own.
        if isinstance(event.data, RequestSent | UserMessage | StepEnd | TurnEnd):
            return True
    return False


def reasoning_floor(events: Iterable[Event], route: str) -> int:
    """Return the seq below which reasoning is no longer valid on `route`; -1 if all is."""
    return max(
        (
            event.seq
            for event in events
            if isinstance(event.data, CacheBreak)
            and event.data.drops_reasoning
            and event.data.route == route
        ),
        default=-1,
    )
