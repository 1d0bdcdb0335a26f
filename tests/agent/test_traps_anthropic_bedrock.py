"""Mistakes that clients of Claude and of Bedrock made, by their numbers: none is ours."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.agent.stage import CLAUDE, Stage, body, breaks, fn, names, server, stage
from tests.property.reference import blocks, extends

from addendum.errors import AddendumError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantMessage, RequestContext
from addendum.routes import resolve
from addendum.tools.functions import FunctionTool

pytestmark = pytest.mark.anyio

BY_REFERENCE = f"{CLAUDE}+by-reference"
CONVERSE = "bedrock:anthropic.claude-opus-5-5"
Json = dict[str, Any]


def parts(value: Json) -> list[tuple[str, Json]]:
    """Role and block of everything in the messages."""
    return [
        (message["role"], block) for message in value["messages"] for block in message["content"]
    ]


def kinds(value: Json) -> list[str]:
    """Roles of the messages, with the type of a system message's first block."""
    return [
        f"system {message['content'][0]['type']}"
        if message["role"] == "system"
        else message["role"]
        for message in value["messages"]
    ]


def marked(value: Json) -> list[Json]:
    everything = [*value.get("tools", []), *value.get("system", []), *(b for _, b in parts(value))]
    return [block for block in everything if "cache_control" in block]


async def again(here: Stage, change: Callable[[str], str]) -> int:
    """Send the lab's newest request once more, changed; return the status."""
    capture = here.lab.captures[-1]
    kept = ("anthropic-version", "anthropic-beta", "content-type")
    headers = {name: capture.headers[name] for name in kept if name in capture.headers}
    answer = await here.client.post(
        f"{here.lab.url}{capture.path}",
        content=change(capture.body.decode()).encode(),
        headers={**headers, "x-api-key": "k"},
    )
    return answer.status_code


def rounds(user: str, count: int, tool: str = "web") -> Script:
    entries = [Entry(thinking=f"t{n}", calls=(ScriptCall(tool, {}),)) for n in range(count)]
    return Script((ScriptStep(user, (*entries, Entry(text="done"))),))


async def test_anthropic_trap_1_a_change_names_a_tool_by_name_and_not_by_tool_name() -> None:
    async with stage() as here:
        async with here.open(here.agent(BY_REFERENCE)) as session:
            await session.run("one")
            await session.tools.add(fn("extra"))
            await session.run("two")
            changes = [b for _, b in parts(body(session.sent[-1])) if b["type"] == "tool_addition"]
        assert [each["tool"] for each in changes] == [{"type": "tool_reference", "name": "extra"}]
        assert b"tool_name" not in here.sent[-1].body
        assert await again(here, lambda text: text) == 200
        other = '"tool_reference","tool_name":'
        assert (
            await again(here, lambda text: text.replace('"tool_reference","name":', other)) == 400
        )


async def test_anthropic_trap_2_a_change_is_placed_behind_the_last_input_and_stays_there() -> None:
    """Logged inside a round of calls, and between two messages of a person."""
    async with stage(rounds("one", 1)) as here:
        opened: list[Any] = []

        async def run(arguments: Json) -> str:
            await opened[0].tools.add(fn("extra"))
            return "added"

        web = FunctionTool.from_schema(fn("web").schema, run)
        async with here.open(here.agent(CLAUDE, tools=[web])) as session:
            opened.append(session)
            await session.run("one")
            inside = ["user", "assistant", "user", "system tool_addition"]
            assert kinds(body(session.sent[1])) == inside
            here.lab.script = None
            here.lab.fail_next("anthropic", status=500)
            with pytest.raises(AddendumError):
                await session.run("two")
            await session.tools.add(fn("more"))
            await session.run("three")
            between = [*inside, "assistant", "user", "system tool_addition"]
            assert kinds(body(session.sent[-1])) == between
            await session.run("four")
            assert kinds(body(session.sent[-1])) == [*between, "assistant", "user"]
            answered = [each for each in session.sent if each.answered]
        assert not here.refused()
        for before, after in itertools.pairwise(answered):
            assert extends(blocks(before.body, before.context), blocks(after.body, after.context))


async def test_anthropic_trap_3_a_change_at_the_end_moves_behind_the_next_prompt() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            await session.tools.add(fn("extra"))
            here.lab.fail_next("anthropic", status=500)
            with pytest.raises(AddendumError):
                await session.run("two")
            assert kinds(body(session.sent[-1]))[-2:] == ["user", "system tool_addition"]
            await session.run("three")
            assert kinds(body(session.sent[-1])) == [
                *("user", "assistant", "user", "system tool_addition")
            ]
            assert [reason for reason, _ in breaks(session)] == ["attempt failed"]
        assert not here.refused()
        # The other order is what the provider refuses.
        assert await again(here, _change_first) == 400


