"""Public reports about compaction and old results, each as a test of what it asks for."""

from __future__ import annotations

import json

import pytest
from tests.agent.stage import CHAT, CLAUDE, LONG, body, fn, names, results, server, stage

from addendum.agent.replay import replay
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.prompt.announcements import BUDGET
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

PLAIN = "anthropic:claude-sonnet-4-6"
RESPONSES = "openai:gpt-6.1-sol"


@pytest.mark.parametrize("route", [CLAUDE, PLAIN, CHAT, RESPONSES])
async def test_the_request_for_a_summary_has_the_same_head(route: str) -> None:
    """zed-industries/zed#59528: it was sent without tools, and read nothing."""
    async with stage() as here:
        agent = here.agent(route, instructions=LONG * 3, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            await session.compact()
            before, asked = (body(sent) for sent in session.sent[-2:])
            for part in ("tools", "system", "instructions"):
                assert asked.get(part) == before.get(part)
            assert "<compaction_request>" in json.dumps(asked).rpartition('"user"')[2]
        row = here.judged(route).requests[-1]
        assert row.cache_read == row.expected and row.cache_read


@pytest.mark.parametrize("route", [CLAUDE, f"{CLAUDE}+by-reference", PLAIN, CHAT, RESPONSES])
async def test_search_and_server_tools_are_there_behind_a_compaction(route: str) -> None:
    """openai/codex#34719: tool search and MCP tools were gone."""
    script = Script(
        (
            ScriptStep("one", (Entry(text="1"),)),
            ScriptStep("two", (Entry(text="2"),)),
            ScriptStep(
                "three",
                (
                    Entry(calls=(ScriptCall("tool_search", {"query": "rare"}),)),
                    Entry(calls=(ScriptCall("github__t0", {"q": "x"}),)),
                    Entry(text="3"),
                ),
            ),
        )
    )
    async with stage(script) as here:
        # Nothing is immediate, so our search is in the head of every route.
        agent = here.agent(route, tools=[fn("rare", deferred=True)], mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            await session.compact("In short.")
        async with here.open(agent) as session:
            await session.run("three")
            found = results(session)
            assert [each.is_error for each in found] == [False, False]
            assert "rare" in found[0].text
            assert "github__t1" in session.sent[-1].body.decode()
        assert here.refused() == []


async def test_old_results_are_never_aged_in_place() -> None:
    """macanderson/stella#4381, macanderson/stella#3690: most missed tokens followed from it."""
    call = Entry(calls=(ScriptCall("web", {"q0": "x"}),))
    turns = [f"turn {number} " + "x" * 3_000 for number in range(6)]
    script = Script(tuple(ScriptStep(text, (call, Entry(text="ok"))) for text in turns))
    async with stage(script) as here:
        async with here.open(here.agent(CLAUDE)) as session:
            for text in turns:
                await session.run(text)
            first = str(body(session.sent[1])["messages"][2]["content"][0]["content"])
            for sent in session.sent[1:]:
                assert body(sent)["messages"][2]["content"][0]["content"] == first
            # Only a compaction takes them away.
            await session.compact("In short.")
            assert [each.dead for each in replay(session.log)][-1] == 0
        assert here.judged(CLAUDE).totals.misses == 0


@pytest.mark.parametrize("route", [PLAIN, CHAT])
async def test_the_room_that_a_compaction_made_is_not_filled_with_definitions(route: str) -> None:
    """MoonshotAI/kimi-code#1471: all loaded schemas came back into it."""
    described = {"type": "string", "description": "A harbour by its full name. " * 60}
    schema = {"type": "object", "properties": {"place": described}, "required": ["place"]}
    tools = [CannedTool(f"tides{at}", "Tells the tides.", schema, "noon") for at in range(60)]
    many = ServerSpec(name="sea", server=in_process("sea", tools))
    last = ScriptCall("sea__tides59", {})
    script = Script(
        (
            ScriptStep("one", (Entry(text="1"),)),
            ScriptStep("two", (Entry(text="2"),)),
            ScriptStep("three", (Entry(calls=(last,)), Entry(text="hm"))),
        )
    )
    async with stage(script) as here:
        async with here.open(here.agent(route, mcp_servers=[many])) as session:
            await session.run("one")
            await session.tools.enable("sea")
            await session.run("two")
            await session.compact("In short.")
            await session.run("three")
            after = session.sent[-2].body.decode()
            # Names of all, definitions of some: all take more than three times as much.
            assert all(f"sea__tides{at}" in after for at in range(60))
            assert 0 < after.count("A harbour by its full name. ") * 28 < BUDGET < 33_000
            assert names(session.sent[-2]) == names(session.sent[0])
            # A call from memory is refused with what it takes to make it right.
            refused = results(session)[-1]
            assert refused.is_error and "place" in refused.text
        assert here.refused() == []
