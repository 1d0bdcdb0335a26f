"""Public reports about restored conversations, each as a test of what it asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agent.stage import CHAT, CLAUDE, DEEPSEEK, Stage, body, fn, stage, thinking

from addendum import Settings
from addendum.agent.replay import replay
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantMessage
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

GEMINI = "gemini:gemini-3.8-flash"
OPUS = "anthropic:claude-opus-4-8"
SONNET = "anthropic:claude-sonnet-4-6"
RESPONSES = "openai:gpt-6.1-sol"

CALL = ScriptCall("web", {"q0": 'é \\ " <b>'})
SCRIPT = Script(
    (
        ScriptStep("one", (Entry(thinking="about one", calls=(CALL, CALL)), Entry(text="1"))),
        ScriptStep("two", (Entry(thinking="about two", calls=(CALL,)), Entry(text="2"))),
        ScriptStep("three", (Entry(text="3"),)),
    )
)


async def resumed(here: Stage, route: str, *turns: str, **options: Any) -> list[bytes]:
    """Say these, each in a session opened anew; return all bodies, which the log gives again."""
    for text in turns:
        async with here.open(here.agent(route, **options)) as session:
            await session.run(text)
    assert here.refused() == []
    log = SessionLog.load("s", await here.store.read("s"))
    bodies = [sent.body for sent in here.sent if sent.session == "s"]
    assert [each.record.body for each in replay(log)] == bodies
    return bodies


def answers(log: SessionLog) -> list[AssistantMessage]:
    return [event.data for event in log.events if isinstance(event.data, AssistantMessage)]


async def test_a_gemini_signature_is_kept_and_sent_again() -> None:
    """nodetool-ai/nodetool#5097, NousResearch/hermes-agent#66587, FerroxLabs/wayland#748: lost."""
    # A text has its signature behind it, on a part that says nothing else.
    script = Script((*SCRIPT.steps[:2], *thinking("three", "four").steps))
    async with stage(script) as here:
        bodies = await resumed(here, GEMINI, "one", "two", "three", "four")
        log = SessionLog.load("s", await here.store.read("s"))
        told = answers(log)[:-1]
        items = [bytes(raw) for each in told for raw in each.native]
        signed = [raw for raw in items if b"Signature" in raw]
        assert any(b'"text":""' in raw for raw in signed)
        assert any(b'"functionCall"' in raw for raw in signed)
        assert all(raw in bodies[-1] for raw in signed)


async def test_a_stand_in_is_for_the_first_call_of_an_unsigned_round_alone() -> None:
    """The same reports: what another model called has no signature to be kept."""
    async with stage(SCRIPT) as here:
        await resumed(here, CHAT, "one")
        moved = here.agent(GEMINI, base_url=here.lab.base_url("gemini"))
        async with here.open(moved) as session:
            await session.run("two")
            first = body(session.sent[0])["contents"][1]
            calls = [part for part in first["parts"] if "functionCall" in part]
            assert ["thoughtSignature" in part for part in calls] == [True, False]
        assert here.refused() == []


@pytest.mark.parametrize("route", [CLAUDE, OPUS, SONNET])
async def test_blank_thinking_is_sent_back_with_its_signature_untouched(route: str) -> None:
    """anthropics/claude-code#63269: text was blanked under a signature, and the session stuck."""
    async with stage(SCRIPT) as here:
        options = {"settings": Settings(effort="high")}
        bodies = await resumed(here, route, "one", "two", "three", **options)
        log = SessionLog.load("s", await here.store.read("s"))
        thought = [
            bytes(raw) for each in answers(log) for raw in each.native if b"thinking" in bytes(raw)
        ]
        assert len(thought) == 2
        assert all(raw in bodies[-1] for raw in thought)
        # Neither is a text that was shown taken out, nor one that was not put in.
        assert [b'"about ' in raw for raw in thought] == [route == SONNET] * 2


