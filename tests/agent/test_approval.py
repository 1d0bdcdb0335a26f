"""Approval of tool calls: what is asked, what a decision does, and that nothing gets around it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.gates import (
    ASK,
    DISPATCH,
    Tools,
    agent,
    call,
    decide_all,
    deciding,
    only,
    script,
    sent_results,
    weather,
)
from tests.agent.trouble import ROUTES, attempt, one_line, world

from addendum.agent.calls.approval import KINDS, Approval, Decision, Pending, Policy, hints
from addendum.agent.calls.hooks import AddContext, Ask, Change, Deny, Hook
from addendum.errors import AppendRefused, ConfigurationError
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.script import Entry, ScriptCall, ScriptStep
from addendum.log.approvals import (
    AddedContext,
    ApprovalAsked,
    ApprovalDecided,
    AskedCall,
    DecidedCall,
)
from addendum.log.events import (
    AssistantMessage,
    RequestSent,
    StepStart,
    TurnStart,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Call, ToolSchema
from addendum.tools.entries import ToolEntry
from addendum.tools.functions import FunctionTool, tool
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio


# -- what is asked --------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
async def test_t33_a_batch_is_asked_once_in_real_form_and_order(route: str, tmp_path: Path) -> None:
    approval, asked = deciding("approve")
    tools = Tools()
    async with world(tmp_path, route) as here:
        here.lab.script = script(
            call("clock"), weather(days="2"), call("none"), weather("Rome"), call("clock")
        )
        mine = [tools.clock(), tools.weather(defer=route == DISPATCH)]
        async with agent(here, tools, approval=approval, tools=mine).open(
            "s", store=here.url
        ) as session:
            result = await session.run("go")
        assert (result.text, result.waiting) == ("done", ())
        ((one, two),) = asked
        data = await here.data()
        message = next(d for d in data if isinstance(d, AssistantMessage))
        ids = [made.id for made in message.calls]
        assert [one.call_id, two.call_id] == [ids[1], ids[3]]
        assert (one.name, json.loads(one.arguments)) == ("weather", {"city": "Oslo", "days": 2})
        assert (two.name, json.loads(two.arguments)) == ("weather", {"city": "Rome"})
        assert one.kinds == KINDS and one.reason
        event = only(data, ApprovalAsked)
        assert [each.call_id for each in event.calls] == ids
        assert [each.reason is None for each in event.calls] == [True, False, True, False, True]
        assert event.calls[1].definition == one.definition != ""
        assert [r.call_id for r in await here.results()] == ids
        assert Counter(name for name, _ in tools.ran) == {"clock": 2, "weather": 2}


async def test_t49_an_allow_rule_for_the_dispatcher_allows_nothing(tmp_path: Path) -> None:
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather())
        approval = Approval((Policy("allow", "call_tool"), Policy("allow", "call_*")))
        async with agent(here, tools, approval=approval).open("s", store=here.url) as session:
            (waits,) = (await session.run("go")).waiting
            assert waits.name == "weather" and not tools.ran


async def test_the_first_policy_that_fits_counts(tmp_path: Path) -> None:
    entry = ToolEntry(ToolSchema("fs__write", "", Raw(b"{}")), None, "fs")  # type: ignore[arg-type]
    read = ToolEntry(
        ToolSchema("fs__read", "", Raw(b"{}")),
        None,  # type: ignore[arg-type]
        "fs",
        annotations=Raw(b'{"readOnlyHint":true}'),
    )
    own = ToolEntry(ToolSchema("fs__own", "", Raw(b"{}")), None)  # type: ignore[arg-type]
    rules = Approval(
        (
            Policy("deny", when=lambda given: given.get("path") == "/etc"),
            Policy("allow", server="f*", read_only=True),
            Policy("ask", "fs__w*", server="fs"),
            Policy("deny", "FS__OWN"),
            Policy("allow", destructive=True),
        ),
        default="deny",
    )
    assert rules.judge(entry, "{}")[0] == "ask"
    assert rules.judge(read, "{}")[0] == "allow"
    assert rules.judge(read, '{"path":"/etc"}')[0] == "deny"
    assert rules.judge(own, "{}")[0] == "allow"
    assert Approval((Policy("allow", when=lambda given: given["x"]),)).judge(own, "{}")[0] == "deny"
    assert Approval().judge(own, "{}")[0] == "ask"
    assert hints(own) == (False, True) and hints(read) == (True, False)


async def test_a_servers_hints_are_seen_and_unknown_ones_are_the_strict_ones(
    tmp_path: Path,
) -> None:
    server = in_process("fs", [CannedTool("read", "Read.", {"type": "object"}, "text")])
    approval = Approval((Policy("allow", server="fs", destructive=False),))
    async with world(tmp_path) as here:
        here.lab.script = script(call("read"))
        made = here.agent(
            mcp_servers=[ServerSpec(name="fs", server=server, on=True)], approval=approval
        )
        async with made.open("s", store=here.url) as session:
            (waits,) = (await session.run("go")).waiting
        assert waits.name == "fs__read" and not server.calls


async def test_hooks_come_first_and_their_changes_are_what_is_asked(tmp_path: Path) -> None:
    tools = Tools()
    hooks = [
        Hook("weather", before=lambda _: Change({"city": "Bergen"})),
        Hook("clock", before=lambda _: Ask("what for?")),
        Hook("clock", before=lambda _: AddContext("it is late")),
    ]
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather(), call("clock"))
        made = agent(here, tools, hooks=hooks, approval=ASK)
        async with made.open("s", store=here.url) as session:
            one, two = (await session.run("go")).waiting
            assert json.loads(one.arguments) == {"city": "Bergen"}
            assert (two.name, two.reason) == ("clock", "what for?")
        async with agent(here, tools, approval=ASK).open("s", store=here.url) as session:
            # The hooks of then decided; what they said is in the log.
            await session.decide(decide_all(session, "approve"))
        assert tools.ran[0] == ("weather", ("Bergen", 1))
        assert "it is late" in here.lab.captures[-1].body.decode()


# -- what a decision does -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "text", "code", "ran"),
    [
        ("approve", "rain in Oslo", None, ("Oslo", 1)),
        (Decision("edit", {"city": "Rome", "days": "3"}), "rain in Rome", None, ("Rome", 3)),
        (Decision("edit", {"town": "Rome"}), "do not fit", "E9", None),
        (Decision("respond", text="I looked: sun"), "I looked: sun", None, None),
        ("deny", "did not approve", "DENIED", None),
        (Decision("deny", text="not\nnow"), "Blocked: not now", "DENIED", None),
    ],
    ids=str,
)
@pytest.mark.parametrize("waits", [False, True])
async def test_t34_every_decision_is_one_result_under_the_dispatcher(
    decision: Any, text: str, code: str | None, ran: Any, waits: bool, tmp_path: Path
) -> None:
    approval, _ = deciding(decision)
    approval = approval if not waits else ASK
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather(), call("clock"))
        async with agent(here, tools, approval=approval).open("s", store=here.url) as session:
            result = await session.run("go")
            if waits:
                assert len(result.waiting) == 1 and not tools.ran
                result = await session.decide(decide_all(session, decision))
            assert (result.text, result.waiting, session.pending()) == ("done", (), ())
        got, clock = await here.results()
        assert (got.code, got.is_error, got.name) == (code, code is not None, "weather")
        assert text in got.text and clock.text == "noon"
        assert [given for name, given in tools.ran if name == "weather"] == ([ran] if ran else [])
        assert sent_results(here)[0] == ("call_tool", got.text)
        assert only(await here.data(), ApprovalDecided).decisions[0].call_id == got.call_id


WRONG: list[Any] = ["Approve", "yes", "", "respond", Decision("edit", {"city": "Rome"}), 5, None]
"""What no call may be decided by where only `approve` and `deny` are allowed."""


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_t34_a_kind_that_is_not_allowed_fails_the_call(wrong: Any, tmp_path: Path) -> None:
    approval, _ = deciding(wrong)
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather(), call("clock"))
        approval = Approval(approval.policies, decide=approval.decide, kinds=("approve", "deny"))
        async with agent(here, tools, approval=approval).open("s", store=here.url) as session:
            assert not (await session.run("go")).waiting
        result, clock = await here.results()
        assert result.code == "DENIED" and clock.code is None
        assert [name for name, _ in tools.ran] == ["clock"]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_a_wrong_decision_is_an_error_and_the_call_waits_still(
    wrong: Any, tmp_path: Path
) -> None:
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather())
        approval = Approval(kinds=("approve", "deny"))
        async with agent(here, tools, approval=approval).open("s", store=here.url) as session:
            (waits,) = (await session.run("go")).waiting
            assert waits.kinds == ("approve", "deny")
            length = len(session.log)
            for decide in (session.decide, session.stream_decide):
                with pytest.raises(ConfigurationError) as caught:
                    answer = decide({waits.call_id: wrong})
                    await (anext(answer) if decide == session.stream_decide else answer)
                one_line(caught.value)
            assert (len(session.log), session.pending()) == (length, (waits,))
            await session.decide({waits.call_id: "approve"})
        (result,) = await here.results()
        assert result.text == "rain in Oslo"


@pytest.mark.parametrize(
    "answer", [None, {}, 7, {"x": "approve"}, ValueError("no window")], ids=str
)
async def test_a_person_who_cannot_be_asked_approves_nothing(answer: Any, tmp_path: Path) -> None:
    def decide(batch: Sequence[Pending]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather(), call("clock"))
        approval = Approval(ASK.policies, decide=decide)
        async with agent(here, tools, approval=approval).open("s", store=here.url) as session:
            await session.run("go")
        assert [r.code for r in await here.results()] == ["DENIED", None]
        assert [name for name, _ in tools.ran] == ["clock"]


async def test_decisions_must_be_all_and_only_what_waits(tmp_path: Path) -> None:
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather(), weather("Rome"))
        async with agent(here, tools, approval=ASK).open("s", store=here.url) as session:
            with pytest.raises(ConfigurationError, match="no call waits"):
                await session.decide({})
            one, two = (await session.run("go")).waiting
            length = len(session.log)
            for given in (
                {},
                {one.call_id: "approve"},
                {one.call_id: "approve", two.call_id: "approve", "call_x": "approve"},
            ):
                with pytest.raises(ConfigurationError) as caught:
                    await session.decide(given)
                one_line(caught.value)
            for other in (session.run("hello"), session.rewind(), session.compact("x")):
                with pytest.raises(ConfigurationError, match="waits for decisions"):
                    await other
            assert (len(session.log), session.pending()) == (length, (one, two))
            events = [
                event
                async for event in session.stream_decide(
                    {one.call_id: "approve", two.call_id: "deny"}
                )
            ]
        assert [type(event).__name__ for event in events][-1] == "TurnDone"
        assert [r.code for r in await here.results()] == [None, "DENIED"]


async def test_always_holds_for_the_definition_that_was_shown(tmp_path: Path) -> None:
    tools = Tools()
    steps = tuple(
        ScriptStep(text, (Entry(calls=(weather(),)), Entry(text="done")))
        for text in ("two", "three", "four")
    )
    async with world(tmp_path) as here:
        here.lab.script = script(weather(), more=steps)
        made = agent(here, tools, approval=ASK, tools=[tools.weather(defer=False)])
        async with made.open("s", store=here.url) as session:
            await session.run("go")
            await session.decide(decide_all(session, Decision("approve", always=True)))
            assert not (await session.run("two")).waiting
        async with made.open("s", store=here.url) as session:
            assert not (await session.run("three")).waiting

            @tool
            async def weather_(city: str) -> str:
                """Tell the weather, and more."""
                return "sun"

            await session.tools.add(tool(name="weather")(weather_.function))
            assert (await session.run("four")).waiting


@pytest.mark.parametrize("first", ["approve", "deny"])
async def test_d12_a_redefined_tool_asks_until_it_was_approved(first: str, tmp_path: Path) -> None:
    tools = Tools()
    steps = tuple(
        ScriptStep(text, (Entry(calls=(call("clock"),)), Entry(text="done")))
        for text in ("two", "three")
    )

    async def other() -> str:
        """Tell the time of day."""
        return "night"

    async with world(tmp_path) as here:
        here.lab.script = script(call("clock"), more=steps)
        approval = Approval(default="allow")
        made = here.agent(
            tools=[tools.clock()], approval=approval, on_redefinition="ask", tool_dispatch=True
        )
        async with made.open("s", store=here.url) as session:
            assert not (await session.run("go")).waiting
            await session.tools.add(tool(name="clock")(other))
            (waits,) = (await session.run("two")).waiting
            assert "definition" in waits.reason
            await session.decide({waits.call_id: first})
            again = (await session.run("three")).waiting
            assert bool(again) == (first == "deny")
        with pytest.raises(ConfigurationError, match="nobody to ask"):
            here.agent(on_redefinition="ask")
        with pytest.raises(ConfigurationError, match="keep"):
            here.agent(on_redefinition="never", approval=approval)


# -- nothing gets around it -----------------------------------------------------------------

SECRET = "secret"
ENVELOPES: list[ScriptCall] = [
    call("secret", "direct"),
    call("secret", "dispatch"),
    call("SECRET", "direct"),
    call("Secret", "dispatch"),
    call("secret ", "dispatch"),
    call("\u0455ecret", "dispatch"),
    call("ｓecret", "dispatch"),
    call("sec\u200bret", "direct"),
    call("call_tool", "direct", name="secret", arguments={}),
    call("call_tool", "direct", name="secret", arguments="{}"),
    call("call_tool", "direct", name="secret"),
    call("call_tool", "direct", arguments={"name": "secret", "arguments": {}}),
    call("call_tool", "direct", arguments={"name": "secret"}),
    call("call_tool", "direct", arguments='{"name":"secret"}'),
    call("call_tool", "direct", name="secret", x=1),
    call("call_tool", "direct", name="call_tool", arguments={"name": "secret", "arguments": {}}),
    call("call_tool", "direct", name="open", arguments={"name": "secret", "arguments": {}}),
    call("call_tool", "direct", name=["secret"], arguments={}),
    call("tool_search", "direct", query="secret"),
]
"""Ways to a tool: by its names, nested, as text, misplaced, and what looks like its name."""


def secrets(ran: list[str]) -> list[FunctionTool[..., Any]]:
    async def secret(arguments: dict[str, Any]) -> str:
        ran.append("secret")
        return "the secret"

    async def open_(arguments: dict[str, Any]) -> str:
        ran.append("open")
        return "opened"

    def made(name: str, run: Any, defer: bool | None) -> FunctionTool[..., Any]:
        return FunctionTool.from_schema(
            ToolSchema(name, name, Raw(b'{"type":"object"}'), defer), run
        )

    return [made("open", open_, None), made(SECRET, secret, True)]


@pytest.mark.parametrize("by", ["policy", "hook", "predicate", "default", "refuse", "removal"])
@pytest.mark.parametrize("route", [DISPATCH, ROUTES[0]])
async def test_a_denied_tool_cannot_be_reached(by: str, route: str, tmp_path: Path) -> None:
    ran: list[str] = []
    allow = Approval((Policy("allow", "open"),), default="allow")
    how: dict[str, dict[str, Any]] = {
        "policy": {"approval": Approval((Policy("deny", SECRET),), default="allow")},
        "hook": {"hooks": [Hook(SECRET, before=lambda _: Deny("no"))], "approval": allow},
        "predicate": {
            "approval": Approval((Policy("deny", "s*", when=lambda _: 1 / 0 > 1),), default="allow")
        },
        "default": {"approval": Approval((Policy("allow", "open"),), default="deny")},
        "refuse": {"disabled": [SECRET]},
        "removal": {},
    }
    async with world(tmp_path, route) as here:
        here.lab.script = script(*ENVELOPES)
        made = here.agent(tools=secrets(ran), tool_dispatch=True, **how[by])
        async with made.open("s", store=here.url) as session:
            if by == "removal":
                await session.tools.remove(SECRET)
            await session.run("go")
        results = await here.results()
        assert len(results) == len(ENVELOPES)
        assert SECRET not in ran
        assert "the secret" not in " ".join(each.text for each in results)
        here.lab.script = None
        await here.usable(made)


@pytest.mark.parametrize(
    "edit", [{"path": "/etc"}, {"path": "/ok", "name": SECRET}, {"name": SECRET, "arguments": {}}]
)
async def test_an_edited_approval_passes_the_same_checks(
    edit: dict[str, Any], tmp_path: Path
) -> None:
    ran: list[str] = []
    approval = Approval(
        (Policy("deny", when=lambda given: given.get("path") == "/etc"), Policy("deny", SECRET))
    )
    hook = Hook("open", before=lambda c: Deny("no") if "name" in c.arguments else None)
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(call("open", path="/ok"))
        made = here.agent(tools=secrets(ran), tool_dispatch=True, approval=approval, hooks=[hook])
        async with made.open("s", store=here.url) as session:
            (waits,) = (await session.run("go")).waiting
            await session.decide({waits.call_id: Decision("edit", edit, always=True)})
        (result,) = await here.results()
        assert result.code == "BLOCKED" and not ran


# -- the log --------------------------------------------------------------------------------


def test_the_log_refuses_what_cannot_have_been_asked() -> None:
    log = SessionLog("s")
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    calls = (Call("a", "x", "{}"), Call("b", "x", "{}"))
    message = AssistantMessage(1, 1, "r", "w", calls=calls)
    asked = ApprovalAsked(1, 1, (AskedCall("a", "x", "{}"), AskedCall("b", "x", "{}")))
    with pytest.raises(AppendRefused):
        log.append(asked)
    log.append(message)
    with pytest.raises(AppendRefused):
        log.append(ApprovalAsked(1, 1, asked.calls[:1]))
    with pytest.raises(AppendRefused):
        log.append(ApprovalDecided(1, 1))
    log.append(asked)
    for wrong in (asked, ApprovalDecided(1, 1, (DecidedCall("c", "approve"),))):
        with pytest.raises(AppendRefused):
            log.append(wrong)
    log.append(ApprovalDecided(1, 1, (DecidedCall("a", "approve"),)))
    assert log.asked is None
    assert log.close_open() and log.turn is None


async def test_without_hooks_and_approval_nothing_of_them_is_logged(tmp_path: Path) -> None:
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        here.lab.script = script(weather())
        async with agent(here, tools).open("s", store=here.url) as session:
            await session.run("go")
            assert await attempt(session, "  ") is not None
        ours = (ApprovalAsked, ApprovalDecided, AddedContext)
        assert not any(isinstance(data, ours) for data in await here.data())
        assert sum(isinstance(data, RequestSent) for data in await here.data()) == 2
