"""Calls that start while their answer still streams: which may, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.agent.gates import DISPATCH, call, only, script
from tests.agent.trouble import ROUTES, world
from tests.wire.messages_events import Json, block, ended, message_start

from addendum.agent.calls.approval import Approval, Policy
from addendum.agent.calls.hooks import Deny, Hook, HookCall, Replace
from addendum.errors import StreamBroken
from addendum.log.events import AssistantAttempt, AssistantMessage, EventData, ToolCall, ToolResult
from addendum.stores import SqliteStore
from addendum.tools.functions import FunctionTool, tool
from addendum.tools.registry import Outcome
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio


class Look:
    """A read-only tool that can be waited for."""

    def __init__(self, *, hang: bool = False) -> None:
        self.started = anyio.Event()
        self.stopped = 0
        self.runs = 0
        self.hang = hang

    def tool(self, name: str = "look", *, defer: bool = False) -> FunctionTool[..., Any]:
        async def look(q: str = "") -> str:
            """Look something up."""
            self.runs += 1
            self.started.set()
            try:
                if self.hang:
                    await anyio.sleep_forever()
            finally:
                self.stopped += 1
            return f"seen {q}"

        return tool(name=name, read_only=True, defer_loading=defer)(look)


def writes() -> FunctionTool[..., Any]:
    async def write(q: str = "") -> str:
        """Write something down."""
        return "written"

    return tool(write)


def _early(data: list[EventData]) -> dict[str, bool]:
    return {each.name: each.early for each in data if isinstance(each, ToolCall)}


def _sse(*events: Json) -> bytes:
    return b"".join(
        f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events
    )


CALL = [
    message_start(),
    *block(
        0,
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"q":"x"}'},
    ),
]
DONE = [message_start(), *block(0, {"type": "text", "text": "done"}), *ended()]


def streaming(*bodies: Callable[[], AsyncGenerator[bytes]]) -> Transport:
    """A provider that streams these answers, one a request."""
    left = list(bodies)

    def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=left.pop(0)()
        )

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return Transport(TransportSettings(retries=0), client=client)


async def _done() -> AsyncGenerator[bytes]:
    yield _sse(*DONE)


async def test_a_call_starts_while_the_answer_streams_and_is_durable_by_then(
    tmp_path: Path,
) -> None:
    look = Look()
    async with world(tmp_path) as here:
        stored: list[EventData] = []

        async def answer() -> AsyncGenerator[bytes]:
            yield _sse(*CALL)
            with anyio.fail_after(10):
                await look.started.wait()
            stored.extend(await here.data())
            yield _sse(*ended("tool_use"))

        agent = here.agent(
            tools=[look.tool()], early_start=True, transport=streaming(answer, _done)
        )
        async with agent.open("s", store=here.url) as session:
            assert (await session.run("go")).text == "done"
        assert _early(stored) == {"look": True}
        assert not [each for each in stored if isinstance(each, AssistantMessage)]
        assert look.runs == 1
        assert [each.text for each in await here.results()] == ["seen x"]
        assert len([each for each in await here.data() if isinstance(each, ToolCall)]) == 1


async def test_a_cut_answer_takes_its_early_calls_with_it(tmp_path: Path) -> None:
    look = Look(hang=True)
    async with world(tmp_path) as here:

        async def cut() -> AsyncGenerator[bytes]:
            yield _sse(*CALL)
            with anyio.fail_after(10):
                await look.started.wait()

        async def whole() -> AsyncGenerator[bytes]:
            look.hang = False
            yield _sse(*CALL, *ended("tool_use"))

        agent = here.agent(
            tools=[look.tool()], early_start=True, transport=streaming(cut, whole, _done)
        )
        async with agent.open("s", store=here.url) as session:
            with pytest.raises(StreamBroken):
                await session.run("go")
            assert (look.runs, look.stopped) == (1, 1)
            assert not [each for each in session.log.events if isinstance(each.data, ToolResult)]
            only([event.data for event in session.log.events], AssistantAttempt)  # type: ignore[misc]
            assert (await session.run("again")).text == "done"
        assert look.runs == 2
        assert [each.text for each in await here.results()] == ["seen x"]
        await here.usable()


async def test_the_person_who_stops_the_turn_stops_early_calls(tmp_path: Path) -> None:
    look = Look(hang=True)
    async with world(tmp_path) as here:

        async def endless() -> AsyncGenerator[bytes]:
            yield _sse(*CALL)
            await anyio.sleep_forever()

        agent = here.agent(tools=[look.tool()], early_start=True, transport=streaming(endless))
        async with agent.open("s", store=here.url) as session:
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.run, "go")
                    await look.started.wait()
                    tasks.cancel_scope.cancel()
            assert look.stopped == 1
        await here.usable()


async def test_case_t47_only_a_plain_bound_call_of_a_harmless_tool_starts_early(
    tmp_path: Path,
) -> None:
    look = Look()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(
            call("far", q="1"),
            call("near", "direct", q="2"),
            call("off", q="3"),
            call("look", q="4"),
            call("write", q="5"),
        )
        agent = here.agent(
            tools=[
                look.tool(),
                look.tool("off"),
                look.tool("far", defer=True),
                look.tool("near", defer=True),
                writes(),
            ],
            disabled=["off"],
            tool_dispatch=True,
            early_start=True,
        )
        async with agent.open("s", store=here.url) as session:
            await session.run("go")
        assert _early(await here.data()) == {
            "look": True,
            "far": False,
            "near": False,
            "write": False,
        }
        texts = [each.text for each in await here.results()]
        assert [texts[place] for place in (0, 1, 3, 4)] == ["seen 1", "seen 2", "seen 4", "written"]
        assert (await here.results())[2].code == "E5"


def _deny(call: HookCall) -> Deny:
    return Deny("no")


def _replace(call: HookCall, outcome: Outcome) -> Replace:
    return Replace("replaced")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("more", "early", "said"),
    [
        pytest.param({"early_start": False}, [False], "seen x", id="not_asked_for"),
        pytest.param({"hooks": [Hook(before=_deny)]}, [], "Blocked: no", id="hook_denies"),
        pytest.param({"hooks": [Hook(after=_replace)]}, [True], "replaced", id="hook_replaces"),
        pytest.param({"hooks": [Hook("other*", before=_deny)]}, [True], "seen x", id="other_hook"),
        pytest.param(
            {"approval": Approval((Policy("deny", "look"),))},
            [],
            'Blocked: policy 1 (deny, tool="look")',
            id="denied",
        ),
        pytest.param(
            {"approval": Approval(decide=lambda asked: {a.call_id: "approve" for a in asked})},
            [False],
            "seen x",
            id="asked",
        ),
        pytest.param(
            {"approval": Approval((Policy("allow", read_only=True),))},
            [True],
            "seen x",
            id="allowed",
        ),
    ],
)
async def test_nobody_who_has_a_say_is_passed_over(
    route: str, more: dict[str, Any], early: list[bool], said: str, tmp_path: Path
) -> None:
    look = Look()
    async with world(tmp_path, route) as here:
        here.lab.script = script(call("look", q="x"))
        agent = here.agent(**{"tools": [look.tool()], "early_start": True} | more)
        async with agent.open("s", store=here.url) as session:
            await session.run("go")
        assert list(_early(await here.data()).values()) == early
        assert [each.text for each in await here.results()] == [said]
        assert look.runs == len(early)


async def test_a_wait_for_a_person_keeps_what_an_early_call_gave(tmp_path: Path) -> None:
    look = Look()
    async with world(tmp_path) as here:
        here.lab.script = script(call("write", q="1"), call("look", q="2"))
        approval = Approval((Policy("allow", read_only=True),))
        agent = here.agent(tools=[look.tool(), writes()], early_start=True, approval=approval)
        async with agent.open("s", store=here.url) as session:
            (waits,) = (await session.run("go")).waiting
            assert waits.name == "write"
        async with agent.open("s", store=here.url) as session:
            await session.decide({waits.call_id: "approve"})
        results = await here.results()
        assert [(each.text, each.is_error) for each in results] == [
            ("written", False),
            ("seen 2", False),
        ]
        assert look.runs == 1
        here.lab.script = None
        await here.usable(agent)


async def test_an_argument_that_does_not_fit_starts_nothing(tmp_path: Path) -> None:
    look = Look()
    async with world(tmp_path) as here:
        here.lab.script = script(call("look", q=[1]))
        agent = here.agent(tools=[look.tool()], early_start=True)
        async with agent.open("s", store=here.url) as session:
            await session.run("go")
        assert [each.code for each in await here.results()] == ["E9"]
        assert _early(await here.data()) == {}


@pytest.mark.parametrize("at", ["started", "answered"])
async def test_a_crash_behind_an_early_start_runs_nothing_again(at: str, tmp_path: Path) -> None:
    look = Look()
    async with world(tmp_path) as here:
        here.lab.script = script(call("look", q="x"))
        agent = here.agent(tools=[look.tool()], early_start=True)
        async with agent.open("whole", store=here.url) as session:
            await session.run("go")
            events = session.log.events
        last = ToolCall if at == "started" else AssistantMessage
        end = next(place for place, each in enumerate(events) if isinstance(each.data, last))
        store = await SqliteStore.open(here.url)
        try:
            lease = await store.acquire("s")
            stored = await store.read("whole")
            await store.append(lease, 0, stored[: end + 1])
            await store.release(lease)
        finally:
            await store.aclose()
        here.lab.script = None
        await here.usable(agent)
        assert look.runs == 1
        # What no answer has needs no result; what one has is told truthfully.
        codes = [each.code for each in await here.results()]
        assert codes == ([] if at == "started" else ["TOOL_OUTCOME_UNKNOWN"])
