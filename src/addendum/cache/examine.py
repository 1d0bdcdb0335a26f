"""Checks captured requests: ours by all that was declared, anybody's by their bodies alone.

Of requests that are not ours nothing is known but what they hold. A request that does not extend
the one before it is then reported with its cause, as far as bodies show it; whether that was meant
is for the reader to say, with `allow`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from addendum.cache.agent_logs import Counted, told
from addendum.cache.bodies import Violation
from addendum.cache.capture import record_of
from addendum.cache.capture_files import Source
from addendum.cache.compare import Comparison, First, compare
from addendum.cache.conversations import Conversations
from addendum.cache.figures import PROVIDER, Judge, Row
from addendum.cache.invariants import Checker
from addendum.cache.kept import Kept, size_of
from addendum.cache.record import Reading, measured, taken_apart
from addendum.cache.rules import CacheRules
from addendum.errors import ConfigurationError
from addendum.masking import masked
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

ROOM = 64 * 1024 * 1024
"""Bytes of earlier requests that a check keeps beside the one it looks at."""

MOST = 10_000
"""Findings that are kept; the others are counted."""

_UNKNOWN = CacheRules("marks", minimum=4096)
"""Rules for a model that nothing is known of: what needs marks counts where somebody sets some."""


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
        requests: How many requests were checked.
        conversations: How many conversations they belong to.
        more: Findings beyond `MOST`, which were only counted.
        notes: What a reader should know of how it was checked, a sentence each.
    """

    findings: tuple[Finding, ...]
    requests: int
    conversations: int
    more: int = 0
    notes: tuple[str, ...] = ()


def examine(
    captures: Iterable[Iterable[Source]],
    rules_of: Callable[[str], CacheRules | None],
    allow: Collection[str] = (),
    seen: Callable[[int, str, str], None] | None = None,
) -> Examined:
    """Check captured requests, one at a time.

    Args:
        captures: Requests by the file (or whatever) they came from, each in the order sent.
        rules_of: Gives the cache rules of a route by its name; None if nothing is known of it.
        allow: Causes and rules that may not hold: of `CAUSES` and `RULES`.
        seen: Called for each request with its number, where it came from and its conversation.

    Raises:
        ConfigurationError: Nobody knows a name in `allow`.
        ContentError: A capture is no request to a model; the message says which.
    """
    unknown = sorted(set(allow) - {*CAUSES, *RULES})
    if unknown:
        names = ", ".join((*CAUSES, *RULES))
        raise ConfigurationError(f"nothing is called {unknown[0]!r} here; allow any of: {names}")
    work = _Examination(rules_of, frozenset(allow), seen)
    for group in captures:
        work.begin()
        for each in group:
            work.see(each)
    return work.result()


class _Seen(Struct, frozen=True):
    """The latest request of a conversation that is not ours."""

    reading: Reading
    where: str
    headers: Mapping[str, str]


class _Route(Struct):
    """How a route caches; where that is not known, whether somebody set a mark on it."""

    rules: CacheRules
    known: bool
    marked: bool
    judge: Judge


