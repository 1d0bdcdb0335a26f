"""Hooks and approval around dispatched calls, case by case on every wire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.cases.dispatching import WIRES, call, envelope, on, says, schema

from addendum.agent.calls.approval import Approval, Decision, Pending, Policy
from addendum.agent.calls.hooks import Change, Deny, Hook, HookCall
from addendum.agent.session import Session
from addendum.log.events import ToolCall, ToolResult

pytestmark = pytest.mark.anyio

every_wire = pytest.mark.parametrize("wire", WIRES)
WEATHER = envelope(name="weather", arguments={"city": "Oslo", "days": "2"})
COERCED = {"city": "Oslo", "days": 2}
ASK = Approval((Policy("allow", "clock"),))


def result(session: Session) -> ToolResult:
    (found,) = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
    return found


@every_wire
async def test_case_t30_hooks_are_matched_on_the_real_name(wire: str) -> None:
    heard: list[tuple[str, Any]] = []
    hooks = [
        Hook("call_tool", before=lambda _: pytest.fail("no hook hears of the dispatcher")),
        Hook("weather", before=lambda c: heard.append((c.name, c.arguments))),
    ]
    async with on(wire, says(WEATHER)) as here:
        async with here.open(here.agent(hooks=hooks)) as session:
            await session.run("go")
        assert heard == [("weather", COERCED)] and here.ran.calls == [("weather", COERCED)]


@every_wire
async def test_case_t31_a_denied_call_is_answered_under_the_dispatcher(wire: str) -> None:
    failed: list[tuple[str, str | None]] = []
    hook = Hook(
        "weather",
        before=lambda _: Deny("not today"),
        failure=lambda c, outcome: failed.append((c.name, outcome.code)),
    )
    async with on(wire, says(WEATHER)) as here:
        async with here.open(here.agent(hooks=[hook])) as session:
            await session.run("go")
            (told,) = here.exchanges(session.sent[-1])
            assert (told.name, told.result, told.results) == ("call_tool", "Blocked: not today", 1)
            assert (result(session).name, result(session).code) == ("weather", "BLOCKED")
        assert failed == [("weather", "BLOCKED")] and not here.ran.calls


@every_wire
async def test_case_t32_a_change_that_does_not_fit_is_not_run(wire: str) -> None:
    def change(seen: HookCall) -> Change:
        return Change({"town": 1})

    async with on(wire, says(WEATHER)) as here:
        async with here.open(here.agent(hooks=[Hook("weather", before=change)])) as session:
            await session.run("go")
            (told,) = here.exchanges(session.sent[-1])
            assert result(session).code == "E9" and "do not fit" in (told.result or "")
        assert not here.ran.calls


@every_wire
async def test_case_t33_a_person_is_asked_for_the_real_tool(wire: str) -> None:
    async with on(wire, says(call("clock"), WEATHER, envelope(name="ping"))) as here:
        async with here.open(here.agent(approval=ASK)) as session:
            weather, ping = (await session.run("go")).waiting
            assert (weather.name, json.loads(weather.arguments)) == ("weather", COERCED)
            assert (ping.name, json.loads(ping.arguments)) == ("ping", {})
            assert not here.ran.calls
            await session.decide({weather.call_id: "approve", ping.call_id: "deny"})
            told = here.exchanges(session.sent[-1])
        assert here.ran.calls == [("clock", {}), ("weather", COERCED)]
        assert [each.name for each in told] == ["clock", "call_tool", "call_tool"]
        assert "did not approve" in (told[2].result or "")


DECISIONS = [
    pytest.param(Decision("edit", {"city": "Rome"}), "Rome", None, id="case_t34_edit"),
    pytest.param(Decision("edit", {"town": "Rome"}), "do not fit", "E9", id="case_t34_bad_edit"),
    pytest.param(Decision("respond", text="Sun."), "Sun.", None, id="case_t34_respond"),
    pytest.param("deny", "did not approve", "DENIED", id="case_t34_deny"),
    pytest.param("postpone", "must be 'approve'", "DENIED", id="case_t34_unknown"),
]


@pytest.mark.parametrize(("decision", "says_", "code"), DECISIONS)
@every_wire
async def test_a_decision_is_one_result_under_the_dispatcher(
    wire: str, decision: Decision | str, says_: str, code: str | None
) -> None:
    async def decide(asked: Sequence[Pending]) -> Mapping[str, Decision | str]:
        return {each.call_id: decision for each in asked}

    approval = Approval(decide=decide)
    async with on(wire, says(WEATHER)) as here:
        async with here.open(here.agent(approval=approval)) as session:
            await session.run("go")
            (told,) = here.exchanges(session.sent[-1])
            assert (result(session).code, told.name, told.results) == (code, "call_tool", 1)
            assert says_ in (told.result or "")
            # The model's own words stay in the history, whatever a person made of them.
            assert told.inner == {"city": "Oslo", "days": "2"}
        ran = [each for _, each in here.ran.calls]
        assert ran == ([{"city": "Rome"}] if "Rome" in says_ else [])


@pytest.mark.parametrize("how", ["removed", "redefined"])
@every_wire
async def test_case_t35_a_proposal_whose_tool_changed_does_not_run(wire: str, how: str) -> None:
    async with on(wire, says(WEATHER)) as here:
        async with here.open(here.agent(approval=ASK)) as session:
            (waits,) = (await session.run("go")).waiting
            await session.tools.remove("weather")
            if how == "redefined":
                await session.tools.add(here.ran.tool(schema("weather"), defer=False))
            await session.decide({waits.call_id: "approve"})
            (told,) = here.exchanges(session.sent[-1])
            assert result(session).code == "PROPOSAL_CHANGED"
            assert told.name == "call_tool" and "proposal changed" in (told.result or "")
            assert not [e for e in session.log.events if isinstance(e.data, ToolCall)]
        assert not here.ran.calls


@every_wire
async def test_case_t49_to_allow_the_dispatcher_allows_nothing(wire: str) -> None:
    async with on(wire, says(WEATHER)) as here:
        approval = Approval((Policy("allow", "call_tool"), Policy("allow", "call*")))
        async with here.open(here.agent(approval=approval)) as session:
            (waits,) = (await session.run("go")).waiting
            assert waits.name == "weather" and not here.ran.calls
            await session.decide({waits.call_id: "deny"})
