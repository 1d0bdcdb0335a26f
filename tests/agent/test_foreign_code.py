"""Whatever code that is not ours raises costs its own call; an end that was asked for does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.agent.stage import CHAT, results, stage

from addendum.agent.calls.approval import Approval, Policy
from addendum.agent.calls.hooks import Hook
from addendum.agent.setup import ToolDispatch
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.tools.foreign import is_own
from addendum.tools.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio

SCRIPT = Script((ScriptStep("go", (Entry(calls=(ScriptCall("wipe"),)), Entry(text="Done."))),))
RAISED = {
    "exit": SystemExit(1),
    "cancellation of its own": asyncio.CancelledError(),
    "end of an iteration": StopIteration(),
    "out of depth": RecursionError(),
    "group": BaseExceptionGroup("g", [SystemExit(1), ValueError("x")]),
    "error": ValueError("x"),
}
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "before": lambda fails: {"hooks": [Hook(before=fails)]},
    "after": lambda fails: {"hooks": [Hook(after=fails)]},
    "failure": lambda fails: {
        "hooks": [Hook(failure=fails)],
        "approval": Approval((Policy("deny"),)),
    },
    "when of a denial": lambda fails: {
        "approval": Approval((Policy("deny", when=fails),), default="allow")
    },
    "when of leave": lambda fails: {"approval": Approval((Policy("allow", when=fails),))},
    "can_dispatch": lambda fails: {"tool_dispatch": ToolDispatch(can_dispatch=fails)},
    "decide": lambda fails: {"approval": Approval(decide=fails)},
    "the tool": lambda fails: {},
}


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("place", PLACES)
async def test_what_foreign_code_raises_costs_its_own_call(place: str, name: str) -> None:
    ran: list[str] = []

    def fails(*_: Any) -> Any:
        raise RAISED[name]

    def wipe() -> str:
        """Wipe."""
        if place == "the tool":
            fails()
        ran.append("wipe")
        return "wiped"

    own: FunctionTool[..., Any] = tool(defer_loading=True)(wipe)
    async with stage(SCRIPT) as here:
        agent = here.agent(CHAT, tools=[own], **PLACES[place](fails))
        async with here.open(agent) as session:
            assert (await session.run("go")).text == "Done."
            (result,) = results(session)
    assert result.is_error and "wiped" not in result.text
    assert ran == (["wipe"] if place == "after" else [])


@pytest.mark.parametrize("place", ["before", "after", "decide", "the tool"])
async def test_an_end_that_was_asked_for_goes_its_way(place: str) -> None:
    begun = anyio.Event()

    async def waits(*_: Any) -> Any:
        begun.set()
        await anyio.sleep_forever()

    async def wipe() -> str:
        """Wipe."""
        if place == "the tool":
            await waits()
        return "wiped"

    async with stage(SCRIPT) as here:
        agent = here.agent(CHAT, tools=[tool()(wipe)], **PLACES[place](waits))
        async with here.open(agent) as session:
            task = asyncio.create_task(session.run("go"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # Who was asked may be asked again: the call waits still.
            assert bool(session.pending()) == (place == "decide")
            assert (session.log.turn is None) == (place != "decide")


@pytest.mark.parametrize("end", [KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_an_end_of_the_program_is_nobodys_fault(end: BaseException) -> None:
    assert not is_own(end)
    assert not is_own(BaseExceptionGroup("g", [ValueError("x"), end]))
