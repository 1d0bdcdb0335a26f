"""Random histories from log to bytes, on every wire and projection (D1, V3, V8, V10, V11)."""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter

import anyio
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.property.driver import HIDDEN, MARKED, NAMES, OWN, Home, Move, Played, playing
from tests.property.folding import check_folds
from tests.property.judging import judged
from tests.property.reference import REASONING, allowed, blocks, callable_names, extends

from addendum.agent.context.requests import Sent
from addendum.log.events import (
    AssistantMessage,
    Event,
    RequestContext,
    RequestSent,
    RouteDowngrade,
)
from addendum.log.session_log import SessionLog
from addendum.prompt.breaks import reasoning_floor
from addendum.prompt.projector import project
from addendum.routes import resolve
from addendum.wire.apis import facts, wire

HOMES = [
    Home("by-value", "anthropic:claude-opus-5-5", "deepseek:deepseek-flash", effort=True),
    Home("by-reference", "anthropic:claude-opus-4-8+by-reference", "deepseek:deepseek-flash"),
    Home("older", "anthropic:claude-sonnet-4-6", "anthropic:claude-opus-5-5"),
    Home("moved", "anthropic:claude-sonnet-4-6", "openai-chat:gpt-4.1", tail="moved"),
    Home("bound-moved", "anthropic:claude-opus-5-5", "deepseek:deepseek-flash", tail="moved"),
    Home("deepseek", "deepseek:deepseek-flash", "anthropic:claude-opus-5-5"),
    Home("chat", "openai-chat:gpt-4.1", "anthropic:claude-opus-5-5", labels=True),
    Home("empty", "anthropic:claude-opus-5-5", "openai-chat:gpt-4.1", empty=True),
    Home("rebind", "anthropic:claude-opus-4-8", "openai-chat:gpt-4.1", tool_changes="rebind"),
    Home("dispatch", "anthropic:claude-opus-5-5", "anthropic:claude-opus-4-8", "dispatch"),
    Home("responses", "openai:gpt-6.1-sol", "anthropic:claude-opus-5-5", labels=True),
    Home("responses-moved", "openai:gpt-6.1-sol", "openai-chat:gpt-6.1-sol", tail="moved"),
    Home("responses-older", "openai:gpt-5", "openai:gpt-6.1-sol"),
    Home("bedrock", "bedrock:anthropic.claude-opus-5-5", "anthropic:claude-opus-5-5"),
    Home("bedrock-moved", "bedrock:anthropic.claude-sonnet-4-5", "gemini:gemini-3.8-flash"),
    Home("bedrock-rebind", "bedrock:anthropic.claude-sonnet-5", "gemini:gemini-2.5-pro", "rebind"),
    Home(
        "bedrock-empty",
        "bedrock:anthropic.claude-opus-4-8",
        "openai-chat:gpt-4.1",
        "rebind",
        empty=True,
    ),
    Home("nova", "bedrock:amazon.nova-pro-v1:0", "openai-chat:gpt-4.1"),
    Home("gemini", "gemini:gemini-3.8-flash", "bedrock:anthropic.claude-opus-5-5"),
    Home("kimi", "moonshot:kimi-k3", "anthropic:claude-opus-5-5"),
    Home("openrouter", "openrouter:anthropic/claude-opus-5", "deepseek-chat:deepseek-flash"),
    Home("openrouter-bound", "openrouter:anthropic/claude-opus-5.5", "openai-chat:gpt-4.1"),
    Home(
        "openrouter-moved",
        "openrouter:anthropic/claude-opus-5.5",
        "moonshot:kimi-k3",
        "auto",
        "moved",
    ),
    Home("deepseek-chat", "deepseek-chat:deepseek-flash", "openrouter:qwen/qwen3-max"),
    Home("vertex-claude", "vertex-claude:claude-opus-5-5", "mistral:mistral-large-4"),
]

