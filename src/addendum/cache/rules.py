"""What a provider keeps of a request, and what a later request finds of it.

The rules are data that the caller brings. Five kinds are enough for all routes:

==============  ==================================================================
marks           prefixes stored at marks, found by walking back from a mark (Claude)
steps           prefixes at fixed steps from a minimum on (OpenAI before GPT-5.6)
boundaries      the end of the latest eligible message, and marks (GPT-5.6 and later)
units           whole units: end of input, end of output, intervals (DeepSeek)
none            nothing is cached, or nothing is known
==============  ==================================================================

Where documents are silent the less kind reading is taken. A beginning that DeepSeek noticed to be
shared by two requests is a unit too, but where it ends is decided by text inside a segment: it is
never expected, and what it gives counts as read.

Sources: Claude docs "Prompt caching" (2026-09-26); OpenAI guide "Prompt caching" (2026-11);
DeepSeek docs "Context Caching".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from addendum.cache.record import Reading
from addendum.wire.segment import Segment


class CacheRules(Struct, frozen=True):
    """How one route caches.

    Attributes:
        kind: Which rules hold.
        minimum: Shortest prefix that is cached, in tokens.
        step: Distance of the steps in tokens (`steps`).
        interval: Distance of the fixed units in tokens; None if there are none (`units`).
        lookback: Positions that a walk from a mark covers, the mark's own among them (`marks`).
        runs: Block types of which a run shares one position (`marks`).
        max_marks: Marks that a request may carry; in `boundaries` the implicit one counts.
        text_marks: Whether marks are taken only on prompt text and in messages that hold nothing
            but text (`marks`).
        result_marks: Whether a result may carry a mark (`marks`).
        lifetimes: Seconds an entry lives by the mark that wrote it (`marks`).
        lifetime: Seconds an entry lives otherwise; None if it is not known to end.
        fresh: Tokens at a prompt's end that are evaluated each time, whatever is stored.
        earlier_ends: Earlier eligible ends that are looked up (`boundaries`).
        first_marks: Explicit marks that are looked up from the front (`boundaries`).
        latest_marks: And from the end.
        deferred_outside: Whether deferred tool entries lie outside the prefix.
    """

    kind: Literal["marks", "steps", "boundaries", "units", "none"]
    minimum: int = 0
    step: int = 1
    interval: int | None = None
    lookback: int = 20
    runs: tuple[str, ...] = ("tool_use", "tool_result")
    max_marks: int = 4
    text_marks: bool = False
    result_marks: bool = True
    lifetimes: tuple[tuple[str, float], ...] = (("5m", 300.0), ("1h", 3600.0))
    lifetime: float | None = None
    fresh: int = 0
    earlier_ends: int = 20
    first_marks: int = 2
    latest_marks: int = 50
    deferred_outside: bool = True


class Boundary(Struct, frozen=True):
    """A place where a stored prefix ends.

    Attributes:
        end: How many rendered segments it covers, the last one perhaps in part.
        tokens: Its tokens.
        slack: By how many tokens an estimate may be wrong; 0 where it is exact.
    """

    end: int
    tokens: int
    slack: int = 0


NOTHING = Boundary(0, 0)

_SLACK = 3
"""An estimated boundary may be wrong by one part in three of its nearer side."""


def stored(reading: Reading, rules: CacheRules, *, limit: int, age: float) -> Boundary:
    """Return the longest prefix that the provider could have stored of a request.

    Args:
        reading: The request that was answered; its tokens must be known.
        rules: How the route caches.
        limit: Rendered segments that may be part of it.
        age: Seconds since the request was sent.
    """
    limit = min(limit, len(reading.rendered))
    match rules.kind:
        case "none":
            return NOTHING
        case "steps":
            return _rounded(reading, rules, limit, rules.step) if _lives(rules, age) else NOTHING
        case "units":
            if not _lives(rules, age):
                return NOTHING
            if limit == len(reading.rendered):
                return _place(reading, limit, rules)
            return _rounded(reading, rules, limit, rules.interval) if rules.interval else NOTHING
        case "marks" | "boundaries":
            ends = [end for end in written(reading, rules, age) if end <= limit]
            found = [_place(reading, end, rules) for end in ends]
            return max(found, key=lambda each: each.tokens, default=NOTHING)


def lives(reading: Reading, rules: CacheRules, age: float) -> bool:
    """Return whether anything that a request stored may still be there.

    Args:
        reading: The request.
        rules: How the route caches.
        age: Seconds since it was sent.
    """
    if rules.kind == "marks" and any(each.mark for each in reading.rendered):
        return bool(written(reading, rules, age))
    return _lives(rules, age)


def written(reading: Reading, rules: CacheRules, age: float) -> tuple[int, ...]:
    """Return the ends that a request by marks or boundaries wrote or renewed and that still live.

    Args:
        reading: The request.
        rules: How the route caches.
        age: Seconds since it was sent.
    """
    ends = {at + 1 for at, each in enumerate(reading.rendered) if each.mark is not None}
    if rules.kind == "boundaries" and not reading.explicit_only:
        ends.update(eligible_ends(reading.rendered)[-1:])
    if reading.standing is not None:
        ends.intersection_update(standing(reading, age))
    return tuple(end for end in sorted(ends) if age < lifetime_at(reading, rules, end))


def standing(reading: Reading, age: float) -> tuple[int, ...]:
    """Return the ends at which anything of a request lives, whoever wrote it.

    Args:
        reading: The request.
        age: Seconds since it was sent.
    """
    now = reading.record.time_sent + age
    return tuple(end for end, until in reading.standing or () if now < until)


def lifetime_at(reading: Reading, rules: CacheRules, end: int) -> float:
    """Return the seconds that an entry lives which a request wrote at an end."""
    mark = reading.rendered[end - 1].mark
    return dict(rules.lifetimes).get(mark or "", _lifetime(rules))


def found(reading: Reading, rules: CacheRules, end: int) -> bool:
    """Return whether a request finds a prefix of its own that was stored.

    Args:
        reading: The later request, which begins with the stored segments.
        rules: How the route caches.
        end: How many rendered segments the stored prefix covers.
    """
    if end == 0 or end > len(reading.rendered):
        return end == 0
    match rules.kind:
        case "none":
            return False
        case "steps" | "units":
            return True
        case "marks":
            return distance(reading, rules, end) <= rules.lookback
        case "boundaries":
            return end in _looked_up(reading, rules)


def distance(reading: Reading, rules: CacheRules, end: int) -> float:
    """Return the positions from the nearest mark back to a stored prefix, both counted.

    Args:
        reading: The later request.
        rules: How the route caches.
        end: How many rendered segments the stored prefix covers.

    Returns:
        1 if a mark stands right at its end; infinity if none stands there or behind it.
    """
    places = positions(reading.rendered, rules.runs)
    marks = [at for at, each in enumerate(reading.rendered) if each.mark is not None]
    behind = [places[at] - places[end - 1] + 1 for at in marks if at >= end - 1]
    return min(behind, default=float("inf"))


def positions(rendered: Sequence[Segment], runs: Sequence[str]) -> list[int]:
    """Return each segment's position: a run of the given types shares one.

    The head of a message is no position of its own.
    """
    places: list[int] = []
    for at, each in enumerate(rendered):
        run = each.type in runs and at > 0 and rendered[at - 1].type == each.type
        shares = at > 0 and (run or each.type == "message")
        places.append(places[-1] if shares else (places[-1] + 1 if places else 0))
    return places


def eligible_ends(rendered: Sequence[Segment]) -> list[int]:
    """Return where an implicit boundary may stand, each as a number of segments.

    Eligible are the end of a user message, the end of the last tool message of a run, and the end
    of the initial run of developer (or system) messages.
    """
    ends: list[int] = []
    for at, each in enumerate(rendered):
        behind = rendered[at + 1] if at + 1 < len(rendered) else None
        if behind is not None and behind.message == each.message:
            continue
        if each.kind == "system":
            if behind is None or behind.kind == "message":
                ends.append(at + 1)
        elif each.role == "user" or (
            each.role == "tool" and (behind is None or behind.role != "tool")
        ):
            ends.append(at + 1)
    return ends


def _looked_up(reading: Reading, rules: CacheRules) -> set[int]:
    marks = [at + 1 for at, each in enumerate(reading.rendered) if each.mark is not None]
    places = {*marks[: rules.first_marks], *marks[-rules.latest_marks :]}
    if not reading.explicit_only:
        ends = eligible_ends(reading.rendered)
        initial = [end for end in ends if reading.rendered[end - 1].kind == "system"]
        places |= {*ends[-1 - rules.earlier_ends :], *initial}
    return places


def _place(reading: Reading, end: int, rules: CacheRules) -> Boundary:
    """Return the boundary at `end`; nothing if it is below the minimum.

    Where marks are billed, what was read and written together is all up to the last mark: the
    provider's own figure for it, better than an estimate.
    """
    tokens, exact = reading.tokens(end), reading.is_exact(end)
    usage = reading.record.usage
    if rules.kind == "marks" and not exact and None not in (usage.cache_read, usage.cache_write):
        billed = (usage.cache_read or 0) + (usage.cache_write or 0)
        last = max(at + 1 for at, each in enumerate(reading.rendered) if each.mark is not None)
        if billed and end == last:
            tokens, exact = billed, True
    if tokens < rules.minimum:
        return NOTHING
    return Boundary(end, tokens, 0 if exact else doubt(reading, tokens))


def _rounded(reading: Reading, rules: CacheRules, limit: int, step: int) -> Boundary:
    tokens = reading.tokens(limit) // step * step
    if not tokens or tokens < rules.minimum:
        return NOTHING
    exact = reading.is_exact(limit)
    return Boundary(limit, tokens, 0 if exact else step + doubt(reading, tokens))


def doubt(reading: Reading, tokens: int) -> int:
    """Return by how many tokens an estimated boundary of a request may be wrong."""
    return max(1, min(tokens, reading.totals[-1] - tokens) // _SLACK)


def _lifetime(rules: CacheRules) -> float:
    return float("inf") if rules.lifetime is None else rules.lifetime


def _lives(rules: CacheRules, age: float) -> bool:
    return age < _lifetime(rules)
