"""One request taken apart: its segments in cache order, what is new in it, and why it read less.

Nothing here trusts who made the request: bytes are rendered again from the log, and the judge that
`addendum why` uses says what is wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from addendum import encoding
from addendum.agent.replay import Replayed, known_route, replay
from addendum.cache.compare import Change, Comparison, compare
from addendum.cache.explain import Explanation, explain
from addendum.cache.figures import judge
from addendum.cache.record import Reading, readings
from addendum.cache.spent import Spent
from addendum.errors import AddendumError, ConfigurationError
from addendum.lab.records import rules_of
from addendum.log.exchanges import Exchange
from addendum.log.session_log import SessionLog
from addendum.viewer.index import Index
from addendum.viewer.text import discreet, discreet_json
from addendum.wire.segment import Json, parse, resolve

FOLDED = {"same": 6, "added": 24, "removed": 24}
"""Segments in a row, by what became of them, from which on they are told in one line."""

SHOWN = 1_500
"""Characters of a segment that a page holds before somebody asks for all."""

MAX_DIFF = 2_000
"""Lines on each side up to which two segments are compared line by line."""

MAX_PAIRS = 120
"""Changed segments that a difference shows; of the others it says how many they are."""

Fill = Literal["read", "write", "new", "none"]


class Row(Struct, frozen=True):
    """A segment, or a run of unchanged ones.

    Attributes:
        at: Its place among the rows of the request.
        state: What became of it since the request before: `same`, `changed`, `added`, `removed`.
        kind: Part of the request.
        role: Role it is sent under.
        type: Type of the block.
        name: The tool that it defines, or calls.
        path: Where it stands in the body.
        size: Its bytes.
        tokens: Its tokens, estimated.
        mark: The cache mark on it, or empty.
        deferred: Whether it stands outside the prefix.
        tail: Whether it is this turn's instructions.
        fill: Where the provider says that its tokens came from, estimated by bytes.
        text: Its JSON, or the beginning of it.
        cut: Whether there is more of it.
        run: How many segments the row stands for, all of one state; 1 for one.
        last: Path of the last one of a run.
    """

    at: int
    state: str
    kind: str
    role: str
    type: str
    name: str
    path: str
    size: int
    tokens: int
    mark: str
    deferred: bool
    tail: bool
    fill: Fill
    text: str
    cut: bool
    run: int = 1
    last: str = ""


class Look(Struct, frozen=True):
    """One request.

    Attributes:
        spent: What the log says of it, and what it cost.
        replayed: Its bytes.
        before: The request before it on its route, if there is one.
        rows: Its segments; runs of unchanged ones are folded.
        count: How many segments it has.
        comparison: How it follows the one before it.
        cause: Why it read less than expected; None if nothing is wrong or nothing is known.
    """

    spent: Spent
    replayed: Replayed
    before: int | None
    rows: tuple[Row, ...]
    count: int
    comparison: Comparison | None
    cause: Explanation | None


class Line(Struct, frozen=True):
    """A line of a difference: `same`, `old`, `new` or `gap`."""

    kind: str
    text: str


class Pair(Struct, frozen=True):
    """One segment on both sides of a difference.

    Attributes:
        change: What became of it.
        lines: It line by line; empty for a run of unchanged ones.
        run: How many unchanged segments it stands for; 0 for one that changed.
        first: Whether the second request stops extending the first one here.
    """

    change: Change
    lines: tuple[Line, ...] = ()
    run: int = 0
    first: bool = False


def requests_of(log: SessionLog, wanted: Iterable[Spent]) -> dict[int, Replayed]:
    """Render requests again, by their seqs, without credentials.

    These are as long as they were, and the same one is the same text: what is judged stays.

    Raises:
        AddendumError: One cannot be rendered again.
    """
    seqs = {each.request.seq for each in wanted}
    sent_requests: dict[int, Replayed] = {}
    for each in replay(log, seqs=seqs):
        sent_requests[each.seq] = _discreet(each)
        if len(sent_requests) == len(seqs):
            break
    return sent_requests


def _discreet(replayed: Replayed) -> Replayed:
    record = replayed.record
    tail, human = record.tail_text, record.human
    record = msgspec.structs.replace(
        record,
        body=discreet_json(record.body),
        tail_text=None if tail is None else discreet(tail),
        human=None if human is None else discreet(human),
    )
    return msgspec.structs.replace(replayed, record=record)


def numbered(log: SessionLog, index: Index, number: int) -> Spent:
    """Return a request by its number.

    Raises:
        ConfigurationError: There is none.
    """
    request = index.request(number)
    if request is None:
        last = index.requests[-1].request.number if index.requests else 0
        raise ConfigurationError(f"session {log.session} has requests up to {last}, not {number}")
    return request


def look(
    log: SessionLog,
    index: Index,
    number: int,
    *,
    folded: bool = True,
    replayed: Mapping[int, Replayed] | None = None,
) -> Look:
    """Return a request, taken apart.

    Args:
        log: The session's log.
        index: What is known of it.
        number: The request's number.
        folded: Whether runs of unchanged segments become one row.
        replayed: Requests by their seqs, where they were rendered already.

    Raises:
        AddendumError: There is no such request, or it cannot be rendered again.
    """
    spent = numbered(log, index, number)
    own = spent.request
    earlier = [
        each
        for each in index.requests
        if each.request.seq < own.seq and each.request.route == own.route
    ]
    answered = [each for each in earlier if each.request.answered]
    # The judge's base is the last one that was answered; shown is the last one that was sent.
    bases = answered[-1:]
    if earlier and earlier[-1] not in bases:
        bases.append(earlier[-1])
    found = requests_of(log, [*bases, spent]) if replayed is None else replayed
    itself = found[own.seq]
    before = bases[-1] if bases else None
    records = [found[each.request.seq].record for each in bases] + [itself.record]
    reads = readings(records)
    reading = reads[-1]
    seen = compare(reads[-2], reading) if before is not None else None
    shown = seen if seen is not None else compare(reading, reading)
    rows = _rows(reading, shown.changes, fresh=before is None, folded=folded)
    return Look(
        spent,
        itself,
        None if before is None else before.request.number,
        tuple(rows),
        len(reading.segments),
        seen,
        _cause(records, own) if spent.short else None,
    )


def _cause(records: Sequence[Any], own: Exchange) -> Explanation | None:
    route = known_route(own.route)
    if route.cache.kind == "none":
        return None
    rows = judge(records, rules_of(route.cache)).requests
    try:
        misses = explain([row for row in rows if row.n == own.number], records, route)
    except AddendumError:
        return None
    return misses[0] if misses else None


def _rows(reading: Reading, changes: Sequence[Change], *, fresh: bool, folded: bool) -> list[Row]:
    body = parse(reading.record.body)
    by_path = {each.path: each for each in reading.segments}
    fills = _fills(reading)
    rows: list[Row] = []
    for at, change in enumerate(changes):
        path = change.after
        if path is None:
            rows.append(_gone(at, change))
            continue
        segment = by_path[path]
        rows.append(
            Row(
                at,
                "added" if fresh else change.state,
                change.kind,
                change.role,
                change.type,
                segment.defines or ", ".join(segment.uses),
                path,
                change.size,
                change.tokens,
                segment.mark or "",
                segment.deferred,
                segment.tail,
                fills.get(path, "none"),
                "",
                False,
            )
        )
    shown = _folded(rows) if folded else rows
    return [
        _with_text(row, body) if row.run == 1 and row.state != "removed" else row for row in shown
    ]


def _with_text(row: Row, body: Json) -> Row:
    text = encoding.encode(resolve(body, row.path)).decode()
    return msgspec.structs.replace(row, text=text[:SHOWN], cut=len(text) > SHOWN)


def _gone(at: int, change: Change) -> Row:
    return Row(
        at,
        "removed",
        change.kind,
        change.role,
        change.type,
        change.name,
        change.before or "",
        change.size_before,
        change.tokens,
        "",
        False,
        False,
        "none",
        "",
        False,
    )


def _fills(reading: Reading) -> dict[str, Fill]:
    """Return where each segment's tokens came from, as far as sums and bytes tell."""
    usage = reading.record.usage
    if usage.cache_read is None or not reading.totals:
        return {}
    read, written = usage.cache_read, usage.cache_read + (usage.cache_write or 0)
    fills: dict[str, Fill] = {}
    start = 0
    for segment, end in zip(reading.rendered, reading.totals, strict=True):
        middle = (start + end) / 2
        fills[segment.path] = "read" if middle <= read else "write" if middle <= written else "new"
        start = end
    return fills


