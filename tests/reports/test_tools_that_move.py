"""Public reports of tools that move in mid-conversation: each failure, and that it does not happen.

Each docstring tells what others met, in our words, and where it was reported.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases.dispatching import WIRES, Ran, call, declared, on, says, schema, tools_hash
from tests.reports.ground import (
    NATIVE,
    WAYS,
    canned,
    changed,
    front,
    only_grow,
    same_tools,
    server,
)

from addendum.agent.agent import Agent
from addendum.agent.setup import Limits
from addendum.cache.record import RequestRecord
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.log.events import DeveloperMessage, ToolResult
from addendum.tools.functions import ToolContext, tool

pytestmark = pytest.mark.anyio

every_way = pytest.mark.parametrize("way", WAYS)
every_wire = pytest.mark.parametrize("wire", WIRES)
natively = pytest.mark.parametrize("way", NATIVE)


def made(here: Any, way: str, **more: Any) -> Agent:
    """An agent with one bound tool, on a route that tells changes in this way."""
    options = dict(WAYS[way])
    route = options.pop("route")
    ran: Ran = here.ran
    options["tools"] = [ran.tool(schema("clock"), defer=False)]
    return here.stage.agent(route, **options | more)


@every_way
async def test_discovery_rewrites_no_system_text(way: str) -> None:
    """The list of deferred tools stood in the system prompt and was written anew whenever one was
    discovered, so each discovery cost the whole prefix (QwenLM/qwen-code#4777)."""
    async with on("chat") as here:
        spec, _ = server("files", "read_file", "write_file")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("hello")
            await session.tools.enable("files")
            await session.run("/call files__read_file {}")
            await session.run("bye")
            assert len({front(each) for each in session.sent}) == 1
            assert "read_file" not in front(session.sent[-1])
            only_grow(session.sent)


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_flaps_costs_nothing(way: str) -> None:
    """A connection that dropped for a moment evicted its tools and added them again: two full
    misses for nothing (anthropics/claude-code#65917)."""
    options = dict(WAYS[way])
    route = options.pop("route")
    run = await run_scenario(find("flap"), route, **options)
    assert run.holds, run.violations[:3]
    assert run.report.totals.undeclared_misses == 0
    results = [e.data for e in run.sessions[0].events if isinstance(e.data, ToolResult)]
    assert any(each.is_error for each in results), "calls were answered while it was away"
    records: list[RequestRecord] = list(run.records)
    if "+by-reference" not in route and run.context.removals != "omit":
        assert len({tools_hash(each) for each in records}) == 1


@every_way
async def test_the_bound_set_is_frozen_at_the_first_request(way: str) -> None:
    """The built-in tools followed the context, and the hit rate fell although only deferred tools
    had changed (microsoft/vscode#316187)."""
    async with on("chat") as here:
        async with here.open(made(here, way)) as session:
            await session.run("hello")
            await session.tools.add(here.ran.tool(schema("later"), defer=False))
            await session.run("/call later {}")
            first, *others = [declared(each) for each in session.sent]
            if "reference" not in way and way != "blocks":
                assert all(each == first for each in others)
            # Entries that are added for reference stand behind the head, deferred.
            assert all(each[: len(first)] == first for each in others)
        assert here.ran.names == ["later"]


@every_way
async def test_the_inventory_stands_in_the_history_once(way: str) -> None:
    """The inventory of tools was part of the system prompt and changed with it
    (microsoft/vscode#312577)."""
    async with on("chat") as here:
        spec, _ = server("files", "read_file")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("hello")
            await session.tools.enable("files")
            for text in ("two", "three", "four"):
                await session.run(text)
            # What a definition says is in each later request as often as in the first that told it.
            counts = [each.body.count(b"read_file") for each in session.sent]
            assert counts[0] == 0 < counts[1] and len(set(counts[1:])) == 1


async def test_a_removed_tool_stays_declared() -> None:
    """A removal took the tool's declaration along: the endpoint refused the reference to a tool
    that it did not know, and the prefix was lost (pydantic/pydantic-ai#6985)."""
    async with on("messages") as here:
        spec, _ = server("files", "read_file")
        agent = made(here, "by reference", mcp_servers=[spec])
        async with here.open(agent) as session:
            await session.tools.enable("files")
            await session.run("one")
            await session.tools.disable("files")
            await session.run("two")
            await session.run("three")
            assert all("files__read_file" in declared(each) for each in session.sent)
            assert b"tool_removal" in session.sent[-1].body
            assert not session.sent[-1].breaks
        assert here.stage.refused() == []


@pytest.mark.parametrize("way", ["by value", "items", *WIRES])
async def test_each_source_of_a_change_is_a_delta(way: str) -> None:
    """A function added by code, a toolset switched on, a server's changed list, a list prepared for
    the step: each of them sent all tools anew (pydantic/pydantic-ai#6794)."""
    async with on("chat") as here:
        spec, files = server("files", "read_file")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("one")
            await session.tools.add(here.ran.tool(schema("by_hand"), defer=False))
            await session.run("two")
            await session.tools.enable("files")
            await session.run("three")
            await changed(here.stage.pool, spec, files.add(canned("write_file")))
            await session.run("/call files__write_file {}")
            await session.tools.remove("by_hand")
            await session.run("five")
            same_tools(session.sent)
            only_grow(session.sent)
        assert files.calls == [("write_file", {})]


@pytest.mark.parametrize("way", ["by value", "items", *WIRES])
async def test_tools_are_equal_before_at_and_after_a_delta(way: str) -> None:
    """The search entry left the tool list on the very turn that told the delta, so the delta itself
    missed (pydantic/pydantic-ai#6793)."""
    async with on("chat") as here:
        deferred = here.ran.tool(schema("rare"))
        tools = [here.ran.tool(schema("clock"), defer=False), deferred]
        async with here.open(made(here, way, tools=tools)) as session:
            await session.run("one")
            await session.run('/call tool_search {"query":"rare"}')
            await session.run("/call rare {}")
            assert len(session.sent) == 5
            same_tools(session.sent)
            only_grow(session.sent)
        assert here.ran.names == ["rare"]


@every_way
async def test_deltas_outlive_the_process(way: str) -> None:
    """The names that had been added were kept in memory only: stored and opened again, the
    conversation had lost them (withastro/flue#545)."""
    async with on("chat") as here:
        spec, files = server("files", "read_file")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("one")
            await session.tools.enable("files")
            await session.run("two")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("/call files__read_file {}")
        only_grow(here.stage.sent)
        assert files.calls == [("read_file", {})]


@pytest.mark.parametrize("count", [1, 6, 25, 60])
@pytest.mark.parametrize("way", ["by value", "items", *WIRES])
async def test_any_number_of_tools_at_once_misses_nothing(way: str, count: int) -> None:
    """A search that loaded six schemas or more had the prefix built anew; nobody found out why
    (anthropics/claude-code#83756)."""
    async with on("chat") as here:
        spec, _ = server("files", *(f"tool_{n:02}" for n in range(count)))
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("one")
            await session.tools.enable("files")
            await session.run(f"/call files__tool_{count - 1:02} {{}}")
            await session.run("three")
            same_tools(session.sent)
            only_grow(session.sent)


@every_way
async def test_what_a_server_says_of_itself_is_no_system_text(way: str) -> None:
    """Switching a tool on brought its prompt snippet into the system prompt, which was built anew
    (nicobailon/pi-intercom#118)."""
    async with on("chat") as here:
        spec, _ = server("files", "read_file", instructions="Paths begin with a slash.")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.run("one")
            await session.tools.enable("files")
            await session.run("two")
            assert b"Paths begin with a slash." in session.sent[-1].body
            assert "Paths begin" not in front(session.sent[-1])
            only_grow(session.sent)


@every_wire
async def test_loading_tools_again_and_again_reads_nothing_twice(wire: str) -> None:
    """Every load of a tool read some 106,000 tokens again; 51 such reads came on 100 runs. The
    answer was a dispatcher of fixed bytes (langchain-ai/open-swe#2209)."""
    names = [f"tool_{letter}" for letter in "abcdefgh"]
    steps = [says(call("tool_search", query=f"{n} tool"), user=f"find {n}") for n in names]
    steps += [says(call(name), user=f"use {name}") for name in names]
    async with on(wire, *steps) as here:
        tools = [here.ran.tool(schema("clock"), defer=False)]
        tools += [here.ran.tool(schema(name)) for name in names]
        async with here.open(here.agent(tools=tools)) as session:
            for name in names:
                await session.run(f"find {name}")
                await session.run(f"use {name}")
            same_tools(session.sent)
            only_grow(session.sent)
        assert here.ran.names == names


@every_way
async def test_a_changed_list_is_fetched_and_told_with_the_next_request(way: str) -> None:
    """The notice that a server's list had changed was logged, and nothing fetched the list: its new
    tools never came (openai/codex#33266, anthropics/claude-code#13646,
    anthropics/claude-code#4118)."""
    async with on("chat") as here:
        spec, files = server("files", "read_file")
        async with here.open(made(here, way, mcp_servers=[spec])) as session:
            await session.tools.enable("files")
            await session.run("one")

            async def burst() -> None:
                for letter in "abc":
                    await files.add(canned(f"more_{letter}"))

            await changed(here.stage.pool, spec, burst())
            await session.run("/call files__more_c {}")
            told = [e.data for e in session.log.events if isinstance(e.data, DeveloperMessage)]
            added = [block.tool_name for each in told for block in each.content]  # type: ignore[union-attr]
            assert added.count("files__more_c") == 1
        assert files.calls == [("more_c", {})]


@every_way
async def test_a_server_that_was_down_at_the_start_joins_later(way: str) -> None:
    """A server that was not there when the conversation began could never join it
    (anthropics/claude-code#81042, anthropics/claude-code#90494)."""
    async with on("chat") as here:
        spec, files = server("files", "read_file")
        await files.drop()
        agent = made(here, way, mcp_servers=[spec], limits=Limits(server_wait=0.05))
        async with here.open(agent) as session:
            await session.tools.enable("files")
            await session.run("one")
            assert "read_file" not in session.sent[-1].body.decode()
            connection = await here.stage.pool.acquire(spec)
            await files.back()
            await session.tools.disable("files")
            await session.tools.enable("files")
            await connection.until(lambda state: bool(state.tools), 5)
            await here.stage.pool.release(connection)
            await session.run("/call files__read_file {}")
            only_grow(session.sent)
        assert files.calls == [("read_file", {})]


@every_way
async def test_a_tool_of_a_later_hour_runs_with_its_context(way: str) -> None:
    """Tools that came after the agent had been made could not be run, or ran without the context
    that others got (langchain-ai/langchain#33808, langchain-ai/langchain#35305)."""
    seen: list[tuple[str, str, Any]] = []

    @tool
    async def late(context: ToolContext, word: str) -> str:
        """Come late."""
        seen.append((context.session, context.tool, context.state["who"]))
        return word

    async with on("chat") as here:
        async with here.open(made(here, way)) as session:
            session.state["who"] = "me"
            await session.run("one")
            await session.tools.add(late)
            result = await session.run('/call late {"word":"here"}')
            (ran,) = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            assert ran.text == "here" and result.text
        assert seen == [("s", "late", "me")]
