"""The agent: what stays the same in every conversation."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec import Meta, Struct

from addendum import encoding
from addendum.agent.calls.approval import Approval, OnRedefinition
from addendum.agent.calls.hooks import Hook
from addendum.agent.calls.unknown_names import Written, check_names, written_in
from addendum.agent.context.compaction import Compaction
from addendum.agent.context.firsts import FirstRequests
from addendum.agent.context.lifetime import LifetimeChoice
from addendum.agent.opening import Opening
from addendum.agent.session import Session
from addendum.checked import (
    AtLeastOne,
    Location,
    Seconds,
    Wait,
    Word,
    check_fields,
    checks_arguments,
)
from addendum.errors import ConfigurationError, SessionBusy, StoreError
from addendum.log.events import FORMAT, SessionStart
from addendum.log.reading import read as read_log
from addendum.log.session_log import SessionLog
from addendum.log.store import Lease, Store, held, new_id
from addendum.routes import (
    Route,
    TailChoice,
    ToolChanges,
    choose_projection,
    context,
    resolve,
)
from addendum.routes.probed import overlaid, read
from addendum.stores import DEFAULT_URL, open_store
from addendum.stores.leases import RENEW_AFTER_MS
from addendum.tools.catalogue import Pin, read_catalogue
from addendum.tools.dispatcher import RESERVED_NAMES, CanDispatch
from addendum.tools.functions import as_tool
from addendum.tools.mcp import ServerSpec
from addendum.tools.mcp_file import Servers, server_specs
from addendum.tools.mcp_pool import ServerPool, default_pool
from addendum.tools.names import check_function_names
from addendum.tools.registry import AnyTool, Registry
from addendum.wire.transport import Carrier, Transport


class Limits(Struct, frozen=True):
    """Bounds of a turn.

    Attributes:
        steps: Requests that one turn may take.
        tool_timeout: Seconds that a tool may take unless it has a limit of its own.
        server_wait: Seconds that a step waits for a server that was switched on and has not
            listed its tools yet; a slower one joins later.
        result_bytes: Bytes of a tool result that are kept; the rest is cut, with a note.
        shown_bytes: Bytes of a kept result that the model reads: its beginning and its end, with a
            note between them. `Session.result` has the whole.
    """

    steps: AtLeastOne = 50
    tool_timeout: Seconds = 120.0
    server_wait: Wait = 10.0
    result_bytes: AtLeastOne = 1024 * 1024
    shown_bytes: AtLeastOne = 128 * 1024

    def __post_init__(self) -> None:
        check_fields(self)


class ToolDispatch(Struct, frozen=True):
    """Options of the dispatcher.

    Attributes:
        can_dispatch: Says whether a deferred tool may be called: an active one that is none of the
            immediate tools that the session began with, or was defined anew since. Those are what
            only the dispatcher reaches on a dispatch route; it is asked on every route, for each
            call, whatever way it came, and a search shows nothing else. What it does not answer
            with True is refused; if it raises, so is the call.
        pass_through_bound: Run a bound tool that was called through it, in place of refusing.
    """

    can_dispatch: CanDispatch | None = None
    pass_through_bound: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
"""Words for how long a model thinks, of all providers: `ReasoningEffort` of OpenAI's SDK 3.57,
`OutputConfigParam` of Anthropic's 2.14, `ThinkingLevel` of Google's 3.6; `ultra` is DeepSeek's."""


class Settings(Struct, frozen=True):
    """Sampling settings; None leaves the provider's default.

    Attributes:
        effort: How long the model thinks, in a word that its provider has.
        temperature: From 0 on; most providers take at most 1 or 2.
        max_tokens: Tokens of one answer.
        stop: Texts behind which an answer ends.

    Raises:
        ConfigurationError: A field holds what no provider takes.
    """

    effort: Effort | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    max_tokens: AtLeastOne | None = None
    stop: tuple[Word, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)


