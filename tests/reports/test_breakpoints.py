"""Public reports about cache marks and lifetimes, each as a test of what it asks for."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.agent.stage import (
    CLAUDE,
    LONG,
    Stage,
    _record,  # pyright: ignore[reportPrivateUsage]
    body,
    fn,
    server,
    stage,
    thinking,
)
from tests.property.judging import count, rules

from addendum.agent.replay import replay
from addendum.cache.figures import Totals, judge
from addendum.cache.invariants import check
from addendum.lab.records import rules_of
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Native
from addendum.prompt.marks import markable
from addendum.routes import TailChoice, resolve
from addendum.tools.functions import FunctionTool
from addendum.wire.anthropic_messages.build import takes_mark
from addendum.wire.apis import facts

pytestmark = pytest.mark.anyio

OPUS = "anthropic:claude-opus-4-8"
BEDROCK = "bedrock:anthropic.claude-opus-5-5"
NOVA = "bedrock:amazon.nova-pro"
OPENROUTER = "openrouter:anthropic/claude-opus-5.5"
TEXTS: dict[str, Any] = {
    "instructions": LONG,
    "conversation_instructions": "This one is about boats. " * 120,
    "turn_instructions": "Be brief.",
}


def loop(text: str, steps: int, calls: int = 1) -> ScriptStep:
    made = tuple(ScriptCall("web", {"q0": f"{at}"}) for at in range(calls))
    return ScriptStep(text, (*[Entry(calls=made)] * (steps - 1), Entry(text="Done.")))


def found(value: Any, key: str, path: str = "") -> list[str]:
    """The paths of all objects in a body that have a key."""
    if isinstance(value, list):
        return [each for at, one in enumerate(value) for each in found(one, key, f"{path}[{at}]")]
    if not isinstance(value, dict):
        return []
    own = [path] if key in value else []
    return own + [each for name in value for each in found(value[name], key, f"{path}.{name}")]


async def judged(here: Stage, route: str) -> Totals:
    log = SessionLog.load("s", await here.store.read("s"))
    records = [each.record for each in replay(log)]
    assert check(records, rules(route)) == ()
    assert here.refused() == []
    return judge(records, rules(route), count).totals


async def test_marks_move_and_never_add_up() -> None:
    """twentyhq/twenty#26217: the fourth call of a turn carried five cache points."""
    async with stage(Script((loop("one", 8),))) as here:
        async with here.open(here.agent(BEDROCK, **TEXTS)) as session:
            await session.run("one")
            for sent in session.sent:
                assert len(found(body(sent), "cachePoint")) <= 4
        assert (await judged(here, BEDROCK)).undeclared_misses == 0


async def test_what_looks_like_a_mark_in_data_is_none() -> None:
    """anthropics/claude-agent-sdk-typescript#432, decolua/9router#3795: others' marks counted."""

    async def run(arguments: dict[str, Any]) -> str:
        return '{"cache_control": {"type": "ephemeral"}}'

    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    tool = FunctionTool.from_schema(
        ToolSchema("web", "Reads cache_control.", Raw(json.dumps(schema).encode())), run
    )
    async with stage(Script((loop("one", 3),))) as here:
        async with here.open(here.agent(OPUS, tools=[tool], **TEXTS)) as session:
            await session.run("one")
            for sent in session.sent:
                assert sent.body.count(b'"cache_control":{"type":"ephemeral"}') == 4
        assert (await judged(here, OPUS)).undeclared_misses == 0


async def test_the_tools_mark_is_on_the_last_tool_that_is_not_deferred() -> None:
    """router-for-me/CLIProxyAPI#4561, decolua/9router#3567, Wei-Shaw/sub2api#4990: a 400."""
    route = "anthropic:claude-opus-5-5+by-reference"
    async with stage() as here:
        tools = [fn("web"), fn("rare", deferred=True)]
        async with here.open(here.agent(route, tools=tools, mcp_servers=[server()])) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            for sent in session.sent:
                marked = [tool for tool in body(sent)["tools"] if "cache_control" in tool]
                immediate = [tool for tool in body(sent)["tools"] if "defer_loading" not in tool]
                assert marked == immediate[-1:]
        assert here.refused() == []


@pytest.mark.parametrize("tail", ["auto", "moved"])
@pytest.mark.parametrize("route", [OPUS, BEDROCK])
async def test_a_wide_round_stays_within_the_lookback(route: str, tail: TailChoice) -> None:
    """redpanda-data/ai-sdk-go#205: a parallel fan-out left the window of 20 blocks."""
    # On Bedrock each of the 60 blocks is a position; on Anthropic a run of them is one.
    script = Script((loop("one", 2), loop("two", 4, calls=30), loop("three", 1)))
    async with stage(script) as here:
        async with here.open(here.agent(route, tail=tail, **TEXTS)) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
        assert (await judged(here, route)).misses == 0


