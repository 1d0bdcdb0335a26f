"""Cases 69 to 78, 85 and 86: what reaches the provider, read from the bytes that arrived."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases.helpers import (
    ADDITION_ONLY,
    BY_REFERENCE,
    BY_VALUE,
    CHAT,
    DEEPSEEK,
    PLAIN,
    Talk,
    declared,
    extends,
    function,
    of,
    part,
    schema,
    switch,
    talking,
    told,
    tools,
)

from addendum.agent.context.epochs import coming
from addendum.agent.results import Notice
from addendum.agent.session import Session, runtime_of
from addendum.errors import UnsupportedContent
from addendum.lab.exchange import Switches
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    DeveloperMessage,
    RequestHeader,
    RequestSent,
    RouteDowngrade,
    StepStart,
    SystemMessage,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Header, ToolAddition
from addendum.routes import resolve
from addendum.tools.functions import FunctionTool

pytestmark = pytest.mark.anyio

CHANGES = "mid-conversation-tool-changes-2026-07-01"


def betas(talk: Talk) -> list[str]:
    return [capture.headers.get("anthropic-beta", "") for capture in talk.lab.captures]


async def test_case_65_no_tools_at_all() -> None:
    for route in (BY_VALUE, BY_REFERENCE, ADDITION_ONLY, DEEPSEEK, PLAIN, CHAT):
        async with talking(route, "") as talk:
            await talk.say("one")
            await talk.say("two")
            assert all("tools" not in body for body in talk.bodies)


async def test_case_69_addition_on_deepseek() -> None:
    async with talking(DEEPSEEK) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        body = talk.bodies[-1]
        addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}}
        assert body["messages"][-1] == {"role": "system", "content": [addition]}
        assert declared(body) == ["a", "b*"]
        assert body["tools"][1]["defer_loading"] is True
        assert betas(talk) == ["", CHANGES]


async def test_case_70_no_change_on_deepseek() -> None:
    async with talking(DEEPSEEK) as talk:
        await talk.say("one")
        await talk.say("two")
        assert betas(talk) == ["", ""]
        assert all(b"tool_addition" not in body for body in talk.raw)
    # On Claude the set is constant: it is part of what the prefix depends on.
    async with talking(BY_REFERENCE) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        assert len(set(betas(talk))) == 1
        assert CHANGES in betas(talk)[0].split(",")


@pytest.mark.parametrize("route", [DEEPSEEK, BY_REFERENCE, BY_VALUE])
async def test_case_71_prompt_and_tool_in_one_step(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        talk.session.instructions = "You help more."
        events = await talk.say("two", "a b")
        kinds = [type(event.data) for event in events]
        assert kinds.index(SystemMessage) < kinds.index(DeveloperMessage)
        assert told(talk.bodies[-1])[2:] == [
            ("user", "text"),
            ("system", "text"),
            ("system", "+b"),
        ]
        assert talk.bodies[-1]["messages"][3]["content"][0]["text"] == "You help more."
        first, second = talk.raw
        assert part(first, "system") == part(second, "system")
        assert extends(first, second)
        await talk.say("three", "a b c")
        assert extends(second, talk.raw[-1])
        assert not of(talk.session.log.events, CacheBreak)


@pytest.mark.parametrize("route", [DEEPSEEK, BY_REFERENCE, BY_VALUE, ADDITION_ONLY])
async def test_case_72_update_after_a_tool_result(route: str) -> None:
    found: list[Session] = []

    async def run(arguments: dict[str, Any]) -> str:
        await found[0].tools.add(function("b"))
        return "b is there now"

    grow: FunctionTool[..., Any] = FunctionTool.from_schema(schema("grow"), run)
    async with talking(route) as talk:
        found.append(talk.session)
        await talk.session.tools.add(grow)
        await talk.say("/call grow {}")
        assert told(talk.bodies[-1])[-2:] == [("user", "tool_result"), ("system", "+b")]
        await talk.say("and now?")
        assert told(talk.bodies[-1])[-5:] == [
            ("assistant", "tool_use"),
            ("user", "tool_result"),
            ("system", "+b"),
            ("assistant", "text"),
            ("user", "text"),
        ]
        assert extends(talk.raw[0], talk.raw[1])
        assert extends(talk.raw[1], talk.raw[2])


@pytest.mark.parametrize("route", [DEEPSEEK, BY_REFERENCE, BY_VALUE])
async def test_case_73_update_without_a_user_turn(route: str) -> None:
    async with talking(route) as talk:
        session, log = talk.session, talk.session.log
        await talk.say("one")
        # As the loop never does: a change right behind an answer.
        log.append(TurnStart(2))
        log.append(StepStart(2, 1))
        before = log.header
        assert before is not None
        changed = Header(before.header.config, tools("a b"))
        seq = log.append(RequestHeader(changed, "change")).seq
        log.append(DeveloperMessage(2, 1, (ToolAddition("b"),), seq))
        length = len(log)
        with pytest.raises(UnsupportedContent, match="no user message or tool result"):
            runtime_of(session).requests.prepare(
                session.route, coming(runtime_of(session)), runtime_of(session).config()
            )
        assert len(log) == length
        assert len(of(log.events, RequestSent)) == len(talk.lab.captures) == 1


@pytest.mark.parametrize("route", [DEEPSEEK, BY_REFERENCE, BY_VALUE, ADDITION_ONLY, PLAIN])
async def test_case_74_immediate_tool_has_no_flag_at_all(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.say("three", "b")
        await talk.say("four", "a b")
        said = [tool for body in talk.bodies for tool in body["tools"] if tool["name"] == "a"]
        # Where its removal left nothing in front, it came back as a later addition.
        entries = said[:-1] if route in (DEEPSEEK, ADDITION_ONLY) else said
        assert entries
        assert all(tool.keys() == {"name", "description", "input_schema"} for tool in entries)


@pytest.mark.parametrize("route", [PLAIN, CHAT])
async def test_case_75_route_without_updates(route: str) -> None:
    async with talking(BY_REFERENCE) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.say("three", "a b c")
        talk.session.agent.tool_changes = "rebind"
        talk.session.use(resolve(route, base_url=talk.lab.base_url(route.split(":")[0])))
        await talk.say("four", "a c")
        body = talk.bodies[-1]
        spoken = [message for message in body["messages"] if message["role"] != "system"]
        assert [message["role"] for message in spoken] == ["user", "assistant"] * 3 + ["user"]
        roles = {message["role"] for message in body["messages"][1:]}
        assert roles == {"user", "assistant"}
        for word in (b"tool_addition", b"tool_removal", b"tool_update", b"defer_loading"):
            assert word not in talk.raw[-1]
        names = [(tool.get("function") or tool)["name"] for tool in body["tools"]]
        assert names == ["a", "c"]


@pytest.mark.parametrize("route", [BY_REFERENCE, BY_VALUE, ADDITION_ONLY, DEEPSEEK])
async def test_case_76_call_of_a_removed_tool(route: str) -> None:
    ran: list[str] = []

    def run(arguments: dict[str, Any]) -> str:
        ran.append("b")
        return "b was called"

    again = ScriptStep(
        "again", (Entry(calls=(ScriptCall("b", {}, "direct"),)), Entry(text="it is gone"))
    )
    script = Script((ScriptStep("one", (Entry(text="yes"),)), again))
    async with talking(route, "a", script=script) as talk:
        await talk.session.tools.add(FunctionTool.from_schema(schema("b"), run))
        await talk.say("one")
        await talk.session.tools.remove("b")
        events = await talk.say("again")
        result = of(events, ToolResult)[0].data
        assert isinstance(result, ToolResult)
        assert (result.is_error, result.code) == (True, "UNKNOWN_TOOL")
        assert result.text == 'unknown tool "b"'
        # Nothing that asks or runs ever saw it.
        assert (of(events, ToolCall), ran) == ([], [])
        answer = of(events, AssistantMessage)[-1].data
        assert isinstance(answer, AssistantMessage)
        assert answer.text == "it is gone"
        end = events[-1].data
        assert isinstance(end, TurnEnd)
        assert end.reason == "done"
        if route == BY_REFERENCE:
            assert declared(talk.bodies[-1]) == ["a", "b*"]


@pytest.mark.parametrize(
    ("route", "switches", "form"),
    [
        (DEEPSEEK, Switches(deepseek_tool_changes=False), "dispatch"),
        (BY_REFERENCE, Switches(claude_tool_changes="none"), "dispatch"),
        (BY_VALUE, Switches(claude_tool_changes="by-reference"), "in-history"),
    ],
)
async def test_case_77_refused_tool_changes(route: str, switches: Switches, form: str) -> None:
    async with talking(route, switches=switches) as talk:
        try:
            await talk.say("one")
        finally:
            first = list(talk.session.log.events)
        await switch(talk.session, "a b")
        notices = [each async for each in talk.session.stream("two") if isinstance(each, Notice)]
        log = talk.session.log
        assert list(log.events[: len(first)]) == first
        downgrades = of(log.events, RouteDowngrade)
        assert [each.data.projection for each in downgrades] == [form]  # type: ignore[union-attr]
        refusals = [capture.status for capture in talk.lab.captures].count(400)
        assert refusals == 1
        if route != BY_VALUE:
            assert any("refused tool changes" in notice.text for notice in notices)
        await talk.say("three", "a b c")
        assert [capture.status for capture in talk.lab.captures].count(400) == 1
        assert SessionLog.load("s1", await talk.stored()).events == log.events


@pytest.mark.parametrize("route", [ADDITION_ONLY, DEEPSEEK, BY_REFERENCE, BY_VALUE])
async def test_case_85_prefix_survives(route: str) -> None:
    async with talking(route) as talk:
        for number, active in enumerate(("a", "a b", "a b c")):
            await talk.say(f"new {number}", active)
        first, second, third = talk.raw
        for before, after in ((first, second), (second, third)):
            assert extends(before, after)
            assert part(after, "tools").startswith(part(before, "tools")[:-1])
            assert part(before, "system") == part(after, "system")
        for number, active in enumerate(("a b", "a b c")):
            await talk.say(f"old {number}", active)
        removed, restored = talk.raw[3:]
        if route in (BY_REFERENCE, BY_VALUE):
            assert extends(third, removed)
            assert extends(removed, restored)
            assert len({part(body, "tools") for body in (third, removed, restored)}) == 1
        else:
            assert not extends(removed, restored)
            assert extends(third, restored)
            assert part(restored, "tools") == part(third, "tools")
        if route == BY_VALUE:
            assert len({part(body, "tools") for body in talk.raw}) == 1


@pytest.mark.parametrize("route", [ADDITION_ONLY, DEEPSEEK, BY_REFERENCE, BY_VALUE])
@pytest.mark.parametrize(("active", "at"), [("a", "tools"), ("a b", "messages")])
async def test_case_86_removal(route: str, active: str, at: str) -> None:
    async with talking(route, "a b") as talk:
        await talk.say("one")
        await talk.say("two", "a b c")
        await switch(talk.session, f"{active} c" if at == "tools" else active)
        result = await talk.session.run("three")
        breaks = [(found.reason, found.at) for found in result.requests[0].breaks]
        second, third = talk.raw[1:]
        logged = of(talk.session.log.events, CacheBreak)
        if route in (ADDITION_ONLY, DEEPSEEK):
            assert part(second, "tools") != part(third, "tools")
            assert breaks == [("removal", at)]
            assert len(logged) == 1
        else:
            assert part(second, "tools") == part(third, "tools")
            assert (breaks, logged) == ([], [])


@pytest.mark.parametrize("route", [ADDITION_ONLY, DEEPSEEK])
async def test_partly_filtered_message_as_it_is_sent(route: str) -> None:
    """What is left out of a message changes none of the bytes that stay."""
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b c")
        await talk.say("three", "a c")
        assert told(talk.bodies[-2])[-1] == ("system", "+b +c")
        assert told(talk.bodies[-1])[3] == ("system", "+c")
