"""Checks captured requests: ours by all that was declared, anybody's by their bodies alone.

Of requests that are not ours nothing is known but what they hold. A request that does not extend
the one before it is then reported with its cause, as far as bodies show it; whether that was meant
is for the reader to say, with `allow`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct

from addendum.cache.bodies import Violation
from addendum.cache.capture import Capture, fallback_rules, record_of
from addendum.cache.compare import Comparison, First, compare
from addendum.cache.conversations import sorted_out
from addendum.cache.figures import PROVIDER, judge
from addendum.cache.invariants import check
from addendum.cache.record import Reading, RequestRecord, readings
from addendum.cache.rules import CacheRules
from addendum.errors import ConfigurationError
from addendum.wire.segment import Segment, fields, newest_human, parse, resolve, text_of

CAUSES = ("tools", "system", "messages", "tail", "settings", "model")
"""What may be said to change on purpose; `tail` is text for one turn beside its message."""

RULES = ("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V9", "V10", "V11")
"""Rules that captures are checked by."""

_ALONE = ("V4", "V5", "V6", "V7", "V9", "V10")
"""Rules that need no declared breaks; the others are told with their cause."""

_AREA_RULES = {"tools": "V1", "system": "V2", "messages": "V3"}
_MARKS = (b'"cache_control"', b'"cachePoint"', b'"prompt_cache_breakpoint"')
_NAMES = 6
_SHOWN = 40


class Finding(Struct, frozen=True):
    """Something that does not hold.

    Attributes:
        rule: The invariant, `V1` to `V11`.
        cause: What changed (a key of `CAUSES`), for breaks that bodies show; else empty.
        where: File and line, or entry.
        session: The conversation.
        n: Number of the request among all that were checked.
        path: Where in its body, or empty.
        text: What is wrong, as a sentence.
    """

    rule: str
    cause: str
    where: str
    session: str
    n: int
    path: str
    text: str


class Examined(Struct, frozen=True):
    """What was checked, and what was found.

    Attributes:
        findings: What does not hold, by request.
        records: The requests that were checked.
        where: Where each of them was read from.
    """

    findings: tuple[Finding, ...]
    records: tuple[RequestRecord, ...]
    where: tuple[str, ...]

    @property
    def conversations(self) -> int:
        """How many conversations the requests belong to."""
        return len({record.session for record in self.records})


def examine(
    captures: Sequence[Sequence[Capture]],
    rules_of: Callable[[str], CacheRules | None],
    allow: Collection[str] = (),
) -> Examined:
    """Check captured requests.

    Args:
        captures: Requests by the file (or whatever) they came from, each in the order sent.
        rules_of: Gives the cache rules of a route by its name; None if nothing is known of it.
        allow: Causes and rules that may not hold: of `CAUSES` and `RULES`.

    Raises:
        ConfigurationError: Nobody knows a name in `allow`.
        ContentError: A capture is no request to a model; the message says which.
    """
    unknown = sorted(set(allow) - {*CAUSES, *RULES})
    if unknown:
        names = ", ".join((*CAUSES, *RULES))
        raise ConfigurationError(f"nothing is called {unknown[0]!r} here; allow any of: {names}")
    plain, records, where = _records(captures)
    sources = [each for group in captures for each in group]
    found: list[Finding] = []
    declared = [each.known is not None for each in sources]
    groups = sorted(range(len(records)), key=lambda at: (records[at].route, at))
    known = [record for record, ours in zip(records, declared, strict=True) if ours]
    by_marks: set[str] = set()
    for route, places in groupby(groups, key=lambda at: records[at].route):
        own = list(places)
        rules = rules_of(route) or fallback_rules([records[at].body for at in own])
        if rules.kind == "marks":
            by_marks.add(route)
        ours = [records[at] for at in own if declared[at]]
        theirs = [records[at] for at in own if not declared[at]]
        found += [_told(each, where) for each in check(ours, rules, among=known)]
        found += [
            _told(each, where) for each in _quieter(check(theirs, rules, only=_ALONE), theirs)
        ]
        found += _misses(ours, rules, where)
    found += _breaks(plain, records, sources, where, by_marks)
    kept = [each for each in found if each.rule not in allow and each.cause not in allow]
    kept.sort(key=lambda each: (each.n, RULES.index(each.rule)))
    return Examined(tuple(kept), tuple(records), tuple(where))


def _records(
    captures: Sequence[Sequence[Capture]],
) -> tuple[list[Reading], list[RequestRecord], list[str]]:
    """Return the requests taken apart, their records with conversations, and their places."""
    taken_apart: list[Reading] = []
    records: list[RequestRecord] = []
    where: list[str] = []
    taken: set[str] = set()
    for group in captures:
        plain = [
            record_of(each, len(records) + at, each.session or "")
            for at, each in enumerate(group, 1)
        ]
        read = readings(plain)
        taken_apart += read
        names = sorted_out(read)
        own = {name: _free(name, taken) for name in dict.fromkeys(names)}
        taken |= set(own.values())
        records += [
            msgspec.structs.replace(record, session=own[name])
            for record, name in zip(plain, names, strict=True)
        ]
        where += [each.where for each in group]
    return taken_apart, records, where


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name that no other file has given to a conversation."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def _told(broken: Violation, where: Sequence[str]) -> Finding:
    return Finding(
        broken.rule,
        "",
        where[broken.n - 1],
        broken.session,
        broken.n,
        broken.path,
        broken.text,
    )


def _quieter(broken: Sequence[Violation], records: Sequence[RequestRecord]) -> Iterator[Violation]:
    """Tell once of a conversation that sets no marks at all, not for each of its requests."""
    marked = {record.session for record in records if any(word in record.body for word in _MARKS)}
    said: set[str] = set()
    for each in broken:
        if each.rule != "V10" or each.session in marked:
            yield each
        elif each.session not in said:
            said.add(each.session)
            text = "no request of this conversation sets a cache mark, so nothing is cached"
            yield msgspec.structs.replace(each, text=text)


def _misses(
    records: Sequence[RequestRecord], rules: CacheRules, where: Sequence[str]
) -> Iterator[Finding]:
    """V11: every miss is declared or the provider's."""
    sent = {record.n: record for record in records}
    for row in judge(list(records), rules).requests:
        miss = row.miss
        if miss is None or miss.declared or miss.reason == PROVIDER:
            continue
        lost = (row.expected or 0) - (row.cache_read or 0)
        text = f"{lost:,} tokens were not read again: {miss.reason}"
        yield Finding("V11", "", where[row.n - 1], sent[row.n].session, row.n, _path(miss.at), text)


