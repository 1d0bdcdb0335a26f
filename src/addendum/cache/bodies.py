"""Rules that each request body has to keep by itself: marks, names, calls and results, the tail.

Functions over captured bodies only. Each yields the violations it finds; none is good.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct

from addendum.cache.record import Reading, RequestRecord
from addendum.cache.rules import CacheRules
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.wire.segment import Json, Segment, fields, newest_human, parse, resolve, text_of

T = TypeVar("T")
_OWN = frozenset({TOOL_DISPATCHER_NAME, TOOL_SEARCH_NAME})


class Violation(Struct, frozen=True):
    """A request that breaks a rule.

    Attributes:
        rule: `V1` to `V10`.
        session: The conversation.
        n: Number of the request.
        path: Where in its body, or empty.
        text: What is wrong, as a sentence.
    """

    rule: str
    session: str
    n: int
    path: str
    text: str


def violation(rule: str, reading: Reading, path: str, text: str) -> Violation:
    """Return a violation of a rule by a request."""
    return Violation(rule, reading.record.session, reading.record.n, path, text)


def marks_are_legal(reading: Reading, rules: CacheRules) -> Iterator[Violation]:
    """V4: few enough marks, each where the wire takes one, longer lifetimes first."""
    limit = rules.max_marks
    if rules.kind == "boundaries" and not reading.explicit_only:
        limit -= 1  # the implicit boundary is one of them
    marked = [each for each in reading.segments if each.marks]
    closed = unmarked(reading.segments, rules)
    total = sum(each.marks for each in marked)
    if total > limit:
        yield violation("V4", reading, marked[-1].path, f"{total} marks, but {limit} are taken")
    short = False
    for each in marked:
        problem = _misplaced(each, id(each) in closed)
        if problem:
            yield violation("V4", reading, each.path, f"a mark stands {problem}")
        if each.mark == "1h" and short:
            text = "a mark of an hour stands behind one of five minutes"
            yield violation("V4", reading, each.path, text)
        short = short or each.mark == "5m"


def unmarked(segments: Sequence[Segment], rules: CacheRules) -> frozenset[int]:
    """Return the identities of segments on which a route takes no mark.

    They are the tools, and segments whose message holds a call or a result, where marks stand on
    text alone; and the results, where those take none.
    """
    if not rules.text_marks:
        if rules.result_marks:
            return frozenset()
        return frozenset(id(each) for each in segments if each.answers or each.role == "tool")
    busy = {each.message for each in segments if each.opens or each.answers}
    return frozenset(id(each) for each in segments if each.kind == "tool" or each.message in busy)


def _misplaced(segment: Segment, closed: bool) -> str:
    if closed:
        return "on a tool or beside a call or a result, where this route takes none"
    if segment.misplaced:
        return "inside a block instead of on it"
    if segment.deferred:
        return "outside the cached prefix"
    if segment.tail:
        return "on this turn's instructions"
    return "" if segment.markable else f"on a {segment.type} block that cannot carry one"


class Names:
    """V5: every tool named in the history is declared or defined.

    On in-history and dispatch by this request, elsewhere by this one or an earlier one of the
    session. What stood in a request that declared a break, or was the first on its route, stands as
    it happened from then on: declarations began anew there, and calls that were accounted for
    before may name what is gone, or was spelled otherwise on another route. On any route a call may
    name one of our own two tools that an earlier request declared, and a name of which a result
    says that there is no such tool. Where a change in mid-run waits for the next message, so does
    the definition of what is called unseen. What was sent before a fork was sent in it.
    """

    def __init__(self) -> None:
        self._ever: dict[str, set[str]] = {}
        self._accounted: dict[str, set[int]] = {}
        self._excused: dict[str, set[int]] = {}
        self._routes: dict[str, set[str]] = {}

    def see(self, reading: Reading) -> Iterator[Violation]:
        """Yield the names that the next request may not use."""
        record = reading.record
        before = _of(self._ever, record)
        accounted = _of(self._accounted, record)
        excused = _of(self._excused, record)
        routes = _of(self._routes, record)
        broken = any(each.at != "none" for each in record.declared)
        begins = broken or record.route not in routes
        routes.add(record.route)
        strict = record.strategy in ("in-history", "dispatch") and not broken
        late = record.strategy == "addition-only" and record.definitions == "by-value"
        now = {each.defines for each in reading.segments if late or each.kind == "tool"}
        said = [at for at, each in enumerate(reading.segments) if _is_said(each)]
        waits = max(said, default=-1) if late else len(reading.segments)
        for at, each in enumerate(reading.segments):
            if each.defines:
                now.add(each.defines)
            # Its id is the same on all routes; where it was dispatched, its name is not.
            call = hash(each.opens or each.key)
            for name in each.uses:
                known = name in now or (name in before and (name in _OWN or not strict))
                known = known or call in excused or (begins and call in accounted)
                if known or _is_unknown(reading, name):
                    accounted.add(call)
                    if begins:
                        excused.add(call)
                elif at <= waits:
                    text = f"tool {name!r} is named, but neither declared nor defined here"
                    yield violation("V5", reading, each.path, text)
        before |= now


def _of(kept: dict[str, set[T]], record: RequestRecord) -> set[T]:
    """Return what is kept of a session; a fork begins with its parent's."""
    return kept.setdefault(record.session, set(kept.get(record.parent or "", ())))


def _is_said(segment: Segment) -> bool:
    return segment.kind == "message" and segment.role == "user" and not segment.answers


