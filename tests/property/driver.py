"""Drives real sessions through random histories, against the lab's providers in this process.

A history is a list of moves. The driver keeps a model of its own of what must be callable, knows
which reasons of a break each move can cause on which kind of route (`reference`), and hands back
everything that was sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
from msgspec import Raw

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.context.requests import Sent
from addendum.agent.session import Session
from addendum.agent.setup import Limits, Settings
from addendum.errors import AddendumError
from addendum.lab.exchange import Switches
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Clock, Lab
from addendum.log.events import Event, ToolResult
from addendum.log.values import ToolSchema
from addendum.routes import resolve
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.transport import Transport, TransportSettings

Move = tuple[Any, ...]


@dataclass
class Home:
    """Where a history is played."""

    name: str
    route: str
    away: str
    tool_changes: str = "auto"
    tail: str = "auto"
    empty: bool = False
    effort: bool = False
    labels: bool = False


@dataclass
class Played:
    """What came of a history."""

    home: Home
    sent: list[Sent]
    events: Sequence[Event]
    causes: dict[int, list[str]]
    callable: dict[int, set[str]]
    stats: set[str]
    lab: Lab


WIDE = tuple(f"tool{number:02}" for number in range(20))
FILES = {"files__read", "files__list", *(f"files__{name}" for name in WIDE)}
NAMES = ("alpha", "beta", "gamma", "delta")
OWN = "calc"
"""A tool of the agent's own: bound in the head, and redefined in the midst of it."""

HIDDEN = "hidden"
"""A deferred tool of the agent's own, which only a search shows."""

MARKED = (
    "settings",
    "rehead",
    "blank",
    "revert",
    "fail_compact",
    "weaken",
    "find",
    "fork",
    "retry",
)
"""Moves that are counted by themselves."""


def schema(version: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"q{version}" if version else "q": {"type": "string"}},
    }


def function(name: str, version: int = 0, *, deferred: bool = False) -> FunctionTool[..., Any]:
    async def run(arguments: dict[str, Any]) -> str:
        return f"{name} {version} says {sorted(arguments)}"

    return FunctionTool.from_schema(
        ToolSchema(
            name,
            f"Tool {name}, version {version}. " + "More about it. " * 4,
            Raw(encoding.encode(schema(version))),
            True if deferred else None,
        ),
        run,
    )


