"""A turn that waits for a decision: in another process, over a crash, and what changed since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.gates import (
    ASK,
    DISPATCH,
    Tools,
    agent,
    call,
    decide_all,
    deciding,
    script,
    sent_results,
    weather,
)
from tests.agent.trouble import ROUTES, world
from tests.property.reference import blocks, extends

from addendum.agent.calls.approval import Approval, Pending, Policy
from addendum.errors import ConfigurationError
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.script import Entry, ScriptStep
from addendum.log.approvals import (
    ApprovalAsked,
)
from addendum.log.events import (
    AssistantMessage,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from addendum.stores import MemoryStore
from addendum.tools.functions import tool
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("route", [*ROUTES, "openai:gpt-6.2-sol"])
async def test_a_waiting_turn_goes_on_in_another_process(route: str, tmp_path: Path) -> None:
    tools = Tools()
    two = ScriptStep("two", (Entry(text="yes"),))
    async with world(tmp_path, route) as here:
        here.lab.script = script(weather(), call("clock"), more=(two,))
        made = agent(here, tools, approval=ASK, tools=[tools.clock(), tools.weather(defer=False)])
        async with made.open("s", store=here.url) as session:
            waiting = (await session.run("go")).waiting
        for _ in range(2):
            async with made.open("s", store=here.url) as session:
                assert session.pending() == waiting
                with pytest.raises(ConfigurationError, match="waits for decisions"):
                    await session.run("hello?")
        assert not tools.ran
        async with made.open("s", store=here.url) as session:
            result = await session.decide(decide_all(session, "approve"))
            assert (result.text, result.turn) == ("done", 1)
            await session.run("two")
            context = session.sent[-1].context
        assert [r.text for r in await here.results()] == ["rain in Oslo", "noon"]
        ends = [data for data in await here.data() if isinstance(data, TurnEnd)]
        assert [end.reason for end in ends] == ["done", "done"]
        assert [each.status for each in here.lab.captures] == [200] * 3
        grown = [blocks(each.body, context) for each in here.lab.captures]
        assert all(extends(one, other) for one, other in pairwise(grown))


class Cut(Exception):
    pass


class Crashing(MemoryStore):
    """A store that, after so many appends, takes nothing any more: the process is gone."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    async def append(self, lease, expected, events):  # type: ignore[no-untyped-def]
        if self.left == 0:
            raise Cut
        self.left -= 1
        await super().append(lease, expected, events)


@pytest.mark.parametrize("handler", [False, True])
@pytest.mark.parametrize("appends", range(1, 12))
async def test_a_crash_anywhere_leaves_one_result_a_call(
    appends: int, handler: bool, tmp_path: Path
) -> None:
    tools = Tools()
    approval = deciding("approve", "approve")[0] if handler else ASK
    async with world(tmp_path) as here:
        here.lab.script = script(weather(), call("clock"), weather("Rome"))
        made = agent(
            here, tools, approval=approval, tools=[tools.clock(), tools.weather(defer=False)]
        )
        store = Crashing(appends)
        try:
            async with made.open("s", store=store) as session:
                await session.run("go")
                if not handler:
                    await session.decide(decide_all(session, "approve"))
        except Cut:
            pass
        store.left = 10_000
        before = Counter(name for name, _ in tools.ran)
        later = agent(here, tools, approval=ASK, tools=made.setup.tools)
        async with later.open("s", store=store) as session:
            if session.pending():
                assert not before
                await session.decide(decide_all(session, "approve"))
            log = session.log
            data = [event.data for event in log.events]
            calls = [c.id for d in data if isinstance(d, AssistantMessage) for c in d.calls]
            results = [d.call_id for d in data if isinstance(d, ToolResult)]
            assert results == calls
            assert (log.turn, log.asked, log.unanswered) == (None, None, ())
            assert Counter(name for name, _ in tools.ran) <= Counter({"weather": 2, "clock": 1})
            assert session.log.turns <= 1
            started = [d.call_id for d in data if isinstance(d, ToolCall)]
            assert len(started) == len(set(started))
        here.lab.script = None
        async with later.open("s", store=store) as session:
            assert (await session.run("hello")).text.startswith("I heard")


