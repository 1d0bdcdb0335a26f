"""Change one thing in a good stream, and see that it costs only itself.

    python -m scripts.perturb [--count N] [--seed N]

A stream says text, reasoning and calls on one of the five wires. One field of one event is dropped,
nulled or made another kind of value; one event is told twice, moved, left out or split. Then:

- No exception comes out but ours, and that only where the end of the answer was what changed.
- Nothing else is lost: every word and every call of which no event changed is in the answer.
- A call that may have been cut, or whose own events changed, is the only one that may not run.
- A session that got the answer goes on: its next requests are taken by the strict lab, and each is
  the one before it with something behind it.

A session is played for each shape of an answer once: what follows from an answer depends on nothing
else.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import httpx2
import msgspec
from tests.wire.wires import SPEAKERS, Called, Event, Part, Said, Speaker, event

from addendum.agent.agent import Agent
from addendum.agent.setup import Limits
from addendum.errors import AddendumError, ProviderError
from addendum.lab.gemini_signatures import STAND_IN
from addendum.lab.server import Lab
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool, tool
from addendum.wire.answer import Answer
from addendum.wire.sse import SseEvent, SseParser
from addendum.wire.transport import Reply, Transport, TransportSettings, WireRequest

ROUTES = {
    "anthropic_messages": "anthropic:claude-opus-5-5",
    "openai_chat": "compatible:model",
    "openai_responses": "openai:gpt-6.1-sol",
    "bedrock_converse": "bedrock:anthropic.claude-sonnet-4-6",
    "gemini": "gemini:gemini-4-argon",
}
OTHER_KINDS: tuple[Any, ...] = (None, 0, 7, -1, 2.5, True, "", "odd", [], ["odd"], {}, {"odd": 1})
TOOLS = ("look", "see")


@dataclass(frozen=True)
class Case:
    """A good stream with one thing changed.

    Attributes:
        speaker: The wire.
        parts: What the stream says.
        good: Its events.
        events: The events as they were changed.
        touched: Places of the good events that changed.
        kind: The kind of change.
        change: What was done, for people.
    """

    speaker: Speaker
    parts: Sequence[Part]
    good: Sequence[Event]
    events: Sequence[Event]
    touched: frozenset[int]
    kind: str
    change: str


def case(rng: random.Random, speaker: Speaker | None = None) -> Case:
    """Make a case."""
    speaker = speaker or rng.choice(SPEAKERS)
    parts = _parts(rng)
    calls = any(isinstance(part, Called) for part in parts)
    good = speaker.stream(parts, speaker.whole[not calls])
    if rng.random() < 0.5:
        good = [(None if speaker.wire != "bedrock_converse" else name, data) for name, data in good]
    name = rng.choice(("drop", "null", "kind", "kind", "repeat", "move", "split", "leave out"))
    return _CHANGES[name](rng, Case(speaker, parts, good, good, frozenset(), name, name))


def _parts(rng: random.Random) -> list[Part]:
    """Return parts of which every word and every argument is said once."""
    words = (f"w{number}q " for number in rng.sample(range(100, 999), 60))
    parts: list[Part] = []
    if rng.random() < 0.5:
        parts.append(Said([next(words) for _ in range(rng.randint(1, 3))], True))
    if rng.random() < 0.8:
        parts.append(Said([next(words) for _ in range(rng.randint(1, 3))]))
    for number in range(rng.choice((0, 1, 2, 2, 3))):
        written = json.dumps({"q": next(words), "n": number})
        if rng.random() < 0.1:
            written = "{}"
        cuts = sorted(rng.sample(range(len(written) + 1), min(rng.randint(0, 3), len(written))))
        places = [0, *cuts, len(written)]
        pieces = [written[a:b] for a, b in pairwise(places)]
        parts.append(Called(f"c{number}", rng.choice(TOOLS), pieces))
    return parts or [Said([next(words)])]


# -- changes ------------------------------------------------------------------------------------


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield (*path, place)
            yield from _paths(inner, (*path, place))


def _field(rng: random.Random, made: Case) -> Case:
    place = rng.choice([at for at, (_, data) in enumerate(made.good) if isinstance(data, dict)])
    name, data = made.good[place]
    data = copy.deepcopy(data)
    path = rng.choice(list(_paths(data)) or [("odd",)])
    holder = data
    for step in path[:-1]:
        holder = holder[step]
    last, old = path[-1], None
    if made.kind == "drop":
        if isinstance(holder, dict):
            holder.pop(last, None)
        else:
            del holder[last]
    else:
        old = holder[last] if isinstance(holder, list) or last in holder else None
        kinds = [each for each in OTHER_KINDS if type(each) is not type(old)]
        holder[last] = None if made.kind == "null" else rng.choice(kinds)
    shown = f"{made.kind} {'.'.join(map(str, path))} of event {place}"
    if made.kind == "kind":
        shown += f": {old!r:.40} became {holder[last]!r}"
    return _with(made, place, [(name, data)], shown)


def _repeat(rng: random.Random, made: Case) -> Case:
    place = rng.randrange(len(made.good))
    return _with(made, place, [made.good[place]] * 2, f"event {place} twice")


def _leave_out(rng: random.Random, made: Case) -> Case:
    place = rng.randrange(len(made.good))
    return _with(made, place, [], f"event {place} left out")


def _move(rng: random.Random, made: Case) -> Case:
    """Let an event come a little later."""
    place = rng.randrange(len(made.good))
    by = rng.choice((1, 1, 1, 2, 3))
    events = list(made.good)
    moved = events.pop(place)
    events.insert(min(place + by, len(events)), moved)
    reached = range(place, min(place + by + 1, len(made.good)))
    return _changed(made, events, reached, f"event {place} moved by {by}")


def _split(rng: random.Random, made: Case) -> Case:
    """Let one string of an event come in two events."""
    found = [
        (at, path)
        for at, (_, data) in enumerate(made.good)
        if isinstance(data, dict)
        for path in _paths(data)
        if path[-1] in _GROWING and isinstance(_at(data, path), str) and len(_at(data, path)) > 1
    ]
    if not found:
        return made
    place, path = rng.choice(found)
    name, data = made.good[place]
    whole = _at(data, path)
    cut = rng.randint(1, len(whole) - 1)
    halves: list[Event] = []
    for half in (whole[:cut], whole[cut:]):
        copied = copy.deepcopy(data)
        _at(copied, path[:-1])[path[-1]] = half
        halves.append((name, copied))
    return _with(made, place, halves, f"{'.'.join(map(str, path))} of event {place} in two")


_GROWING = frozenset(
    "text thinking partial_json content reasoning_content arguments delta input".split()
)


def _at(value: Any, path: Sequence[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(made: Case, place: int, instead: list[Event], change: str) -> Case:
    events = [*made.good[:place], *instead, *made.good[place + 1 :]]
    return _changed(made, events, [place], change)


def _changed(made: Case, events: list[Event], places: Sequence[int] | range, change: str) -> Case:
    return Case(made.speaker, made.parts, made.good, events, frozenset(places), made.kind, change)


_CHANGES = {
    "drop": _field,
    "null": _field,
    "kind": _field,
    "repeat": _repeat,
    "leave out": _leave_out,
    "move": _move,
    "split": _split,
}


# -- judging ------------------------------------------------------------------------------------


def answered(made: Case, rng: random.Random) -> Answer | ProviderError:
    """Read the events of a case; where they are server-sent, through bytes cut anywhere."""
    parser = made.speaker.parser()
    seen: set[str] = set()
    try:
        for each in _framed(made, rng):
            parser.feed(each)
            seen |= {call.id for call in parser.settled()}
        found = parser.finish()
    except ProviderError as error:
        parser.partial()
        return error
    assert not seen & set(found.cut), "a call was settled and then cut"
    return found


def _framed(made: Case, rng: random.Random) -> Iterator[SseEvent]:
    plain = [event(name, data) for name, data in made.events]
    if made.speaker.wire == "bedrock_converse" or rng.random() < 0.8:
        yield from plain
        return
    end = rng.choice((b"\n", b"\r\n", b"\r"))
    data = b"".join(
        (b"event: %s%s" % (each.event.encode(), end) if each.event else b"")
        + b"data: %s%s%s" % (each.data, end, end)
        for each in plain
    )
    framer, start = SseParser(), 0
    while start < len(data):
        size = rng.choice((1, 3, 50, 1000))
        yield from framer.feed(data[start : start + size])
        start += size
    yield from framer.close()


def judge(made: Case, found: Answer | ProviderError) -> Iterator[str]:
    """Yield what is wrong with an answer."""
    if isinstance(found, ProviderError):
        if not (made.touched & _ends(made) or _reports(made)):
            yield f"an error where nothing of the end changed: {found}"
        return
    known = "".join(
        json.dumps(data)
        for at, (_, data) in enumerate(made.good)
        if at not in made.touched and isinstance(data, dict)
    )
    for part in made.parts:
        if isinstance(part, Said):
            into = found.reasoning if part.thought else found.text
            lost = [word for word in part.pieces if word in known and word not in into]
            if lost:
                yield f"lost {'reasoning' if part.thought else 'text'}: {lost}"
        elif not made.touched & _events_of(made, part):
            same = [
                call
                for call in found.calls
                if call.name == part.name and call.arguments == "".join(part.pieces)
            ]
            if not same:
                yield f"call {part.id} is not there: {found.calls}"
            elif found.ending == "whole" and all(call.id in found.cut for call in same):
                yield f"call {part.id} came whole and counts as cut"
    ids = [call.id for call in found.calls]
    if len(set(ids)) != len(ids) or not all(ids):
        yield f"ids are missing or doubled: {ids}"


def _ends(made: Case) -> set[int]:
    """Return the places of the events that say the answer has ended."""
    words = ('"stop_reason"', '"finish_reason": "', '"finishReason"', '"stopReason"')
    found = {
        at
        for at, (_, data) in enumerate(made.good)
        if isinstance(data, dict) and any(word in json.dumps(data) for word in words)
    }
    return found or {len(made.good) - 1}


def _reports(made: Case) -> bool:
    """Say whether a change made an error of an event."""
    return made.kind == "kind" and "error" in made.change.split()[1]


def _events_of(made: Case, part: Called) -> set[int]:
    """Return the places of the events of a call: those that name it, and its numbered pieces."""
    calls = [each for each in made.parts if isinstance(each, Called)]
    number = calls.index(part)
    index = list(made.parts).index(part)
    found: set[int] = set()
    for at, (_, data) in enumerate(made.good):
        if not isinstance(data, dict):
            continue
        match made.speaker.wire:
            case "anthropic_messages":
                mine = data.get("index") == index
            case "openai_chat":
                delta = (data["choices"] or [{}])[0].get("delta", {})
                mine = any(each["index"] == number for each in delta.get("tool_calls", ()))
            case "openai_responses":
                mine = data.get("output_index") == index
            case "bedrock_converse":
                mine = data.get("contentBlockIndex") == index
            case _:
                mine = f'"id": "{part.id}"' in json.dumps(data)
        if mine:
            found.add(at)
    return found


def shape(found: Answer) -> tuple[Any, ...]:
    """Return what of an answer decides how a session goes on: all but its words."""
    return (
        found.ending,
        bool(found.text.strip()),
        tuple((call.name, call.id in found.cut, _kind(call.arguments)) for call in found.calls),
        tuple(_skeleton(json.loads(bytes(raw))) for raw in found.native),
        found.left_out,
        found.usage.prompt is None,
    )


def _kind(arguments: str) -> str:
    try:
        return type(json.loads(arguments)).__name__
    except ValueError:
        return "none"


def _skeleton(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _skeleton(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return tuple(map(_skeleton, value))
    return (type(value).__name__, bool(value))


# -- sessions -----------------------------------------------------------------------------------


class _Once(Transport):
    """Gives one answer of a case, and the lab's behind it."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        super().__init__(TransportSettings(retries=0), client=client)
        self.events: list[SseEvent] | None = None

    @asynccontextmanager
    async def stream(self, request: WireRequest, **more: Any) -> AsyncGenerator[Reply]:
        """Give the events of a case, if there are some left."""
        events, self.events = self.events, None
        if events is None:
            # Nobody can sign what was changed: the lab judges all else.
            judged = msgspec.structs.replace(request, body=_without_seals(request.body))
            async with super().stream(judged, **more) as reply:
                yield reply
        else:
            yield Reply(200, {}, _each(events))


