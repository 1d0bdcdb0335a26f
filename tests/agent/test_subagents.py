"""Child sessions that a tool opens: what they can reach, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.gates import Tools, call
from tests.agent.trouble import World, world

from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Approval, Policy
from addendum.agent.subagents import subagent
from addendum.lab.script import Entry, Form, Script, ScriptCall, ScriptStep
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    RequestHeader,
    SessionStart,
    ToolResult,
    TurnEnd,
)
from addendum.log.store import SessionRow
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio

ROUTES = ("openai-chat:gpt-4.1", "anthropic:claude-opus-5-5")


def _script(*child: Entry) -> Script:
    return Script(
        (
            ScriptStep("go", (Entry(calls=(call("helper", task="dig"),)), Entry(text="done"))),
            ScriptStep("dig", (*child, Entry(text="found it"))),
        )
    )


def _pair(here: World, own: Tools, *exclude: str, **more: Any) -> Agent:
    child = here.agent(
        **{
            "tools": [own.clock(), own.weather(), _now(own)],
            "tool_dispatch": True,
        }
        | more
    )
    return here.agent(tools=[subagent(child, name="helper", exclude=exclude)])


def _now(own: Tools) -> FunctionTool[..., Any]:
    async def weather_now() -> str:
        """Tell the weather as it is."""
        own.ran.append(("weather_now", None))
        return "sun"

    return tool(weather_now)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_task_is_done_in_a_session_of_its_own(route: str, tmp_path: Path) -> None:
    own = Tools()
    async with world(tmp_path, route) as here:
        here.lab.script = _script(Entry(calls=(call("clock"),)))
        async with _pair(here, own).open("s", store=here.url) as session:
            result = await session.run("go")
        assert result.text == "done"
        (answer,) = await here.results()
        assert (answer.name, answer.text, answer.is_error) == ("helper", "found it", False)
        (said,) = result.subagents
        parent = await here.data()
        (began,) = [each for each in parent if isinstance(each, SubagentStarted)]
        (done,) = [each for each in parent if isinstance(each, SubagentEnded)]
        assert said == done and began.session == done.session
        child = await here.data(done.session)
        start = child[0]
        assert isinstance(start, SessionStart) and start.parent == "s"
        answers = [each for each in child if isinstance(each, AssistantMessage)]
        assert done.requests == len(answers) == 2
        assert done.usage.prompt == sum(each.usage.prompt or 0 for each in answers)
        # Its head is its own, and the parent's has none of it.
        heads = [
            [
                each.name
                for each in next(h for h in log if isinstance(h, RequestHeader)).header.tools
            ]
            for log in (parent, child)
        ]
        assert heads[0] == ["helper"] and "clock" in heads[1] and "helper" not in heads[1]
        # The child is a session like any other.
        async with _pair(here, own).open(done.session, store=here.url) as opened:
            assert opened.log.turns == 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param("weather", "direct", id="direct"),
        pytest.param("weather", "dispatch", id="dispatched"),
        pytest.param("weather_now", "direct", id="glob"),
        pytest.param("weather_now", "dispatch", id="glob_dispatched"),
        pytest.param("WEATHER", "dispatch", id="other_case"),
        pytest.param("helper", "direct", id="itself"),
        pytest.param("helper", "dispatch", id="itself_dispatched"),
    ],
)
async def test_what_is_excluded_does_not_exist_in_the_child(
    route: str, name: str, form: Form, tmp_path: Path
) -> None:
    own = Tools()
    async with world(tmp_path, route) as here:
        here.lab.script = _script(
            Entry(
                calls=(
                    ScriptCall(name, {"city": "Oslo", "task": "deeper"}, form),
                    ScriptCall("tool_search", {"query": "weather"}),
                )
            )
        )
        async with _pair(here, own, "weather", "weather_*").open("s", store=here.url) as session:
            (done,) = (await session.run("go")).subagents
        assert own.ran == []
        found = [each for each in await here.data(done.session) if isinstance(each, ToolResult)]
        assert found[0].code in ("E4", "UNKNOWN_TOOL")
        assert '"name":"weather' not in found[1].text
        sent = [each.body for each in here.lab.captures]
        assert not any(b'"weather_now"' in body and b"Tell the weather" in body for body in sent)


async def test_exclusions_outlast_a_restart_and_go_on_to_children(tmp_path: Path) -> None:
    own = Tools()
    async with world(tmp_path) as here:
        here.lab.script = None
        agent = here.agent(tools=[own.clock(), _now(own)])
        async with agent.open("s", store=here.url, exclude=["clock"]) as session:
            assert "clock" not in session.registry.snapshot().entries
            await session.run("one")
        async with agent.open("s", store=here.url) as session:
            assert "clock" not in session.registry.snapshot().entries
            await session.tools.add(own.clock())
            assert "clock" not in session.registry.snapshot().entries
            async with session.fork("f") as child:
                assert "clock" not in child.registry.snapshot().entries
        here.lab.script = _script(Entry(calls=(call("clock"),)))
        async with _pair(here, own).open("p", store=here.url, exclude=["clock"]) as session:
            (done,) = (await session.run("go")).subagents
        assert own.ran == []
        start = (await here.data(done.session))[0]
        assert isinstance(start, SessionStart) and start.excluded == ("clock", "helper")


async def test_stopping_the_parent_stops_the_child(tmp_path: Path) -> None:
    started, stopped = anyio.Event(), anyio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return ""

    async with world(tmp_path) as here:
        here.lab.script = _script(Entry(calls=(call("wait"),)))
        child = here.agent(tools=[tool(timeout=60)(wait)])
        agent = here.agent(tools=[subagent(child, name="helper")])
        async with agent.open("s", store=here.url) as session:
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.run, "go")
                    await started.wait()
                    tasks.cancel_scope.cancel()
        assert stopped.is_set()
        (done,) = [each for each in await here.data() if isinstance(each, SubagentEnded)]
        assert done.requests == 1
        log = await here.log(done.session)
        assert (log.turn, log.unanswered) == (None, ())
        last = log.events[-1].data
        assert isinstance(last, TurnEnd) and last.reason == "interrupted"
        assert [each.code for each in await here.results()] == ["TOOL_OUTCOME_UNKNOWN"]


async def test_what_a_child_paid_for_an_answer_that_was_cut_off_counts(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.lab.script = _script(Entry(calls=(call("cut"),)))

        async def cut() -> str:
            """Have the next answer cut off, behind what its prompt cost."""
            here.lab.cut_next("anthropic", after_events=2)
            return "cut"

        agent = here.agent(
            tools=[subagent(here.agent(tools=[tool(cut)]), name="helper")],
            route=ROUTES[0],
            base_url=here.lab.base_url("openai-chat"),
        )
        async with agent.open("s", store=here.url) as session:
            (done,) = (await session.run("go")).subagents
        assert [each.is_error for each in await here.results()] == [True]
        paid = [
            each.usage.prompt or 0
            for each in await here.data(done.session)
            if isinstance(each, AssistantMessage | AssistantAttempt)
        ]
        assert (done.requests, done.usage.prompt) == (2, sum(paid)) and all(paid)


async def test_the_child_of_a_deleted_parent_is_left_alone(tmp_path: Path) -> None:
    own = Tools()
    async with world(tmp_path) as here:
        here.lab.script = _script()
        agent, ids, children = _pair(here, own), set[str](), list[SessionRow]()
        store = MemoryStore()
        for _ in range(3):
            async with agent.open("s", store=store) as session:
                (done,) = (await session.run("go")).subagents
            # Some endpoints number calls from one in every conversation.
            (found,) = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            ids.add(found.call_id)
            assert done.requests == 1
            children = [row for row in await store.sessions() if row.id != "s"]
            assert len({row.events for row in children}) == 1
            await store.delete(await store.acquire("s"))
        assert len(ids) == 1 and len(children) == 3


async def test_a_call_that_nobody_can_be_asked_about_is_denied(tmp_path: Path) -> None:
    own = Tools()
    async with world(tmp_path) as here:
        here.lab.script = _script(Entry(calls=(call("clock"),)))
        agent = _pair(here, own, approval=Approval((Policy("ask", "clock"),)))
        async with agent.open("s", store=here.url) as session:
            (done,) = (await session.run("go")).subagents
        assert own.ran == []
        (found,) = [each for each in await here.data(done.session) if isinstance(each, ToolResult)]
        assert found.code == "DENIED" and "nobody can be asked" in found.text


async def test_a_child_that_fails_is_an_error_of_its_call(tmp_path: Path) -> None:
    own = Tools()
    async with world(tmp_path) as here:
        here.lab.script = Script(
            (ScriptStep("go", (Entry(calls=(call("helper", task=" "),)), Entry(text="done"))),)
        )
        async with _pair(here, own).open("s", store=here.url) as session:
            assert (await session.run("go")).text == "done"
        (found,) = await here.results()
        assert found.is_error and "empty" in found.text


async def test_what_the_parent_refuses_may_be_a_tool_that_the_child_does_not_have(
    tmp_path: Path,
) -> None:
    async def mine() -> str:
        """Do what only the parent does."""
        return "done"

    own = Tools()
    async with world(tmp_path) as here:
        here.lab.script = _script(Entry(calls=(call("clock"),)))
        child = here.agent(tools=[own.clock()])
        agent = here.agent(tools=[tool(mine), subagent(child, name="helper")], disabled=["mine"])
        async with agent.open("s", store=here.url) as session:
            assert (await session.run("go")).text == "done"
        (answer,) = await here.results()
        assert (answer.text, answer.is_error) == ("found it", False)
