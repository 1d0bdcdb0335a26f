"""The agent: what stays the same in every conversation."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from addendum import encoding
from addendum.agent.calls.approval import Approval, OnRedefinition
from addendum.agent.calls.hooks import Hook
from addendum.agent.calls.unknown_names import Written, check_names, written_in
from addendum.agent.context.firsts import FirstRequests
from addendum.agent.context.lifetime import LifetimeChoice
from addendum.agent.context.window import Compaction
from addendum.agent.driving import drive
from addendum.agent.opening import Life, Opening
from addendum.agent.session import Session
from addendum.agent.setup import AgentSetup, Limits, Settings, ToolDispatch, named, provider_of
from addendum.checked import Location, Word, checks_arguments
from addendum.errors import ConfigurationError
from addendum.log.events import FORMAT, SessionStart
from addendum.log.reading import read as read_log
from addendum.log.store import Store, held, new_id
from addendum.routes import Route, TailChoice, ToolChanges
from addendum.stores import DEFAULT_URL, open_store
from addendum.tools.catalogue import Pin, read_catalogue
from addendum.tools.dispatcher import RESERVED_NAMES
from addendum.tools.functions import as_tool
from addendum.tools.mcp.file import Servers, server_specs
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.names import check_function_names
from addendum.tools.registry import AnyTool
from addendum.wire.transport import Carrier


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

    Attributes:
        setup: All of this, checked; what sessions read.

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
        if on_redefinition == "ask" and approval is None:
            raise ConfigurationError(
                "on_redefinition='ask' has nobody to ask; give approval=Approval(...) too"
            )
        provider = provider_of(route)
        self.setup = AgentSetup(
            route=named(route, provider, base_url),
            base_url=base_url,
            provider=provider,
            instructions=encoding.clean(instructions),
            conversation_instructions=encoding.clean(conversation_instructions),
            turn_instructions=turn_instructions,
            tools=tuple(as_tool(each) for each in tools),
            servers=server_specs(mcp_servers),
            tool_changes=tool_changes,
            dispatch=tool_dispatch if isinstance(tool_dispatch, ToolDispatch) else ToolDispatch(),
            tool_dispatch=bool(tool_dispatch),
            disabled=tuple(sorted(set(disabled))),
            hooks=tuple(hooks),
            approval=approval,
            on_redefinition=on_redefinition,
            early_start=early_start,
            output_references=output_references,
            tail=tail,
            caching=caching,
            ttl=ttl,
            consolidate=consolidate,
            settings=settings or Settings(),
            limits=limits or Limits(),
            compaction=compaction,
            pins=(
                dict(catalogue or {})
                if catalogue is None or isinstance(catalogue, Mapping)
                else read_catalogue(catalogue)
            ),
            record=record,
            transport=transport,
            pool=pool,
            clock=clock,
            firsts=FirstRequests(),
        )
        # What cannot be set up is told now, not in the middle of a turn.
        check_function_names([each.name for each in self.setup.tools], RESERVED_NAMES)
        check_names(self.setup, written_in(self.setup))
        self.setup.check(self.setup.route)

    @checks_arguments
    def open(
        self,
        session_id: str | None = None,
        *,
        store: str | Store | None = None,
        parent: str | None = None,
        exclude: Collection[Word] = (),
    ) -> Opening[Session]:
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
            check_names(self.setup, names, children=True)
        name = new_id() if session_id is None else session_id
        where = DEFAULT_URL if store is None else store
        return Opening(lambda life: self._opened(life, name, where, parent, exclude))

    @asynccontextmanager
    async def _opened(
        self,
        life: Life[Session],
        name: str,
        store: str | Store,
        parent: str | None,
        exclude: Collection[str],
    ) -> AsyncGenerator[Session]:
        async with AsyncExitStack() as stack:
            kept = await open_store(store)
            if kept is not store:
                stack.push_async_callback(kept.aclose)
            lease = await stack.enter_async_context(held(kept, name))
            log = self.setup.new_log(name)
            await read_log(log, kept)
            if not len(log):
                excluded = tuple(sorted(set(exclude)))
                log.append(SessionStart(name, FORMAT, self.setup.digest, parent, excluded))
            run = await stack.enter_async_context(drive(self.setup, log, kept, lease))
            yield Session(run, life)
