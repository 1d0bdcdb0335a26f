"""Traps of OpenAI-compatible providers, by number: what each leads to, and that it is avoided.

The numbers are those of a list of sixteen; a test's name says which one it is about.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.stage import Stage, body, fn, results, stage
from tests.lab.lab_requests import Json

from addendum import Agent
from addendum.cache.capture import wire_of
from addendum.cache.rules import eligible_ends
from addendum.lab.exchange import Switches
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import open_lab
from addendum.log.events import RouteDowngrade
from addendum.routes import resolve
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool
from addendum.wire.openai_chat import segments as chat_segments
from addendum.wire.openai_chat.usage import read_usage
from addendum.wire.openai_responses import segments as items_segments

pytestmark = pytest.mark.anyio

SOL = "openai:gpt-6.1-sol"
EXACT_CHAT = "openai-chat:gpt-6.1-sol"
KIMI = "moonshot:kimi-k3"
DEEPSEEK = "deepseek-chat:deepseek-flash"
CLAUDE = "openrouter:anthropic/claude-opus-5"


def says(*texts: str, call: str = "") -> Script:
    """A model that answers each text; the first one with a call, if one is named."""
    first = (Entry(thinking="why", calls=(ScriptCall(call, {}, "direct"),)),) if call else ()
    steps = [ScriptStep(texts[0], (*first, Entry(text="done")))]
    return Script((*steps, *(ScriptStep(text, (Entry(text="done"),)) for text in texts[1:])))


def bare(value: Any) -> Any:
    """A value without marks."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {name: bare(each) for name, each in value.items() if name not in marks}
    return value


def defined(sent: Json) -> list[str]:
    """Names of the tools that stand inside the history, in order."""
    if "input" in sent:
        items = [item for item in sent["input"] if item["type"] == "additional_tools"]
        return [tool["name"] for item in items for tool in item["tools"]]
    return [tool["function"]["name"] for m in sent["messages"] for tool in m.get("tools", ())]


async def switched(here: Stage, route: str) -> None:
    """One answered turn, then a tool that comes, goes and comes back."""
    async with here.open(here.agent(route, tool_dispatch=True)) as session:
        await session.run("one")
        await session.tools.add(fn("late"))
        await session.run("two")
        await session.tools.remove("late")
        await session.run("three")
        await session.tools.add(fn("late"))
        await session.run("four")


FOUR = says("one", "two", "three", "four")


@pytest.mark.parametrize("route", [SOL, KIMI, EXACT_CHAT, CLAUDE, DEEPSEEK])
async def test_openai_trap_1_an_addition_never_joins_the_tool_list(route: str) -> None:
    """It would read nothing again; so the list stays as it was, and all of it is read."""
    async with stage(FOUR) as here:
        await switched(here, route)
        report = here.judged(route)
    assert len({json.dumps(bare(body(sent).get("tools"))) for sent in here.sent}) == 1
    assert report.totals.misses == 0
    # A declared list is in front of everything.
    async with stage(FOUR) as here:
        async with here.open(here.agent(route, tool_changes="rebind")) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            await session.run("two")
    first, second = here.sent
    assert (second.usage.cache_read or 0) < (first.usage.prompt or 0) / 2


async def test_openai_trap_2_the_first_tools_are_an_item_so_that_they_can_be_replaced() -> None:
    async with stage(FOUR) as here:
        async with here.open(here.agent(SOL)) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.run("two")
        report = here.judged(SOL)
    assert all("tools" not in body(sent) for sent in here.sent)
    assert defined(body(here.sent[-1])) == ["web", "web"]
    assert report.totals.misses == 0


@pytest.mark.parametrize("route", [SOL, KIMI])
async def test_openai_trap_3_a_removal_is_a_notice_and_a_refusal(route: str) -> None:
    """The definition stays where it is: to take it out would break what follows it."""
    call = Entry(thinking="why", calls=(ScriptCall("late", {}, "direct"),))
    steps = (
        ScriptStep("one", (Entry(text="done"),)),
        ScriptStep("two", (Entry(text="done"),)),
        ScriptStep("three", (call, Entry(text="done"))),
    )
    async with stage(Script(steps)) as here:
        async with here.open(here.agent(route)) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            await session.run("two")
            await session.tools.remove("late")
            await session.run("three")
            (refused,) = results(session)
    last = body(here.sent[-1])
    assert defined(last).count("late") == 1
    assert "do not call: late." in json.dumps(last)
    assert refused.is_error and "late v0 result" not in refused.text


async def test_openai_trap_4_what_was_ever_declared_decides_how_a_name_returns() -> None:
    for route in (SOL, KIMI):
        async with stage(FOUR) as here:
            await switched(here, route)
            assert here.refused() == []
            assert here.judged(route).totals.misses == 0
        last = body(here.sent[-1])
        assert defined(last).count("late") == 1
        assert "Available again: late." in json.dumps(last)