def _change_first(text: str) -> str:
    value = json.loads(text)
    value["messages"][-2:] = reversed(value["messages"][-2:])
    return json.dumps(value)


async def test_anthropic_trap_4_no_mark_stands_where_none_may() -> None:
    async with stage(rounds("two", 3)) as here:
        agent = here.agent(
            BY_REFERENCE,
            tools=[fn("web"), fn("rare", deferred=True)],
            conversation_instructions="Of this conversation.",
            turn_instructions="Of this turn.",
        )
        async with here.open(agent) as session:
            script, here.lab.script = here.lab.script, None
            await session.run("one")
            here.lab.script = script
            await session.run("two")
        assert not here.refused()
        for sent in here.sent:
            value = body(sent)
            # The list ends with deferred entries, the history with a message of this turn only.
            assert value["tools"][-1]["defer_loading"]
            assert value["messages"][-1].get("clear_at")
            assert not value["messages"][-1]["content"][0].get("cache_control")
            held = marked(value)
            assert held
            for block in held:
                assert not block.get("defer_loading")
                assert block.get("type") not in ("thinking", "redacted_thinking")
                assert block.get("text") != ""


async def test_anthropic_trap_5_four_marks_at_most_and_an_older_one_for_wide_steps() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, conversation_instructions="C. " * 50)) as session:
            await session.run("one")
            for number in range(25):
                await session.tools.add(fn(f"extra{number:02}"))
            await session.run("two")
            await session.run("three")
        counts = [len(marked(body(sent))) for sent in here.sent]
        assert max(counts) == 4 and all(b"cache_control" in sent.body for sent in here.sent)
        assert all("cache_control" not in body(sent) for sent in here.sent)
        # More than 20 positions were added at once, and all in front of them is read.
        assert here.judged(CLAUDE).totals.misses == 0
        second = here.sent[1].usage
        assert second.cache_read is not None and here.sent[0].usage.prompt is not None
        assert second.cache_read >= here.sent[0].usage.prompt - 64


async def test_anthropic_trap_6_what_a_server_declared_stays_when_it_is_switched_off() -> None:
    async with stage() as here:
        async with here.open(here.agent(BY_REFERENCE, mcp_servers=[server()])) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run('/call github__t0 {"q":"x"}')
            await session.tools.disable("github")
            await session.run("three")
            on, off = session.sent[1], session.sent[-1]
        assert names(off) == names(on) and "github__t0" in names(off)
        removed = [b["tool"]["name"] for _, b in parts(body(off)) if b["type"] == "tool_removal"]
        assert removed == ["github__t0", "github__t1"]
        assert not here.refused() and here.judged(CLAUDE).totals.misses == 0

        def without(text: str) -> str:
            value = json.loads(text)
            value["tools"] = [t for t in value["tools"] if not t["name"].startswith("github__")]
            return json.dumps(value)

        assert await again(here, without) == 400


async def test_anthropic_trap_7_a_restored_session_has_the_head_that_was_logged() -> None:
    async with stage(rounds("one", 1)) as here:
        tools = [fn("web"), fn("other")]
        async with here.open(here.agent(CLAUDE, tools=tools, instructions="It is Monday.")) as old:
            await old.run("one")
        here.lab.script = None
        # Another day, another order, another tool: told behind the history, not in front of it.
        later = here.agent(
            CLAUDE, tools=[fn("new"), fn("other"), fn("web")], instructions="It is Tuesday."
        )
        async with here.open(later) as session:
            await session.run("two")
            assert breaks(session) == []
        first, last = body(here.sent[0]), body(here.sent[-1])
        assert _unmarked(last["tools"]) == _unmarked(first["tools"])
        assert _unmarked(last["system"]) == _unmarked(first["system"])
        assert b"It is Tuesday." in here.sent[-1].body
        # The signed reasoning of the day before is still valid there.
        assert b'"signature":' in here.sent[-1].body and not here.refused()


def _unmarked(entries: list[Json]) -> list[Json]:
    return [{k: v for k, v in entry.items() if k != "cache_control"} for entry in entries]