def _folded(rows: Sequence[Row]) -> list[Row]:
    """Put long runs of segments without a mark into one row, all but their ends."""
    found: list[Row] = []
    run: list[Row] = []

    def close() -> None:
        if not run or len(run) < FOLDED[run[0].state]:
            found.extend(run)
        else:
            first, last = run[1], run[-2]
            middle = run[1:-1]
            found.append(run[0])
            found.append(
                msgspec.structs.replace(
                    first,
                    size=sum(each.size for each in middle),
                    tokens=sum(each.tokens for each in middle),
                    text="",
                    cut=False,
                    run=len(middle),
                    last=last.path,
                )
            )
            found.append(run[-1])
        run.clear()

    for row in rows:
        if run and (run[-1].fill, run[-1].state) != (row.fill, row.state):
            close()
        if row.state in FOLDED and not row.mark:
            run.append(row)
        else:
            close()
            found.append(row)
    close()
    return found


# -- difference ---------------------------------------------------------------------------------


class Difference(Struct, frozen=True):
    """Two requests beside each other.

    Attributes:
        before: The first.
        after: The second.
        comparison: How the second follows the first.
        pairs: Their segments; runs of unchanged ones are one.
        more: Changed segments that are not shown.
    """

    before: Replayed
    after: Replayed
    comparison: Comparison
    pairs: tuple[Pair, ...]
    more: int = 0