@pytest.mark.parametrize("route", [SOL, KIMI, EXACT_CHAT])
async def test_openai_trap_5_what_a_compaction_takes_is_told_again(route: str) -> None:
    async with stage(FOUR) as here:
        async with here.open(here.agent(route)) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            await session.run("two")
            await session.compact("What was said.")
            await session.run("three")
            await session.run("four")
        assert here.refused() == []
    for sent in here.sent[-2:]:
        text = json.dumps(body(sent))
        assert "What was said." in text and '"two"' not in text
        assert text.count("Tool late version 0") == 1


def test_openai_trap_6_the_head_item_is_no_developer_message() -> None:
    """The initial developer run, whose end is a boundary, begins behind it."""
    items = [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "function", "name": "a"}],
        },
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    found = items_segments.segments({"model": "m", "input": items})
    assert [each.kind for each in found if each.defines] == ["tool"]
    ends = eligible_ends(found)
    assert found[ends[0] - 1].path.startswith("input[1]")
    without = items_segments.segments({"model": "m", "input": items[1:]})
    assert len(eligible_ends(without)) == len(ends)


async def test_openai_trap_7_breakpoints_stand_on_what_goes_in_only() -> None:
    script = says("one", "two", "three", "four", call="web")
    async with stage(script) as here:
        options: dict[str, Any] = {"turn_instructions": "Be brief.", "tail": "moved"}
        async with here.open(here.agent(SOL, **options)) as session:
            for text in ("one", "two"):
                await session.run(text)
                await session.tools.add(fn(f"after {text}".replace(" ", "_")))
            await session.run("three")
    seen = 0
    for sent in here.sent:
        for item in body(sent)["input"]:
            marked = "prompt_cache_breakpoint" in json.dumps(item)
            seen += marked
            if item["type"] in ("additional_tools", "reasoning", "function_call"):
                assert not marked
            if item.get("role") == "assistant":
                assert not marked
        assert "instructions" not in body(sent)
    assert seen


@pytest.mark.parametrize("route", [SOL, EXACT_CHAT])
async def test_openai_trap_8_messages_are_added_and_never_extended(route: str) -> None:
    """What a boundary stored is found only behind a message of the same content."""
    async with stage(FOUR) as here:
        await switched(here, route)
    name = "input" if route == SOL else "messages"
    bodies = [body(sent) for sent in here.sent]
    for before, after in pairwise(bodies):
        assert bare(after[name])[: len(before[name])] == bare(before[name])
        # Another mode would not find what the first one stored.
        assert before.get("prompt_cache_options") == after.get("prompt_cache_options")


def test_openai_trap_9_reads_and_writes_lie_inside_the_prompt() -> None:
    details = {"cached_tokens": 600, "cache_write_tokens": 300}
    usage = {"prompt_tokens": 1000, "completion_tokens": 5, "prompt_tokens_details": details}
    found = read_usage(Raw(json.dumps(usage).encode()))
    assert (found.prompt, found.cache_read, found.cache_write) == (1000, 600, 300)


@pytest.mark.parametrize("route", [SOL, EXACT_CHAT, KIMI, CLAUDE])
async def test_openai_trap_10_the_key_stays_whatever_changes_and_in_a_fork_too(route: str) -> None:
    async with stage(FOUR) as here:
        async with here.open(here.agent(route)) as session:
            await session.run("one")
            session.instructions = "Another prompt. " * 100
            await session.tools.add(fn("late"))
            await session.run("two")
            async with session.fork("other") as child:
                await child.run("three")
                here.sent += child.sent
    field = "session_id" if route == CLAUDE else "prompt_cache_key"
    keys = {body(sent)[field] for sent in here.sent}
    assert len(here.sent) >= 3 and len(keys) == 1 and all(keys)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
        ({"prompt_token_details": {"cached_tokens": 7}}, 7),
        ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 3}, 7),
        ({"cached_tokens": 7}, 7),
        ({"num_cached_tokens": 7}, 7),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({}, None),
        ({"prompt_tokens_details": {}}, None),
        ({"prompt_tokens_details": None}, None),
    ],
    ids=str,
)
def test_openai_trap_11_every_spelling_counts_and_silence_is_unknown(
    usage: Json, read: int | None
) -> None:
    assert read_usage(Raw(json.dumps({"prompt_tokens": 10, **usage}).encode())).cache_read == read