@pytest.mark.parametrize("route", [CLAUDE, RESPONSES, GEMINI, DEEPSEEK])
async def test_thinking_comes_before_its_calls_and_results_behind_them(route: str) -> None:
    """openai/openai-agents-python#1797, openai/openai-agents-python#1704: lost, or out of order."""
    async with stage(SCRIPT) as here:
        bodies = await resumed(here, route, "one", "two")
        for text in (raw.decode() for raw in bodies[1:]):
            marks = {
                CLAUDE: ('"type":"thinking"', '"type":"tool_use"', '"type":"tool_result"'),
                DEEPSEEK: ('"type":"thinking"', '"type":"tool_use"', '"type":"tool_result"'),
                RESPONSES: ('"type":"reasoning"', '"function_call"', '"function_call_output"'),
                GEMINI: ('"thoughtSignature"', '"functionResponse"', '"functionResponse"'),
            }[route]
            places = [text.index(mark) for mark in marks]
            assert places == sorted(places)


@pytest.mark.parametrize("route", [CLAUDE, OPUS, RESPONSES, "bedrock:anthropic.claude-opus-5-5"])
async def test_signed_blocks_are_opaque(route: str) -> None:
    """anthropics/anthropic-sdk-python#1598: written again by a serialiser, they were refused."""
    async with stage(thinking("one", "two", "three")) as here:
        await resumed(here, route, "one", settings=Settings(effort="high"))
        stored = await here.store.read("s")
        log = SessionLog.load("s", stored)
        raws = [bytes(raw) for each in answers(log) for raw in each.native]
        # What the log has is what the wire had: the very text, wherever it goes.
        assert all(any(raw in line for line in stored) for raw in raws)
        bodies = await resumed(here, route, "two", "three", settings=Settings(effort="high"))
        assert all(raw in bodies[-1] for raw in raws)
        # In whatever way a provider has written it, over a restart and into a fork.
        odd = [raw.replace(b'":"', b'" :\t"') for raw in raws]
        for raw, other in zip(raws, odd, strict=True):
            assert other != raw and json.loads(other) == json.loads(raw)
            stored = [line.replace(raw, other) for line in stored]
        log = SessionLog.load("s", [*stored, *(await here.store.read("s", len(stored)))])
        assert all(raw in [*replay(log)][-1].record.body for raw in odd)
        lease = await here.store.acquire("t")
        await log.fork("t").flush(here.store, lease)
        forked = SessionLog.load("t", await here.store.read("t"))
        assert [bytes(raw) for raw in answers(forked)[0].native] == odd


@pytest.mark.parametrize(
    ("route", "thought"),
    [
        (DEEPSEEK, b'"type":"thinking"'),
        ("deepseek-chat:deepseek-v4-pro", b'"reasoning_content":"about '),
    ],
)
async def test_a_cold_replay_keeps_the_thinking_of_turns_with_tools(
    route: str, thought: bytes
) -> None:
    """esengine/DeepSeek-Reasonix#4022: a warm session passed, a restored one was refused."""
    async with stage(SCRIPT) as here:
        async with here.open(here.agent(route), "warm") as session:
            for text in ("one", "two", "three"):
                await session.run(text)
            warm = [sent.body for sent in session.sent]
        cold = await resumed(here, route, "one", "two", "three")
        assert cold == warm
        assert cold[-1].count(thought) == 2


@pytest.mark.parametrize("route", [CLAUDE, f"{CLAUDE}+by-reference", DEEPSEEK, CHAT, RESPONSES])
async def test_a_tool_that_was_added_later_is_told_from_the_log(route: str) -> None:
    """QwenLM/qwen-code#8475: a resumed history called a tool whose schema came later."""
    script = Script(
        (
            ScriptStep("one", (Entry(text="1"),)),
            ScriptStep("two", (Entry(calls=(ScriptCall("late", {}),)), Entry(text="2"))),
            ScriptStep("three", (Entry(text="3"),)),
        )
    )
    async with stage(script) as here:
        agent = here.agent(route, tool_dispatch=True)
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            await session.run("two")
        # The tool's code is not there any more; its definition is.
        async with here.open(agent) as session:
            await session.run("three")
            text = session.sent[-1].body.decode()
            assert "Tool late version 0" in text
            assert text.count("late v0 result") == 1
        assert here.refused() == []
        assert here.judged(route).totals.undeclared_misses == 0