async def test_stopping_the_question_leaves_it_open(tmp_path: Path) -> None:
    asked = anyio.Event()

    async def decide(batch: Sequence[Pending]) -> dict[str, str]:
        asked.set()
        await anyio.sleep_forever()
        return {}

    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather())
        approval = Approval(decide=decide)
        async with agent(here, tools, approval=approval).open("s", store=here.url) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "go")
                await asked.wait()
                tasks.cancel_scope.cancel()
            assert len(session.pending()) == 1
            await session.decide(decide_all(session, "approve"))
        assert [r.text for r in await here.results()] == ["rain in Oslo"]


async def test_the_question_is_durable_before_anybody_is_asked(tmp_path: Path) -> None:
    stored: list[Any] = []

    async def decide(batch: Sequence[Pending]) -> dict[str, str]:
        stored.extend(await here.data())
        return {batch[0].call_id: "approve"}

    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather())
        made = agent(here, Tools(), approval=Approval(decide=decide))
        async with made.open("s", store=here.url) as session:
            await session.run("go")
        assert isinstance(stored[-1], ApprovalAsked)


async def test_a_fork_of_a_waiting_session_does_not_wait(tmp_path: Path) -> None:
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather())
        async with agent(here, tools, approval=ASK).open("s", store=here.url) as session:
            await session.run("go")
            async with session.fork("child") as child:
                assert not child.pending() and not child.log.unanswered
            assert len(session.pending()) == 1


@pytest.mark.parametrize("how", ["removed", "redefined", "refused", "policy", "meanwhile"])
@pytest.mark.parametrize("form", [DISPATCH, ROUTES[0]])
async def test_t35_what_changed_since_it_was_asked_does_not_run(
    how: str, form: str, tmp_path: Path
) -> None:
    tools = Tools()

    async def other(city: str) -> str:
        """Another thing."""
        tools.ran.append(("other", city))
        return "x"

    async with world(tmp_path, form) as here:
        here.lab.script = script(weather(), call("clock"))

        async def decide(batch: Sequence[Pending]) -> dict[str, str]:
            await session.tools.remove("weather")
            return {batch[0].call_id: "approve"}

        mine = [tools.clock(), tools.weather(defer=form == DISPATCH)]
        asking = Approval(ASK.policies, decide=decide) if how == "meanwhile" else ASK
        async with agent(here, tools, approval=asking, tools=mine).open(
            "s", store=here.url
        ) as session:
            await session.run("go")
            if how == "removed":
                await session.tools.remove("weather")
            elif how == "redefined":
                await session.tools.add(tool(name="weather")(other))
            elif how == "refused":
                await session.tools.refuse("weather")
        if how != "meanwhile":
            rules = Approval((Policy("deny", "weather"),)) if how == "policy" else ASK
            mine = [tools.clock(), tools.weather(defer=form == DISPATCH)]
            if how == "redefined":
                mine[1] = tool(name="weather")(other)
            async with agent(here, tools, approval=rules, tools=mine).open(
                "s", store=here.url
            ) as session:
                await session.decide(decide_all(session, "approve"))
        result, _ = await here.results()
        code = {"refused": "E5", "policy": "BLOCKED"}.get(how, "PROPOSAL_CHANGED")
        assert (result.code, result.is_error) == (code, True)
        assert "weather" not in [name for name, _ in tools.ran] and not [
            name for name, _ in tools.ran if name == "other"
        ]
        if form == DISPATCH:
            assert sent_results(here)[0][0] == "call_tool"


async def test_t35_a_server_that_changed_its_tool_meanwhile(tmp_path: Path) -> None:
    def canned(text: str) -> CannedTool:
        return CannedTool("read", text, {"type": "object", "properties": {}}, "contents")

    server = in_process(
        "fs", [canned("Read a file."), CannedTool("x", "X", {"type": "object"}, "")]
    )
    async with world(tmp_path) as here:
        here.lab.script = script(call("read"), call("x"))
        made = here.agent(
            mcp_servers=[ServerSpec(name="fs", server=server, on=True)], approval=Approval()
        )
        async with made.open("s", store=here.url) as session:
            assert len((await session.run("go")).waiting) == 2
        server.tools[0] = canned("Erase a file.")
        await here.pool.aclose()
        async with world(tmp_path) as later:
            later.lab.script = here.lab.script
            made = later.agent(mcp_servers=made.setup.servers, approval=Approval())
            async with made.open("s", store=here.url) as session:
                await session.decide(decide_all(session, "approve"))
        assert [r.code for r in await here.results()] == ["PROPOSAL_CHANGED", None]
        assert [name for name, _ in server.calls] == ["x"]
