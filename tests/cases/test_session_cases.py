"""Cases 79, 82 and 94: frozen requests, additions behind a compaction, changes within a turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases.helpers import (
    ADDITION_ONLY,
    BY_REFERENCE,
    BY_VALUE,
    DEEPSEEK,
    declared,
    function,
    of,
    talking,
    told,
)

from addendum.agent.context.epochs import coming
from addendum.agent.replay import replay
from addendum.agent.session import Session, runtime_of
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import DeveloperMessage, RequestHeader
from addendum.log.values import ToolSchema
from addendum.prompt.projector import Projector
from addendum.routes import resolve
from addendum.tools.functions import FunctionTool
from addendum.wire.apis import facts

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("route", [BY_VALUE, BY_REFERENCE, DEEPSEEK])
async def test_case_79_a_request_is_frozen_before_it_is_sent(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        log, history = talk.session.log, talk.session.tool_history()
        context = coming(runtime_of(talk.session))
        prompt = Projector(context, facts(resolve(route, environ={}))).prompt(log)
        frozen: list[tuple[Any, str]] = [
            (prompt, "tools"),
            (prompt.tools[0], "description"),
            (prompt.blocks[0], "text"),
            (history, "tools"),
            (history.updates[0], "additions"),
            (log.events[0].data, "session"),
        ]
        for value, name in frozen:
            with pytest.raises(AttributeError):
                setattr(value, name, None)
            assert isinstance(value, msgspec.Struct)
        for sequence in (prompt.tools, prompt.open, history.tools, history.updates):
            assert isinstance(sequence, tuple)
        # What left is what the log says.
        sent = [capture.body for capture in talk.lab.captures]
        assert [each.record.body for each in replay(log)] == sent


@pytest.mark.parametrize("route", [BY_REFERENCE, ADDITION_ONLY, DEEPSEEK])
async def test_case_82_an_addition_behind_a_compaction_is_the_only_one_told(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.session.compact("what was said")
        await talk.say("three")
        await talk.say("four", "a b c")
        assert declared(talk.bodies[-1]) == ["a", "b", "c*"]
        assert [block for role, block in told(talk.bodies[-1]) if role == "system"] == ["+c"]
        before, after = talk.bodies[-2:]
        assert after["messages"][: len(before["messages"])] == before["messages"]


@pytest.mark.parametrize("route", [DEEPSEEK, BY_REFERENCE])
async def test_case_94_a_prompt_and_a_tool_that_come_within_a_turn(route: str) -> None:
    sessions: list[Session] = []

    async def read(arguments: dict[str, Any]) -> str:
        (session,) = sessions
        session.conversation_instructions = "Ping when you are asked to."
        await session.tools.add(function("ping"))
        return "read"

    schema = ToolSchema("read", "Reads.", Raw(b'{"type":"object","properties":{}}'))
    script = Script(
        (
            ScriptStep("one", (Entry(calls=(ScriptCall("read", {}),)), Entry(text="read it"))),
            ScriptStep("two", (Entry(text="done"),)),
        )
    )
    tools = FunctionTool.from_schema(schema, read)
    async with talking(route, "a", script=script) as talk:
        await talk.session.tools.add(tools)
        sessions.append(talk.session)
        await talk.say("one")
        first, second = talk.bodies[:2]
        count = len(first["messages"])
        assert second["messages"][:count] == first["messages"]
        added = [m for m in second["messages"][count:] if m["role"] == "system"]
        assert len(added) == 2
        assert "Ping when you are asked to." in str(added[0])
        assert "tool_addition" in str(added[1]) and "ping" in str(added[1])
        assert "ping*" in declared(second)
        await talk.session.tools.remove("ping")
        await talk.say("two")
        events = talk.session.log.events
        names = [
            [tool.name for tool in event.data.header.tools]
            for event in of(events, RequestHeader)
            if isinstance(event.data, RequestHeader)
        ]
        assert [("ping" in each) for each in names][-2:] == [True, False]
        assert len(of(events, DeveloperMessage)) == 3