# ADDENDUM_EXAMPLES asks for that many other histories; ADDENDUM_HISTORIES for fewer of the same.
EXAMPLES = int(os.environ.get("ADDENDUM_EXAMPLES") or os.environ.get("ADDENDUM_HISTORIES") or "300")
PER_HOME = -(-EXAMPLES // len(HOMES))

name = st.sampled_from(NAMES)
rounds = st.lists(st.sampled_from(["one", "last", "gone", "direct", "many"]), max_size=2)
turn = st.tuples(st.just("turn"), rounds)


def moves(*kinds: str) -> st.SearchStrategy[list[Move]]:
    return st.just([(kind,) for kind in kinds])


@st.composite
def removed_and_back(draw: st.DrawFn) -> list[Move]:
    which = draw(name)
    between: list[Move] = [draw(turn)] if draw(st.booleans()) else []
    if draw(st.booleans()):
        return [("on",), draw(turn), ("off",), *between, ("on",)]
    again: list[Move] = [("redefine", which)] if draw(st.integers(0, 3)) == 0 else []
    return [("add", which), draw(turn), ("remove", which), *between, *again, ("add", which)]


@st.composite
def there_and_back(draw: st.DrawFn) -> list[Move]:
    return [("go", True), draw(turn), ("go", False), draw(turn)]


@st.composite
def restarted(draw: st.DrawFn) -> list[Move]:
    return [("add", draw(name)), draw(turn), ("restart",)]


piece: st.SearchStrategy[list[Move]] = st.one_of(
    st.tuples(st.just("add"), name, st.booleans()).map(lambda move: [move]),
    st.tuples(st.just("remove"), name).map(lambda move: [move]),
    st.tuples(st.just("redefine"), st.sampled_from([*NAMES, OWN])).map(lambda move: [move]),
    st.tuples(st.just("revert"), st.sampled_from([*NAMES, OWN])).map(lambda move: [move]),
    moves("on"),
    moves("off"),
    st.tuples(st.just("prompt"), st.integers(0, 1)).map(lambda move: [move]),
    st.tuples(st.just("tail"), st.sampled_from([None, "Be brief.", "Be thorough."])).map(
        lambda move: [move]
    ),
    moves("restart"),
    moves("rewind"),
    moves("compact"),
    moves("series"),
    moves("drop"),
    moves("back"),
    st.sampled_from([*NAMES, None]).map(lambda which: [("refuse", which)]),
    moves("fail"),
    moves("wait"),
)


special: st.SearchStrategy[list[Move]] = st.one_of(
    moves("settings"),
    moves("rehead"),
    moves("blank"),
    moves("rewind", "fail_compact"),
    moves("weaken"),
    moves("find"),
    moves("retry"),
    moves("fork"),
    moves("fork", "restart"),
    st.just([("redefine", OWN), ("turn", []), ("revert", OWN)]),
)
"""Moves that would be rare among all the others."""


@st.composite
def histories(draw: st.DrawFn) -> list[Move]:
    """Pieces in any order; those that matter most stand in about half of all histories."""
    parts = draw(st.lists(piece, min_size=2, max_size=5))
    for strategy in (removed_and_back(), there_and_back(), restarted(), special):
        if draw(st.integers(0, 5)):
            parts.insert(draw(st.integers(0, len(parts))), draw(strategy))
    return [("turn", []), *(move for part in parts for move in [*part, draw(turn)])]


STATISTICS: dict[str, Counter[str]] = {home.name: Counter() for home in HOMES}


async def play(home: Home, history: list[Move]) -> Played:
    async with playing(home) as driver:
        return await driver.play(history)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
@pytest.mark.timeout(3_600)
def test_every_history_keeps_the_prefix_or_says_why(home: Home) -> None:
    counts = STATISTICS[home.name]

    @settings(
        max_examples=PER_HOME,
        derandomize=False,
        database=None,
        # A history is short enough to read; shrinking one takes minutes.
        phases=(Phase.explicit, Phase.generate),
        print_blob=True,
    )
    @given(histories())
    def check(history: list[Move]) -> None:
        played = anyio.run(play, home, history)
        counts["runs"] += 1
        counts.update(played.stats)
        counts["requests"] += len(played.sent)
        counts["breaks"] += sum(bool(sent.breaks) for sent in played.sent)
        check_accepted(played)
        check_prefix(played)
        check_callable(played)
        check_replay(played)
        check_folds(played.events)
        judged(played)

    # The same histories each time, and others in each home.
    if "ADDENDUM_EXAMPLES" not in os.environ:
        check = seed(zlib.crc32(home.name.encode()))(check)
    check()
    runs = counts["runs"]
    print(
        f"\n{home.name}: {runs} runs, {counts['requests']} requests, "
        f"{1000 * counts['breaks'] / max(1, counts['requests']):.0f} declared breaks per 1,000; "
        + ", ".join(
            f"{kind} {100 * counts[kind] // runs} %"
            for kind in ("restore", "restart after update", "route switch and back", *MARKED)
        )
    )
    # Of a few runs no share says anything.
    for kind in ("restore", "restart after update", "route switch and back") * (PER_HOME >= 20):
        assert counts[kind] >= 0.3 * runs, f"{kind}: {counts[kind]} of {runs} runs"


ONCE_WRONG: dict[str, tuple[str, list[Move]]] = {
    "a long first turn behind a tail": (
        "moved",
        [("tail", "Be brief."), ("turn", ["one"] * 11), ("turn", [])],
    ),
    "a wide switch in a first turn behind a tail": (
        "bound-moved",
        [("tail", "Be brief."), ("on",), ("turn", []), ("turn", [])],
    ),
}


@pytest.mark.parametrize("what", ONCE_WRONG)
def test_what_was_once_wrong(what: str) -> None:
    name, history = ONCE_WRONG[what]
    played = anyio.run(play, next(home for home in HOMES if home.name == name), history)
    check_accepted(played)
    check_prefix(played)
    check_callable(played)
    check_replay(played)
    judged(played)


def check_prefix(played: Played) -> None:
    """V3: blocks only grow at the end, or a reason was declared whose cause was played."""
    last: dict[str, list[tuple[str, str]]] = {}
    since: dict[str, set[str]] = {}
    for sent in played.sent:
        route = sent.context.route
        for known in since:
            since[known] |= set(played.causes.get(sent.number, []))
        moves_here = since.setdefault(route, set(played.causes.get(sent.number, [])) | {"go"})
        if sent.purpose == "compaction":
            continue
        reasons = {found.reason for found in sent.breaks}
        permitted = allowed(sent.context, moves_here)
        assert reasons <= permitted, f"request {sent.number}: {reasons} is not among {permitted}"
        now = blocks(sent.body, sent.context)
        if route in last:
            held = extends(last[route], now)
            assert held or reasons, (
                f"request {sent.number} on {route} breaks in silence after {sorted(moves_here)}: "
                + _first(last[route], now)
            )
        last[route] = now
        since[route] = set() if sent.answered else {"failed"}


def _first(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> str:
    for place, block in enumerate(before):
        if place >= len(after) or after[place] != block:
            got = after[place] if place < len(after) else "nothing"
            return f"block {place} was {str(block)[:200]} and is {str(got)[:200]}"
    return ""


def check_accepted(played: Played) -> None:
    """V12: the strict lab refuses nothing; what failed was asked to, or is a downgrade's cause."""
    refused = [
        (capture.n, capture.refusal)
        for capture in played.lab.captures
        if capture.status not in (200, 500)
    ]
    downgrades = [event for event in played.events if isinstance(event.data, RouteDowngrade)]
    assert len(refused) == len(downgrades), refused


def check_callable(played: Played) -> None:
    for sent in played.sent:
        if sent.purpose == "turn":
            expected = played.callable[sent.number] - {"tool_search"}
            if sent.context.projection == "rebind" and not played.home.empty:
                # Flags mean nothing there: what is active is offered.
                expected |= {HIDDEN}
            offered = callable_names(sent.body)
            if sent.context.projection == "dispatch":
                # Nothing is bound there: what was found is called through the dispatcher.
                expected, offered = expected - {HIDDEN}, offered - {HIDDEN}
            assert offered == expected, f"request {sent.number}"


def check_replay(played: Played) -> None:
    """V8: a new projection of the log up to each request gives the bytes that were sent."""
    sent = {request.number: request for request in played.sent}
    log = SessionLog("s")
    for event in played.events:
        data = event.data
        if isinstance(data, RequestSent) and data.purpose == "turn":
            again = body_again(log, sent[data.number], played.events, data)
            assert again == sent[data.number].body, f"request {data.number} replays otherwise"
            check_raw(log, sent[data.number])
        log._admit(event)  # pyright: ignore[reportPrivateUsage]


def check_raw(log: SessionLog, sent: Sent) -> None:
    """C5: what a route made goes back as it came; reasoning too, unless a break ended it."""
    context = sent.context
    bound = context.reasoning_bound
    floor = reasoning_floor(log.events, context.route) if bound else -1
    fleeting = bound and context.tail == "moved"
    for node in log.surface.nodes:
        data = node.data
        if not isinstance(data, AssistantMessage):
            continue
        if (data.route, data.form, data.wire) != (context.route, context.form, context.wire):
            continue
        for raw in map(bytes, data.native):
            ended = fleeting or node.seq < floor
            item = json.loads(raw)
            if ended and item.get("type") in ("thinking", "redacted_thinking", "reasoning"):
                continue
            if ended and "reasoningContent" in item:
                continue
            if ended and context.wire == "openai_chat":
                kept = {name: part for name, part in item.items() if name not in REASONING}
                found = json.loads(sent.body)["messages"]
                # This turn's own stays.
                assert kept in found or (fleeting and item in found)
                continue
            if ended and context.wire == "openai_responses":
                # Without its reasoning it has no id of its own.
                found = json.loads(sent.body)["input"]
                assert item in found or {**item, "id": None} in [
                    {**each, "id": None} for each in found
                ]
                continue
            # A mark may stand in front of the closing brace.
            assert raw[:-1] in sent.body, (sent.number, raw)


def body_again(
    log: SessionLog, sent: Sent, events: list[Event] | object, data: RequestSent
) -> bytes:
    context = sent.context
    assert isinstance(context, RequestContext)
    route = resolve(context.route, base_url="http://127.0.0.1:9", environ={})
    floor = reasoning_floor(log.events, context.route) if context.reasoning_bound else -1
    prompt = project(log, context, facts(route), floor=floor)
    header = log.header
    assert header is not None
    return (
        wire(context.wire).renderer(route, avoids=context.avoids).body(prompt, header.header.config)
    )


def test_rare_moves_are_drawn_often_enough() -> None:
    drawn: Counter[str] = Counter()

    @seed(1)
    @settings(
        max_examples=500,
        derandomize=False,
        database=None,
        phases=(Phase.generate,),
    )
    @given(histories())
    def draw(history: list[Move]) -> None:
        drawn.update({move[0] for move in history} | {"histories"})

    draw()
    for kind in MARKED:
        assert drawn[kind] >= 0.03 * drawn["histories"], f"{kind}: {drawn[kind]}"


@pytest.mark.parametrize("kind", MARKED)
def test_a_rare_move_does_something(kind: str) -> None:
    move = (kind, OWN) if kind == "revert" else (kind,)
    history: list[Move] = [("turn", []), ("add", NAMES[0]), ("turn", ["one"]), move, ("turn", [])]
    played = anyio.run(play, HOMES[0], history)
    assert kind in played.stats