def _without_seals(raw: bytes) -> bytes:
    """Return a body without reasoning and signatures of the good stream."""
    body = json.loads(raw)
    for message in (*body.get("messages", ()), *body.get("contents", ())):
        for key in ("content", "parts"):
            if isinstance(message.get(key), list):
                message[key] = [each for each in map(_bare, message[key]) if each is not None]
                calls = [each for each in message[key] if "functionCall" in each]
                for each in calls[:1]:
                    each["thoughtSignature"] = STAND_IN
    if "input" in body:
        body["input"] = [item for item in body["input"] if item.get("type") != "reasoning"]
    return json.dumps(body).encode()


def _bare(block: dict[str, Any]) -> dict[str, Any] | None:
    if block.get("type") == "thinking" or "reasoningContent" in block or block.get("thought"):
        return None
    return {key: value for key, value in block.items() if key != "thoughtSignature"} or None


async def _each(events: list[SseEvent]) -> AsyncIterator[SseEvent]:
    for found in events:
        yield found


class Sessions:
    """Plays sessions against the lab's strict providers, in this process."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.lab.url = "http://127.0.0.1:9"
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.lab.app))
        self.transport = _Once(self.client)

    async def play(self, made: Case) -> list[str]:
        """Play a session that gets the answer of a case, and return what is wrong with it."""
        ran: list[str] = []
        agent = Agent(
            ROUTES[made.speaker.wire],
            instructions="Be brief.",
            tools=[_tool(name, ran) for name in TOOLS],
            base_url=self.lab.base_url(ROUTES[made.speaker.wire].partition(":")[0]),
            transport=self.transport,
            limits=Limits(tool_timeout=5.0),
            record=True,
        )
        first = len(self.lab.captures)
        self.transport.events = [event(name, data) for name, data in made.events]
        async with agent.open("s", store=MemoryStore()) as session:
            with_error = None
            try:
                await session.run("one")
            except AddendumError as error:
                with_error = error
            for text in ("two", "three"):
                try:
                    if not (await session.run(text)).text.startswith("I heard"):
                        return [f"turn {text} has another answer"]
                except AddendumError as error:
                    return [f"turn {text}: {error} (the first: {with_error})"]
            bodies = [json.loads(sent.body) for sent in session.sent]
        wrong = [str(each.refusal) for each in self.lab.captures[first:] if each.status != 200]
        if with_error is None:
            wrong += [
                f"request {at + 1} does not go on from the one before"
                for at, (one, other) in enumerate(pairwise(bodies))
                if not _goes_on(one, other)
            ]
        return wrong

    async def aclose(self) -> None:
        """Close the way to the lab."""
        await self.client.aclose()


def _tool(name: str, ran: list[str]) -> FunctionTool[..., Any]:
    async def run(q: str = "", n: int = 0) -> str:
        """Look for something."""
        ran.append(q)
        return f"seen {q}"

    return tool(name=name, read_only=True)(run)


def _goes_on(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether a request is another one with something behind it, marks and tools aside."""
    before, after = _said(one), _said(other)
    return before == after[: len(before)] and one.get("tools") == other.get("tools")


