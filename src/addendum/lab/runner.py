"""Runs a scenario: the real agent over real HTTP, and what it sent judged.

    run = await run_scenario(find("g2"), "anthropic:claude-opus-5-5")
    run.report.totals.ceiling_share, run.violations

Without a base URL the lab answers, played by the scenario's script, with empty caches. With one
the endpoint answers, and the script is not used.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import UNSET, structs

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.cache.record import RequestRecord
from addendum.checked import checks_arguments
from addendum.errors import ConfigurationError, ProviderRefused
from addendum.lab.decisions import decisions, rules
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.lab.records import Said, record_of
from addendum.lab.report import Run, judged
from addendum.lab.repository import make_repository
from addendum.lab.scenario import (
    MAIN,
    AddTool,
    CannedFunction,
    Compact,
    Converse,
    Decide,
    Fork,
    MoveTo,
    Reach,
    Redefine,
    RemoveTool,
    Restart,
    Rewind,
    Say,
    Scenario,
    ScenarioServer,
    SetTexts,
    Step,
    Toggle,
)
from addendum.lab.server import Clock, Lab, Switches, open_lab
from addendum.log.session_log import SessionLog
from addendum.log.store import Store
from addendum.log.values import ToolSchema
from addendum.routes import Route, TailChoice, ToolChanges, resolve
from addendum.stores import open_store
from addendum.tools.functions import FunctionTool
from addendum.tools.mcp.pool import Connection, ServerPool
from addendum.tools.mcp.values import ServerSpec, ServerState

SERVER_WAIT = 60.0
"""Seconds that a server may take to start, or to come back."""

SCRIPT_ERROR = "lab_script_error"
"""How the lab calls a request that its script has no answer for."""


@checks_arguments
async def run_scenario(
    scenario: Scenario,
    route: str | Route,
    *,
    tool_changes: ToolChanges = "auto",
    tail: TailChoice | None = None,
    base_url: str | None = None,
    store: str | Store | None = None,
    clock: Clock | None = None,
    switches: Switches | None = None,
) -> Run:
    """Run a scenario on a route and judge what was sent.

    Args:
        scenario: What happens.
        route: `provider:model`, with any `+FACT`; or a route that is resolved: then its own
            address answers in place of the lab.
        tool_changes: How tool changes are told.
        tail: Where a turn's instructions stand; as the scenario says if None.
        base_url: An endpoint that answers in place of the lab.
        store: Where the sessions are kept; if None in memory, or in a temporary SQLite file where
            the scenario restarts.
        clock: The time that caches go by; real time by default.
        switches: What the lab's providers do otherwise.

    Raises:
        ConfigurationError: The scenario cannot be run so.
        ProviderError: The endpoint refused or failed; or the lab's script has no answer.
    """
    failure: Exception | None = None
    result: Run | None = None
    async with AsyncExitStack() as stack:
        lab: Lab | None = None
        if base_url is None and isinstance(route, str):
            opened = open_lab(scenario.script(), clock=clock, switches=switches)
            lab = await stack.enter_async_context(opened)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="addendum-")))
        if store is None:
            store = f"sqlite:///{folder / 'sessions.db'}" if scenario.restarts else "memory://"
        if store == "memory://":
            store = await open_store(store)
        pool = ServerPool()
        stack.push_async_callback(pool.aclose)
        now = (lab.clock if lab is not None else clock or Clock()).now
        scenario = scenario if tail is None else structs.replace(scenario, tail=tail)
        driver = _Driver(scenario, route, tool_changes, lab, base_url, store, pool, now)
        async with anyio.create_task_group() as tasks:
            try:
                await driver.play(folder, tasks)
                result = judged(
                    scenario.name,
                    driver.start,
                    tool_changes,
                    driver.records,
                    driver.logs(),
                    tuple(lab.captures) if lab is not None else (),
                    driver.routes,
                )
            except Exception as error:
                # Kept, so that it leaves as it is and not in the task group's own group.
                failure = error
            await driver.close()
    if failure is not None:
        raise failure
    assert result is not None
    return result


class _Conversation:
    """One session that a scenario talks to, and what was set in it.

    A session has a task group, which has to end in the task that began it. So each lives in a
    task of its own, and several may be open at once.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.id = session.id
        self.session = session
        self.closing = anyio.Event()
        self.closed = anyio.Event()
        self.route: Route | None = None
        self.texts = SetTexts()
        self.functions: dict[str, CannedFunction] = {}
        self.seen = 0


