"""A session that was cut off anywhere: opened again it is closed, told the truth, and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.agent.trouble import ROUTES, WIRES, World, world
from tests.property.reference import blocks, extends

from addendum.agent.agent import Agent
from addendum.agent.context.requests import Sent
from addendum.agent.setup import Limits
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log import codec
from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    Event,
    RequestHeader,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    ToolSwitch,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Call
from addendum.stores import MemoryStore
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

HOMES = [
    (ROUTES[0], "auto"),
    ("anthropic:claude-opus-5-5+by-reference", "auto"),
    (ROUTES[1], "auto"),
    (ROUTES[2], "auto"),
    (ROUTES[0], "rebind"),
    *((route, "auto") for route in WIRES[3:]),
]
SCHEMA = {"type": "object", "properties": {}}


def step(text: str, *rounds: Sequence[str]) -> ScriptStep:
    entries = [
        Entry(thinking="hm", calls=tuple(ScriptCall(name) for name in names)) for names in rounds
    ]
    return ScriptStep(text, (*entries, Entry(text=f"done: {text}")), summary="They talked.")


STORY = Script(
    (
        step("hello"),
        step("look", ["note", "none", "note"], ["files__read"]),
        step("look again", ["files__read", "note"]),
        step("and now", ["note"]),
        step("at last"),
    )
)


@dataclass
class Told:
    """A whole conversation: its events, what was sent, and how often the tool ran by then."""

    events: Sequence[Event]
    sent: Sequence[Sent]
    barriers: frozenset[int]


class Barriers(MemoryStore):
    """Remembers how long the log was at each of its barriers."""

    def __init__(self) -> None:
        super().__init__()
        self.at: set[int] = set()

    async def append(self, lease, expected, events):  # type: ignore[no-untyped-def]
        await super().append(lease, expected, events)
        self.at.add(expected + len(events))


class Ran:
    """A tool with an effect; where the log must stand when it has one."""

    def __init__(self) -> None:
        self.times = 0
        self.store: MemoryStore | None = None
        self.too_early = 0

    async def note(self) -> str:
        """Write a note."""
        self.times += 1
        if self.store is not None:
            stored = [codec.decode_event(raw).data for raw in await self.store.read("s")]
            calls = sum(isinstance(each, ToolCall) and each.name == "note" for each in stored)
            self.too_early += self.times > calls
        return f"note {self.times} " + "x" * 200


def files() -> CannedServer:
    tools = [
        CannedTool("read", "Read a file. " * 10, SCHEMA, "contents " * 30),
        CannedTool("list", "List files. " * 10, SCHEMA, "a b c"),
    ]
    return in_process("files", tools, instructions="Paths are relative.")


def agent_of(here: World, ran: Ran, server: CannedServer, tool_changes: str) -> Agent:
    return here.agent(
        tools=[ran.note],
        instructions="You keep notes. " * 100,
        mcp_servers=[ServerSpec(name="files", server=server)],
        tool_changes=tool_changes,
        limits=Limits(tool_timeout=5.0, server_wait=5.0),
        record=True,
    )


async def tell(here: World, tool_changes: str, server: CannedServer) -> Told:
    ran, store = Ran(), Barriers()
    ran.store = store
    here.lab.script = STORY
    async with agent_of(here, ran, server, tool_changes).open("s", store=store) as session:
        await session.run("hello")
        await session.tools.enable("files")
        await session.run("look")
        await session.tools.disable("files")
        await session.tools.enable("files")
        await session.run("look again")
        await session.tools.disable("files")
        await session.run("and now")
        await session.compact("They talked.")
        await session.run("at last")
        await session.rewind()
        told = Told(list(session.log.events), list(session.sent), frozenset(store.at))
    here.lab.script = None
    assert ran.too_early == 0  # `tool/call` was durable before the tool started
    return told


async def cut_off(told: Told, length: int) -> MemoryStore:
    """A store as a crash left it."""
    store = MemoryStore()
    lease = await store.acquire("s")
    await store.append(lease, 0, [codec.encode_event(event) for event in told.events[:length]])
    await store.release(lease)
    return store


@pytest.mark.parametrize(("route", "tool_changes"), HOMES, ids=[f"{r} {t}" for r, t in HOMES])
async def test_wherever_a_log_is_cut_off_the_session_goes_on(
    route: str, tool_changes: str, tmp_path: Path
) -> None:
    """At every barrier, where alone a log can end; how it is closed, at every length."""
    async with world(tmp_path, route) as here:
        server = files()
        told = await tell(here, tool_changes, server)
        for length in range(1, len(told.events) + 1):
            stored = [codec.encode_event(event) for event in told.events[:length]]
            log = SessionLog.load("s", stored)
            log.close_open()
            check_recovery(told.events[:length], log.events[length:])
        kinds: set[str] = set()
        for length in sorted(told.barriers):
            before = told.events[:length]
            where = f"cut behind event {length - 1}, a {before[-1].type}"
            store = await cut_off(told, length)
            first, ran = len(here.lab.captures), Ran()
            async with agent_of(here, ran, server, tool_changes).open("s", store=store) as session:
                recovered = list(session.log.events)
                result = await session.run("are you there?")
                (sent,) = session.sent
            assert recovered[:length] == before, where
            check_recovery(before, recovered[length:])
            assert ran.times == 0, f"{where}: a call ran again"
            assert result.text.startswith("I heard"), where
            refused = [each.refusal for each in here.lab.captures[first:] if each.refusal]
            assert not refused, f"{where}: {refused}"
            check_extends(told, before, sent, where)
            kinds.add(before[-1].type)
        assert kinds >= {"session/start", "tool/switch", "request/sent", "tool/call", "step/end"}
        assert kinds >= {"turn/end", "compaction/summary", "session/rewind"}


def check_recovery(before: Sequence[Event], added: Sequence[Event]) -> None:
    """What was open is closed, by results that say what is known and no more."""
    log = SessionLog("s")
    for event in before:
        log._admit(event)  # pyright: ignore[reportPrivateUsage]
    expected: list[tuple[str, ...]] = []
    started = {
        event.data.call_id
        for event in before
        if isinstance(event.data, ToolCall) and event.data.turn == log.turn
    }
    for call in log.unanswered:
        known = "TOOL_OUTCOME_UNKNOWN" if call in started else "TOOL_NOT_STARTED"
        expected.append(("tool/result", call, known))
    if log.step is not None:
        expected.append(("step/end",))
    if log.turn is not None:
        expected.append(("turn/end", "interrupted"))
    got: list[tuple[str, ...]] = []
    for event in added:
        match event.data:
            case ToolResult() as result:
                assert result.is_error
                assert result.name
                assert "interrupted" in result.text
                got.append((event.type, result.call_id, str(result.code)))
            case TurnEnd() as end:
                got.append((event.type, end.reason))
            case StepEnd():
                got.append((event.type,))
            case _:
                pytest.fail(f"recovery wrote a {event.type}")
    assert got == expected


def check_extends(told: Told, before: Sequence[Event], sent: Sent, where: str) -> None:
    """The next request extends the last one that was answered, or a break says why not."""
    number, declared = 0, []
    for place, event in enumerate(before):
        if isinstance(event.data, AssistantMessage):
            number = next(
                each.data.number
                for each in reversed(before[:place])
                if isinstance(each.data, RequestSent)
            )
            declared = []
        elif isinstance(event.data, CacheBreak):
            declared.append(event.data)
    answered = next((each for each in told.sent if each.number == number), None)
    if answered is None:
        return
    old, new = blocks(answered.body, answered.context), blocks(sent.body, sent.context)
    reasons = {found.reason for found in (*declared, *sent.breaks)}
    assert extends(old, new) or reasons, f"{where}: breaks in silence"
    allowed = {"compaction", "rewind", "rebinding", "removal", "restore", "attempt failed"}
    assert reasons <= allowed, f"{where}: {reasons}"


# -- what the closing results say ----------------------------------------------------------------


def open_step(log: SessionLog, calls: Sequence[str], *, turn: int = 1, step: int = 1) -> None:
    if step == 1:
        log.append(TurnStart(turn))
    log.append(StepStart(turn, step))
    if step == 1:
        log.append(UserMessage(turn, "go"))
    made = tuple(Call(ident, f"tool-{ident}", "{}") for ident in calls)
    log.append(AssistantMessage(turn, step, "r", "w", calls=made))


def test_300_calls_that_were_started_are_all_of_unknown_outcome() -> None:
    log = SessionLog("s")
    names = [f"c{number}" for number in range(300)]
    open_step(log, names)
    for name in names[:-1]:
        log.append(ToolCall(1, 1, name, f"tool-{name}", "{}"))
    log.close_open()
    results = [event.data for event in log.events if isinstance(event.data, ToolResult)]
    assert [each.code for each in results] == ["TOOL_OUTCOME_UNKNOWN"] * 299 + ["TOOL_NOT_STARTED"]
    assert [each.name for each in results] == [f"tool-{name}" for name in names]


def test_an_id_that_an_earlier_step_used_says_nothing_about_this_one() -> None:
    log = SessionLog("s")
    open_step(log, ["call_0"])
    log.append(ToolCall(1, 1, "call_0", "tool-call_0", "{}"))
    log.append(ToolResult(1, 1, "call_0", "tool-call_0", "done"))
    log.append(StepEnd(1, 1))
    open_step(log, ["call_0"], step=2)
    log.close_open()
    codes = [event.data.code for event in log.events if isinstance(event.data, ToolResult)]
    assert codes == [None, "TOOL_NOT_STARTED"]


# -- switches ------------------------------------------------------------------------------------


async def offered(agent: Agent, store: MemoryStore) -> set[str]:
    """What is callable in the next turn of a new process."""
    async with agent.open("s", store=store) as session:
        await session.run("are you there?")
        header = session.log.header
        assert header is not None
        return {tool.name for tool in header.header.tools}


async def extra() -> str:
    """Added by hand."""
    return "extra"


SWITCHES = {
    "server on": (["enable files"], {"note", "files__read", "files__list"}),
    "server on and off": (["enable files", "disable files"], {"note"}),
    "tool removed": (["remove note"], set()),
    "tool removed and back": (["remove note", "add note"], {"note"}),
    "tool added": (["add extra"], {"note", "extra"}),
    "tool added and removed": (["add extra", "remove extra"], {"note"}),
    "tool added twice": (["add extra", "remove extra", "add extra"], {"note", "extra"}),
}


@pytest.mark.parametrize("when", ["before the first turn", "between turns"])
@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("route", [ROUTES[0], ROUTES[2]])
async def test_a_switch_holds_when_the_process_dies_right_after_it(
    route: str, name: str, when: str, tmp_path: Path
) -> None:
    moves, expected = SWITCHES[name]
    async with world(tmp_path, route) as here:
        ran, server, store = Ran(), files(), MemoryStore()
        agent = agent_of(here, ran, server, "auto")
        tools = {"note": ran.note, "extra": extra}
        async with agent.open("s", store=store) as session:
            if when == "between turns":
                await session.run("hello")
            for move in moves:
                kind, what = move.split()
                switch = getattr(session.tools, kind)
                seq = await switch(tools[what] if kind == "add" else what)
                durable = codec.decode_event((await store.read("s"))[seq])
                assert isinstance(durable.data, ToolSwitch)
        found = await offered(agent, store)
        assert found - {"tool_search"} == expected
        # And again, with nothing switched in between.
        assert await offered(agent, store) == found


async def test_servers_are_restored_in_the_order_they_were_switched_on(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        specs = [ServerSpec(name=name, server=files()) for name in ("one", "two")]
        agent = here.agent(mcp_servers=specs)
        orders: list[list[str]] = []
        for _ in range(2):
            async with agent.open("s", store=here.url) as session:
                await session.tools.enable("two")
                await session.tools.enable("one")
                await session.run("hello")
                orders.append(list(session.registry.snapshot().entries))
        assert orders[0] == orders[1]
        headers = [each for each in await here.data() if isinstance(each, RequestHeader)]
        assert headers[-1].reason == "resume"


@pytest.mark.parametrize("name", ["claude.ai files", "1st", "a__b", "n" * 60])
async def test_a_server_with_an_odd_name_keeps_its_tools_over_a_restart(
    name: str, tmp_path: Path
) -> None:
    async with world(tmp_path) as here:
        server = files()
        agent = here.agent(mcp_servers=[ServerSpec(name=name, server=server)])
        async with agent.open("s", store=here.url) as session:
            await session.tools.enable(name)
            await session.run("hello")
            before = list(session.registry.snapshot().entries)
        await server.drop()  # so that only the log can know them
        async with agent.open("s", store=here.url) as session:
            await session.run("hello again")
            assert list(session.registry.snapshot().entries) == before
        assert len(before) == 3
        await server.back()
        async with agent.open("s", store=here.url) as session:
            await session.run(f"/call {before[-1]} {{}}")
        (result,) = await here.results()
        assert not result.is_error
        await here.usable(agent)
