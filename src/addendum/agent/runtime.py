"""What a session works with while it is open: its log, its state, its tools, and ways out."""

from __future__ import annotations

from typing import Any

from anyio.abc import TaskGroup

from addendum.agent.calls.redefinition import Redefinitions
from addendum.agent.calls.unknown_names import UnknownNames
from addendum.agent.context.downgrades import Downgrades
from addendum.agent.context.left_out import LeftOut
from addendum.agent.context.requests import Requests, Sent
from addendum.agent.setup import AgentSetup
from addendum.agent.state import State
from addendum.agent.using import Using
from addendum.log.events import RequestContext
from addendum.log.reading import change_of
from addendum.log.session_log import SessionLog
from addendum.log.store import Lease, Store
from addendum.log.values import Config, ToolSchema
from addendum.prompt.updates import bound_tools
from addendum.routes import Route
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.registry import Registry, Snapshot
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.wire.apis import facts
from addendum.wire.transport import Carrier


class Runtime:
    """One open session, for whatever drives it.

    Args:
        setup: What its agent is set up with.
        log: Its log.
        registry: Its tools.
        transport: Carries its requests.
        store: Where it is kept.
        lease: The right to append to it.
        tasks: Where work runs that outlives a call.

    Attributes:
        id: Its id.
        state: What follows from its log.
        route: Where the next request goes.
        instructions: Text that is the same in every conversation.
        conversation_instructions: Text of this conversation.
        turn_instructions: Text for the next turns.
        shared: Free for tools, through `ToolContext.state`.
        captured: Requests as they left, if the agent records them.
        requests: Prepares them.
        redefinitions: Tells of tools that are defined anew.
        left_out: Tells of tools that lose something.
        unknown_names: Tells of names that no tool has.
        downgrades: What endpoints refused in other sessions.
        using: Lets one turn in at a time.
        head: The agent's own tools, for a first header.
        first: Whether no request was made since the session was opened.
        series: Whether a series was asked for.
        new_head: Whether a new head was asked for.
        above: The session whose call opened this one, while that runs.
        host: What tools are given as the session that they run in.
    """

    unknown_names: UnknownNames

    def __init__(
        self,
        setup: AgentSetup,
        log: SessionLog,
        registry: Registry,
        transport: Carrier,
        store: Store,
        lease: Lease,
        tasks: TaskGroup,
    ) -> None:
        self.id = log.session
        self.setup = setup
        self.log = log
        self.registry = registry
        self.transport = transport
        self.store = store
        self.tasks = tasks
        self._lease = lease
        self.state = State(log)
        self.route: Route = setup.route
        self.instructions = setup.instructions
        self.conversation_instructions = setup.conversation_instructions
        self.turn_instructions = setup.turn_instructions
        self.shared: dict[str, Any] = {}
        self.captured: list[Sent] = []
        self.requests = Requests(log, self.state, clock=setup.clock, firsts=setup.firsts)
        self.redefinitions = Redefinitions(setup.on_redefinition, registry, self.state.definitions)
        self.left_out = LeftOut(log, registry, self.state)
        self.downgrades = Downgrades(store, setup.clock)
        self.using = Using(log, tasks)
        self.head: tuple[ToolSchema, ...] = ()
        self.first = True
        self.series = False
        self.new_head = False
        self.above: Runtime | None = None
        self.host: object = None
        self._change = change_of(log)

    async def flush(self) -> None:
        """Make every event so far durable."""
        await self.log.flush(self.store, self._lease)

    def use(self, route: str | Route) -> None:
        """Go on with another route from the next request on."""
        chosen = self.setup.resolve(route)
        self.setup.check(chosen)
        self.route = chosen

    def change(self) -> str | None:
        """Return, once, what a person is told of a log that was changed in its store."""
        line, self._change = self._change, None
        return line

    def idle(self) -> float | None:
        """Return the seconds since the last answered request on the route; None if none."""
        return self.state.sent.idle(self.route.name, self.setup.clock())

    def config(self) -> Config:
        """Return the settings of the coming request."""
        settings = self.setup.settings
        return Config(
            self.route.provider,
            self.route.model,
            settings.effort,
            settings.temperature,
            settings.max_tokens or self.route.max_tokens,
            settings.stop,
        )

    @property
    def surprised(self) -> bool:
        """Whether tools were added by hand where the configuration could not expect it."""
        return not self.setup.can_change and self.log.state.switched_on

    @property
    def disabled(self) -> tuple[str, ...]:
        """Names that stay bound and are refused: here, or in the session that opened this one."""
        if self.above is None:
            return self.log.disabled
        return tuple(sorted({*self.log.disabled, *self.above.disabled}))

    async def settle(self) -> Snapshot:
        """Return the tools of the coming step; calls are made against it until the next."""
        return await self.registry.settle(self.setup.limits.server_wait)

    def bound_tools(self, snapshot: Snapshot, context: RequestContext) -> frozenset[str]:
        """Return the names that are bound on dispatch, and still mean what was bound.

        Args:
            snapshot: The tools of the step.
            context: What its requests are rendered with.
        """
        return frozenset(
            tool.name
            for tool in bound_tools(self.state.history.head, context, facts(self.route))
            if tool.name != TOOL_DISPATCHER_NAME
            and (
                tool.name not in snapshot.entries
                or snapshot.entries[tool.name].schema.identity() == tool.identity()
            )
        ) | {TOOL_SEARCH_NAME}

    def is_deferred(self, tool: ToolSchema) -> bool:
        """Say whether an active tool is deferred, so that `can_dispatch` is asked about it.

        All are, but the immediate tools of the session's first header, as they were defined then:
        on every route, and under a new head too.
        """
        own = self.state.history.first.get(tool.name)
        return own is None or bool(own.defer_loading) or own.identity() != tool.identity()