class _Driver:
    """Plays one scenario."""

    def __init__(
        self,
        scenario: Scenario,
        route: str | Route,
        tool_changes: ToolChanges,
        lab: Lab | None,
        base_url: str | None,
        store: str | Store,
        pool: ServerPool,
        clock: Callable[[], float],
    ) -> None:
        self.scenario = scenario
        self.records: list[RequestRecord] = []
        self.routes: dict[str, Route] = {}
        self._lab = lab
        self._base_url = base_url
        self._store = store
        self._pool = pool
        self._clock = clock
        self._tool_changes: ToolChanges = tool_changes
        self._given = (route if isinstance(route, str) else route.name).partition(":")[0]
        self.start = self._route(route)
        self._moves = {
            step.route: self._route(step.route)
            for step in scenario.steps
            if isinstance(step, MoveTo)
        }
        self._canned: dict[str, CannedServer] = {}
        self._specs: dict[str, ServerSpec] = {}
        self._conversations: dict[str, _Conversation] = {}
        self._order: list[_Conversation] = []
        self._revisions: dict[str, int] = {}
        self._run = secrets.token_hex(3)
        self._failed = False

    def _route(self, name: str | Route) -> Route:
        if isinstance(name, Route):
            self.routes[name.name] = name
            return name
        provider = name.partition(":")[0]
        if self._lab is not None:
            # An unknown provider is told of as such, not as one that the lab lacks.
            resolve(name, base_url="http://127.0.0.1")
            address = self._lab.base_url(provider)
        elif provider != self._given:
            raise ConfigurationError(
                f"the scenario goes on to {name}, but --base-url is the address of {self._given};"
                " run it in the lab"
            )
        else:
            address = self._base_url
        route = resolve(name, base_url=address)
        self.routes[route.name] = route
        return route

    # -- the run ----------------------------------------------------------------------------

    async def play(self, folder: Path, tasks: TaskGroup) -> None:
        """Play all steps.

        Args:
            folder: For what the run needs for itself.
            tasks: Where the sessions live.
        """
        self._tasks = tasks
        await self._servers(folder)
        agent = self._agent()
        current = await self._open(agent, MAIN)
        for step in self.scenario.steps:
            current = await self._step(agent, current, step)
            if self._failed:
                break

    def logs(self) -> tuple[SessionLog, ...]:
        """Return the sessions' logs, in the order in which they were first used."""
        return tuple(each.session.log for each in self._order)

    async def close(self) -> None:
        """Close every session."""
        for conversation in reversed(self._order):
            conversation.closing.set()
            await conversation.closed.wait()

    async def _servers(self, folder: Path) -> None:
        for server in self.scenario.servers:
            cwd: str | None = None
            if server.repository:
                cwd = str(await make_repository(folder / server.name))
            if server.canned:
                self._canned[server.name] = in_process(
                    server.name, [_canned(tool) for tool in server.tools], server.instructions
                )
            self._specs[server.name] = _spec(server, self._canned.get(server.name), cwd)

    def _agent(self) -> Agent:
        scenario = self.scenario
        return Agent(
            self.start,
            instructions=scenario.instructions,
            conversation_instructions=scenario.conversation_instructions,
            turn_instructions=scenario.turn_instructions,
            tools=[self._function(tool) for tool in scenario.tools],
            mcp_servers=tuple(self._specs.values()),
            tool_changes=self._tool_changes,
            disabled=[tool.name for tool in scenario.tools if tool.disabled],
            approval=rules(scenario.asked),
            tail=scenario.tail,
            limits=Limits(server_wait=SERVER_WAIT),
            record=True,
            pool=self._pool,
            clock=self._clock,
        )

    # -- sessions ---------------------------------------------------------------------------

    async def _open(self, agent: Agent, name: str) -> _Conversation:
        suffix = "" if name == MAIN else f"-{name}"
        session_id = f"{self.scenario.name}-{self._run}{suffix}"
        return await self._begin(name, agent.open(session_id, store=self._store))

    async def _begin(
        self, name: str, opening: AbstractAsyncContextManager[Session]
    ) -> _Conversation:
        conversation: _Conversation = await self._tasks.start(self._live, name, opening)
        self._conversations[name] = conversation
        self._order.append(conversation)
        return conversation

    async def _live(
        self,
        name: str,
        opening: AbstractAsyncContextManager[Session],
        *,
        task_status: TaskStatus[_Conversation],
    ) -> None:
        async with opening as session:
            conversation = _Conversation(name, session)
            task_status.started(conversation)
            await conversation.closing.wait()
        conversation.closed.set()

    async def _restart(self, agent: Agent, old: _Conversation) -> _Conversation:
        old.closing.set()
        await old.closed.wait()
        self._order.remove(old)
        new = await self._begin(old.name, agent.open(old.id, store=self._store))
        new.texts, new.functions = old.texts, old.functions
        self._set(new, old.texts)
        if old.route is not None:
            self._move(new, old.route)
        for tool in old.functions.values():
            # A program that is started again adds its tools again.
            await new.session.tools.add(self._function(tool))
        return new

    # -- steps ------------------------------------------------------------------------------

    async def _step(self, agent: Agent, now: _Conversation, step: Step) -> _Conversation:
        session = now.session
        match step:
            case Say():
                await self._say(now, step)
            case Toggle():
                await self._toggle(session, step)
            case AddTool():
                await session.tools.add(self._function(step.tool))
                now.functions[step.tool.name] = step.tool
            case RemoveTool():
                await session.tools.remove(step.name)
                now.functions.pop(step.name, None)
            case Redefine():
                await self._redefine(now, step)
            case Reach():
                await self._reach(step)
            case SetTexts():
                self._set(now, step)
            case Compact():
                said = Said(session)
                try:
                    await session.compact()
                finally:
                    self._collect(now, said)
            case Rewind():
                await session.rewind(step.turns)
            case Fork():
                child = await self._begin(step.name, session.fork(f"{now.id}-{step.name}"))
                child.route, child.texts = now.route, now.texts
                child.functions = dict(now.functions)
                self._set(child, now.texts)
                return child
            case Restart():
                return await self._restart(agent, now)
            case MoveTo():
                self._move(now, self._moves[step.route])
            case Decide():
                await self._decide(now, step)
            case Converse():
                there = self._conversations.get(step.name)
                return there if there is not None else await self._open(agent, step.name)
        return now

    async def _say(self, now: _Conversation, step: Say) -> None:
        if waiting := now.session.pending():
            raise ConfigurationError(
                f"a call of {waiting[0].name} waits for a decision; put a `decide` step in front of"
                f" the user text {step.user[:60]!r}"
            )
        await self._turn(now, lambda: now.session.run(step.user))

    async def _decide(self, now: _Conversation, step: Decide) -> None:
        """Decide the calls that wait; of a model without a script, there may be none."""
        waiting = now.session.pending()
        if not waiting and self._lab is None:
            return
        decided = decisions(step, waiting, scripted=self._lab is not None)
        await self._turn(now, lambda: now.session.decide(decided))

    async def _turn(self, now: _Conversation, work: Callable[[], Awaitable[object]]) -> None:
        for name in self._specs:
            self._revisions[name] = (await self._connection(name)).state.revision
        try:
            await work()
        except ProviderRefused as error:
            # The strict lab refuses a request of ours: that is a finding, and the run ends.
            if self._lab is None or error.code == SCRIPT_ERROR:
                raise
            self._failed = True
        finally:
            self._collect(now, Said(now.session))

    def _collect(self, now: _Conversation, said: Said) -> None:
        session = now.session
        for sent in session.sent[now.seen :]:
            self.records.append(record_of(session, sent, len(self.records) + 1, said))
        now.seen = len(session.sent)

    async def _toggle(self, session: Session, step: Toggle) -> None:
        if not step.on:
            await session.tools.disable(step.server)
            return
        await session.tools.enable(step.server)
        connection = await self._connection(step.server)
        state = await connection.ready(SERVER_WAIT)
        if state.status != "ready" and step.server not in self._canned:
            why = state.error or f"it did not answer within {SERVER_WAIT:g} s"
            raise ConfigurationError(f"server {step.server} cannot be used: {why}")

    async def _redefine(self, now: _Conversation, step: Redefine) -> None:
        if step.server is None:
            await now.session.tools.add(self._function(step.tool))
            now.functions[step.tool.name] = step.tool
            return
        connection = await self._connection(step.server)
        before = connection.state
        await self._canned[step.server].add(_canned(step.tool))
        if before.status == "ready":
            await self._until(connection, lambda state: state.revision > before.revision)

    async def _reach(self, step: Reach) -> None:
        connection = await self._connection(step.server)
        server = self._canned[step.server]
        known = connection.state.revision > 0
        await (server.back() if step.up else server.drop())
        if known:
            await self._until(connection, lambda state: (state.status == "ready") == step.up)

    def _set(self, now: _Conversation, step: SetTexts) -> None:
        session = now.session
        if step.instructions is not UNSET:
            session.instructions = step.instructions
        if step.conversation_instructions is not UNSET:
            session.conversation_instructions = step.conversation_instructions
        if step.turn_instructions is not UNSET:
            session.turn_instructions = step.turn_instructions
        given = {name: value for name, value in structs.asdict(step).items() if value is not UNSET}
        now.texts = structs.replace(now.texts, **given)

    def _move(self, now: _Conversation, route: Route) -> None:
        now.session.use(route)
        now.route = route

    # -- servers and tools ------------------------------------------------------------------

    async def _connection(self, name: str) -> Connection:
        """Return the connection that the sessions share; looking at it does not dial."""
        connection = await self._pool.acquire(self._specs[name])
        await self._pool.release(connection)
        return connection

    async def _until(self, connection: Connection, holds: Callable[[ServerState], bool]) -> None:
        state = await connection.until(holds, SERVER_WAIT)
        if not holds(state):
            raise ConfigurationError(
                f"server {connection.spec.name} did not change within {SERVER_WAIT:g} s: "
                f"{state.error or state.status}"
            )

    def _function(self, tool: CannedFunction) -> FunctionTool[..., Any]:
        async def answer(arguments: dict[str, object]) -> str:
            if tool.waits_for is not None:
                before = self._revisions[tool.waits_for]
                connection = await self._connection(tool.waits_for)
                await self._until(connection, lambda state: state.revision > before)
            return tool.result

        flag = True if tool.defer_loading else None
        schema = ToolSchema(tool.name, tool.description, tool.parameters, flag)
        return FunctionTool.from_schema(schema, answer)


def _canned(tool: CannedFunction) -> CannedTool:
    schema = encoding.decode(bytes(tool.parameters))
    return CannedTool(tool.name, tool.description, schema, tool.result)


def _spec(server: ScenarioServer, canned: CannedServer | None, cwd: str | None) -> ServerSpec:
    command = server.command
    if command and command[0] == "python":
        command = (sys.executable, *command[1:])
    return ServerSpec(
        name=server.name,
        command=command,
        url=server.url,
        server=canned,
        cwd=cwd,
        on=server.start,
    )
