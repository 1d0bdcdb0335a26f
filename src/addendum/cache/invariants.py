"""Rules between the requests of a conversation, and the one call that checks everything.

An epoch is a run of requests on one route that share a prefix: it ends where a break is declared.
Nothing here trusts the planner that made the requests; only bodies, and what was declared, count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from addendum.cache.bodies import (
    Names,
    Violation,
    calls_are_answered,
    marks_are_legal,
    tail_stands,
    unmarked,
    violation,
)
from addendum.cache.expected import Earlier, session_base
from addendum.cache.kept import Kept, size_of
from addendum.cache.record import Declared, Reading, RequestRecord, readings
from addendum.cache.rules import CacheRules, distance, found, standing, written
from addendum.wire.segment import Segment

RULES = ("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V9", "V10")
"""What is checked; V8, V11 and V12 need more than captured requests."""

_NEW_HEAD = frozenset({"head changed", "lifetime passed", "rendering changed", "downgrade"})
"""Reasons for which a head's bytes may change where nothing else may change them."""


def check(
    records: Sequence[RequestRecord],
    rules: CacheRules,
    only: Collection[str] = (),
    *,
    among: Sequence[RequestRecord] = (),
) -> tuple[Violation, ...]:
    """Check captured requests, failed ones among them, in the order in which they were sent.

    Args:
        records: Requests of one conversation or of several, on one route or on several.
        rules: How the route caches. Rules of other kinds than marks and boundaries make V10 say
            nothing.
        only: Rules to check, such as `V3`; empty for all of `RULES`.
        among: Requests of all routes, in order, where `records` are those of one: a name stays
            known when a conversation moves on to another route.

    Returns:
        The violations, by request, then by rule.

    Raises:
        ConfigurationError: Nothing takes a record's wire apart.
        ContentError: A body is not a JSON object.
    """
    checker = Checker(only)
    broken: list[Violation] = []
    own = {(record.session, record.n) for record in records}
    for record in among if len(among) > len(records) else records:
        (reading,) = readings([record], deferred_outside=rules.deferred_outside)
        if (record.session, record.n) in own:
            broken += checker.see(reading, rules)
        else:
            checker.overhear(reading)
    return tuple(broken)


class Checker:
    """Checks requests one after the other, and keeps no more of them than it needs.

    Args:
        only: Rules to check; empty for all of `RULES`.
        room: Bytes of earlier requests that are kept; None for all that can be needed.
    """

    def __init__(self, only: Collection[str] = (), room: int | None = None) -> None:
        self._only = frozenset(only or RULES)
        self._names = Names()
        self._turns: Kept[Reading] = Kept(room)
        self._earlier = Earlier(room)
        self._compactions: dict[tuple[str, str], _Compactions] = {}

    @property
    def lost(self) -> int:
        """How many requests could not be compared with the one before, for want of room."""
        return max(self._turns.lost, self._earlier.lost)

    def see(self, reading: Reading, rules: CacheRules) -> list[Violation]:
        """Return what the next request breaks, by rule."""
        record = reading.record
        place = record.session, record.route
        broken: list[Violation] = []
        if _PAIRS.keys() & self._only:
            before = self._turns.get(place)
            for name, pair in _PAIRS.items() if before is not None else ():
                if name in self._only and before is not None:
                    broken += pair(before, reading)
            # What a compaction asks for is no part of what follows.
            if record.purpose == "turn":
                self._turns.put(place, reading, size_of(reading))
        if "V4" in self._only:
            broken += marks_are_legal(reading, rules)
        if "V5" in self._only:
            broken += self._names.see(reading)
        for name, alone in _ALONE.items():
            if name in self._only:
                broken += alone(reading, rules)
        if "V9" in self._only:
            broken += self._compactions.setdefault(place, _Compactions()).see(reading)
        if "V10" in self._only and record.caching and rules.kind in ("marks", "boundaries"):
            broken += prefix_is_reached(reading, self._earlier, rules)
            self._earlier.add(reading, rules)
        return broken

    def overhear(self, reading: Reading) -> None:
        """Learn which tools a request of another route names."""
        if "V5" in self._only:
            for _ in self._names.see(reading):
                pass