def _is_unknown(reading: Reading, name: str) -> bool:
    """Say whether the result of any call of a name says that there is no such tool."""
    said = tuple(f'{start} "{name}"' for start in ("unknown tool", "there is no tool"))
    calls = {each.opens for each in reading.segments if each.opens and name in each.uses}
    body = parse(reading.record.body)
    return any(
        text.startswith(said)
        for each in reading.segments
        if each.answers in calls
        for text in _strings(resolve(body, each.path))
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in cast(Json, value).values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in cast(list[Any], value):
            yield from _strings(part)


def calls_are_answered(reading: Reading, rules: CacheRules) -> Iterator[Violation]:
    """V6: each call has exactly one result, directly behind its round."""
    waiting: dict[str, str] = {}
    answering = ""
    for each in reading.segments:
        if each.kind != "message":
            continue
        if each.opens:
            if each.opens in waiting:
                text = f"call id {each.opens!r} is used twice in one round"
                yield violation("V6", reading, each.path, text)
            waiting[each.opens] = each.path
        elif each.answers:
            answering = each.message
            if waiting.pop(each.answers, None) is None:
                text = f"a result answers {each.answers!r}, which no call of its round made"
                yield violation("V6", reading, each.path, text)
        elif each.role == "tool" and each.message == answering:
            continue
        elif each.role != "assistant" and waiting:
            yield from _unanswered(reading, waiting)
            waiting = {}
    yield from _unanswered(reading, waiting)


def _unanswered(reading: Reading, waiting: dict[str, str]) -> Iterator[Violation]:
    for call, path in waiting.items():
        text = f"call {call!r} has no result directly behind its round"
        yield violation("V6", reading, path, text)


def tail_stands(reading: Reading, rules: CacheRules) -> Iterator[Violation]:
    """V7: this turn's instructions stand where their mode says.

    Moved and kept: right in front of the newest human message (kept: or right behind it; on
    OpenRouter's first turn behind it), or so in one message with it. Scoped: behind that message
    and again behind each later user message of the turn. Without caching: in the system text.
    Requests without instructions, and compactions, are left alone.
    """
    record = reading.record
    if not record.tail_text or record.purpose == "compaction":
        return
    spoken = [each for each in reading.segments if each.type != "message"]
    body = parse(record.body)
    texts = [text_of(fields(resolve(body, each.path))) for each in spoken]
    if not record.caching:
        system = [text for text, each in zip(texts, spoken, strict=True) if each.kind == "system"]
        if not any(record.tail_text in text for text in system):
            yield violation("V7", reading, "", "the instructions are not in the system text")
        return
    carriers = [
        at
        for at, each in enumerate(spoken)
        if each.tail
        or (record.tail == "kept" and each.kind == "message" and record.tail_text in texts[at])
    ]
    human = _human(spoken, texts, carriers, record.human)
    if human is None:
        yield violation("V7", reading, "", "there is no human message for the instructions")
    elif record.tail == "scoped":
        yield from _scoped(reading, spoken, texts, human)
    else:
        yield from _beside(reading, spoken, texts, carriers, human)


def _human(
    spoken: Sequence[Segment], texts: Sequence[str], carriers: Sequence[int], human: str | None
) -> int | None:
    """Return the place of the newest human message."""
    if human:
        own = [at for at, each in enumerate(spoken) if each.role == "user"]
        same = [at for at in own if texts[at] == human]
        same = same or [at for at in own if at not in carriers and human in texts[at]]
        # Where roles alternate, both are one message.
        same = same or [at for at in own if human in texts[at]]
        if same:
            return same[-1]
    newest = newest_human(spoken)
    return next((at for at in newest if at not in carriers), newest[-1] if newest else None)


def _beside(
    reading: Reading,
    spoken: Sequence[Segment],
    texts: Sequence[str],
    carriers: Sequence[int],
    human: int,
) -> Iterator[Violation]:
    record = reading.record
    places = {human - 1}
    first = not any(each.role == "assistant" for each in spoken[:human])
    if record.tail == "kept" or (record.route.startswith("openrouter") and first):
        places.add(human + 1)
    if human in carriers and _in_front(record, texts[human]):
        places.add(human)
    if not places & set(carriers):
        text = f"no {record.tail} instructions stand beside the newest human message"
        yield violation("V7", reading, spoken[human].path, text)
    if record.tail == "moved":
        # A copy that was left behind would be read as history for ever.
        said = {texts[at] for at in carriers}
        beside = {spoken[at].path for at in carriers}
        for at, text in enumerate(texts):
            if spoken[at].path in beside or at in carriers:
                continue
            if spoken[at].kind == "message" and text in said:
                problem = "moved instructions stand in a second place"
                yield violation("V7", reading, spoken[at].path, problem)


def _in_front(record: RequestRecord, text: str) -> bool:
    """Say whether instructions stand in front of what the human wrote, in one message with it."""
    carried, tail = text.rfind(record.human or ""), text.find(record.tail_text or "")
    return (tail < carried if record.human else text != record.tail_text) or record.tail == "kept"


def _scoped(
    reading: Reading, spoken: Sequence[Segment], texts: Sequence[str], human: int
) -> Iterator[Violation]:
    tail = reading.record.tail_text or ""
    at = human
    while at < len(spoken):
        if spoken[at].role != "user":
            at += 1
            continue
        while at < len(spoken) and spoken[at].role == "user":
            at += 1
        last, carried = at - 1, False
        while at < len(spoken) and spoken[at].role == "system":
            carried = carried or (spoken[at].tail and tail in texts[at])
            at += 1
        if not carried:
            text = "no turn-scoped instructions stand behind this user message"
            yield violation("V7", reading, spoken[last].path, text)