def _said(body: dict[str, Any]) -> list[Any]:
    """Return what a body says, block by block, without marks."""
    said: list[Any] = []
    listed = next(body[key] for key in ("messages", "input", "contents") if key in body)
    for message in listed:
        content = message.get("content", message.get("parts"))
        if isinstance(content, list) and "type" not in message:
            role = message["role"]
            said += [(role, _unmarked(block)) for block in content if "cachePoint" not in block]
        else:
            said.append(_unmarked(message))
    return said


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {key: _unmarked(inner) for key, inner in value.items() if key not in marks}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


# -- all together -------------------------------------------------------------------------------


@dataclass
class Report:
    """What came of many cases.

    Attributes:
        cases: How many.
        errors: How many of them ended in an error of ours.
        sessions: How many shapes were played on.
        wrong: What was wrong, with the case.
    """

    cases: int = 0
    errors: int = 0
    sessions: int = 0
    wrong: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


async def run(
    count: int, seed: int, *, speaker: Speaker | None = None, sessions: int | None = None
) -> Report:
    """Try many cases.

    Args:
        count: How many.
        seed: Of the first; the same seed gives the same cases.
        speaker: The wire; any if None.
        sessions: Most sessions that are played; one a shape if None.
    """
    report, shapes, played = Report(), set[Any](), Sessions()
    try:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            made = case(rng, speaker)
            where = f"case {seed} {number}, {made.speaker.wire}: {made.change}"
            report.cases += 1
            report.kinds[made.kind] += 1
            try:
                found = answered(made, rng)
                wrong = list(judge(made, found))
                if isinstance(found, ProviderError):
                    report.errors += 1
                elif (key := (made.speaker.wire, shape(found))) not in shapes and (
                    sessions is None or report.sessions < sessions
                ):
                    shapes.add(key)
                    report.sessions += 1
                    wrong += await played.play(made)
            except Exception as error:
                wrong = [f"{type(error).__name__}: {error}"]
            report.wrong += [f"{where}: {each}" for each in wrong]
    finally:
        await played.aclose()
    return report


def main() -> int:
    """Try as many cases as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.perf_counter()
    report = anyio.run(lambda: run(given.count, given.seed))
    for line in report.wrong[:50]:
        print(line)
    print(
        f"{report.cases:,} streams, {report.errors:,} of them errors of ours, "
        f"{report.sessions:,} shapes played on; {len(report.wrong):,} wrong; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