@pytest.mark.parametrize(
    "name", ["anthropic:claude-sonnet-4-6", "anthropic:claude-haiku-4-5", CONVERSE]
)
async def test_anthropic_trap_8_a_model_that_takes_no_system_messages_gets_none(name: str) -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, tool_dispatch=True, turn_instructions="Of this turn.")
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("extra"))
            session.instructions = "Changed. " * 300
            await session.run("two")
            assert '"role":"system"' in session.sent[-1].body.decode()
            base_url = here.lab.base_url(name.partition(":")[0])
            session.use(resolve(name, base_url=base_url, environ={}))
            await session.run('/call extra {"q0":"x"}')
            there = session.sent[-1]
            assert b'"role":"system"' not in there.body and b"tool_addition" not in there.body
            assert there.context.projection == "dispatch"
            contexts = [
                each for each in session.log.events if isinstance(each.data, RequestContext)
            ]
            assert len(contexts) == 2
        assert not here.refused()


# -- Bedrock ------------------------------------------------------------------------------------


def pieces(value: Json) -> list[list[Json]]:
    return [message["content"] for message in value["messages"]]


async def test_bedrock_trap_1_no_cache_point_stands_right_behind_reasoning() -> None:
    async with stage(rounds("one", 4)) as here:
        async with here.open(here.agent(CONVERSE)) as session:
            await session.run("one")
            thought = [
                each.data for each in session.log.events if isinstance(each.data, AssistantMessage)
            ]
        assert any(each.native for each in thought) and not here.refused()
        seen = 0
        for sent in here.sent:
            for content in pieces(body(sent)):
                for before, after in itertools.pairwise(content):
                    seen += "cachePoint" in after
                    assert not ("reasoningContent" in before and "cachePoint" in after)
        assert seen
        assert any(b"reasoningContent" in sent.body for sent in here.sent)


async def test_bedrock_trap_2_a_history_with_calls_always_has_its_tool_config() -> None:
    async with stage() as here:
        async with here.open(here.agent(CONVERSE, tools=[], tool_changes="rebind")) as session:
            await session.tools.add(fn("extra"))
            await session.run('/call extra {"q0":"x"}')
            await session.tools.remove("extra")
            await session.run("two")
            value = body(session.sent[-1])
        assert any("toolUse" in block for content in pieces(value) for block in content)
        assert value["toolConfig"]["tools"]
        assert not here.refused()


async def test_bedrock_trap_3_nothing_told_later_grows_the_system_text() -> None:
    async with stage() as here:
        agent = here.agent(CONVERSE, mcp_servers=[server(instructions="Be kind to it.")])
        async with here.open(agent) as session:
            session.turn_instructions = "Of this turn."
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            await session.tools.disable("github")
            await session.run("three")
            assert breaks(session) == []
        systems = [json.dumps(body(sent)["system"]) for sent in here.sent]
        assert len(set(systems)) == 1
        assert b"<tool_update>" in here.sent[-1].body
        assert here.judged(CONVERSE).totals.misses == 0


async def test_bedrock_trap_4_no_beta_flag_goes_to_an_endpoint_that_may_not_know_it() -> None:
    async with stage() as here:
        async with here.open(here.agent(CONVERSE, tool_dispatch=True)) as session:
            session.turn_instructions = "Of this turn."
            await session.run("one")
            await session.tools.add(fn("extra"))
            await session.run("two")
        for capture in here.lab.captures:
            assert b"anthropic_beta" not in capture.body and b"anthropic-beta" not in capture.body
            assert "anthropic-beta" not in capture.headers
        # Its Messages API gets the one flag that is documented for it.
        claude = "bedrock-claude:anthropic.claude-opus-5-5"
        async with here.open(here.agent(claude), "t") as session:
            await session.tools.add(fn("extra"))
            await session.run("one")
        assert here.lab.captures[-1].headers["anthropic-beta"] == (
            "mid-conversation-tool-changes-2026-07-01"
        )
        assert not here.refused()


@pytest.mark.parametrize(
    ("name", "points"),
    [
        (CONVERSE, True),
        ("bedrock:amazon.nova-pro", True),
        ("bedrock:meta.llama4-maverick", False),
    ],
)
async def test_bedrock_trap_5_cache_points_stand_only_where_the_model_takes_them(
    name: str, points: bool
) -> None:
    async with stage() as here:
        async with here.open(here.agent(name)) as session:
            await session.run("one")
            await session.run("two")
        assert not here.refused()
        for sent in here.sent:
            assert (b"cachePoint" in sent.body) is points
            # Nova takes none among the tools.
            tools = json.dumps(body(sent).get("toolConfig", {}))
            assert ("cachePoint" in tools) is (name == CONVERSE)
