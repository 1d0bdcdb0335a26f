"""Breaks of the prefix, found before they happen and named by their cause.

Where a request stops extending the one before it is a plain comparison of two prompts. Why is
read from the log: a break is declared only with a cause that stands there. A difference without
one is not declared, so that whoever judges the requests sees it as what it is, a fault of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Raw, Struct, structs

from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    CompactionSummary,
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
from addendum.log.values import BreakReason, Config
from addendum.prompt.blocks import Block, Change, Marks, Native, Prompt
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
    if before.context.avoids != after.context.avoids:
        return Difference("messages", reasoning=bound and _reasons(after.blocks))
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


def cause(
    found: Difference, events: Sequence[Event], before: Prompt, after: Prompt
) -> tuple[BreakReason, str] | None:
    """Return why a request stops extending the last one on its route, or None.

    Args:
        found: Where it does.
        events: The log since that request was sent.
        before: That request.
        after: The request.
    """
    if before.context.rendering != after.context.rendering:
        return "rendering changed", ""
    headers = [event.data for event in events if isinstance(event.data, RequestHeader)]
    native = after.context.projection in ("addition-only", "in-history")
    by_value = native and after.context.definitions == "by-value"
    new_head = any(header.head for header in headers)
    fixed = before.context == after.context and not new_head
    if found.at == "tools" and by_value and fixed and not after.context.redefine:
        # Nothing else moves a tool of the head there: neither a compaction nor a rewind.
        if changed := _replaced(before, after):
            return "redefinition", ", ".join(changed)
    if new_head and before.context == after.context and found.at in ("tools", "settings"):
        # What moved the messages as well lies behind it.
        return "head changed", ""
    replaced = [event.data for event in events if isinstance(event.surface_op, Span)]
    if any(isinstance(data, CompactionSummary) for data in replaced):
        return "compaction", ""
    if any(isinstance(data, Rewind) for data in replaced):
        return "rewind", ""
    if any(isinstance(event.data, EndSeed) for event in events):
        return "fork", ""
    if any(isinstance(event.data, RouteDowngrade) for event in events):
        return "downgrade", ""
    if before.context.avoids != after.context.avoids:
        return "downgrade", "shapes of the history that the endpoint refused"
    if before.context.withheld != after.context.withheld:
        return "downgrade", "definitions that the endpoint refused"
    if (before.context.projection, after.context.projection) == ("rebind", "dispatch"):
        # The first change that nobody was prepared for brings the dispatcher with it.
        return "head changed", "the dispatcher is bound from here on"
    if before.context != after.context:
        changed = [
            name
            for name in ("projection", "definitions", "tail", "caching", "ttl")
            if getattr(before.context, name) != getattr(after.context, name)
        ]
        return "settings changed", ", ".join(changed)
    if new_head:
        return "head changed", ""
    if found.at == "settings":
        return "settings changed", found.detail
    if found.at == "system" or any(isinstance(data, SystemMessage) for data in replaced):
        return "prompt rewritten", ""
    if not after.context.prompt_update and any(
        isinstance(event.data, SystemMessage) for event in events
    ):
        return "prompt rewritten", ""
    if headers and after.context.projection == "rebind" and found.at == "tools":
        if set(_immediate(before)) != set(_immediate(after)):
            return "rebinding", ""
    if found.at == "messages" and _failed(events):
        return "attempt failed", ""
    if any(header.new_series for header in headers):
        return "explicit series", ""
    # By value nothing in front of a change ever moves, unless a definition has to be replaced.
    if headers and by_value:
        changed = [] if after.context.redefine else _replaced(before, after)
        return ("redefinition", ", ".join(changed)) if changed else None
    if headers and native:
        changed = _redefined(before, after, headers)
        if changed:
            return "redefinition", ", ".join(changed)
        if after.context.withheld and found.at == "tools":
            # What came in place of a definition that the endpoint refused, or went for one.
            return "redefinition", "of what the endpoint refused"
        if after.context.projection == "addition-only":
            return "removal or restore", ""
    return None


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
