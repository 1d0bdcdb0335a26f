"""Plays a history with rules, hooks and servers that change what they say, once as one open session
and once opened again before every move; and tells what was decided in each.

The decisions of a session follow from its log, its agent and what its servers list. So both must
tell the same: verdicts and their reasons, what waits, hints, notices, early starts, what a switch
costs, and the bytes of every request.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec
from tests.property.driver import OWN, Driver, Home, Move, function, schema

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Approval, Decision, OnRedefinition, Policy
from addendum.agent.calls.hooks import AddContext, Ask, Change, Deny, Hook
from addendum.agent.session import Session, runtime_of
from addendum.agent.subagents import subagent
from addendum.errors import AddendumError
from addendum.lab.exchange import Switches
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Clock, Lab
from addendum.log.approvals import ApprovalAsked, ApprovalDecided, ToolRedefined
from addendum.log.events import CacheBreak, Event, RequestContext, ToolCall, ToolPolicy, ToolResult
from addendum.log.known import ServerAway, ToolsKnown
from addendum.log.session_log import SessionLog
from addendum.log.subagents import SubagentStarted
from addendum.tools.functions import FunctionTool
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import RemoteTool, ServerSpec

HINTS: dict[str, dict[str, Any] | None] = {
    "harmless": {"readOnlyHint": True},
    "mild": {"readOnlyHint": False, "destructiveHint": False},
    "unsaid": None,
}
"""What the server may say of its tools, by a word for it."""

RULES: dict[str, Approval] = {
    "by hints": Approval(
        (
            Policy("deny", when=lambda given: given.get("q") == "bad"),
            Policy("allow", read_only=True),
            Policy("allow", server="disk", destructive=False),
            Policy("ask", server="disk"),
        ),
        default="allow",
    ),
    "strict": Approval((Policy("allow", read_only=True),), default="deny"),
    "asking": Approval((Policy("allow", "web_*"),)),
    "approving": Approval(
        (Policy("deny", "disk__safe"),),
        decide=lambda waiting: {each.call_id: "approve" for each in waiting},
    ),
    "lax": Approval(default="allow"),
}

HOOKS: dict[str, tuple[Hook, ...]] = {
    "none": (),
    "denies": (Hook("disk__look", before=lambda _: Deny("not by this hook")),),
    "asks": (Hook("*", before=lambda call: Ask(f"what of {call.name}?")),),
    "changes": (
        Hook("disk__*", before=lambda call: Change({**call.arguments, "q": "changed"})),
        Hook("disk__wipe", before=lambda _: AddContext("a hook says so")),
    ),
    "fails": (Hook(OWN, before=lambda _: 1 / 0),),  # type: ignore[arg-type]
}

DECISIONS: dict[str, Decision | str] = {
    "approve": "approve",
    "always": Decision("approve", always=True),
    "deny": Decision("deny", text="not now"),
    "edit": Decision("edit", {"q": "edited"}),
    "bad edit": Decision("edit", {"q": "bad"}),
    "respond": Decision("respond", text="do it yourself"),
}

CALLS: dict[str, tuple[ScriptCall, ...]] = {
    "look": (ScriptCall("disk__look", {"q": "a"}),),
    "wipe": (ScriptCall("disk__wipe", {"q": "a"}),),
    "safe": (ScriptCall("disk__safe", {}),),
    "bad": (ScriptCall("disk__wipe", {"q": "bad"}), ScriptCall("disk__look", {"q": 7})),
    "all": tuple(ScriptCall(f"disk__{name}", {"q": "a"}) for name in ("look", "wipe", "safe")),
    "own": (ScriptCall(OWN, {}), ScriptCall("peek", {})),
    "late": (ScriptCall("alpha", {}), ScriptCall("beta", {})),
    "files": (ScriptCall("files__read", {"q": "a"}),),
}


class Deciding(Driver):
    """Plays one history.

    Args:
        home: Where.
        lab: The lab.
        clock: Its clock.
        action: What happens when a tool is defined anew.
        again: Whether the session is opened again before every move.
    """

    def __init__(
        self, home: Home, lab: Lab, clock: Clock, action: OnRedefinition, *, again: bool
    ) -> None:
        self.action: OnRedefinition = action
        self.again = again
        self.said = {"look": "harmless", "wipe": "unsaid", "safe": "mild"}
        self.text = dict.fromkeys(self.said, 0)
        self.disk: CannedServer = in_process("disk", [self._canned(name) for name in self.said])
        self.stale = False
        self.wanted: set[str] = set()
        self.told: list[Any] = []
        super().__init__(home, lab, clock)

    def functions(self) -> list[FunctionTool[..., Any]]:
        inner = Agent(
            self._route(self.home.route),
            tools=[function("inner"), function("kept_out")],
            transport=self.transport,
            clock=self._now,
            approval=Approval((Policy("allow", "inner"),)),
        )
        peek = msgspec.structs.replace(function("peek"), read_only=True)
        return [peek, subagent(inner, name="helper", exclude=["kept_*"])]

    def servers(self) -> list[ServerSpec]:
        return [ServerSpec(name="disk", server=self.disk, on=True)]

    def more(self) -> dict[str, Any]:
        return {
            "approval": RULES["by hints"],
            "on_redefinition": self.action,
            "early_start": True,
        }

    def _canned(self, name: str) -> CannedTool:
        text = f"The tool {name}, version {self.text[name]}. "
        return CannedTool(name, text * 4, schema(0), "ok", annotations=HINTS[self.said[name]])

    # -- playing ----------------------------------------------------------------------------

    async def decide(self, history: Sequence[Move]) -> list[Any]:
        """Play a history; return all that was decided, in order."""
        rest, meanwhile = list(history), list[Move]()
        async with contextlib.AsyncExitStack() as opened:
            session = await self._open(opened)
            while rest or session.pending():
                if self.again:
                    await opened.aclose()
                    session = await self._open(opened)
                if session.pending():
                    self.told.append([msgspec.structs.astuple(each) for each in session.pending()])
                    move = meanwhile.pop(0)
                else:
                    move = rest.pop(0)
                if move[0] == "turn":
                    # What a person decides at last, in front of it what happens while they think.
                    meanwhile = [*move[2], *(("decide", "deny") for _ in range(20))]
                if move[0] == "fork":
                    self.forks += 1
                    self.session = f"child-{self.forks}"
                    session = await opened.enter_async_context(session.fork(self.session))
                else:
                    await self._move(session, move)
                await self._account(session, move)
            self.told.append(_verdicts(session.log))
            self.told.append(await self._children(session))
        return [each for each in self.told if each]

    async def _open(self, opened: contextlib.AsyncExitStack) -> Session:
        """Open the session as another process would."""
        pool = ServerPool(idle_seconds=0)
        opened.push_async_callback(pool.aclose)
        self.agent.setup.pool = pool
        session = await opened.enter_async_context(self.agent.open(self.session, store=self.store))
        self._restore(session)
        # What a log cannot hold is the application's to give again.
        for name in sorted(self.active):
            session.registry.add(function(name, self.version[name]))
        if self.version[OWN]:
            session.registry.add(function(OWN, self.version[OWN]))
        if "rehead" in self.wanted:
            session.rehead()
        if "series" in self.wanted:
            session.start_series()
        return session

    async def _move(self, session: Session, move: Move) -> None:
        kind = move[0]
        if kind in ("rehead", "series"):
            self.wanted.add(kind)
        try:
            await getattr(self, f"_do_{kind}")(session, *move[1:])
        except AddendumError as error:
            self.told.append((kind, str(error)))

    async def _do_turn(self, session: Session, rounds: Sequence[str], _: object) -> None:
        self.turns += 1
        text = f"user text {self.turns}"
        entries = [
            Entry(thinking=f"thinking {self.turns}.{place}", calls=calls)
            for place, what in enumerate(rounds)
            if (calls := self._calls(what))
        ]
        entries.append(Entry(text=f"answer {self.turns}", thinking="done"))
        task = ScriptStep(
            f"task {self.turns}",
            (
                Entry(calls=(ScriptCall("inner", {}), ScriptCall("kept_out", {}))),
                Entry(text="helped"),
            ),
        )
        self.lab.script = Script((ScriptStep(text, tuple(entries)), task))
        await self._ran(session, session.run(text))

    def _calls(self, what: str) -> tuple[ScriptCall, ...]:
        if what == "helper":
            return (ScriptCall("helper", {"task": f"task {self.turns}"}),)
        return CALLS[what] if what in CALLS else super()._calls(what)

    async def _do_decide(self, session: Session, how: str) -> None:
        decision = DECISIONS[how]
        await self._ran(
            session, session.decide({each.call_id: decision for each in session.pending()})
        )

    async def _do_retry(self, session: Session) -> None:
        await self._ran(session, session.retry())

    async def _ran(self, session: Session, turn: Any) -> None:
        try:
            await self._hear(session)
            result = await turn
        finally:
            turn.close()
            self.wanted.clear()
            if self.away:
                self.went_away = True
        self.told.append(("ran", result.text, result.notices, len(result.waiting)))

    async def _hear(self, session: Session) -> None:
        """See that the session has heard what a server lists: else it is a matter of time."""
        if self.stale and session.tools.on("disk"):
            connection = await session.registry.connection("disk")
            await connection.ready(5)
            wanted = _listed([self._canned(name) for name in self.said])
            await connection.until(lambda state: _listed(state.tools) == wanted, 5)
            assert _listed(connection.state.tools) == wanted
            self.stale = False

    # -- moves ------------------------------------------------------------------------------

    async def _do_say(self, session: Session, name: str, what: str) -> None:
        """The server says something else of a tool."""
        self.said[name] = what
        await self._relist(name)

    async def _do_reword(self, session: Session, name: str) -> None:
        """The server defines a tool anew."""
        self.text[name] += 1
        await self._relist(name)

    async def _relist(self, name: str) -> None:
        self.stale = True
        await self.disk.add(self._canned(name))

    async def _do_disk(self, session: Session, on: bool) -> None:
        await (session.tools.enable if on else session.tools.disable)("disk")

    async def _do_drop(self, session: Session) -> None:
        # What one process heard and no log has, no other can know once the server is down.
        if not session.tools.on("files") or "files__read" in session.log.state.known:
            await super()._do_drop(session)

    async def _do_rules(self, session: Session, name: str) -> None:
        self.agent.setup.approval = RULES[name]

    async def _do_hooks(self, session: Session, name: str) -> None:
        self.agent.setup.hooks = HOOKS[name]

    async def _do_weaken(self, session: Session) -> None:
        self.lab.switches = Switches(claude_tool_changes="none", deepseek_tool_changes=False)

    # -- telling ----------------------------------------------------------------------------

    async def _account(self, session: Session, move: Move) -> None:
        self.told += [(each.number, each.body) for each in session.sent]
        session.sent.clear()
        entries = session.registry.current().entries
        if move[0] in ("turn", "decide", "retry"):
            # In between, one that is opened again knows of its servers what the log says.
            self.told.append({name: entry.hints for name, entry in sorted(entries.items())})
            self.told.append({name: entry.server for name, entry in sorted(entries.items())})
        self.told.append(session.disabled)
        if session.log.asked is None and not self.stale:
            # As a chat does: what a server that was switched on offers is known once it has listed.
            await runtime_of(session).settle()
            try:
                self.told.append(session.switch_cost())
            except AddendumError as error:
                self.told.append(str(error))

    async def _children(self, session: Session) -> list[Any]:
        started = [e.data for e in session.log.events if isinstance(e.data, SubagentStarted)]
        logs = [
            SessionLog.load(each.session, await self.store.read(each.session)) for each in started
        ]
        return [_verdicts(log) for log in logs]


def _listed(tools: Sequence[CannedTool | RemoteTool]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for tool in tools:
        given = tool.annotations
        said = encoding.decode(bytes(given)) if isinstance(given, msgspec.Raw) else given
        found.append((tool.name, tool.description, str(sorted((said or {}).items()))))
    return sorted(found)


def _verdicts(log: SessionLog) -> list[Any]:
    return [found for event in log.events if (found := _verdict(event)) is not None]


def _verdict(event: Event) -> Any:
    """What an event says of a decision; nothing for others."""
    match event.data:
        case ToolCall(name=name, arguments=arguments, early=early):
            return "called", name, arguments, early
        case ToolResult(name=name, text=text, code=code):
            return "result", name, text, code
        case ApprovalAsked() | ApprovalDecided() | ToolRedefined() | ToolPolicy():
            return encoding.encode(event.data)
        case ToolsKnown() | ServerAway():
            return encoding.encode(event.data)
        case CacheBreak(reason=reason, at=at):
            return "break", reason, at
        case RequestContext():
            return encoding.encode(event.data)
        case _:
            return None


Play = Callable[[bool], Any]


@contextlib.asynccontextmanager
async def deciding(home: Home, action: OnRedefinition, *, again: bool) -> AsyncGenerator[Deciding]:
    """A lab, and a driver in it."""
    clock = Clock(1_800_000_000.0)
    lab = Lab(None, clock=clock)
    lab.url = "http://127.0.0.1:9"
    driver = Deciding(home, lab, clock, action, again=again)
    try:
        yield driver
    finally:
        await driver.pool.aclose()
        await driver.client.aclose()