class _Examination:
    """Goes through requests and keeps what later ones need."""

    def __init__(
        self,
        rules_of: Callable[[str], CacheRules | None],
        allow: frozenset[str],
        seen: Callable[[int, str, str], None] | None,
    ) -> None:
        self._rules_of, self._allow, self._seen = rules_of, allow, seen
        self._routes: dict[str, _Route] = {}
        self._found: list[tuple[Finding, str]] = []
        self._more = 0
        self._n = 0
        self._taken: set[str] = set()
        self._names: dict[str, str] = {}
        self._conversations = Conversations()
        self._ours = Checker(room=ROOM)
        self._theirs = Checker(_ALONE, room=ROOM)
        self._latest: Kept[_Seen] = Kept(ROOM)
        self._counted: dict[str, Counted] = {}
        self._unmarked: dict[str, tuple[Finding, str] | None] = {}

    def begin(self) -> None:
        """Begin with another file: conversations do not go on from one to the next."""
        self._taken |= set(self._names.values())
        self._names = {}
        self._conversations = Conversations()

    def see(self, source: Source) -> None:
        """Check the next request."""
        self._n += 1
        if isinstance(source, Counted):
            self._count(source)
            return
        plain = record_of(source, self._n, source.session or "")
        body = parse(source.body) if source.plain is None else source.plain
        reading = measured(taken_apart(plain, body))
        session = self._named(self._conversations.name(reading))
        record = msgspec.structs.replace(plain, session=session)
        reading = msgspec.structs.replace(reading, record=record)
        if self._seen is not None:
            self._seen(self._n, source.where, session)
        route = self._route(record.route)
        marked = any(word in record.body for word in _MARKS)
        if marked:
            route.marked = True
            self._found += filter(None, [self._unmarked.get(session)])
            self._unmarked[session] = None
        if source.known is not None:
            for each in self._ours.see(reading, route.rules):
                self._add(_told(each, source.where))
            judged = route.judge.see(reading)
            if judged is not None:
                self._missed(judged[0], source.where)
            return
        for each in self._theirs.see(reading, route.rules):
            self._quieter(_told(each, source.where), record.route)
        before = self._latest.get(session)
        now = _Seen(reading, source.where, source.headers)
        self._latest.put(session, now, size_of(reading))
        if before is not None and before.reading.record.wire == record.wire:
            self._follows(before, now, by_marks=route.rules.kind == "marks")

    def result(self) -> Examined:
        """Return what was found, once all requests were seen."""
        blind = {name: each.marked for name, each in self._routes.items() if not each.known}
        found = list(self._found)
        for first in filter(None, self._unmarked.values()):
            # Told once of a conversation that sets no marks at all, not for each of its requests.
            text = "no request of this conversation sets a cache mark, so nothing is cached"
            found.append((msgspec.structs.replace(first[0], text=text), first[1]))
        # What needs marks says nothing of a model that nobody sets marks for.
        kept = [each for each, route in found if blind.get(route, True)]
        kept.sort(key=lambda each: (each.n, RULES.index(each.rule)))
        talks = len(self._taken | set(self._names.values()))
        return Examined(tuple(kept), self._n, talks, self._more, tuple(self._notes(blind)))

    def _notes(self, blind: Collection[str]) -> Iterator[str]:
        for name in sorted(blind):
            yield (
                f"nothing is known of how {name.removeprefix('unknown:') or 'a model'} caches; "
                "only beginnings were compared"
            )
        judges = sum(each.judge.lost for each in self._routes.values())
        lost = max(self._latest.lost, self._theirs.lost, self._ours.lost, judges)
        if lost:
            yield f"{lost:,} requests followed theirs too late to be compared; check fewer at once"
        if self._counted:
            yield "session logs keep no requests: only what was read and written is judged"

    def _named(self, name: str) -> str:
        """Return a name that no other file has given to a conversation."""
        found = self._names.get(name)
        if found is None:
            number, found = 1, name
            while found in self._taken:
                number += 1
                found = f"{name} ({number})"
            self._names[name] = found
        return found

    def _route(self, name: str) -> _Route:
        route = self._routes.get(name)
        if route is None:
            rules = self._rules_of(name)
            used = rules or _UNKNOWN
            route = _Route(used, rules is not None, False, Judge(used, ROOM))
            self._routes[name] = route
        return route

    def _add(self, finding: Finding, route: str = "") -> None:
        """Keep a finding; with a route it counts only if somebody sets marks there."""
        if finding.rule in self._allow or finding.cause in self._allow:
            return
        if len(self._found) < MOST:
            self._found.append((finding, route))
        else:
            self._more += 1

    def _quieter(self, finding: Finding, route: str) -> None:
        if finding.rule != "V10":
            self._add(finding)
        elif "V10" not in self._allow:
            if self._unmarked.setdefault(finding.session, (finding, route)) is None:
                self._add(finding, route)

    def _missed(self, row: Row, where: str) -> None:
        """V11: every miss is declared or the provider's."""
        miss = row.miss
        if miss is None or miss.declared or miss.reason == PROVIDER:
            return
        lost = (row.expected or 0) - (row.cache_read or 0)
        text = f"{lost:,} tokens were not read again: {miss.reason}"
        path = "" if miss.at in ("end", "none") else miss.at
        self._add(Finding("V11", "", where, row.session, row.n, path, text))

    def _count(self, now: Counted) -> None:
        """V11 for a request of a session log, of which nothing but its count is known."""
        session = self._named(now.session)
        if self._seen is not None:
            self._seen(self._n, now.where, session)
        before = self._counted.get(session)
        self._counted[session] = now
        said = None if before is None else told(before, now)
        if said is not None:
            cause, text = said
            self._add(Finding("V11", cause, now.where, session, self._n, "", text))

    def _follows(self, before: _Seen, now: _Seen, by_marks: bool) -> None:
        """Find what keeps a request that is not ours from extending the one before it.

        Args:
            before: The request before it in its conversation.
            now: The request.
            by_marks: Whether its route caches by marks, as Claude does: there beta flags and the
                first deferred tool change the prefix.
        """
        record = now.reading.record
        flags = _flags(before.headers, now.headers) if by_marks else ()
        for rule, cause, path, text in (*flags, *_differences(before.reading, now.reading)):
            marks = path in ("deferral", "anthropic-beta")
            if marks and not by_marks:
                continue
            told = f"{text}; it followed {before.where}"
            finding = Finding(rule, cause, now.where, record.session, record.n, path, told)
            self._add(finding, record.route if marks else "")


def _told(broken: Violation, where: str) -> Finding:
    return Finding(
        broken.rule, "", where, broken.session, broken.n, broken.path, masked(broken.text)
    )


# -- breaks that bodies show --------------------------------------------------------------------


def _flags(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is wrong with beta flags, which count as settings; their order does not."""
    if not (old and new):
        return
    before, after = ({*_split(each.get("anthropic-beta", ""))} for each in (old, new))
    if before != after:
        names = ", ".join(sorted(before ^ after))
        yield "V3", "settings", "anthropic-beta", f"beta flags came or went: {names}"


def _split(flags: str) -> list[str]:
    return [each.strip() for each in flags.split(",") if each.strip()]


def _differences(old: Reading, new: Reading) -> Iterator[tuple[str, str, str, str]]:
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
        said = masked(text_of(fields(resolve(parse(old.record.body), tail.path))))
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
    ours = [segment for segment in old.rendered if segment.kind == "message" and not segment.tail]
    theirs = [segment for segment in new.rendered if segment.kind == "message" and not segment.tail]
    gone: list[Segment] = []
    place, kept = 0, False
    for segment in ours:
        if place < len(theirs) and theirs[place].key == segment.key:
            place += 1
            kept = kept or segment.path in beside
        elif segment.path in beside or segment.type == "message":
            gone.append(segment)
        else:
            return None
    texts = [segment for segment in gone if segment.type != "message"]
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
