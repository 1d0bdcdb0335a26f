"""Reasoning that only its model can read: replayed untouched, left out behind a declared break, and
never given to another route, in mid-turn neither."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agent.stage import breaks, data, fn, stage

from addendum.agent.results import ToolStarted
from addendum.agent.setup import Settings
from addendum.lab.gemini_signatures import STAND_IN
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantMessage
from addendum.routes import resolve

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic:claude-opus-5-5"
OLDER = "anthropic:claude-opus-4-8"
OPENAI = "openai:gpt-6.1-sol"
BEDROCK = "bedrock:anthropic.claude-opus-5-5"
GEMINI = "gemini:gemini-4-argon"
CHAT = "openai-chat:gpt-4.1"
SIGNED = [CLAUDE, OLDER, OPENAI, BEDROCK, GEMINI]
BOUND = [CLAUDE, OPENAI, BEDROCK]

_EFFORT = {OLDER: "high"}


def script(turns: int, calls: int = 2) -> Script:
    """Turns of several rounds, each with its own thinking."""
    steps: list[ScriptStep] = []
    for turn in range(turns):
        entries = [
            Entry(
                thinking=f"thought {turn}.{number}",
                calls=(ScriptCall("web", {"q0": f"{turn}.{number}"}), ScriptCall("web", {})),
            )
            for number in range(calls)
        ]
        entries.append(Entry(thinking=f"thought {turn} at last", text=f"answer {turn}"))
        steps.append(ScriptStep(f"turn {turn}", tuple(entries)))
    return Script(tuple(steps))


def sealed(value: Any) -> list[str]:
    """All that is signed or encrypted in a JSON value, in order; the stand-in is neither."""
    found: list[str] = []
    if isinstance(value, list):
        for part in value:
            found += sealed(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key in ("signature", "encrypted_content", "thoughtSignature"):
                found += [part] if isinstance(part, str) and part not in ("", STAND_IN) else []
            else:
                found += sealed(part)
    return found


def made(session: Any) -> list[list[str]]:
    """What each answer of a session's log holds of it."""
    messages = [each for each in data(session) if isinstance(each, AssistantMessage)]
    return [sealed([json.loads(bytes(raw)) for raw in each.native]) for each in messages]


def agent(here: Any, route: str, **more: Any) -> Any:
    effort = _EFFORT.get(route)
    options = {"settings": Settings(effort=effort)} if effort else {}
    return here.agent(route, tool_dispatch=True, **options | more)


@pytest.mark.parametrize("route", SIGNED)
async def test_c5_it_goes_back_as_it_came_in_order_and_over_a_restart(route: str) -> None:
    async with stage(script(3)) as here:
        async with here.open(agent(here, route)) as session:
            await session.run("turn 0")
            await session.run("turn 1")
        async with here.open(agent(here, route)) as session:
            await session.run("turn 2")
            answers = made(session)
            messages = [each for each in data(session) if isinstance(each, AssistantMessage)]
        assert not here.refused()
        assert len(answers) == len(here.sent) == 9
        # Every answer thought, and so did each round.
        assert all(answers[number] for number in (0, 1, 3, 4, 6, 7))
        for number, sent in enumerate(here.sent):
            before = [each for answer in answers[:number] for each in answer]
            assert sealed(json.loads(sent.body)) == before
        last = here.sent[-1].body
        items = [bytes(raw) for each in messages[:-1] for raw in each.native]
        assert all(raw in last for raw in items if sealed(json.loads(raw)))


@pytest.mark.parametrize("route", BOUND)
async def test_it_is_left_out_behind_a_declared_break_and_comes_back_never(route: str) -> None:
    async with stage(script(3)) as here:
        async with here.open(agent(here, route)) as session:
            await session.run("turn 0")
            await session.tools.add(fn("later"))
            session.rehead()
            await session.run("turn 1")
            await session.run("turn 2")
            assert [reason for reason, _ in breaks(session)] == ["head changed"]
            answers = made(session)
        assert not here.refused()
        old = {each for answer in answers[:3] for each in answer}
        assert old
        for number, sent in enumerate(here.sent[3:], 3):
            held = sealed(json.loads(sent.body))
            assert not old & set(held)
            # What was made since then is all there.
            assert held == [each for answer in answers[3:number] for each in answer]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(one, other, id=f"{one.partition(':')[0]} to {other.partition(':')[0]}")
        for one in (CLAUDE, OPENAI, BEDROCK, GEMINI, CHAT)
        for other in (CLAUDE, OPENAI, BEDROCK, GEMINI, CHAT)
        if one != other
    ],
)
async def test_a_switch_in_mid_turn_takes_place_between_two_steps(first: str, second: str) -> None:
    """What the first route signed stays with it; where calls have to be signed, a stand-in is."""
    async with stage(script(2)) as here:
        opened: list[Any] = []

        def switch(name: str) -> None:
            base_url = here.lab.base_url(name.partition(":")[0])
            opened[0].use(resolve(name, base_url=base_url, environ={}))

        async with here.open(agent(here, first)) as session:
            opened.append(session)
            async for event in session.stream("turn 0"):
                # The first round's results are being made: the next step goes elsewhere.
                if isinstance(event, ToolStarted) and session.route.name == first:
                    switch(second)
            switch(first)
            await session.run("turn 1")
            answers = made(session)
        assert not here.refused()
        routes = [sent.context.route for sent in here.sent]
        assert routes == [first, second, second, first, first, first]
        owners = [first, second, second, first, first, first]
        for number, sent in enumerate(here.sent):
            own = [
                each
                for owner, answer in zip(owners[:number], answers[:number], strict=True)
                if owner == sent.context.route
                for each in answer
            ]
            assert sealed(json.loads(sent.body)) == own
        if second == GEMINI:
            # The foreign call of this turn carries the stand-in: once a step, on its first call.
            assert here.sent[1].body.count(STAND_IN.encode()) == 1
            parts = [
                part
                for content in json.loads(here.sent[1].body)["contents"]
                for part in content["parts"]
                if "functionCall" in part
            ]
            assert [part.get("thoughtSignature") for part in parts] == [STAND_IN, None]


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (CLAUDE, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (GEMINI, "Corrupted thought signature."),
    ],
)
async def test_what_is_lost_when_reasoning_is_refused_is_declared(route: str, said: str) -> None:
    async with stage(script(3)) as here:
        async with here.open(agent(here, route)) as session:
            await session.run("turn 0")
            refusal = json.dumps({"error": {"type": "invalid_request_error", "message": said}})
            here.lab.fail_next(route.partition(":")[0], status=400, body=refusal.encode())
            await session.run("turn 1")
            await session.run("turn 2")
            assert [reason for reason, _ in breaks(session)] == ["reasoning stripped"]
        assert here.judged(route).totals.undeclared_misses == 0
        if route == GEMINI:
            # The turn's own calls are signed; those of the turn before have the stand-in.
            last = json.loads(here.sent[-1].body)["contents"]
            signatures = [p.get("thoughtSignature") for c in last for p in c["parts"]]
            assert signatures.count(STAND_IN) == 2