async def test_marks_in_front_leave_enough_for_the_end() -> None:
    """NousResearch/hermes-agent#20880: two marks on the prompt cost most reads within a turn."""
    async with stage(Script((loop("one", 6), loop("two", 6)))) as here:
        async with here.open(here.agent(OPUS, tail="moved", **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
        totals = await judged(here, OPUS)
        assert (totals.misses, totals.ceiling_share) == (0, 1.0)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("server_tool_use", ""),
        ("code_execution_tool_result", ""),
        ("tool_use", ',"caller":{"type":"code_execution_20260120","tool_id":"x"}'),
        ("thinking", ""),
        ("text", ',"text":""'),
    ],
)
def test_no_mark_on_what_code_execution_called(kind: str, more: str) -> None:
    """langchain-ai/langchain#34542: such a block with a mark is refused."""
    assert not markable(Native(1, 0, Raw(f'{{"type":"{kind}"{more}}}'.encode()), kind), takes_mark)
    assert markable(
        Native(1, 0, Raw(b'{"type":"tool_use","caller":{"type":"direct"}}'), "tool_use"), takes_mark
    )


async def test_no_cache_point_follows_reasoning() -> None:
    """0xPlaygrounds/rig#1673: Bedrock refuses one behind reasoning."""
    async with stage(thinking("one", "two", "three")) as here:
        async with here.open(here.agent(BEDROCK, tail="moved", **TEXTS)) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
            for sent in session.sent:
                for message in body(sent)["messages"]:
                    kinds = [next(iter(block)) for block in message["content"]]
                    assert ("reasoningContent", "cachePoint") not in pairwise(kinds)
        await judged(here, BEDROCK)
    block = Raw(b'{"reasoningContent":{"reasoningText":{"text":"x","signature":"y"}}}')
    assert not markable(Native(1, 0, block, facts(resolve(BEDROCK)).kind(block)))


async def test_nova_gets_no_cache_point_beside_a_result() -> None:
    """BerriAI/litellm#17479: a gate for each model."""
    async with stage(Script((loop("one", 4), loop("two", 1)))) as here:
        async with here.open(here.agent(NOVA, **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            for sent in session.sent:
                for message in body(sent)["messages"]:
                    kinds = {next(iter(block)) for block in message["content"]}
                    assert not {"cachePoint", "toolResult"} <= kinds
        await judged(here, NOVA)


@pytest.mark.parametrize("ttl", ["5m", "1h"])
async def test_cache_points_are_beside_results_and_of_one_lifetime(ttl: str) -> None:
    """Portkey-AI/gateway#1762, BerriAI/litellm#34248: nested ones lost theirs, and grew longer."""
    route = "bedrock:anthropic.claude-opus-4-6"
    async with stage(Script((loop("one", 4), loop("two", 2)))) as here:
        async with here.open(here.agent(route, ttl=ttl, **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            for sent in session.sent:
                assert not any("toolResult" in path for path in found(body(sent), "cachePoint"))
                assert b"cache_control" not in sent.body
                asked = sent.body.count(b'"ttl":"1h"')
                assert asked == (len(found(body(sent), "cachePoint")) if ttl == "1h" else 0)
        await judged(here, route)


@pytest.mark.parametrize("route", [CLAUDE, OPUS, BEDROCK])
async def test_the_static_part_is_marked_from_the_first_request_on(route: str) -> None:
    """strands-agents/samples#295, strands-agents/harness-sdk#1404: only the user message was."""
    async with stage() as here:
        async with here.open(here.agent(route, instructions=LONG * 4)) as session:
            await session.run("one")
        async with here.open(here.agent(route, instructions=LONG * 4), "t") as session:
            await session.run("another conversation")
            key = "cachePoint" if route == BEDROCK else "cache_control"
            places = found(body(session.sent[0]), key)
            assert any("ools" in path for path in places) and any("system" in p for p in places)
            # Another conversation of the agent reads it at once.
            assert session.sent[0].usage.cache_read
        assert here.refused() == []


@pytest.mark.parametrize("takes", [True, False], ids=["on results", "not on results"])
async def test_marks_stand_on_results_only_where_the_route_takes_them(takes: bool) -> None:
    """earendil-works/pi#584: a mark on a tool message was refused."""
    route = resolve(OPENROUTER, environ={})
    assert route.cache.mark_roles == ("system", "user", "tool")
    roles = route.cache.mark_roles if takes else ("system", "user")
    cache = msgspec.structs.replace(route.cache, mark_roles=roles)
    async with stage(Script((loop("one", 4), loop("two", 2)))) as here:
        agent = here.agent(route.name, **TEXTS)
        own = msgspec.structs.replace(agent.setup.route, cache=cache)
        async with here.open(agent) as session:
            session.use(own)
            await session.run("one")
            await session.run("two")
            marked = [
                message["role"]
                for sent in session.sent
                for message in body(sent)["messages"]
                if found(message, "cache_control")
            ]
        assert ("tool" in marked) == takes and {"system", "user"} <= set(marked)
        records = [_record(sent) for sent in here.sent]
        assert check(records, rules_of(cache)) == ()
        judged = judge(records, rules_of(cache), count).totals
        assert judged.undeclared_misses == 0
        assert here.refused() == []


async def test_claude_behind_openrouter_has_marks() -> None:
    """earendil-works/pi#583: it was sent without any."""
    async with stage(Script((loop("one", 4), loop("two", 1)))) as here:
        async with here.open(here.agent(OPENROUTER, **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            for sent in session.sent:
                marked = [each for each in body(sent)["messages"] if found(each, "cache_control")]
                # The prompt, and the history up to its end: not the one without the other.
                assert marked[0]["role"] == "system" and marked[-1]["role"] in ("user", "tool")
                assert len(found(body(sent), "cache_control")) <= 4
        assert (await judged(here, OPENROUTER)).misses == 0