def tools_stay(before: Reading, after: Reading) -> Iterator[Violation]:
    """V1: immediate tool entries are equal within an epoch.

    On dispatch, and where definitions go by value, from one head to the next.
    """
    record = after.record
    if _told(before) != _told(after):
        return
    old, new = _immediate(before), _immediate(after)
    difference = _difference(old, new)
    if difference is None:
        return
    fixed = record.strategy == "dispatch" or record.definitions == "by-value"
    # By value a redefinition is declared only where a name can never be defined again (Kimi).
    reasons = _NEW_HEAD if record.strategy == "dispatch" else _NEW_HEAD | {"redefinition"}
    allowed = any(
        each.at in ("tools", "settings") and (each.reason in reasons or not fixed)
        for each in record.declared
    )
    if not allowed:
        path = new[difference].path if difference < len(new) else "tools"
        yield violation("V1", after, path, "the declared tools differ from the request before")


def prompt_stays(before: Reading, after: Reading) -> Iterator[Violation]:
    """V2: the prompt text in front of the messages is equal within an epoch."""
    old, new = _prompt(before), _prompt(after)
    difference = _difference(old, new)
    declared = any(each.at in ("settings", "tools", "system") for each in after.record.declared)
    if difference is not None and not declared:
        path = new[difference].path if difference < len(new) else "system"
        yield violation("V2", after, path, "the prompt text differs from the request before")


def prefix_holds(before: Reading, after: Reading) -> Iterator[Violation]:
    """V3: each request begins with the blocks of the one before.

    Marks, deferred tools and the moved tail are taken out, and with a moved tail the reasoning of
    earlier turns, which leaves with it. A declared break excuses what lies behind it, nothing in
    front.
    """
    leaves = after.record.tail == "moved" and before.record.turn != after.record.turn
    old, new = _lasting(before, leaves), _lasting(after, leaves)
    needed = _in_front(old, after.record.declared)
    difference = _difference(old[:needed], new[:needed])
    if difference is not None:
        path = new[difference].path if difference < len(new) else "end"
        text = f"{old[difference].path} of request {before.record.n} is not sent again as it was"
        yield violation("V3", after, path, text)


class _Compactions:
    """V9: a compaction breaks the prefix once, and its first message stays, over restarts too."""

    def __init__(self) -> None:
        self._compacted = False
        self._carrier: tuple[str, ...] = ()
        self._latest: tuple[str, ...] = ()

    def see(self, reading: Reading) -> Iterator[Violation]:
        """Yield what the next request of a conversation on a route breaks."""
        record = reading.record
        if record.purpose == "compaction":
            self._compacted = self._compacted or record.status == "answered"
            return
        path, first = _first_message(reading)
        if any(each.reason == "compaction" for each in record.declared):
            # A summary may also be given by hand: then no request of its own went before.
            if not self._compacted and first and first == self._latest:
                yield violation("V9", reading, "", "a compaction breaks the prefix a second time")
            self._compacted, self._carrier = False, first
            # A request that nobody answered leaves its break to the next one.
            self._latest = first if record.status == "answered" else ()
        elif record.declared:
            self._carrier = ()
        elif self._carrier and first != self._carrier:
            yield violation("V9", reading, path, "the message behind the compaction differs")