def difference(log: SessionLog, index: Index, a: int, b: int) -> Difference:
    """Compare two requests of a session.

    Raises:
        AddendumError: One is not there, or cannot be rendered again; or they are on two wires.
    """
    wanted = [numbered(log, index, a), numbered(log, index, b)]
    found = requests_of(log, wanted)
    before, after = (found[each.request.seq] for each in wanted)
    if before.record.wire != after.record.wire:
        raise ConfigurationError(
            f"requests {a} and {b} speak to different APIs; compare two on one route"
        )
    old, new = readings([before.record, after.record])
    seen = compare(old, new)
    bodies = parse(before.record.body), parse(after.record.body)
    pairs: list[Pair] = []
    run: list[Change] = []
    shown = more = 0

    def close() -> None:
        if run:
            total = sum(each.size for each in run)
            pairs.append(Pair(msgspec.structs.replace(run[0], size=total), run=len(run)))
            run.clear()

    marked = False
    for change in seen.changes:
        if change.state == "same":
            run.append(change)
            continue
        close()
        shown += 1
        if shown > MAX_PAIRS:
            more += 1
            continue
        at_first = seen.first is not None and not marked and _is_first(seen, change)
        marked = marked or at_first
        pairs.append(Pair(change, tuple(_lines(bodies, change)), first=at_first))
    close()
    return Difference(before, after, seen, tuple(pairs), more)


def _is_first(seen: Comparison, change: Change) -> bool:
    first = seen.first
    path = change.after or change.before or ""
    return first is not None and (first.path.startswith(path) or path.startswith(first.path))


def pretty(value: Any) -> list[str]:
    """Return a JSON value line by line; long texts are broken at their own line ends."""
    text = msgspec.json.format(encoding.encode(value), indent=2).decode()
    return [part for line in text.split("\n") for part in _broken(line)]


def _broken(line: str) -> list[str]:
    """Break a line of JSON behind each escaped line end, so that a difference is small."""
    return line.replace("\\n", "\\n\n").rstrip("\n").split("\n") if "\\n" in line else [line]


def _lines(bodies: tuple[Json, Json], change: Change) -> list[Line]:
    sides = [
        [] if path is None else pretty(resolve(body, path))
        for body, path in zip(bodies, (change.before, change.after), strict=True)
    ]
    old, new = sides
    if not old or not new or max(len(old), len(new)) > MAX_DIFF:
        shown = [*(Line("old", each) for each in old), *(Line("new", each) for each in new)]
        return _capped(shown)
    found: list[Line] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, other, stop in matcher.get_opcodes():
        if kind == "equal":
            lines = [Line("same", each) for each in old[start:end]]
            found += lines if len(lines) <= 6 else [*lines[:3], Line("gap", ""), *lines[-3:]]
        else:
            found += [Line("old", each) for each in old[start:end]]
            found += [Line("new", each) for each in new[other:stop]]
    return _capped(found)


def _capped(lines: list[Line]) -> list[Line]:
    if len(lines) <= 400:
        return lines
    return [*lines[:400], Line("gap", "")]