async def test_openai_trap_12_only_whole_units_are_read() -> None:
    """A tail that moved would leave no unit that the next turn begins with; so it is kept."""
    reads: dict[str, int] = {}
    for tail in ("auto", "moved"):
        async with stage(FOUR) as here:
            options: dict[str, Any] = {"turn_instructions": "Be brief.", "tail": tail}
            async with here.open(here.agent(DEEPSEEK, **options)) as session:
                for text in ("one", "two", "three"):
                    await session.run(text)
            reads[tail] = sum(sent.usage.cache_read or 0 for sent in here.sent)
            if tail == "auto":
                assert here.sent[0].context.tail == "kept"
                assert here.judged(DEEPSEEK).totals.misses == 0
    assert reads["auto"] > reads["moved"]


async def test_openai_trap_13_one_upstream_serves_the_whole_conversation() -> None:
    async with stage(FOUR) as here:
        options: dict[str, Any] = {"turn_instructions": "Be brief."}
        async with here.open(here.agent(CLAUDE, **options)) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
    bodies = [body(sent) for sent in here.sent]
    assert len({sent["session_id"] for sent in bodies}) == 1
    assert len(bodies[0]["session_id"]) <= 256
    assert all("provider" not in sent for sent in bodies)
    # Where a session were not looked at, the first message would tell: it never changes either.
    assert len({str(sent["messages"][1]) for sent in bodies}) == 1
    assert all((sent.usage.cache_read or 0) > 0 for sent in here.sent[1:])


@pytest.mark.parametrize("route", [SOL, KIMI, EXACT_CHAT])
async def test_openai_trap_14_a_schema_is_frozen_when_it_is_declared(route: str) -> None:
    schema: Json = {"type": "object", "properties": {"z": {"type": "string"}, "a": {}}}
    tool = fn("late")

    def made() -> FunctionTool[..., Any]:
        raw = Raw(json.dumps(schema, separators=(",", ":")).encode())
        kept = type(tool.schema)("late", "Late.", raw)
        return FunctionTool.from_schema(kept, tool.function)

    async with stage(FOUR) as here:
        async with here.open(here.agent(route)) as session:
            await session.run("one")
            await session.tools.add(made())
            await session.run("two")
            # Whatever the caller does to its own copy, what was sent stays.
            schema["properties"]["b"] = {}
            await session.run("three")
    last = here.sent[-1].body.decode().replace("\\", "")
    assert '"properties":{"z":{"type":"string"},"a":' in last and '"b":' not in last


async def test_openai_trap_15_a_declaring_message_has_no_content_at_all() -> None:
    async with stage(FOUR) as here:
        await switched(here, KIMI)
        assert here.refused() == []
    found = [m for m in body(here.sent[-1])["messages"] if "tools" in m]
    assert found and all(list(message) == ["role", "tools"] for message in found)
    # A server that drops `tools` in silence: none but the vendor's own address is trusted.
    other = resolve(KIMI, base_url="https://gateway.example/v1", environ={})
    assert other.capabilities.tool_update is None
    assert resolve("vllm:moonshotai/kimi-k3", environ={}).capabilities.tool_update is None


async def test_openai_trap_16_a_refusal_is_met_once_and_remembered() -> None:
    """A server that does not know tools in messages says so; the session goes on by dispatch."""
    said = "Unrecognized request argument supplied: messages[3].tools"
    refusal = json.dumps({"error": {"message": said, "code": "unknown_parameter"}}).encode()
    store = MemoryStore()
    async with open_lab(FOUR) as lab:
        agent = Agent(KIMI, base_url=lab.base_url("moonshot"), tools=[fn("web")])
        async with agent.open("s", store=store) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            lab.fail_next("moonshot", status=400, body=refusal)
            result = await session.run("two")
            assert result.text == "done"
            data = [event.data for event in session.log.events]
        (told,) = [each for each in data if isinstance(each, RouteDowngrade)]
        assert told.projection == "dispatch"
        before = len(lab.captures)
        async with agent.open("t", store=store) as session:
            await session.tools.add(fn("late"))
            await session.run("three")
        sent = json.loads(lab.captures[before].body)
    assert defined(sent) == []
    assert "call_tool" in [tool["function"]["name"] for tool in sent["tools"]]


async def test_openai_trap_16_on_responses_too() -> None:
    switches = Switches(openai_additional_tools=False)
    async with open_lab(FOUR, switches=switches) as lab:
        agent = Agent(SOL, base_url=lab.base_url("openai"), tools=[fn("web")])
        async with agent.open("s", store=MemoryStore()) as session:
            await session.run("one")
            statuses = [capture.status for capture in lab.captures]
            await session.run("two")
    assert statuses == [400, 200]
    assert [capture.status for capture in lab.captures][2:] == [200]


def test_a_captured_request_of_a_vendor_is_read_as_chat() -> None:
    """Tools in messages and marks do not make it another wire."""
    message = {"role": "system", "tools": [{"type": "function", "function": {"name": "a"}}]}
    sent: Json = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}, message]}
    assert wire_of("", {}, sent) == "openai_chat"
    found = chat_segments.segments(sent)
    assert [each.defines for each in found if each.defines] == ["a"]