def _path(at: str) -> str:
    return "" if at in ("end", "none") else at


# -- breaks that bodies show --------------------------------------------------------------------


def _breaks(
    read: Sequence[Reading],
    records: Sequence[RequestRecord],
    sources: Sequence[Capture],
    where: Sequence[str],
    by_marks: Collection[str],
) -> Iterator[Finding]:
    """Yield breaks of requests that are not ours.

    Args:
        read: All requests taken apart.
        records: Their records, which know their conversations.
        sources: What they were read from.
        where: Where that stood.
        by_marks: Routes that cache by marks, as Claude does: there beta flags and the first
            deferred tool change the prefix.
    """
    latest: dict[str, RequestRecord] = {}
    for record, source in zip(records, sources, strict=True):
        if source.known is not None:
            continue
        before = latest.get(record.session)
        latest[record.session] = record
        if before is None or before.wire != record.wire:
            continue
        old, new = read[before.n - 1], read[record.n - 1]
        claude = record.route in by_marks
        flags = _flags(sources[before.n - 1], source) if claude else ()
        for rule, cause, path, text in (*flags, *_broken(old, new)):
            if path == "deferral" and not claude:
                continue
            told = f"{text}; it followed {where[before.n - 1]}"
            yield Finding(rule, cause, where[record.n - 1], record.session, record.n, path, told)