class Driver:
    """Plays one history."""

    def __init__(self, home: Home, lab: Lab, clock: Clock) -> None:
        self.home, self.lab, self.clock = home, lab, clock
        self.store = MemoryStore()
        self.server: CannedServer = in_process(
            "files",
            [
                CannedTool("read", "Read a file. " * 5, schema(0), "contents " * 20),
                CannedTool("list", "List files. " * 5, schema(0), "a b c " * 20),
                # So many that one switch is wider than a provider looks back.
                *(CannedTool(name, "More.", schema(0), "ok") for name in WIDE),
            ],
            instructions="Paths are relative.",
        )
        self.pool = ServerPool(idle_seconds=0.05)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=lab.app))
        self.transport = Transport(TransportSettings(retries=0), client=self.client)
        self.sent: list[Sent] = []
        self.causes: dict[int, list[str]] = {}
        self.callable: dict[int, set[str]] = {}
        self.moves: list[str] = []
        self.stats: set[str] = set()
        self.turns = self.forks = 0
        self.session = "s"
        # The driver's own account of what is active.
        self.version = dict.fromkeys((*NAMES, OWN), 0)
        self.active: set[str] = set()
        self.flagged: set[str] = set()
        self.removed_once: set[str] = set()
        self.refused: set[str] = set()
        self.server_on = False
        self.found = False
        self.away = False
        self.went_away = False
        self.updated = False
        self.weaker = False
        # -1 is an empty text: an empty home begins without any.
        self.newest = -1 if home.empty else 0
        self.prompt = [self.newest, self.newest]
        self.tail: str | None = None
        tools = (
            []
            if home.empty
            else [function("web_search"), function(HIDDEN, deferred=True), function("calc")]
        ) + self.functions()
        self.agent = Agent(
            self._route(home.route),
            instructions=self._text("static", self.prompt[0]),
            conversation_instructions=self._text("conversation", self.prompt[1]),
            tools=tools,
            mcp_servers=[ServerSpec(name="files", server=self.server), *self.servers()],
            tool_changes=home.tool_changes,  # type: ignore[arg-type]
            tail=home.tail,  # type: ignore[arg-type]
            output_references=home.labels,
            limits=Limits(steps=12, server_wait=5.0),
            record=True,
            transport=self.transport,
            pool=self.pool,
            clock=self._now,
            **self.more(),
        )
        self.own = {"tool_search"} if home.empty else {"web_search", "calc"}

    def functions(self) -> list[FunctionTool[..., Any]]:
        """What other functions there are."""
        return []

    def servers(self) -> list[ServerSpec]:
        """What other servers there are."""
        return []

    def more(self) -> dict[str, Any]:
        """What else the agent is made with."""
        return {}

    def _now(self) -> float:
        # Every look costs a little, so that times differ and order shows.
        self.clock.advance(0.001)
        return self.clock.now()

    def _route(self, name: str) -> Any:
        return resolve(name, base_url=self.lab.base_url(name.split(":")[0]), environ={})

    @staticmethod
    def _text(kind: str, version: int) -> str:
        return f"The {kind} instructions, version {version}. " * 90 if version >= 0 else ""

    async def play(self, history: Sequence[Move]) -> Played:
        rest = list(history)
        try:
            while True:
                async with contextlib.AsyncExitStack() as opened:
                    session = await opened.enter_async_context(
                        self.agent.open(self.session, store=self.store)
                    )
                    self._restore(session)
                    before = len(self.sent)
                    while rest:
                        move = rest.pop(0)
                        if move[0] == "restart":
                            break
                        if move[0] == "fork":
                            # Its parent stays open behind it; all goes on in the child.
                            self.forks += 1
                            self.session = f"child-{self.forks}"
                            session = await opened.enter_async_context(session.fork(self.session))
                            before = len(self.sent)
                            self._note("fork")
                            continue
                        await self._move(session, move)
                        self._collect(session, before)
                    else:
                        return Played(
                            self.home,
                            self.sent,
                            list(session.log.events),
                            self.causes,
                            self.callable,
                            self.stats,
                            self.lab,
                        )
                self.moves.append("restart")
                self.stats.add("restart")
                if self.version[OWN]:
                    # A function of the agent's own that was replaced is its own again.
                    self.version[OWN] = 0
                    self.moves.append("revert")
                if self.updated:
                    self.stats.add("restart after update")
        finally:
            await self.pool.aclose()
            await self.client.aclose()

    def _restore(self, session: Session) -> None:
        if self.away:
            session.use(self._route(self.home.away))
        session.instructions = self._text("static", self.prompt[0])
        session.conversation_instructions = self._text("conversation", self.prompt[1])
        session.turn_instructions = self.tail

    def _collect(self, session: Session, before: int) -> None:
        del self.sent[before:]
        self.sent.extend(session.sent)

    async def _move(self, session: Session, move: Move) -> None:
        kind = move[0]
        if kind == "turn":
            await self._turn(session, move[1])
            return
        with contextlib.suppress(AddendumError):
            await getattr(self, f"_do_{kind}")(session, *move[1:])
            self._note(kind)

    def _note(self, kind: str) -> None:
        self.moves.append(kind)
        if kind in MARKED:
            self.stats.add(kind)

    # -- moves ------------------------------------------------------------------------------

    async def _do_add(self, session: Session, name: str, deferred: bool = False) -> None:
        await session.tools.add(function(name, self.version[name], deferred=deferred))
        if name in self.removed_once and name not in self.active:
            self.stats.add("restore")
        self.active.add(name)
        self.updated = True

    async def _do_remove(self, session: Session, name: str) -> None:
        await session.tools.remove(name)
        self.active.discard(name)
        self.removed_once.add(name)

    async def _do_redefine(self, session: Session, name: str) -> None:
        self.version[name] += 1
        if name in self.active | self.own:
            await session.tools.add(function(name, self.version[name]))

    async def _do_revert(self, session: Session, name: str) -> None:
        self.version[name] = 0
        if name in self.active | self.own:
            await session.tools.add(function(name))

    async def _do_on(self, session: Session) -> None:
        # What is down when it is switched on joins whenever it comes back: not a fixed history.
        await self.server.back()
        await session.tools.enable("files")
        if "server" in self.removed_once:
            self.stats.add("restore")
        self.server_on = True
        self.updated = True

    async def _do_off(self, session: Session) -> None:
        if self.server_on:
            self.removed_once.add("server")
        await session.tools.disable("files")
        self.server_on = False

    async def _do_drop(self, session: Session) -> None:
        await self.server.drop()

    async def _do_back(self, session: Session) -> None:
        await self.server.back()

    async def _do_refuse(self, session: Session, name: str | None) -> None:
        names = [] if name is None else [name]
        await session.tools.refuse(*names)
        self.refused = set(names)

    async def _do_prompt(self, session: Session, part: int) -> None:
        self.newest += 1
        self.prompt[part] = self.newest
        self._restore(session)

    async def _do_blank(self, session: Session) -> None:
        self.prompt = [-1, -1]
        self._restore(session)

    async def _do_settings(self, session: Session) -> None:
        settings = self.agent.setup.settings
        if self.home.effort:
            effort = "low" if settings.effort == "high" else "high"
            self.agent.setup.settings = Settings(effort=effort)
        else:
            self.agent.setup.settings = Settings(max_tokens=(settings.max_tokens or 4_000) + 1)

    async def _do_tail(self, session: Session, text: str | None) -> None:
        self.tail = text
        session.turn_instructions = text

    async def _do_rewind(self, session: Session) -> None:
        await session.rewind()

    async def _do_retry(self, session: Session) -> None:
        # The script still has the answers to the newest text.
        self.moves.append("rewind")
        await self._run(session, session.retry())

    async def _do_compact(self, session: Session) -> None:
        self.lab.script = None
        await session.compact()

    async def _do_fail_compact(self, session: Session) -> None:
        self.lab.fail_next(session.route.provider, status=500)
        with contextlib.suppress(AddendumError):
            await session.compact()

    async def _do_rehead(self, session: Session) -> None:
        session.rehead()

    async def _do_find(self, session: Session) -> None:
        if not self.home.empty:
            await self._turn(session, ["find", "hidden"])

    async def _do_weaken(self, session: Session) -> None:
        # From here on the endpoints refuse what they took: the next change goes a rung down.
        once = self.lab.switches.claude_tool_changes == "by-value"
        self.lab.switches = Switches(
            claude_tool_changes="by-reference" if once else "none",
            deepseek_tool_changes=False,
            openai_additional_tools=False,
        )
        self.weaker = True

    async def _do_series(self, session: Session) -> None:
        session.start_series()

    async def _do_go(self, session: Session, away: bool) -> None:
        if self.away and not away and self.went_away:
            self.stats.add("route switch and back")
        self.away = away
        session.use(self._route(self.home.away if away else self.home.route))

    async def _do_wait(self, session: Session) -> None:
        self.clock.advance(90_000.0)

    async def _do_fail(self, session: Session) -> None:
        self.lab.fail_next(session.route.provider, status=500)

    # -- turns ------------------------------------------------------------------------------

    def offered(self) -> set[str]:
        names = self.own | self.active | ({HIDDEN} if self.found else set())
        return names | (FILES if self.server_on else set())

    def _calls(self, what: str) -> tuple[ScriptCall, ...]:
        offered = sorted(self.offered() - {"tool_search"})
        gone = sorted({*NAMES, "files__read"} - self.offered())
        match what:
            case "find":
                return (ScriptCall("tool_search", {"query": HIDDEN}),)
            case "hidden":
                return (ScriptCall(HIDDEN, {}),)
            case "one" if offered:
                return (ScriptCall(offered[len(offered) // 2], {}),)
            case "last" if offered:
                return (ScriptCall(offered[-1], {}),)
            case "gone" if gone:
                return (ScriptCall(gone[0], {}, "direct"),)
            case "direct" if offered:
                return (ScriptCall(offered[0], {}, "direct"),)
            case "many" if offered:
                return tuple(ScriptCall(offered[0], {"q": str(i)}) for i in range(24))
            case _:
                return ()

    async def _turn(self, session: Session, rounds: Sequence[str]) -> None:
        self.turns += 1
        text = f"user text {self.turns}"
        entries = [
            Entry(thinking=f"thinking {self.turns}.{place}", calls=calls)
            for place, what in enumerate(rounds)
            if (calls := self._calls(what))
        ]
        entries.append(Entry(text=f"answer {self.turns}", thinking="done"))
        self.lab.script = Script((ScriptStep(text, tuple(entries)),))
        await self._run(session, session.run(text), finds="find" in rounds)

    async def _run(self, session: Session, turn: Awaitable[Any], *, finds: bool = False) -> None:
        number = max((sent.number for sent in self.sent), default=0)
        with contextlib.suppress(AddendumError):
            await turn
        for sent in session.sent:
            if sent.number > number:
                if finds and sent.number > number + 1:
                    # The step behind the one that searched says what was found.
                    self.found = self.found or _found(session)
                self.causes[sent.number] = [*self.moves, *(["weaken"] if self.weaker else [])]
                self.callable[sent.number] = self.offered()
                self.moves = [] if sent.answered else [*self.moves, "failed"]
        if self.away:
            self.went_away = True


def _found(session: Session) -> bool:
    results = (event.data for event in session.log.events if isinstance(event.data, ToolResult))
    return any(each.name == "tool_search" and not each.is_error for each in results)


@contextlib.asynccontextmanager
async def playing(home: Home) -> AsyncGenerator[Driver]:
    clock = Clock(1_800_000_000.0)
    lab = Lab(None, clock=clock)
    lab.url = "http://127.0.0.1:9"
    yield Driver(home, lab, clock)
