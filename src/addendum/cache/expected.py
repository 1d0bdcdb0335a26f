"""What a request could have read: its base, what is expected of it, and the ceiling.

Base of a request: the last answered request of its conversation on its route, while something of
it lives; else the latest answered one of another conversation with the same head, cut at the end
of the static block. Expected is what the provider could have stored of the base, whether or not
our bytes still match. The ceiling leaves out what lies behind a break declared for the request
itself; the request after it has it as its base, so a break is counted once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from addendum import encoding
from addendum.cache.kept import Kept, size_of
from addendum.cache.record import Declared, Reading
from addendum.cache.rules import (
    NOTHING,
    Boundary,
    CacheRules,
    doubt,
    found,
    lifetime_at,
    lives,
    stored,
    written,
)
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.wire.segment import fields, newest_human, parse, resolve

_AT_ONCE = 64
"""Requests of a conversation whose answers may be awaited at once."""

_PRUNED = 1_024
"""Entries that may be kept before those that ended are thrown away."""

_HARMLESS = re.compile(rb"(?:<|u003[cC])(?:\\*/)?_+[a-z]+_[a-z]")
"""A delimiter that was made harmless, also as JSON within JSON."""

_AREAS = ("settings", "none", "tools", "system", "messages")


class Prospect(Struct, frozen=True):
    """What one request could have read.

    Attributes:
        base: The request it could read from, or None.
        expected: The boundary expected; None if the base's tokens are unknown.
        ceiling: The same, less what lies behind a declared break.
        extends: How many rendered segments base and request both begin with.
        proven: The part of `expected` that captured bytes alone can show to be there.
    """

    base: Reading | None
    expected: Boundary | None
    ceiling: Boundary | None
    extends: int
    proven: Boundary | None


class Earlier:
    """Requests that were sent, as far as a later one may have one of them as its base.

    Args:
        room: Bytes that may be kept; None for all that can be needed.
    """

    def __init__(self, room: int | None = None) -> None:
        self._own: Kept[list[Reading]] = Kept(room)
        self._heads: Kept[list[Reading]] = Kept(room)
        self._entries = _Entries()

    @property
    def lost(self) -> int:
        """How many requests had a base for which there was no room."""
        return self._own.lost

    def add(self, reading: Reading, rules: CacheRules) -> None:
        """Add a request; they come in the order in which they were sent.

        Args:
            reading: The request.
            rules: How its route caches.
        """
        if reading.record.status != "answered":
            return
        own, head = _places(reading)
        reading = self._entries.after(reading, rules, first=self._own.get(own) is None)
        kept = _latest(self._own.get(own) or (), reading, 1)
        self._own.put(own, kept, sum(map(size_of, kept)))
        kept = _latest(self._heads.get(head) or (), reading, 2)
        self._heads.put(head, kept, sum(map(size_of, kept)))

    def own(self, reading: Reading) -> Reading | None:
        """Return the latest request of the same conversation and route that had been answered."""
        listed = self._own.get(_places(reading)[0]) or ()
        return next((each for each in reversed(listed) if _answered_before(each, reading)), None)

    def other(self, reading: Reading) -> Reading | None:
        """Return the latest answered one of another conversation with the same head."""
        session = reading.record.session
        for each in reversed(self._heads.get(_places(reading)[1]) or ()):
            if each.record.session != session and _answered_before(each, reading):
                return each
        return None


class _Entries:
    """When what was stored at marks ends, by the hash of its prefix, settings and route.

    A mark within what its request reads is taken to store nothing: no token is written there.
    What an earlier request stored at it lives on.
    """

    def __init__(self) -> None:
        self._ends: dict[int, float] = {}
        self._room = _PRUNED

    def after(self, reading: Reading, rules: CacheRules, *, first: bool) -> Reading:
        """Return an answered request with all that stands of its prompt.

        Args:
            reading: The request.
            rules: How its route caches.
            first: Whether nothing is known of what its conversation sent before.
        """
        if rules.kind not in ("marks", "boundaries") or not reading.totals:
            return reading
        now, read = reading.record.time_sent, reading.record.usage.cache_read or 0
        face = hash((reading.record.route, *sorted(reading.settings.items())))
        places = [hash((face, digest)) for digest in reading.chain]
        for end in written(reading, rules, 0.0):
            tokens, before = reading.tokens(end), self._ends.get(places[end - 1], now)
            slack = 0 if reading.is_exact(end) else doubt(reading, tokens)
            if first or before > now or tokens + slack >= read:
                self._ends[places[end - 1]] = now + lifetime_at(reading, rules, end)
        if len(self._ends) > self._room:
            self._ends = {place: ends for place, ends in self._ends.items() if ends > now}
            self._room = max(_PRUNED, 2 * len(self._ends))
        ends = ((at, self._ends.get(place, now)) for at, place in enumerate(places, 1))
        standing = tuple((at, until) for at, until in ends if until > now)
        return msgspec.structs.replace(reading, standing=standing)


def _places(reading: Reading) -> tuple[tuple[str, str], tuple[str, str]]:
    record = reading.record
    return (record.session, record.route), (record.route, reading.head)


def _latest(older: Sequence[Reading], reading: Reading, conversations: int) -> list[Reading]:
    """Return a request and those before it that may be a base although it was sent after them.

    These are the ones whose answers still came when it was sent, and the latest ones that were
    answered by then, of so many conversations.
    """
    now = reading.record.time_sent
    kept: list[Reading] = []
    settled: set[str] = set()
    for each in (reading, *reversed(older)):
        session, answered = each.record.session, each.record.time_answered
        if session not in settled:
            kept.append(each)
        if answered is None or (each is not reading and answered <= now):
            settled.add(session)
        if len(settled) == conversations or len(kept) == _AT_ONCE:
            break
    return kept[::-1]


def prospect(reading: Reading, earlier: Earlier, rules: CacheRules) -> Prospect:
    """Return what a request could have read.

    Args:
        reading: The request.
        earlier: Requests that were sent before it.
        rules: How the route caches.
    """
    base, limit = _base(reading, earlier, rules)
    if base is None:
        return Prospect(None, NOTHING, NOTHING, 0, NOTHING)
    common = base.common(reading)
    if not base.totals:
        return Prospect(base, None, None, common, None)
    age = reading.record.time_sent - base.record.time_sent
    proven = stored(base, rules, limit=limit, age=age)
    whole = _with_output(base, reading, proven, common) if rules.kind == "units" else proven
    kept = _kept(base, reading, common, rules, age)
    ceiling = whole if kept >= limit else stored(base, rules, limit=kept, age=age)
    return Prospect(
        base,
        _within(whole, reading, rules),
        _within(ceiling, reading, rules),
        common,
        _within(proven, reading, rules),
    )


def session_base(
    reading: Reading, earlier: Earlier, rules: CacheRules
) -> tuple[Reading | None, int]:
    """Return the base in a request's own conversation, and how many of its segments count.

    Args:
        reading: The request.
        earlier: Requests that were sent before it.
        rules: How the route caches.
    """
    base = earlier.own(reading)
    if base is None or not _alive(base, reading, rules):
        return None, 0
    return base, _limit(base, reading)


def _base(reading: Reading, earlier: Earlier, rules: CacheRules) -> tuple[Reading | None, int]:
    base, limit = session_base(reading, earlier, rules)
    if base is not None:
        return base, limit
    other = earlier.other(reading)
    if other is None or not _alive(other, reading, rules):
        return None, 0
    return other, other.static_end


def _answered_before(base: Reading, reading: Reading) -> bool:
    answered = base.record.time_answered
    return answered is None or answered <= reading.record.time_sent


def _alive(base: Reading, reading: Reading, rules: CacheRules) -> bool:
    return lives(base, rules, reading.record.time_sent - base.record.time_sent)


def _limit(base: Reading, reading: Reading) -> int:
    """Return how much of the base can stand in the next request under its tail mode.

    A scoped tail is rendered for its own request only. A moved one stays where it is within its
    turn; then it is taken out, and what stood behind it moves up.
    """
    tail = base.tail_at
    before, after = base.record, reading.record
    same_turn = before.turn == after.turn and before.purpose == after.purpose == "turn"
    if before.tail == "moved" and same_turn:
        return len(base.rendered)
    if before.tail == "moved" and before.bound:
        # Reasoning that is bound to the prefix goes with the tail of its turn.
        reasoning = (at for at, each in enumerate(base.rendered) if each.transparent)
        first = next(reasoning, len(base.rendered))
        return first if tail is None else min(first, tail)
    return len(base.rendered) if tail is None else tail


def _kept(base: Reading, reading: Reading, common: int, rules: CacheRules, age: float) -> int:
    """Return how many segments of the base stand in front of what was declared to break.

    Where the bytes agree beyond the declared part, what agrees is kept too, as far as the request
    finds it: the marks of a request lead to what it was built upon, and behind a break that ends.
    Tools are one part where prefixes are stored at marks: the mark behind them moves with the list.
    """
    agreed = common
    if rules.kind in ("marks", "boundaries"):
        ends = [end for end in written(base, rules, age) if end <= common]
        agreed = max((end for end in ends if found(reading, rules, end)), default=0)
    # Hidden text in front of the tools comes and goes with the last deferred tool.
    hidden = base.settings.get("deferral") != reading.settings.get("deferral")
    moved = rules.kind == "marks" and common < len(base.rendered)
    ends = [len(base.rendered)]
    for each in reading.record.declared:
        if each.at in ("settings", "none") or (each.at == "tools" and (hidden or moved)):
            ends.append(0)
        elif each.reason == "reasoning stripped":
            ends.append(_reasoned(base))
        else:
            ends.append(max(_front(base, each.at), agreed))
    return min(ends)


def _reasoned(base: Reading) -> int:
    """Return how many segments stand in front of the reasoning that a new turn strips.

    Our bytes hold it as before: it is the provider that leaves it out.
    """
    human = newest_human(base.rendered).start
    whole = len(base.rendered)
    return next((at for at in range(human, whole) if base.rendered[at].transparent), whole)


def _front(base: Reading, at: str) -> int:
    """Return how many segments of the base stand in front of a part of it."""
    if at == "tools":
        return 0
    if at == "system":
        return base.tools_end
    if at == "messages":
        return base.system_end
    whole = len(base.rendered)
    return next((place for place in range(whole) if base.rendered[place].message == at), whole)


def _with_output(base: Reading, reading: Reading, input_: Boundary, common: int) -> Boundary:
    """Return the unit at the end of the base's output, where the next request can hold it.

    Where the next request begins with the base, its own answer segments say how long the answer
    is as it is sent back: one that was sent back in part is not the unit that was stored. Nor is
    one that may have been written otherwise.
    """
    output = base.record.usage.output
    whole = len(base.rendered)
    if not output or input_.end < whole:
        return input_
    if common < whole or not reading.totals:
        return Boundary(whole, input_.tokens + output, input_.slack)
    end = whole
    while end < len(reading.rendered) and reading.rendered[end].role == "assistant":
        end += 1
    answer = reading.tokens(end) - reading.tokens(whole)
    if _recast(reading, whole, end):
        return input_
    if not (reading.is_exact(end) and reading.is_exact(whole)):
        if any(TOOL_DISPATCHER_NAME in each.uses for each in reading.rendered[whole:end]):
            # It may be a direct call in a dispatcher's words: then it is not what was stored.
            return input_
        slack = max(1, output // 3)
        return Boundary(whole, input_.tokens + output, slack) if end > whole else input_
    return Boundary(whole, input_.tokens + answer) if answer == output else input_


def _recast(reading: Reading, start: int, end: int) -> bool:
    """Say whether an answer may have been written otherwise than it is sent back.

    Empty arguments go back as an empty object, where they cannot be told from one that the model
    wrote, and broken ones under a key of their own. A delimiter of ours that the model wrote goes
    back with an underscore in front of its name.
    """
    body = parse(reading.record.body)
    for each in reading.rendered[start:end]:
        value = resolve(body, each.path)
        call = fields(value) if each.opens else {}
        given = fields(call.get("function")).get("arguments", call.get("input"))
        if given in ({}, "{}") or (isinstance(given, dict) and "unreadable_arguments" in given):
            return True
        if _HARMLESS.search(encoding.encode(value)):
            return True
    return False


def _within(boundary: Boundary, reading: Reading, rules: CacheRules) -> Boundary:
    """Return a boundary that is no longer than what the request can read, rounded its way."""
    prompt = reading.record.usage.prompt
    if prompt is not None:
        prompt = max(0, prompt - rules.fresh)
    if prompt is None or boundary.tokens <= prompt:
        return boundary
    tokens = prompt // rules.step * rules.step if rules.kind == "steps" else prompt
    return Boundary(boundary.end, tokens if tokens >= rules.minimum else 0, boundary.slack)


def first_area(declared: Sequence[Declared]) -> Declared | None:
    """Return the declared break that comes first in cache order."""

    def order(each: Declared) -> tuple[int, int]:
        for place, area in enumerate(_AREAS):
            if each.at == area:
                return place, 0
        number = each.at.removeprefix("messages[").removesuffix("]")
        return len(_AREAS) - 1, int(number) if number.isdigit() else 0

    return min(declared, key=order, default=None)
