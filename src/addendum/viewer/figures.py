"""Figures of requests as a page shows them: one bar, a share, money."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from addendum.agent.results import total
from addendum.cache.cost import Cost, summed
from addendum.cache.spent import Spent
from addendum.log.values import Usage
from addendum.tell.figures import money

WIDE = 1000
"""Units that a bar is wide."""


class Bar(Struct, frozen=True):
    """A prompt as one bar: read from the cache, written to it, neither.

    Attributes:
        prompt: Its tokens; None if they are not known.
        read: Tokens read; None if they are not known.
        written: Tokens written; 0 where the provider writes by itself and does not say.
        output: Tokens of the answers.
        parts: Kind, beginning and width of each part, in `WIDE` units.
        share: What was read of it, in whole per cent, rounded down.
        cost: Money, or empty.
        saved: Money, or empty.
        short: Tokens that were in the cache and were not read.
        declared: Whether every request that fell short had declared a break.
        requests: How many requests it sums up.
    """

    prompt: int | None
    read: int | None
    written: int
    output: int | None
    parts: tuple[tuple[str, int, int], ...]
    share: int | None
    cost: str
    saved: str
    short: int
    declared: bool
    requests: int

    @property
    def fresh(self) -> int:
        """Tokens that were neither read nor written."""
        return (self.prompt or 0) - (self.read or 0) - self.written


def bar(requests: Sequence[Spent]) -> Bar | None:
    """Return the figures of requests; None if none of them was answered or counted."""
    counted = [each for each in requests if each.request.counted]
    if not counted:
        return None
    usage = total([each.request.usage for each in counted])
    cost: Cost | None = summed(each.cost for each in counted)
    missed = [each for each in counted if each.short]
    return Bar(
        usage.prompt,
        usage.cache_read,
        usage.cache_write or 0,
        usage.output,
        _parts(usage),
        _share(usage),
        "" if cost is None else money(cost.amount),
        "" if cost is None else money(cost.saved),
        sum(each.short for each in missed),
        all(each.request.breaks for each in missed),
        len(counted),
    )


def _share(usage: Usage) -> int | None:
    if not usage.prompt or usage.cache_read is None:
        return None
    return usage.cache_read * 100 // usage.prompt


def _parts(usage: Usage) -> tuple[tuple[str, int, int], ...]:
    if not usage.prompt or usage.cache_read is None:
        return ()
    read = usage.cache_read * WIDE // usage.prompt
    written = (usage.cache_write or 0) * WIDE // usage.prompt
    found = (("read", 0, read), ("write", read, written), ("new", read + written, WIDE))
    return tuple(
        (kind, start, min(wide, WIDE - start))
        for kind, start, wide in found
        if wide and start < WIDE
    )
