"""One conversation: its log, its tools, and the turns that drive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from anyio.abc import TaskGroup

from addendum.agent.calls.approval import KINDS, Consent, Decisions, Kind, Pending, pending
from addendum.agent.calls.discovery import Found, binds_search, searched
from addendum.agent.calls.early import Early
from addendum.agent.calls.outputs import Outputs
from addendum.agent.calls.redefinition import Redefinitions
from addendum.agent.calls.tools import SessionTools, switched
from addendum.agent.calls.unknown_names import UnknownNames
from addendum.agent.context.compaction import compact
from addendum.agent.context.downgrades import Downgrades
from addendum.agent.context.epochs import coming
from addendum.agent.context.keeping import KeepAlive, keep, quote
from addendum.agent.context.left_out import LeftOut
from addendum.agent.context.lifetime import consolidates
from addendum.agent.context.requests import Requests, Sent
from addendum.agent.context.step import StepInput
from addendum.agent.context.switch_cost import SwitchCost, switch_cost
from addendum.agent.forking import fork
from addendum.agent.opening import Life, Opening
from addendum.agent.prompts import SessionPrompts
from addendum.agent.results import StreamEvent, TurnResult
from addendum.agent.rewinding import cut, last_said, newest, numbered
from addendum.agent.streaming import Listener, Nobody, TurnStream
from addendum.agent.turn import Turn
from addendum.agent.using import Using
from addendum.checked import AtLeastNone, Attribute, checks_arguments
from addendum.errors import ConfigurationError
from addendum.log.events import (
    RequestContext,
    RequestHeader,
    ServerInstructions,
    ToolPolicy,
    ToolResult,
)
from addendum.log.known import ToolsKnown
from addendum.log.reading import change_of
from addendum.log.session_log import SessionLog
from addendum.log.store import Lease, Store
from addendum.log.values import Config, ToolSchema, Usage
from addendum.prompt.updates import bound_tools
from addendum.routes import Route
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.functions import ToolContext
from addendum.tools.history import HistoryFold, ToolHistory
from addendum.tools.registry import Outcome, Registry, Snapshot
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.wire.apis import facts
from addendum.wire.transport import Carrier

if TYPE_CHECKING:
    from addendum.agent.agent import Agent


class Session:
    """A conversation that can be driven. Made by `Agent.open`.

    Attributes:
        id: Its id.
        agent: The agent.
        log: Its log; to be read, not to be appended to.
        tools: Switches.
        prompts: Prompts of MCP servers, to be sent as messages.
        life: What keeps it open.
        using: Lets one turn in at a time.
        downgrades: What endpoints refused in other sessions.
        instructions: Static text; the agent's unless set.
        conversation_instructions: Text of this conversation; the agent's unless set.
        turn_instructions: Text for the next turns; the agent's unless set.
        state: Free for tools, through `ToolContext.state`.
        sent: Requests as they left, if the agent records them.
        above: The session whose call opened this one, while that runs.
    """

    instructions = Attribute[str](str)
    conversation_instructions = Attribute[str](str)
    turn_instructions = Attribute[str | None](str | None)

    def __init__(
        self,
        agent: Agent,
        log: SessionLog,
        registry: Registry,
        transport: Carrier,
        store: Store,
        lease: Lease,
        tasks: TaskGroup,
    ) -> None:
        self.id = log.session
        self.agent = agent
        self.log = log
        self.registry = registry
        self.transport = transport
        self.route: Route = agent.route
        self.instructions = agent.instructions
        self.conversation_instructions = agent.conversation_instructions
        self.turn_instructions = agent.turn_instructions
        self.state: dict[str, Any] = {}
        self.sent: list[Sent] = []
        self.requests = Requests(log, clock=agent.clock, firsts=agent.firsts)
        self.tools = SessionTools(self)
        self.prompts = SessionPrompts(self)
        self.head: tuple[ToolSchema, ...] = ()
        self.fresh = True
        self.explicit_series = False
        self.new_head = False
        self.store = store
        self._lease = lease
        self._tasks = tasks
        self._history = HistoryFold()
        self._consent = Consent()
        self._found = Found()
        self.outputs = Outputs()
        self.left_out = LeftOut(self)
        self.redefinitions = Redefinitions(agent.on_redefinition, registry)
        self.above: Session | None = None
        self.life: Life | None = None
        self.using = Using(log, tasks)
        self.downgrades = Downgrades(store, agent.clock)
        self._change = change_of(log)

    # -- life -------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Bring tools and log to where they were, or start them."""
        log, registry = self.log, self.registry
        if log.asked is None:
            log.close_open()
        before = log.header
        by_hand = switched(log)
        on = {spec.name: spec.on for spec in self.agent.servers}
        for name, switched_on in by_hand.servers.items():
            if on.get(name) != switched_on:
                # Behind the others, as when it was switched.
                on.pop(name, None)
                on[name] = switched_on
        if missing := set(self.agent.disabled) - set(log.disabled):
            log.append(ToolPolicy(tuple(sorted({*log.disabled, *missing}))))
        if before is None:
            await registry.start(self.agent.limits.server_wait)
            if binds_search(self.agent, registry.snapshot().active):
                registry.bind_search(self._search)
            self.head = registry.snapshot().active
            # What was switched before the first request counts, but belongs to no head.
            for name in on:
                if name in registry.server_names:
                    await (registry.enable(name) if on[name] else registry.disable(name))
            registry.restore(
                (), (), by_hand.added, by_hand.removed, known=log.state.known, away=log.state.away
            )
        else:
            header = before.header
            if any(tool.name == TOOL_SEARCH_NAME for tool in header.tools):
                registry.bind_search(self._search)
            servers = [name for name in on if on[name]]
            registry.restore(
                header.tools,
                servers,
                by_hand.added,
                by_hand.removed,
                known=log.state.known,
                instructions=_server_instructions(log),
                away=log.state.away,
            )
            self.redefinitions.follow(log)
        self.unknown_names = UnknownNames(self)
        await self.flush()

    async def aclose(self) -> None:
        """Close the session, from any task; a turn that runs in it is cancelled.

        Whoever opened it with `async with` need not. Once more it does nothing.

        Raises:
            StoreError: Something could not be made durable.
        """
        if self.life is not None:
            await self.life.close()

    async def end(self) -> None:
        """Make durable what is not yet, as far as that is possible."""
        if self.log.asked is None:
            self.log.close_open()
        await self.flush()

    async def flush(self) -> None:
        """Make every event so far durable."""
        await self.log.flush(self.store, self._lease)

    # -- turns ------------------------------------------------------------------------------

    @checks_arguments
    async def run(self, text: str) -> TurnResult:
        """Run one turn to its end, or until a person has to decide calls (`waiting`).

        Args:
            text: What the person wrote.

        Raises:
            ConfigurationError: The text says nothing, or a turn runs or waits for decisions.
            ProviderError: The provider refused or failed; the session stays usable.
            LimitReached: A limit of the agent ended the turn.
        """
        return await self._run(text, Nobody())

    @checks_arguments
    def stream(self, text: str) -> TurnStream:
        """Run one turn and give its events as they happen; the last is `TurnDone`.

        Leaving the loop early cancels the turn and leaves a valid log; `TurnStream` says when.

        Args:
            text: What the person wrote.

        Raises:
            ConfigurationError: As `run`.
            ProviderError: As `run`.
            LimitReached: As `run`.
        """
        return TurnStream(self.using.free, lambda listener: self._run(text, listener))

    def pending(self) -> tuple[Pending, ...]:
        """Return the calls that a person has to decide before the turn goes on."""
        return pending(self.log.asked, self.decidable)

    @property
    def decidable(self) -> tuple[Kind, ...]:
        """What may be decided of a call here."""
        approval = self.agent.approval
        return KINDS if approval is None else approval.kinds

    @checks_arguments
    async def decide(self, decisions: Decisions) -> TurnResult:
        """Decide the calls that wait, and go on with their turn to its end, or to the next wait.

        Args:
            decisions: By call id, one for each call of `pending()`.

        Raises:
            ConfigurationError: These are not the calls that wait; they wait still.
            AddendumError: As `run`.
        """
        return await self._decide(decisions, Nobody())

    @checks_arguments
    def stream_decide(self, decisions: Decisions) -> TurnStream:
        """As `decide`, and give the turn's events as `stream` does.

        Args:
            decisions: By call id, one for each call of `pending()`.

        Raises:
            AddendumError: As `decide`.
        """
        return TurnStream(self.using.free, lambda listener: self._decide(decisions, listener))

    async def _run(self, text: str, listener: Listener) -> TurnResult:
        async with self.using.alone(listener):
            return await Turn(self, listener.tell).run(text)

    async def _decide(self, decisions: Decisions, listener: Listener) -> TurnResult:
        async with self.using.alone(listener, deciding=True):
            return await Turn(self, listener.tell).resume(decisions)

    def consent(self) -> Consent:
        """Return what was decided so far, by tool."""
        log = self.log
        # What was allowed in a log that somebody changed since may be what they wrote.
        trusted = (
            [
                event
                for event in log.events
                if isinstance(event.data, RequestHeader | ToolsKnown)
                or event.seq > max(log.changed)
            ]
            if log.changed
            else log.events
        )
        self._consent.read(trusted)
        return self._consent

    def change(self) -> str | None:
        """Return, once, what a person is told of a log that was changed in its store."""
        said, self._change = self._change, None
        return said

    # -- what may be called -----------------------------------------------------------------

    def tool_history(self) -> ToolHistory:
        """Return the declarations of the current request series and its updates (A5)."""
        return self._history.read(self.log.rare)

    async def settle(self) -> Snapshot:
        """Return the tools of the coming step; calls are made against it until the next."""
        return await self.registry.settle(self.agent.limits.server_wait)

    def early(self, tell: Callable[[StreamEvent], None], snapshot: Snapshot) -> Early | None:
        """Return what starts calls of the coming answer early, if the agent wants that."""
        return Early(self, tell, snapshot, self._tasks) if self.agent.early_start else None

    def step_input(self, snapshot: Snapshot) -> StepInput:
        """Return all that decides what the coming step writes into the log."""
        return StepInput(
            self.current_context(),
            self.config(),
            snapshot.active,
            self.head,
            self.instructions,
            self.conversation_instructions,
            self.turn_instructions,
            snapshot.instructions,
            self.fresh,
            self.explicit_series,
            self.new_head or (self.agent.consolidate and consolidates(self)),
            self._found.read(self.log.events) if self.registry.searches else frozenset(),
            self._history,
        )

    def wrote_step(self, snapshot: Snapshot, became_head: bool) -> None:
        """Note that a step was written: what was asked for it is done."""
        self.fresh = self.explicit_series = self.new_head = False
        self.redefinitions.follow(self.log)
        if became_head:
            self.head = snapshot.active

    def bound_tools(self, snapshot: Snapshot, context: RequestContext) -> frozenset[str]:
        """Return the names that are bound on dispatch, and still mean what was bound.

        Args:
            snapshot: The tools of the step.
            context: What its requests are rendered with.
        """
        return frozenset(
            tool.name
            for tool in bound_tools(self.head_tools(), context, facts(self.route))
            if tool.name != TOOL_DISPATCHER_NAME
            and (
                tool.name not in snapshot.entries
                or snapshot.entries[tool.name].schema.identity() == tool.identity()
            )
        ) | {TOOL_SEARCH_NAME}

    def head_tools(self) -> tuple[ToolSchema, ...]:
        """Return the tools of the session's head header."""
        self._history.read(self.log.rare)
        return self._history.head

    def is_deferred(self, tool: ToolSchema) -> bool:
        """Say whether an active tool is deferred, so that `can_dispatch` is asked about it.

        All are, but the immediate tools of the session's first header, as they were defined then:
        on every route, and under a new head too.
        """
        self._history.read(self.log.rare)
        own = self._history.first.get(tool.name)
        return own is None or bool(own.defer_loading) or own.identity() != tool.identity()

    @property
    def disabled(self) -> tuple[str, ...]:
        """Names that stay bound and are refused: here, or in the session that opened this one."""
        if self.above is None:
            return self.log.disabled
        return tuple(sorted({*self.log.disabled, *self.above.disabled}))

    async def _search(self, arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
        return Outcome(self.search(arguments))

    def search(self, arguments: bytes | str) -> str:
        """Answer a call of `tool_search` over what could be called now."""
        return searched(self, arguments)

    # -- the route --------------------------------------------------------------------------

    @checks_arguments
    def use(self, route: str | Route) -> None:
        """Go on with another route from the next request on; nothing in the log is rewritten."""
        chosen = self.agent.resolve(route)
        self.agent.check(chosen)
        self.route = chosen

    def config(self) -> Config:
        """Return the settings of the coming request."""
        settings = self.agent.settings
        return Config(
            self.route.provider,
            self.route.model,
            settings.effort,
            settings.temperature,
            settings.max_tokens or self.route.max_tokens,
            settings.stop,
        )

    def current_context(self) -> RequestContext:
        """Return what the coming request renders with."""
        return coming(self)

    @property
    def surprised(self) -> bool:
        """Whether tools were added by hand where the configuration could not expect it."""
        return not self.agent.can_change and self.log.state.switched_on

    # -- the log ----------------------------------------------------------------------------

    @checks_arguments
    async def rewind(self, turns: int = 1) -> int:
        """Cut the last turns from what the model sees; the log keeps them.

        Args:
            turns: How many.

        Returns:
            The seq of the event.

        Raises:
            ConfigurationError: There are not so many.
        """
        async with self.using.alone():
            seq = cut(self.log, newest(self.log, turns))
            await self.flush()
            return seq

    @checks_arguments
    async def edit(self, turn: int, text: str) -> TurnResult:
        """Say a message otherwise: cut its turn and all behind it, and run the new text.

        Args:
            turn: The turn whose message is replaced.
            text: What the person writes now.

        Raises:
            ConfigurationError: The model does not see this turn, or as `run`; nothing is cut.
            AddendumError: As `run`; the old turns stay cut.
        """
        return await self._again(turn, text, "edit", Nobody())

    async def retry(self) -> TurnResult:
        """Ask the last message again: cut its turn, however it ended, and run it anew.

        Raises:
            ConfigurationError: There is no turn, or as `run`; nothing is cut.
            AddendumError: As `run`; the old turn stays cut.
        """
        last = last_said(self.log)
        return await self._again(last.turn, last.text, "retry", Nobody())

    @checks_arguments
    def stream_again(self, turn: int, text: str | None = None) -> TurnStream:
        """As `edit`, or as `retry` of any turn if `text` is None; gives events as `stream` does."""
        first = numbered(self.log, turn)
        said, reason = (first.text, "retry") if text is None else (text, "edit")
        return TurnStream(
            self.using.free, lambda listener: self._again(turn, said, reason, listener)
        )

    async def _again(
        self,
        turn: int,
        text: str,
        reason: Literal["edit", "retry"],
        listener: Listener,
    ) -> TurnResult:
        async with self.using.alone(listener):
            again, first = Turn(self, listener.tell), numbered(self.log, turn)
            again.check(text)
            cut(self.log, first, reason)
            return await again.run(text)

    @checks_arguments
    async def compact(
        self, summary: str | None = None, *, keep_turns: AtLeastNone | None = None
    ) -> str:
        """Replace the conversation so far by a summary.

        Args:
            summary: The summary; the model is asked for one if None. If that fails, the session
                stays as it was, and the log says why.
            keep_turns: How many of the newest turns stay as they are; None is what the agent's
                `compaction` says, else none.

        Returns:
            The summary.

        Raises:
            ConfigurationError: There is nothing to compact, or what came is no summary.
            ProviderError: The request for the summary failed.
        """
        if keep_turns is None:
            own = self.agent.compaction
            keep_turns = 0 if own is None else own.keep_turns
        async with self.using.alone():
            return await compact(self, summary, keep_turns)

    @checks_arguments
    def result(self, call_id: str) -> str:
        """Return the whole text of a call's result, however little of it the model was shown.

        Args:
            call_id: The call's id; the latest counts where ids repeat.

        Raises:
            ConfigurationError: No call with this id has a result.
        """
        for event in reversed(self.log.events):
            if isinstance(event.data, ToolResult) and event.data.call_id == call_id:
                return event.data.text
        raise ConfigurationError(f"no call {call_id!r} has a result here", session=self.id)

    def switch_cost(self) -> SwitchCost:
        """Return what the switches since the last request cost at the next one.

        No turn may run; `addendum tools ID --what-if` asks of switches that nobody made.
        """
        return switch_cost(self)

    def keep_alive_price(self) -> KeepAlive:
        """Return what keeping the cache takes: tokens, money, and when the next request is due.

        Raises:
            ConfigurationError: There is nothing to keep, or no lifetime is known.
        """
        return quote(self)

    async def keep_alive(self) -> Usage:
        """Send one request that keeps the cache for another lifetime; return what it cost.

        Raises:
            ConfigurationError: As `keep_alive_price`, or a turn runs.
            ProviderError: The request failed.
        """
        async with self.using.alone():
            return await keep(self)

    def start_series(self) -> None:
        """Have the next request start a series of its own; a declared break."""
        self.explicit_series = True

    def rehead(self) -> None:
        """Make what is active at the next request the session's new head; a declared break."""
        self.new_head = True

    @checks_arguments
    def fork(self, session_id: str | None = None, *, turn: int | None = None) -> Opening:
        """Open a child that shares all so far, or up to a turn's end, and then goes its own way.

        It has its parent's tools, switches, route and texts; a function that was added by hand runs
        in it too. With `turn`, it has the tools and switches of that time.

        Args:
            session_id: The child's id; a random one if None.
            turn: The last turn that it has, also one that was cut or summed up since, and the
                switches behind it; everything if None.

        Raises:
            ConfigurationError: There was no such turn, or there is a session with this id.
            StoreError: It could not be written; there is no child.
        """
        return Opening(lambda: fork(self, session_id, turn))


def _server_instructions(log: SessionLog) -> dict[str, str]:
    """Return what each server said of itself last, wherever the model may see it."""
    events = (event.data for event in log.rare)
    return {data.server: data.text for data in events if isinstance(data, ServerInstructions)}