def _flags(old: Capture, new: Capture) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is wrong with beta flags, which count as settings; their order does not."""
    if not (old.headers and new.headers):
        return
    before, after = ({*_split(each.headers.get("anthropic-beta", ""))} for each in (old, new))
    if before != after:
        names = ", ".join(sorted(before ^ after))
        yield "V3", "settings", "anthropic-beta", f"beta flags came or went: {names}"


def _split(flags: str) -> list[str]:
    return [each.strip() for each in flags.split(",") if each.strip()]


def _broken(old: Reading, new: Reading) -> Iterator[tuple[str, str, str, str]]:
    """Yield rule, cause, path and words of what keeps a request from extending another."""
    seen = compare(old, new)
    models = [each for each in seen.settings if each.name == "model"]
    for each in models:
        text = f"the model changed from {each.before} to {each.after}: its cache is another one"
        yield "V3", "model", "model", text
    if models:
        return
    for each in seen.settings:
        text = f"setting {each.name} changed from {_side(each.before)} to {_side(each.after)}"
        yield "V3", "settings", each.name, text
    if seen.first is None:
        return
    area, tail = seen.first.area, _left_out(old, new) if seen.first.area == "messages" else None
    if tail is not None:
        said = text_of(fields(resolve(parse(old.record.body), tail.path)))
        text = f"text beside the newest message was not sent again: {_side(said)}"
        yield "V3", "tail", tail.path, text
    else:
        yield _AREA_RULES[area], area, seen.first.path, _content(seen, seen.first, old, new)


def _left_out(old: Reading, new: Reading) -> Segment | None:
    """Return the first of the segments that stood beside the newest human message and are gone.

    None if anything else is gone, or if the message itself is.
    """
    run = newest_human(old.segments)
    beside = {old.segments[at].path for at in run if old.segments[at].type != "message"}
    ours = [each for each in old.rendered if each.kind == "message" and not each.tail]
    theirs = [each for each in new.rendered if each.kind == "message" and not each.tail]
    gone: list[Segment] = []
    place, kept = 0, False
    for each in ours:
        if place < len(theirs) and theirs[place].key == each.key:
            place += 1
            kept = kept or each.path in beside
        elif each.path in beside or each.type == "message":
            gone.append(each)
        else:
            return None
    texts = [each for each in gone if each.type != "message"]
    return texts[0] if kept and texts else None


def _content(seen: Comparison, first: First, old: Reading, new: Reading) -> str:
    if first.area == "tools":
        return f"the tool list changed ({_tools(seen)})"
    sides = f"{_side(first.before)} became {_side(first.after)}"
    if first.area == "system":
        return f"the prompt text changed: {sides}"
    if first.state == "removed" and first.type in ("thinking", "redacted_thinking", "reasoning"):
        return "reasoning of an earlier answer is no longer sent"
    counts = [
        len({each.message for each in one.segments if each.kind == "message"}) for one in (old, new)
    ]
    if counts[1] < counts[0]:
        return f"the history was cut or summed up: {counts[0]} messages became {counts[1]}"
    if first.before is None and first.after is None:
        return "a definition that this block brings in changed"
    if first.after is None:
        return f"a block of an earlier message is gone: {_side(first.before)}"
    if first.before is None:
        return f"a block was put in front of earlier messages: {_side(first.after)}"
    return f"an earlier message changed: {sides}"


def _tools(seen: Comparison) -> str:
    """Return which tools came (+), went (-), changed (~) or only moved."""
    rows = [each for each in seen.changes if each.kind == "tool" and each.in_prefix]
    added = [each.name for each in rows if each.state == "added"]
    removed = [each.name for each in rows if each.state == "removed"]
    moved = [name for name in added if name in removed]
    signs = [
        *(f"+{name}" for name in added if name not in moved),
        *(f"-{name}" for name in removed if name not in moved),
        *(f"~{each.name}" for each in rows if each.state == "changed"),
        *(f"{name} moved" for name in moved),
    ]
    more = f" and {len(signs) - _NAMES} more" if len(signs) > _NAMES else ""
    return ", ".join(signs[:_NAMES]) + more


def _side(text: str | None) -> str:
    if text is None:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
