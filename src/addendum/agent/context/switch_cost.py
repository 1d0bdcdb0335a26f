"""What a switch of tools costs on the session's route, and what a new tool list would have cost.

Sizes are those that the provider reported for the last request on the route. Rebinding puts a new
tool list in front of everything: what that request left in the cache would be read again, unless
an earlier request with that very list is still there and the conversation still begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from addendum.agent.context.answers import Answered
from addendum.agent.context.epochs import coming
from addendum.agent.context.preview import upcoming_breaks
from addendum.agent.runtime import Runtime
from addendum.cache.cost import again as price_again
from addendum.cache.cost import left_in_cache
from addendum.log.events import CacheBreak
from addendum.log.values import ToolSchema
from addendum.tools.registry import Snapshot

_OURS = frozenset({"redefinition", "removal", "restore", "rebinding", "downgrade"})
"""Breaks that come from how a change is told; a list written anew has its own instead."""


class SwitchCost(Struct, frozen=True):
    """What a switch costs at the next request, in tokens that are read again and in money.

    Attributes:
        prompt: Tokens of the last request on the route; None if it did not say, 0 without one.
        held: Tokens of it that the cache holds now; None if that is not known.
        again: Tokens of these that are read again.
        estimated: Whether `held` or `again` is an estimate.
        rebinding: Tokens that would be read again with a new tool list.
        cost: US dollars for `again`; None if the price is not known.
        rebinding_cost: US dollars for `rebinding`.
        reasons: Breaks that will be declared.
        note: Why nothing is held, where that is so.
    """

    prompt: int | None
    held: int | None
    again: int | None
    estimated: bool
    rebinding: int | None
    cost: Decimal | None
    rebinding_cost: Decimal | None
    reasons: tuple[str, ...] = ()
    note: str = ""


def switch_cost(run: Runtime, snapshot: Snapshot | None = None) -> SwitchCost:
    """Return what the switches since the last request cost at the next one.

    Args:
        run: An open session in which no turn runs; what has settled is taken as active.
        snapshot: What would be active after a switch that nobody has made yet.
    """
    route, now = run.route, run.setup.clock()
    answered = run.state.answers.on(route.name)
    if not answered:
        nothing = Decimal(0)
        return SwitchCost(0, 0, 0, False, 0, nothing, nothing, (), "nothing was sent here yet")
    last = answered[-1]
    held, estimated, note = _held(run, last)
    breaks = upcoming_breaks(run, snapshot)
    again = None
    if held is not None:
        kept = min((_kept(run, answered, each, held) for each in breaks), default=held)
        again = held - kept
    active = (snapshot or run.registry.snapshot()).active
    rebinding = None
    if held is not None:
        rebinding = _rebinding(run, answered, held, now, active, breaks)
    prompt, hour = last.usage.prompt, coming(run).ttl == "1h"

    def dollars(tokens: int | None) -> Decimal | None:
        if tokens is None:
            return None
        if tokens == 0:
            return Decimal(0)
        return price_again(route, tokens, prompt or 0, now, hour=hour)

    return SwitchCost(
        prompt,
        held,
        again,
        # Behind a break in the messages, what stands in front of all messages may still be read.
        estimated or (bool(again) and any(each.at == "messages" for each in breaks)),
        rebinding,
        dollars(again),
        dollars(rebinding),
        tuple(dict.fromkeys(each.reason for each in breaks)),
        note,
    )


def _lifetime(run: Runtime) -> float:
    return run.route.cache.lifetime(coming(run).ttl)


def _held(run: Runtime, last: Answered) -> tuple[int | None, bool, str]:
    """Return what the last request left in the cache, if it is an estimate, and why nothing."""
    rules = run.route.cache
    tokens, estimated = left_in_cache(last.usage, rules)
    if tokens == 0:
        return 0, False, f"too short: cached from {rules.minimum:,} tokens on"
    lifetime, idle = _lifetime(run), run.idle()
    if tokens is not None and lifetime and idle is not None and idle > lifetime:
        return 0, False, "the cache has expired"
    return tokens, estimated, ""


def _kept(run: Runtime, answered: Sequence[Answered], found: CacheBreak, held: int) -> int:
    """Return the tokens in front of a break that the next request still reads.

    That is what the last request left that was answered before anything behind the break was said;
    where prefixes are read in small steps, it is a little more.
    """
    if _harmless(found):
        return held
    if found.at != "messages" or found.seq is None:
        return 0
    for each in reversed(answered):
        if each.seq < found.seq:
            return min(held, left_in_cache(each.usage, run.route.cache)[0] or 0)
    return 0


def _harmless(found: CacheBreak) -> bool:
    """Say whether what the last turn left is there in spite of a break.

    One without a place says that the last request was no turn's; the next extends the last turn's.
    """
    return found.at == "none" or (found.reason == "attempt failed" and found.seq is None)


def _rebinding(
    run: Runtime,
    answered: Sequence[Answered],
    held: int,
    now: float,
    tools: Sequence[ToolSchema],
    upcoming: Sequence[CacheBreak],
) -> int:
    """Return the tokens that are read again where the tool list is written anew.

    Breaks that have nothing to do with tools (a compaction, a rewind) would be there as well: a
    request counts only if what was said until its answer still stands.
    """
    # Without their order: a list written anew has each tool in the place it had before.
    active = {tool.identity() for tool in tools}
    lifetime = _lifetime(run)
    logged = list(run.state.answers.breaks(run.route.name))
    cut, shared = len(run.log) + 1, list(upcoming)
    for each in reversed(answered):
        # The last one is held, perhaps because it was kept alive.
        if each is not answered[-1] and lifetime and now - each.sent > lifetime:
            break
        while logged and logged[-1][0] > each.seq:
            shared.append(logged.pop()[1])
        for found in shared:
            if found.reason not in _OURS and not _harmless(found):
                cut = min(cut, (found.seq or 0) if found.at == "messages" else 0)
        shared.clear()
        if each.seq < cut and {tool.identity() for tool in each.tools} == active:
            then, _ = left_in_cache(each.usage, run.route.cache)
            return max(0, held - (then or 0))
    return held
