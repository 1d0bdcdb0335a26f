"""What is bound on a dispatching route, case by case on every wire: the same bytes for ever."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from tests.cases.dispatching import (
    DEFERRED,
    INTEGER,
    STRING,
    WIRES,
    call,
    declared,
    on,
    says,
    schema,
    tools_hash,
)

from addendum.errors import ConfigurationError
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

every_wire = pytest.mark.parametrize("wire", WIRES)
BOUND = ["clock", "tool_search", "call_tool"]


def server(name: str, *names: str, on: bool = False, text: str = "Reads.") -> ServerSpec:
    parameters = {"type": "object", "properties": {"q": STRING, "n": INTEGER}}
    tools = [CannedTool(each, text, parameters, f"{each} says yes") for each in names]
    return ServerSpec(name=name, server=in_process(name, tools), on=on)


@every_wire
async def test_case_t1_without_a_dispatcher_there_is_none(wire: str) -> None:
    async with on(wire, says(call("clock"))) as here:
        tools = [here.ran.tool(schema("clock"), defer=False)]
        plain = here.agent(tools=tools, tool_changes="rebind")
        async with here.open(plain) as session:
            await session.run("go")
            assert [declared(each) for each in session.sent] == [["clock"]] * 2
            assert not [each for each in session.sent if b"call_tool" in each.body]
        # What cannot change needs no dispatcher by default either.
        async with here.open(here.agent(tools=tools, tool_changes="auto"), "other") as session:
            await session.run("go")
            assert not [each for each in session.sent if b"call_tool" in each.body]
            if session.sent[0].context.projection == "rebind":
                assert [e.body for e in here.stage.sent[:2]] == [e.body for e in session.sent]


@every_wire
async def test_case_t2_the_dispatcher_is_bound_before_there_is_anything_to_call(wire: str) -> None:
    async with on(wire) as here:
        async with here.open(here.agent(tools=[], tool_dispatch=True)) as session:
            await session.run("hello")
            assert declared(session.sent[-1])[-1] == "call_tool"
            assert set(declared(session.sent[-1])) == {"tool_search", "call_tool"}


@every_wire
async def test_case_t3_servers_come_and_go_and_no_byte_of_tools_changes(wire: str) -> None:
    async with on(wire) as here:
        servers = [server("alpha", "one", "two"), server("beta", "three")]
        async with here.open(here.agent(mcp_servers=servers)) as session:
            await session.run("first")
            await session.tools.enable("alpha")
            await session.run("second")
            await session.tools.enable("beta")
            await session.run("third")
            await session.tools.disable("alpha")
            await session.run("fourth")
            await session.tools.enable("alpha")
            await session.run("fifth")
            assert [declared(each) for each in session.sent] == [BOUND] * 5
            assert len({tools_hash(each) for each in session.sent}) == 1


@every_wire
async def test_case_t4_what_was_found_is_not_bound(wire: str) -> None:
    steps = says(call("tool_search", query="weather")), says(call("weather", city="Oslo"), user="b")
    async with on(wire, *steps) as here:
        async with here.open() as session:
            await session.run("go")
            await session.run("b")
            found, called = here.exchanges(session.sent[-1])
            answer = json.loads(found.result or "")
            assert "weather" in [each["name"] for each in answer["tools"]]
            assert (called.name, called.arguments["name"]) == ("call_tool", "weather")
            assert {tuple(declared(each)) for each in session.sent} == {tuple(BOUND)}
            assert len({tools_hash(each) for each in session.sent}) == 1


@every_wire
async def test_case_t5_another_turn_and_another_process_bind_the_same_bytes(wire: str) -> None:
    async with on(wire) as here:
        servers = [server("alpha", "one")]
        async with here.open(here.agent(mcp_servers=servers)) as session:
            await session.run("first")
            await session.tools.enable("alpha")
            await session.run("second")
        async with here.open(here.agent(mcp_servers=servers)) as session:
            await session.run("third")
        async with here.open(here.agent(mcp_servers=servers), "new") as session:
            await session.run("hello")
        assert len(here.stage.sent) == 4
        assert len({tools_hash(each) for each in here.stage.sent}) == 1


@every_wire
async def test_case_t6_neither_order_nor_texts_of_deferred_tools_count(wire: str) -> None:
    hashes: set[str] = set()
    for seed in range(3):
        shuffled = list(DEFERRED)
        names = ["one", "two", "three"]
        random.Random(seed).shuffle(shuffled)
        random.Random(seed).shuffle(names)
        async with on(wire) as here:
            tools = [here.ran.tool(schema("clock"), defer=False)]
            for each in shuffled:
                text = f"{each.description} Edition {seed}."
                tools.append(here.ran.tool(type(each)(each.name, text, each.parameters)))
            off = server("alpha", *names, text=f"Edition {seed}.")
            bound = server("beta", *names, on=True)
            agent = here.agent(tools=tools, mcp_servers=[off, bound])
            async with here.open(agent) as session:
                await session.run("first")
                await session.tools.enable("alpha")
                await session.run("second")
                hashes.update(tools_hash(each) for each in session.sent)
                assert [name for name in declared(session.sent[-1]) if "beta" in name] == [
                    "beta__one",
                    "beta__three",
                    "beta__two",
                ]
    assert len(hashes) == 1


@every_wire
async def test_case_t7_deferred_tools_count_nothing(wire: str) -> None:
    counted: list[int] = []
    for deferred in (1, 40):
        async with on(wire) as here:
            tools = [here.ran.tool(schema("clock"), defer=False)]
            tools += [here.ran.tool(schema(f"deferred_{n}")) for n in range(deferred)]
            async with here.open(here.agent(tools=tools)) as session:
                await session.run("hello")
                counted.append(session.sent[-1].usage.prompt or 0)
                assert declared(session.sent[-1]) == BOUND
    assert counted[0] == counted[1] > 0


@pytest.mark.parametrize("name", ["call_tool", "tool_search"])
async def test_case_t8_the_dispatchers_names_are_taken(name: str) -> None:
    async with on("chat") as here:
        with pytest.raises(ConfigurationError, match="reserved"):
            here.agent(tools=[here.ran.tool(schema(name))])
        async with here.open() as session:
            with pytest.raises(ConfigurationError, match="reserved"):
                await session.tools.add(here.ran.tool(schema(name)))


# -- what a conversation costs ----------------------------------------------------------------


def labels(rows: list[Any]) -> list[Any]:
    return [(row.n, row.miss.reason) for row in rows if row.miss is not None]


@every_wire
async def test_case_t76_g2_through_the_dispatcher_misses_nothing(wire: str) -> None:
    run = await run_scenario(find("g2"), WIRES[wire], tool_changes="dispatch")
    totals = run.report.totals
    assert run.holds, (run.violations[:3], labels(list(run.report.requests)))
    assert run.context.projection == "dispatch"
    assert (totals.misses, totals.undeclared_misses, totals.provider_misses) == (0, 0, 0)
    assert totals.expected_share is not None and totals.expected_share >= 0.999
    assert totals.share is not None and totals.share > 0.8


@every_wire
async def test_case_t77_g2_bound_anew_misses_at_every_change(wire: str) -> None:
    run = await run_scenario(find("g2"), WIRES[wire], tool_changes="rebind")
    misses = [row for row in run.report.requests if row.miss is not None]
    assert run.context.projection == "rebind"
    assert [row.miss.reason for row in misses if row.miss] == ["rebinding"] * len(misses)
    assert run.report.totals.undeclared_misses == 0
    hashes = [tools_hash(each) for each in run.records]
    changes = [n for n, (a, b) in enumerate(pairwise(hashes), 2) if a != b]
    # The last change restores earlier bytes, and the first may come before a minimum is reached.
    assert len(changes) == 5 and {row.n for row in misses} >= set(changes[1:-1])
    assert {row.n for row in misses} <= set(changes)


@every_wire
async def test_case_t79_a_server_that_is_lost_and_back_changes_nothing(wire: str) -> None:
    run = await run_scenario(find("flap"), WIRES[wire], tool_changes="dispatch")
    assert run.holds, run.violations[:3]
    assert len({tools_hash(each) for each in run.records}) == 1
    # It is switched on, off and on again; being lost and back is announced by nothing.
    last = run.records[-1].body.decode()
    added = last.count('added\\":[{') + last.count('"added":[{')
    assert added == 1, added
    assert last.count("added_again") == 1


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_case_t80_the_cache_key_is_the_same_before_and_after_a_switch(wire: str) -> None:
    async with on(wire) as here:
        agent = here.agent(mcp_servers=[server("alpha", "one", "two")])
        async with here.open(agent) as session:
            await session.run("first")
            await session.tools.enable("alpha")
            await session.run("second")
            await session.tools.disable("alpha")
            await session.run("third")
            keys = [json.loads(each.body)["prompt_cache_key"] for each in session.sent]
        async with here.open(agent, "another") as session:
            await session.run("hello")
            keys += [json.loads(each.body)["prompt_cache_key"] for each in session.sent]
        assert len(keys) == 4 and len(set(keys)) == 1 and keys[0]
