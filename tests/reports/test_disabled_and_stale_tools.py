"""Public reports of tools that are off, renamed or somebody else's: each failure, and that it does
not happen.

Each docstring tells what others met, in our words, and where it was reported.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cases.dispatching import WIRES, call, envelope, on, says, schema
from tests.reports.ground import WAYS

from addendum.log.events import ToolResult

pytestmark = pytest.mark.anyio

every_wire = pytest.mark.parametrize("wire", WIRES)


@pytest.mark.parametrize("way", WAYS)
async def test_a_disabled_tool_that_is_called_from_memory_costs_one_result(way: str) -> None:
    """The history showed calls of a tool that was switched off since; the model made one more, all
    retries failed, and the person got an empty reply (suitenumerique/conversations#474)."""
    options = dict(WAYS[way])
    route = options.pop("route")
    step = says(call("clock"), user="again")
    async with on("chat", says(call("clock")), step) as here:
        tools = [here.ran.tool(schema("clock"), defer=False)]
        async with here.open(here.stage.agent(route, tools=tools, **options)) as session:
            await session.run("go")
            await session.tools.refuse("clock")
            result = await session.run("again")
            assert result.text == "done again"
            last = [e.data for e in session.log.events if isinstance(e.data, ToolResult)][-1]
            assert (last.code, last.is_error) == ("E5", True)
        assert here.ran.names == ["clock"]


@every_wire
async def test_the_old_name_of_a_tool_is_told_alone(wire: str) -> None:
    """After a tool was renamed and the list loaded again, a call of the old name ended at another
    tool (earendil-works/pi#8247)."""
    again = says(call("fetch_page", "direct"), envelope(name="fetch_page"), user="again")
    async with on(wire, says(call("fetch_page")), again) as here:
        tools = [here.ran.tool(schema("clock"), defer=False), here.ran.tool(schema("fetch_page"))]
        async with here.open(here.agent(tools=tools)) as session:
            await session.run("go")
            await session.tools.remove("fetch_page")
            await session.tools.add(here.ran.tool(schema("get_page"), defer=False))
            await session.run("again")
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            direct, dispatched = results[1:]
            assert (direct.code, direct.text) == ("UNKNOWN_TOOL", 'unknown tool "fetch_page"')
            assert dispatched.code == "E4" and '"fetch_page"' in dispatched.text
        assert here.ran.names == ["fetch_page"]


@every_wire
async def test_what_one_agent_found_is_not_loaded_for_another(wire: str) -> None:
    """A tool that one agent had searched for counted as loaded for all of them
    (openai/openai-agents-js#1841)."""
    calls = [call("rare", "direct"), envelope(name="rare", arguments={})]
    steps = says(call("tool_search", query="rare")), says(call("rare"), user="use")
    async with on(wire, *steps, says(*calls, user="other")) as here:
        clock = here.ran.tool(schema("clock"), defer=False)
        finder = here.agent(tools=[clock, here.ran.tool(schema("rare"))])
        async with here.open(finder) as session:
            await session.run("go")
            await session.run("use")
        other = here.agent(tools=[clock, here.ran.tool(schema("odd"))])
        async with here.open(other, "another") as session:
            await session.run("other")
            codes = [e.data.code for e in session.log.events if isinstance(e.data, ToolResult)]
            assert codes == ["UNKNOWN_TOOL", "E4"]
            assert b"rare" not in session.sent[0].body
        assert here.ran.names == ["rare"]


def declarations(body: dict[str, Any]) -> list[Any]:
    """The fixed tools as a request declares them."""
    entries = body.get("tools") or body["toolConfig"]["tools"]
    found: list[Any] = []
    for entry in entries:
        entry = entry.get("toolSpec", entry)
        if "functionDeclarations" in entry:
            found += entry["functionDeclarations"]
        else:
            found.append(entry.get("function", entry))
    return [each for each in found if each.get("name") in ("call_tool", "tool_search")]


@every_wire
async def test_the_fixed_tools_are_declared_in_full(wire: str) -> None:
    """A server's `call_tool` came without title and description, and strict clients dropped it
    (PrefectHQ/fastmcp#4418)."""
    async with on(wire) as here:
        async with here.open() as session:
            await session.run("hello")
            both = declarations(json.loads(session.sent[0].body))
        assert len(both) == 2
        for each in both:
            assert len(each["description"]) > 100
            keys = ("input_schema", "parameters", "inputSchema", "parametersJsonSchema")
            parameters = next(each[key] for key in keys if key in each)
            parameters = parameters.get("json", parameters)
            assert all(each.get("description") for each in parameters["properties"].values())