class Agent:
    """An agent whose tools can change in mid-conversation.

    Its own tools and the tools of servers that are on by configuration are the head of every
    session: the same bytes in every conversation. What a conversation switches on later is told
    in its history.

    Args:
        route: `provider:model`, such as `anthropic:claude-opus-5-5`; or a resolved route.
        instructions: Text that is the same in every conversation.
        conversation_instructions: Text of one conversation; a session may set its own.
        turn_instructions: Text for the current turn only; a session may set its own.
        tools: `@tool` functions, or plain functions.
        mcp_servers: Servers by name as in an `mcpServers` file, or ready specs. A server is off
            unless its entry says `"on": true`.
        tool_changes: How changes are told: `auto`, `native`, `dispatch` or `rebind`.
        tool_dispatch: Whether `call_tool` is bound even where nothing is deferred yet.
        disabled: Names of tools that stay bound and are refused.
        hooks: The application's own code around tool calls, in order.
        approval: Which calls a person is asked about. None asks about none, and a hook that wants
            to ask refuses the call.
        on_redefinition: What happens when a tool is defined anew in a session, comes from another
            server, or says otherwise of itself (`readOnlyHint`, `destructiveHint`): `accept` it,
            `ask` before its next call, until one was approved, or `keep` the definition that the
            session has and the stricter hints. It is logged and told in each case.
        early_start: Start calls of read-only tools while the answer still streams: functions made
            with `read_only=True`, and tools whose server says so (`readOnlyHint`; its word alone).
            Never calls through the dispatcher or of deferred or disabled tools, and none that a
            policy or a hook has a say in.
        output_references: Label each result, so that a later call may pass it on: `{{tool0turn3}}`
            in its arguments stands for the text of that result.
        tail: Where `turn_instructions` stand; `auto` is the route's own choice.
        caching: Whether the provider's cache is used.
        ttl: Lifetime asked of cache marks, on routes that have one; `auto` asks for what would have
            been cheaper so far, chosen anew whenever the cache has surely expired. None is the
            provider's default.
        consolidate: Whether a session whose cache has surely expired folds the tools that were
            added into its head and drops dead definitions, unless bound reasoning would be lost.
        settings: Sampling settings.
        limits: Bounds of a turn.
        compaction: When a session is compacted by itself, between turns and between the steps of
            a long one. None: only when `Session.compact` is called.
        catalogue: A file of pinned definitions, for many machines that share one head.
        base_url: Another address for the route's provider. A route of another provider, which a
            session goes on with, has its own: a key goes to no address it was not meant for.
        record: Keep each request's bytes in `session.sent`, for whoever judges them.
        transport: Carries requests; one of its own if None.
        pool: Connections to MCP servers; the event loop's own if None.
        clock: Seconds since the epoch.

    Raises:
        ConfigurationError: Something of this cannot be set up; the message says what to do.
    """

    @checks_arguments
    def __init__(
        self,
        route: str | Route,
        *,
        instructions: str = "",
        conversation_instructions: str = "",
        turn_instructions: str | None = None,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        mcp_servers: Servers = (),
        tool_changes: ToolChanges = "auto",
        tool_dispatch: bool | ToolDispatch = False,
        disabled: Collection[Word] = (),
        hooks: Sequence[Hook] = (),
        approval: Approval | None = None,
        on_redefinition: OnRedefinition = "accept",
        early_start: bool = False,
        output_references: bool = False,
        tail: TailChoice = "auto",
        caching: bool = True,
        ttl: LifetimeChoice | None = None,
        consolidate: bool = True,
        settings: Settings | None = None,
        limits: Limits | None = None,
        compaction: Compaction | None = None,
        catalogue: Location | Mapping[str, Pin] | None = None,
        base_url: str | None = None,
        record: bool = False,
        transport: Carrier | None = None,
        pool: ServerPool | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = base_url
        self.provider = _provider(route)
        self.route = self.resolve(route)
        self.instructions = encoding.clean(instructions)
        self.conversation_instructions = encoding.clean(conversation_instructions)
        self.turn_instructions = turn_instructions
        self.tools = tuple(as_tool(each) for each in tools)
        self.servers: tuple[ServerSpec, ...] = server_specs(mcp_servers)
        self.tool_changes: ToolChanges = tool_changes
        self.dispatch = tool_dispatch if isinstance(tool_dispatch, ToolDispatch) else ToolDispatch()
        self.tool_dispatch = bool(tool_dispatch)
        self.disabled = tuple(sorted(set(disabled)))
        self.hooks = tuple(hooks)
        self.approval = approval
        if on_redefinition == "ask" and approval is None:
            raise ConfigurationError(
                "on_redefinition='ask' has nobody to ask; give approval=Approval(...) too"
            )
        self.on_redefinition: OnRedefinition = on_redefinition
        self.early_start = early_start
        self.output_references = output_references
        self.tail: TailChoice = tail
        self.caching = caching
        self.ttl: LifetimeChoice | None = ttl
        self.consolidate = consolidate
        self.settings = settings or Settings()
        self.limits = limits or Limits()
        self.compaction = compaction
        self.pins: Mapping[str, Pin] = (
            dict(catalogue or {})
            if catalogue is None or isinstance(catalogue, Mapping)
            else read_catalogue(catalogue)
        )
        self.record = record
        self.transport = transport
        self.pool = pool
        self.clock = clock
        self.firsts = FirstRequests()
        # What cannot be set up is told now, not in the middle of a turn.
        check_function_names([each.name for each in self.tools], RESERVED_NAMES)
        check_names(self, written_in(self))
        self.check(self.route)

    def check(self, route: Route) -> None:
        """Check that sessions of this agent can be held on a route.

        Raises:
            ConfigurationError: Not with these options.
        """
        if self.compaction is not None:
            self.compaction.limit(route)
        context(
            route,
            choose_projection(route, self.tool_changes, has_servers=self.can_change),
            tail=self.tail,
            caching=self.caching,
            ttl=None if self.ttl == "auto" else self.ttl,
        )

    @checks_arguments
    def resolve(self, route: str | Route) -> Route:
        """Return the route that a name means, with what was probed there.

        A ready route stays as it is. The agent's address is that of its own provider only.
        """
        if isinstance(route, Route):
            return route
        own = _provider(route) == self.provider
        named = resolve(route, base_url=self.base_url if own else None)
        return overlaid(named, read(named))

    @property
    def digest(self) -> str:
        """Identity of what the agent's code configures, for the log."""
        return encoding.digest(
            encoding.encode(
                [
                    self.instructions,
                    [tool.schema.identity() for tool in self.tools],
                    [spec.name for spec in self.servers],
                ]
            )
        )[:16]

    @property
    def can_change(self) -> bool:
        """Whether the configuration can meet a change of tools."""
        return bool(
            self.servers
            or self.tool_dispatch
            or any(tool.schema.defer_loading for tool in self.tools)
        )

    @checks_arguments
    def open(
        self,
        session_id: str | None = None,
        *,
        store: str | Store | None = None,
        parent: str | None = None,
        exclude: Collection[Word] = (),
    ) -> Opening:
        """Open a session: a new one, or one that the store has.

        `async with agent.open(...) as session` closes it again; `session = await agent.open(...)`
        leaves that to `session.aclose()`, in whatever task.

        Args:
            session_id: Its id; a new random one if None.
            store: Where it is kept: `sqlite:///path.db`, `memory://`, or an open store. The
                default store of the user if None.
            parent: Id of the session that opens it, for the log of a new one.
            exclude: Tools that a new session can never use: real names, exact or as glob patterns.
                They do not exist there, whatever its agent has. A session keeps what it began with.

        Raises:
            SessionBusy: Another writer holds it.
            StoreError: The store cannot be opened.
        """
        if parent is None:
            # What a parent excludes may be a tool of its own.
            names = [Written(f"exclude=[{each!r}]", each) for each in exclude]
            check_names(self, names, children=True)
        name = new_id() if session_id is None else session_id
        where = DEFAULT_URL if store is None else store
        return Opening(lambda: self._opened(name, where, parent, exclude))

    @asynccontextmanager
    async def _opened(
        self, name: str, store: str | Store, parent: str | None, exclude: Collection[str]
    ) -> AsyncGenerator[Session]:
        async with AsyncExitStack() as stack:
            kept = await open_store(store)
            if kept is not store:
                stack.push_async_callback(kept.aclose)
            lease = await stack.enter_async_context(held(kept, name))
            log = self.new_log(name)
            await read_log(log, kept)
            if not len(log):
                excluded = tuple(sorted(set(exclude)))
                log.append(SessionStart(name, FORMAT, self.digest, parent, excluded))
            yield await stack.enter_async_context(self.drive(log, kept, lease))

    def new_log(self, session: str) -> SessionLog:
        """Return an empty log that reads this agent's clock."""
        return SessionLog(session, clock=lambda: int(self.clock() * 1000))

    @asynccontextmanager
    async def drive(self, log: SessionLog, store: Store, lease: Lease) -> AsyncGenerator[Session]:
        """Drive the session of a log that was read; most want `open` or `Session.fork`.

        Args:
            log: Its log, as the store has it.
            store: Where it is kept.
            lease: The right to append to it; whoever took it gives it back.
        """
        async with AsyncExitStack() as stack:
            transport = self.transport
            if transport is None:
                transport = await stack.enter_async_context(Transport())
            registry = Registry(
                self.tools,
                self.servers,
                pool=self.pool or default_pool(),
                store=store,
                pins=self.pins,
                exclude=excluded_by(log),
            )
            stack.push_async_callback(registry.aclose)
            session: Session | None = None
            try:
                async with _task_group() as tasks:
                    tasks.start_soon(_renewed, store, lease)
                    session = Session(self, log, registry, transport, store, lease, tasks)
                    try:
                        await session.begin()
                        yield session
                    finally:
                        await session.using.close()
                        tasks.cancel_scope.cancel()
            finally:
                # Behind the tasks: a turn that streams has its own end to log first.
                if session is not None:
                    with anyio.CancelScope(shield=True):
                        await session.end()


def _provider(route: str | Route) -> str:
    return route.provider if isinstance(route, Route) else route.partition(":")[0]


@asynccontextmanager
async def _task_group() -> AsyncGenerator[TaskGroup]:
    """Open a task group that the body's own error leaves as it is, not in a group of one."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            failure = error
    if failure is not None:
        raise failure


def excluded_by(log: SessionLog) -> tuple[str, ...]:
    """Return the tools that a session can never use, by its first event."""
    first = log.events[0].data
    return first.excluded if isinstance(first, SessionStart) else ()


async def _renewed(store: Store, lease: Lease) -> None:
    """Renew a lease as long as the session is open, however long a model, tool or person takes."""
    while True:
        await anyio.sleep(RENEW_AFTER_MS / 1000)
        try:
            await store.renew(lease)
        except SessionBusy:
            return  # The next append says so.
        except StoreError:
            continue  # Locked or full: the lease lasts for longer than one attempt.
