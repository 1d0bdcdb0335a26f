"""A session on the Responses API: what is sent when tools come, change and go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from addendum import Agent
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Lab, open_lab
from addendum.log.events import AssistantMessage, ToolResult

pytestmark = pytest.mark.anyio

SOL = "openai:gpt-6.1-sol"


def look(q: str = "") -> str:
    """Look it up."""
    return f"looked {q}"


def extra(q: str = "") -> str:
    """A tool that comes later."""
    return f"extra {q}"


def script(*steps: tuple[str, list[ScriptCall]]) -> Script:
    return Script(
        tuple(
            ScriptStep(user, (Entry(thinking=f"on {user}", calls=tuple(calls)), Entry("done")))
            if calls
            else ScriptStep(user, (Entry("done"),))
            for user, calls in steps
        )
    )


def sent(lab: Lab, at: int = -1) -> list[dict[str, Any]]:
    return json.loads(lab.captures[at].body)["input"]


def short(items: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    for item in items:
        match item["type"]:
            case "message":
                found.append(item["role"])
            case "additional_tools":
                found.append("+" + " +".join(tool["name"] for tool in item["tools"]))
            case kind:
                found.append(kind)
    return found


async def test_a13_a_removed_tool_is_told_in_text_and_refused_and_the_turn_goes_on() -> None:
    steps = script(
        ("one", []), ("two", [ScriptCall("extra", {"q": "x"})]), ("three", [ScriptCall("extra")])
    )
    async with open_lab(steps) as lab:
        agent = Agent(SOL, base_url=lab.base_url("openai"), instructions="Static.", tools=[look])
        async with agent.open("s", store="memory://") as session:
            await session.run("one")
            await session.tools.add(extra)
            await session.run("two")
            await session.tools.remove("extra")
            result = await session.run("three")
            events = [event.data for event in session.log.events]
        assert not [each.refusal for each in lab.captures if each.refusal]
        items = sent(lab)
    assert result.text == "done"
    results = [data for data in events if isinstance(data, ToolResult)]
    assert [(each.text, each.code) for each in results[:1]] == [("extra x", None)]
    assert (results[1].is_error, results[1].code) == (True, "UNKNOWN_TOOL")
    round_ = ["reasoning", "function_call", "function_call_output"]
    first = ["+look", "developer", "user", "assistant"]
    second = ["user", "+extra", "developer", *round_, "assistant"]
    assert short(items) == [*first, *second, "user", "developer", *round_]
    notices = [item for item in items if item.get("role") == "developer" and "content" in item]
    (off,) = notices[-1]["content"]
    assert off["text"] == "Not available now, do not call: extra. All others stay available."


async def test_c5_items_go_back_as_they_came_with_the_reasoning_that_led_to_them() -> None:
    async with open_lab(script(("one", [ScriptCall("look", {"q": "é"})]))) as lab:
        agent = Agent(SOL, base_url=lab.base_url("openai"), tools=[look])
        async with agent.open("s", store="memory://") as session:
            await session.run("one")
            events = [event.data for event in session.log.events]
        body = lab.captures[-1].body
    made = next(data for data in events if isinstance(data, AssistantMessage))
    thought, called = map(bytes, made.native)
    assert thought + b"," + called in body
    assert json.loads(thought)["encrypted_content"]


async def test_b4_a_direct_call_is_sent_as_a_dispatcher_call_without_its_pair() -> None:
    steps = script(("one", []), ("two", [ScriptCall("extra", {"q": "x"}, "direct")]))
    async with open_lab(steps) as lab:
        agent = Agent(f"{SOL}+dispatch", base_url=lab.base_url("openai"), tools=[look])
        async with agent.open("s", store="memory://") as session:
            await session.run("one")
            await session.tools.add(extra)
            await session.run("two")
            events = [event.data for event in session.log.events]
        assert not [each.refusal for each in lab.captures if each.refusal]
        items = sent(lab)
    made = [data for data in events if isinstance(data, AssistantMessage)][1]
    assert [json.loads(bytes(raw))["type"] for raw in made.original] == [
        "reasoning",
        "function_call",
    ]
    (called,) = [item for item in items if item["type"] == "function_call"]
    assert (called["name"], "id" in called) == ("call_tool", False)
    assert json.loads(called["arguments"]) == {"name": "extra", "arguments": {"q": "x"}}
    assert not [item for item in items if item["type"] == "reasoning"]


async def test_a_head_that_was_redefined_is_told_by_a_later_item_and_nothing_breaks() -> None:
    def changed(q: str = "", more: int = 0) -> str:
        """Look it up in another way."""
        return f"looked {q} {more}"

    changed.__name__ = "look"
    steps = script(("one", []), ("two", [ScriptCall("look", {"q": "x", "more": 2})]))
    async with open_lab(steps) as lab:
        agent = Agent(SOL, base_url=lab.base_url("openai"), tools=[look])
        async with agent.open("s", store="memory://") as session:
            first = await session.run("one")
            await session.tools.add(changed)
            second = await session.run("two")
        before, after = sent(lab, 0), sent(lab, 1)
    assert not [each for turn in (first, second) for each in turn.requests if each.breaks]
    assert short(after[: len(before)]) == short(before)
    assert after[0] == before[0]
    assert short(after) == ["+look", "user", "assistant", "user", "+look", "developer"]
