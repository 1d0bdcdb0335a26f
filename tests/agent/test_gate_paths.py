"""One gate for every call: each way of forbidding a tool, on each way that a call can take.

Both come from lists. The list of gates is the program's own, so a gate that is added there without
a way to forbid by it fails here. On every path the tool is forbidden at the last moment that the
path has, when everybody who was asked before has said yes; and on every path it runs if nobody
forbids it, so no cell holds for want of trying.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
import msgspec
import pytest
from tests.agent.stage import CHAT, CLAUDE, DEEPSEEK, Stage, fn, stage

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Approval, Decision, Policy
from addendum.agent.calls.gate import GATES
from addendum.agent.calls.hooks import AddContext, Ask, Change, Deny, Hook, HookCall
from addendum.agent.session import Session
from addendum.agent.setup import ToolDispatch
from addendum.agent.subagents import subagent
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.approvals import AddedContext, ApprovalAsked
from addendum.log.events import ToolCall, ToolResult
from addendum.tools.functions import ToolContext, tool
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

WIPE = "db__wipe"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"disk": {"type": "string"}}}
ALLOW = Approval(default="allow")
ASK = Approval((Policy("ask", WIPE),), default="allow")
BESIDE = Approval((Policy("ask", "web"),), default="allow")
NAMES = [gate.name for gate in GATES]


@dataclass
class Place:
    """Where a call is about to run.

    Attributes:
        here: The stage.
        server: The server whose tool is called.
        agent: Who calls it.
        session: Its session.
    """

    here: Stage
    server: CannedServer
    agent: Agent
    session: Session

    @property
    def runs(self) -> int:
        """How often the tool ran."""
        return len(self.server.calls)


Act = Callable[[Place], Awaitable[None]]
Path = Callable[[Stage, Act], Awaitable[Place]]


# -- ways to forbid --------------------------------------------------------------------------


async def alter(place: Place) -> None:
    # As if the store had found that the last event is not what was appended.
    place.session.log.changed = {len(place.session.log) - 1}


async def exclude(place: Place) -> None:
    # The registry leaves such tools out as well; here it has not noticed yet.
    place.session.registry.snapshot()
    place.session.registry.excluded = (WIPE,)


async def switch_off(place: Place) -> None:
    await place.session.tools.disable("db")


async def refuse(place: Place) -> None:
    await place.session.tools.refuse(WIPE)


async def close(place: Place) -> None:
    place.agent.setup.dispatch = ToolDispatch(can_dispatch=lambda name, schema: name != WIPE)


async def relist(place: Place, **changes: Any) -> None:
    """Have the server list its tool otherwise, and wait until that was heard."""
    connection = await place.session.registry.connection("db")
    await connection.ready(5)
    before = connection.state.revision
    await place.server.add(msgspec.structs.replace(place.server.tools[0], **changes))
    await connection.until(lambda state: state.revision > before, 5)
    assert connection.state.revision > before


async def reword(place: Place) -> None:
    await relist(place, description="Wipe a disk, and tell nobody.")


async def require(place: Place) -> None:
    await relist(place, parameters={**SCHEMA, "required": ["reason"]})


async def hook(place: Place) -> None:
    place.agent.setup.hooks = (Hook(WIPE, before=lambda _: Deny("not any more")),)


async def deny(place: Place) -> None:
    place.agent.setup.approval = Approval((Policy("deny", WIPE),), default="allow")


async def ask(place: Place) -> None:
    place.agent.setup.approval = ASK


async def nothing(place: Place) -> None:
    pass


ASKS = "a person is asked"
FORBID: dict[str, tuple[Act, set[str]]] = {
    "stored": (alter, {"PROPOSAL_CHANGED"}),
    "excluded": (exclude, {"UNKNOWN_TOOL"}),
    "active": (switch_off, {"removed", "PROPOSAL_CHANGED"}),
    "disabled": (refuse, {"E5"}),
    "can_dispatch": (close, {"E7"}),
    "definition": (reword, {"PROPOSAL_CHANGED", ASKS}),
    "arguments": (require, {"E9", "PROPOSAL_CHANGED"}),
    "hooks": (hook, {"BLOCKED"}),
    "policies": (deny, {"BLOCKED"}),
    "approval": (ask, {"BLOCKED", ASKS}),
}
"""How each gate is made to forbid the tool, and what comes of its call then."""


# -- ways to the tool ------------------------------------------------------------------------


def step(text: str, *calls: ScriptCall) -> ScriptStep:
    return ScriptStep(text, (Entry(calls=calls), Entry(text="done")))


CALL = ScriptCall(WIPE, {"disk": "c"})


def server() -> CannedServer:
    said = {"readOnlyHint": True}
    return in_process("db", [CannedTool("wipe", "Wipe.", SCHEMA, "wiped", annotations=said)])


def made(
    here: Stage, route: str, rules: Approval, *, defer: bool = True, **more: Any
) -> tuple[Agent, CannedServer]:
    """An agent with the tool."""
    canned = server()
    spec = ServerSpec(name="db", server=canned, on=True, defer=defer)
    options = {"tools": [fn("web")], "mcp_servers": [spec], "approval": rules, "instructions": ""}
    return here.agent(route, **options | {"on_redefinition": "ask"} | more), canned


@asynccontextmanager
async def stalled(place: Place, act: Act, turn: Awaitable[Any]) -> AsyncGenerator[None]:
    """Act while the answer that makes the call is on its way."""
    provider = place.session.route.provider
    place.here.lab.stall_next(provider)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await turn

        tasks.start_soon(run)
        await place.here.lab.until_stalled()
        await act(place)
        place.here.lab.release()
    yield


async def fresh(here: Stage, act: Act, route: str = CLAUDE, **more: Any) -> Place:
    here.lab.script = Script((step("hello"), step("go", CALL)))
    agent, canned = made(here, route, ALLOW, **more)
    async with here.open(agent) as session:
        place = Place(here, canned, agent, session)
        await session.run("hello")
        async with stalled(place, act, session.run("go")):
            pass
    return place


async def by_reference(here: Stage, act: Act) -> Place:
    return await fresh(here, act, DEEPSEEK)


async def dispatched(here: Stage, act: Act) -> Place:
    return await fresh(here, act, CHAT)


async def rebound(here: Stage, act: Act) -> Place:
    return await fresh(here, act, "anthropic:claude-opus-4-8", tool_changes="rebind")


async def early(here: Stage, act: Act) -> Place:
    return await fresh(here, act, defer=False, early_start=True)


async def waiting(
    here: Stage,
    act: Act,
    *,
    route: str = CLAUDE,
    then: Decision | str = "approve",
    again: bool = False,
    use: str | None = None,
) -> Place:
    here.lab.script = Script((step("go", CALL),))
    agent, canned = made(here, route, ASK)
    async with here.open(agent) as session:
        (call,) = (await session.run("go")).waiting
        place = Place(here, canned, agent, session)
        if not again:
            await finish(place, act, {call.call_id: then}, use)
    if again:
        async with here.open(agent) as session:
            place.session = session
            await finish(place, act, {call.call_id: then}, use)
    return place


async def finish(place: Place, act: Act, decisions: Any, use: str | None = None) -> None:
    if use is not None:
        place.agent.setup.base_url = place.here.lab.base_url(use.split(":")[0])
        place.agent.setup.provider = use.split(":")[0]
        place.session.use(use)
    await act(place)
    await place.session.decide(decisions)


async def edited(here: Stage, act: Act) -> Place:
    return await waiting(here, act, then=Decision("edit", {"disk": "d"}))


async def restarted(here: Stage, act: Act) -> Place:
    return await waiting(here, act, again=True)


async def restarted_and_edited(here: Stage, act: Act) -> Place:
    return await waiting(here, act, then=Decision("edit", {"disk": "d"}), again=True)


async def waiting_dispatched(here: Stage, act: Act) -> Place:
    return await waiting(here, act, route=CHAT, again=True)


async def to_a_native_route(here: Stage, act: Act) -> Place:
    return await waiting(here, act, route=CHAT, use=CLAUDE)


async def to_a_dispatch_route(here: Stage, act: Act) -> Place:
    return await waiting(here, act, use=CHAT)


async def asked_at_once(here: Stage, act: Act) -> Place:
    here.lab.script = Script((step("go", CALL),))
    agent, canned = made(here, CLAUDE, ALLOW)
    async with here.open(agent) as session:
        place = Place(here, canned, agent, session)

        async def decide(asked: Any) -> dict[str, str]:
            await act(place)
            return {each.call_id: "approve" for each in asked}

        agent.setup.approval = Approval((Policy("ask", WIPE),), default="allow", decide=decide)
        await session.run("go")
    return place


async def beside(here: Stage, act: Act) -> Place:
    """A call that nobody is asked about, in a round that waits for another one."""
    here.lab.script = Script((step("go", ScriptCall("web", {}), CALL),))
    agent, canned = made(here, CLAUDE, BESIDE)
    async with here.open(agent) as session:
        (call,) = (await session.run("go")).waiting
        place = Place(here, canned, agent, session)
        await finish(place, act, {call.call_id: "deny"})
    return place


async def always(here: Stage, act: Act) -> Place:
    """A person allowed the tool for the whole session, in a turn before."""
    here.lab.script = Script((step("one", CALL), step("two", CALL)))
    agent, canned = made(here, CLAUDE, ASK)
    async with here.open(agent) as session:
        (call,) = (await session.run("one")).waiting
        await session.decide({call.call_id: Decision("approve", always=True)})
        assert canned.calls
        canned.calls.clear()
        place = Place(here, canned, agent, session)
        async with stalled(place, act, session.run("two")):
            pass
    return place


async def forked(here: Stage, act: Act) -> Place:
    here.lab.script = Script((step("hello"), step("go", CALL)))
    agent, canned = made(here, CLAUDE, ALLOW)
    async with here.open(agent) as session:
        await session.run("hello")
        async with session.fork("child") as child:
            place = Place(here, canned, agent, child)
            async with stalled(place, act, child.run("go")):
                pass
    return place


async def retried(here: Stage, act: Act) -> Place:
    here.lab.script = Script((step("go", CALL),))
    agent, canned = made(here, CLAUDE, ALLOW)
    async with here.open(agent) as session:
        await session.run("go")
        assert canned.calls
        canned.calls.clear()
        place = Place(here, canned, agent, session)
        async with stalled(place, act, session.retry()):
            pass
    return place


async def in_a_subagent(here: Stage, act: Act) -> Place:
    """A tool of the child acts, in the step before."""
    places: list[Place] = []

    async def now(context: ToolContext) -> str:
        places.append(Place(here, canned, child, context.host))
        await act(places[0])
        return "now"

    task = ScriptStep("dig", (Entry(calls=(ScriptCall("now", {}),)), Entry(calls=(CALL,)), DONE))
    here.lab.script = Script((step("go", ScriptCall("helper", {"task": "dig"})), task))
    child, canned = made(here, CLAUDE, ALLOW, tools=[tool(name="now")(now)])
    agent = here.agent(CLAUDE, tools=[subagent(child, name="helper")], instructions="")
    async with here.open(agent) as session:
        await session.run("go")
    return places[0]


DONE = Entry(text="done")
PATHS: dict[str, Path] = {
    "by its name": fresh,
    "by reference": by_reference,
    "dispatched": dispatched,
    "rebound": rebound,
    "early": early,
    "waiting": waiting,
    "waiting, dispatched, restarted": waiting_dispatched,
    "edited": edited,
    "restarted": restarted,
    "restarted and edited": restarted_and_edited,
    "asked at once": asked_at_once,
    "beside one that waits": beside,
    "from dispatch to native": to_a_native_route,
    "from native to dispatch": to_a_dispatch_route,
    "allowed for good": always,
    "forked": forked,
    "retried": retried,
    "in a subagent": in_a_subagent,
}

ANSWERED = "a person has answered for this call, and that is all the gate wants"
FITTING: dict[tuple[str, str], str] = {
    ("stored", "in a subagent"): "what was changed is of the step before",
    ("can_dispatch", "early"): "only tools of the head start early, and it has no say in those",
    **{
        ("approval", path): ANSWERED
        for path in PATHS
        if path.startswith(("waiting", "edited", "restarted", "asked", "from", "allowed"))
    },
}
"""Cells where the gate has nothing against the call, with the reason: there it runs."""


OTHERWISE = {
    ("active", "in a subagent"): {"UNKNOWN_TOOL"},
    ("definition", "in a subagent"): {"DENIED"},
    ("approval", "in a subagent"): {"DENIED"},
}
"""What comes of a call where it is told otherwise: the tool is gone in front of the child's next
request, and nobody can be asked in a child."""


def outcome(place: Place, log: Any) -> str | None:
    """What came of the last call of the tool: its code, or that a person is asked."""
    data = [event.data for event in log.events]
    results = [each for each in data if isinstance(each, ToolResult) and each.name == WIPE]
    asked = [each for each in data if isinstance(each, ApprovalAsked)]
    if log.asked is not None and asked[-1] is log.asked:
        return ASKS
    return results[-1].code


@pytest.mark.parametrize("path", PATHS)
async def test_a_call_runs_where_nobody_forbids_it(path: str) -> None:
    async with stage() as here:
        place = await PATHS[path](here, nothing)
    assert place.runs == 1
    assert outcome(place, place.session.log) is None
    called = [e.data for e in place.session.log.events if isinstance(e.data, ToolCall)]
    assert called[-1].early == (path == "early")


@pytest.mark.parametrize("gate", NAMES)
@pytest.mark.parametrize("path", PATHS)
async def test_no_way_leads_around_a_gate(gate: str, path: str) -> None:
    act, codes = FORBID[gate]
    async with stage() as here:
        place = await PATHS[path](here, act)
        log = place.session.log
        if (gate, path) in FITTING:
            assert place.runs == 1
            return
        assert place.runs == 0
        assert outcome(place, log) in OTHERWISE.get((gate, path), codes)
        started = [
            event.seq
            for event in log.events
            if isinstance(event.data, ToolCall) and event.data.name == WIPE
        ]
        # Where it ran before, in another turn, it was started then.
        assert len(started) == (path in ("allowed for good", "retried"))


def test_every_gate_has_a_way_to_forbid_and_no_cell_is_made_up() -> None:
    assert set(FORBID) == set(NAMES)
    for gate, path in FITTING:
        assert gate in NAMES and path in PATHS


# -- hooks behind an answer --------------------------------------------------------------------


def appends(call: HookCall) -> Change:
    """Makes the call another one each time it is asked about it."""
    return Change({"disk": f"{call.arguments.get('disk', '')}!"})


counter = count()


def counts(call: HookCall) -> Change:
    """Makes of the same call another one each time."""
    return Change({"disk": f"c{next(counter)}"})


@pytest.mark.parametrize("again", [False, True], ids=["in one process", "in another"])
@pytest.mark.parametrize(
    ("before", "after", "ran"),
    [
        pytest.param((), (), "c", id="none"),
        pytest.param((Hook(before=appends),), (Hook(before=appends),), "c!", id="the same"),
        pytest.param((Hook(before=appends),), (), "c!", id="one that left"),
        pytest.param((), (Hook(before=appends),), None, id="one that came"),
        pytest.param((Hook(before=counts),), (Hook(before=counts),), None, id="a fickle one"),
        pytest.param((Hook(WIPE, before=lambda _: Ask("sure?")),) * 2, (), "c", id="ones that ask"),
        pytest.param((), (Hook(before=lambda _: Ask("and this?")),), "c", id="one that asks now"),
        pytest.param((), (Hook(before=lambda _: 1 / 0),), None, id="one that fails"),  # type: ignore[arg-type]
        pytest.param((), (Hook("web", before=lambda _: Deny("no")),), "c", id="another tool's"),
    ],
)
async def test_a_call_that_was_approved_runs_as_it_was_shown_or_not_at_all(
    before: tuple[Hook, ...], after: tuple[Hook, ...], ran: str | None, again: bool
) -> None:
    async with stage() as here:
        here.lab.script = Script((step("go", CALL),))
        agent, canned = made(here, CLAUDE, ASK, hooks=before)
        async with here.open(agent) as session:
            (call,) = (await session.run("go")).waiting
            shown = encoding.decode(call.arguments)
            if not again:
                agent.setup.hooks = after
                await session.decide({call.call_id: "approve"})
        if again:
            agent.setup.hooks = after
            async with here.open(agent) as session:
                await session.decide({call.call_id: "approve"})
    assert [given for _, given in canned.calls] == ([] if ran is None else [{"disk": ran}])
    assert ran is None or shown == {"disk": ran}


async def test_a_hook_hears_of_a_call_before_and_behind_the_question_and_no_more() -> None:
    heard: list[str] = []

    def hear(call: HookCall) -> AddContext:
        heard.append(call.name)
        return AddContext(f"heard {len(heard)}")

    async with stage() as here:
        here.lab.script = Script((step("go", ScriptCall("web", {}), CALL), step("again", CALL)))
        agent, _ = made(here, CLAUDE, ASK, hooks=[Hook(before=hear)])
        async with here.open(agent) as session:
            (call,) = (await session.run("go")).waiting
            assert heard == ["web", WIPE]
            await session.decide({call.call_id: Decision("approve", always=True)})
            assert heard == ["web", WIPE] * 2
            context = [e.data.text for e in session.log.events if isinstance(e.data, AddedContext)]
            assert context == ["heard 3", "heard 4"], "what is said last counts"
            await session.run("again")
            assert heard == ["web", WIPE, "web", WIPE, WIPE]