def prefix_is_reached(reading: Reading, earlier: Earlier, rules: CacheRules) -> Iterator[Violation]:
    """V10: the deepest mark not behind a tail is found by the next request.

    So that there is one to find, a request by marks has one at its end and, where the tail is
    moved, one at the end of the history in front of it.
    """
    if rules.kind == "marks" and reading.record.purpose == "turn":
        yield from _unmarked_ends(reading, rules)
    base, limit = session_base(reading, earlier, rules)
    if base is None or reading.record.declared:
        return
    age = reading.record.time_sent - base.record.time_sent
    end = max((each for each in written(base, rules, age) if each <= limit), default=0)
    common = base.common(reading)
    # Behind it the request may find what stands longer than was to be hoped, or of older ones.
    deeper = (each for each in standing(base, age) if end <= each <= common)
    reached = any(found(reading, rules, each) for each in (end, *deeper))
    if end and common >= end and not reached:
        back = distance(reading, rules, end)
        where = "with no mark behind it" if back == float("inf") else f"{back:.0f} positions back"
        text = f"what request {base.record.n} stored ends here, {where}"
        yield violation("V10", reading, reading.rendered[end - 1].path, text)


def _unmarked_ends(reading: Reading, rules: CacheRules) -> Iterator[Violation]:
    rendered = reading.rendered
    closed = unmarked(rendered, rules)
    own = [
        at
        for at, each in enumerate(rendered)
        if each.kind == "message"
        and each.markable
        and not each.tail
        and each.role != "system"
        and id(each) not in closed
    ]
    marks = [at for at, each in enumerate(rendered) if each.mark is not None]
    if own and not any(at >= own[-1] for at in marks):
        yield violation("V10", reading, rendered[own[-1]].path, "no mark stands at the end")
    tail = reading.tail_at
    if tail is None or reading.record.tail != "moved":
        return
    answers = [at for at in own if at < tail and rendered[at].role == "assistant"]
    if answers and not any(answers[-1] <= at < tail for at in marks):
        text = "no mark stands at the end of the history in front of the tail"
        yield violation("V10", reading, rendered[answers[-1]].path, text)


_PAIRS: dict[str, Callable[[Reading, Reading], Iterator[Violation]]] = {
    "V1": tools_stay,
    "V2": prompt_stays,
    "V3": prefix_holds,
}
"""Rules between a request and the turn's request before it, on the same route."""

_ALONE: dict[str, Callable[[Reading, CacheRules], Iterator[Violation]]] = {
    "V6": calls_are_answered,
    "V7": tail_stands,
}


def _told(reading: Reading) -> tuple[str, str]:
    return reading.record.strategy, reading.record.definitions


def _immediate(reading: Reading) -> list[Segment]:
    return [each for each in reading.segments if each.kind == "tool" and not each.deferred]


def _prompt(reading: Reading) -> list[Segment]:
    return [each for each in reading.segments if each.kind == "system" and not each.tail]


def _lasting(reading: Reading, without_reasoning: bool = False) -> list[Segment]:
    moved = reading.record.tail == "moved"
    return [
        segment
        for segment in reading.segments
        if not (segment.kind == "tool" and segment.deferred)
        and not (moved and segment.tail)
        and not (without_reasoning and segment.transparent)
    ]


def _in_front(old: Sequence[Segment], declared: Sequence[Declared]) -> int:
    """Return how many segments stand in front of what was declared to break."""
    ends = [len(old)]
    for each in declared:
        if each.at in ("settings", "tools"):
            ends.append(0)
        elif each.at == "system":
            ends.append(sum(one.kind == "tool" for one in old))
        elif each.at == "messages":
            ends.append(sum(one.kind != "message" for one in old))
        elif each.at.startswith("messages["):
            ends += [at for at, one in enumerate(old) if one.message == each.at][:1]
    return min(ends)


def _first_message(reading: Reading) -> tuple[str, tuple[str, ...]]:
    """Return where the first user message stands, and what it consists of."""
    users = [each for each in _lasting(reading) if each.kind == "message" and each.role == "user"]
    if not users:
        return "", ()
    first = users[0]
    return first.path, tuple(each.key for each in users if each.message == first.message)


def _difference(old: Sequence[Segment], new: Sequence[Segment]) -> int | None:
    """Return where two rows of segments differ, or None."""
    for difference in range(max(len(old), len(new))):
        if (
            difference >= len(old)
            or difference >= len(new)
            or old[difference].key != new[difference].key
        ):
            return difference
    return None
