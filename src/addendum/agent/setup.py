"""What an agent is set up with: the same in all of its sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from addendum import encoding
from addendum.agent.calls.approval import KINDS, Approval, Kind, OnRedefinition
from addendum.agent.calls.hooks import Hook
from addendum.agent.context.firsts import FirstRequests
from addendum.agent.context.lifetime import LifetimeChoice
from addendum.agent.context.window import Compaction
from addendum.checked import AtLeastOne, Seconds, Wait, Word, check_fields, checks_arguments
from addendum.log.session_log import SessionLog
from addendum.routes import (
    Route,
    TailChoice,
    ToolChanges,
    choose_projection,
    context,
    resolve,
)
from addendum.routes.probed import overlaid, read
from addendum.tools.catalogue import Pin
from addendum.tools.dispatcher import CanDispatch
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.tools.registry import AnyTool
from addendum.wire.transport import Carrier


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


class AgentSetup(Struct, kw_only=True, eq=False):
    """The options of one agent, as `Agent` describes them, and what its sessions share.

    Attributes:
        route: The route that sessions begin with.
        base_url: Another address for the provider of that route.
        provider: That provider.
        instructions: Text that is the same in every conversation.
        conversation_instructions: Text of one conversation, unless a session sets its own.
        turn_instructions: Text for the current turn, unless a session sets its own.
        tools: The agent's own functions.
        servers: Its MCP servers.
        tool_changes: How changes are told.
        dispatch: Options of the dispatcher.
        tool_dispatch: Whether `call_tool` is bound even where nothing is deferred yet.
        disabled: Names of tools that stay bound and are refused.
        hooks: The application's own code around tool calls.
        approval: Which calls a person is asked about.
        on_redefinition: What happens when a tool is defined anew.
        early_start: Whether calls of read-only tools start while the answer streams.
        output_references: Whether results are labelled for later calls.
        tail: Where `turn_instructions` stand.
        caching: Whether the provider's cache is used.
        ttl: Lifetime asked of cache marks.
        consolidate: Whether a cold session folds into its head what was added.
        settings: Sampling settings.
        limits: Bounds of a turn.
        compaction: When a session is compacted by itself.
        pins: Pinned definitions by server.
        record: Whether each request's bytes are kept.
        transport: Carries requests; one of its own for each session if None.
        pool: Connections to MCP servers; the event loop's own if None.
        clock: Seconds since the epoch.
        firsts: The first requests of its sessions.
    """

    route: Route
    base_url: str | None
    provider: str
    instructions: str
    conversation_instructions: str
    turn_instructions: str | None
    tools: tuple[AnyTool, ...]
    servers: tuple[ServerSpec, ...]
    tool_changes: ToolChanges
    dispatch: ToolDispatch
    tool_dispatch: bool
    disabled: tuple[str, ...]
    hooks: tuple[Hook, ...]
    approval: Approval | None
    on_redefinition: OnRedefinition
    early_start: bool
    output_references: bool
    tail: TailChoice
    caching: bool
    ttl: LifetimeChoice | None
    consolidate: bool
    settings: Settings
    limits: Limits
    compaction: Compaction | None
    pins: Mapping[str, Pin]
    record: bool
    transport: Carrier | None
    pool: ServerPool | None
    clock: Callable[[], float]
    firsts: FirstRequests

    def check(self, route: Route) -> None:
        """Check that sessions of the agent can be held on a route.

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
        return named(route, self.provider, self.base_url)

    @property
    def decidable(self) -> tuple[Kind, ...]:
        """What may be decided of a call."""
        return KINDS if self.approval is None else self.approval.kinds

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

    def new_log(self, session: str) -> SessionLog:
        """Return an empty log that reads this clock."""
        return SessionLog(session, clock=lambda: int(self.clock() * 1000))


def named(route: str | Route, provider: str, base_url: str | None) -> Route:
    """Return the route that a name means, with what was probed there.

    Args:
        route: Its name; a ready route stays as it is.
        provider: The provider that the address is for.
        base_url: The address, if it has another than its provider's own.
    """
    if isinstance(route, Route):
        return route
    resolved = resolve(route, base_url=base_url if provider_of(route) == provider else None)
    return overlaid(resolved, read(resolved))


def provider_of(route: str | Route) -> str:
    """Return the provider that a route or its name begins with."""
    return route.provider if isinstance(route, Route) else route.partition(":")[0]
