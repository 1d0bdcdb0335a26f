"""Events about requests: what they are made of, how they render, and where their prefix breaks."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from addendum.log.values import (
    BreakReason,
    CallForm,
    Definitions,
    Facts,
    Header,
    HeaderReason,
    Logged,
    Projection,
    TailMode,
    Usage,
)

RequestPurpose: TypeAlias = Literal["turn", "compaction", "keep-alive"]


class RequestHeader(Logged, frozen=True, tag="request/header"):
    """A full snapshot of the active tools and settings; written when it differs or restarts.

    Attributes:
        header: The snapshot.
        reason: `initial`, `resume`, `change` or `series`.
        starts_series: True if a series starts although the reason is another one.
        head: True if this header is the session's new head (a declared break).
    """

    facts: ClassVar[Facts] = Facts(title="tools", surface=False, ignorable=False)

    header: Header
    reason: HeaderReason
    starts_series: bool = False
    head: bool = False

    @property
    def new_series(self) -> bool:
        """Whether a request series starts here."""
        return self.starts_series or self.reason == "series"


class RequestContext(Logged, frozen=True, tag="request/context"):
    """How an epoch renders. Later overlays and probes act on new epochs only.

    Attributes:
        route: `provider:model`.
        wire: Name of the wire API.
        projection: How tool changes are told.
        definitions: How an addition carries its definition (native projections).
        removals: `block`, `omit` or `text`.
        readd: How a removed name returns: `block`, `redeclare` or `text`.
        redefine: Whether a later definition replaces an earlier one in place.
        prompt_update: Whether a changed prompt can be appended to the history.
        tail: Where per-turn instructions stand.
        caching: Whether cache marks are set.
        ttl: Lifetime asked of the cache (`5m`, `1h`), where marks carry one.
        betas: Beta flags, constant through the epoch.
        placeholder: Whether a deferred placeholder stands behind the head's tools.
        reasoning_bound: Whether signed reasoning is bound to the exact prefix.
        cache_rules: Version of the cache rules.
        rendering: Number of the rendering: anything of ours that decides bytes.
        shows: Media types that the model takes in results.
        withheld: Definitions that no request holds, by digest (`ToolSchema.definition`): the
            endpoint refused them.
        avoids: Shapes of a history that no request has, by name (`addendum.routes.shapes`).
    """

    facts: ClassVar[Facts] = Facts(title="route", surface=False, ignorable=False)

    route: str
    wire: str
    projection: Projection
    definitions: Definitions = "by-reference"
    removals: Literal["block", "omit", "text"] = "text"
    readd: Literal["block", "redeclare", "text"] = "text"
    redefine: bool = False
    prompt_update: bool = False
    tail: TailMode = "moved"
    caching: bool = True
    ttl: Literal["5m", "1h"] | None = None
    betas: tuple[str, ...] = ()
    placeholder: bool = False
    reasoning_bound: bool = False
    cache_rules: str = ""
    rendering: int = 1
    shows: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()

    @property
    def form(self) -> CallForm:
        """How a deferred tool is called on this epoch."""
        return "dispatch" if self.projection == "dispatch" else "direct"


class RequestSent(Logged, frozen=True, tag="request/sent"):
    """A request is about to leave; everything it is made of is durable.

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        number: Requests of this session so far, this one included.
        route: `provider:model`.
        context_seq: The epoch's `request/context`.
        generation: Replaces on the surface so far: a later request with more starts a series.
        purpose: `turn`, `compaction`, or `keep-alive`: asked so that the cache stays.
        until: Seq of the first event that it says nothing of: the start of a turn that did not
            fit. It says all if None.
        seal: Checksum of all events in front of it (`log.seal`); empty in older logs.
    """

    facts: ClassVar[Facts] = Facts(title="request", surface=False, ignorable=False, echo=True)

    turn: int
    step: int
    number: int
    route: str
    context_seq: int
    generation: int = 0
    purpose: RequestPurpose = "turn"
    until: int | None = None
    seal: str = ""


class CacheKept(Logged, frozen=True, tag="cache/kept"):
    """A request was answered that was sent to keep the cache; nothing of it stays.

    Attributes:
        route: The route whose cache it is.
        usage: What it cost.
    """

    facts: ClassVar[Facts] = Facts(title="kept", surface=False, ignorable=True)

    route: str
    usage: Usage = Usage()


class CacheBreak(Logged, frozen=True, tag="cache/break"):
    """The next request will not extend the last one, and why.

    Attributes:
        reason: One of a closed list; `removal or restore` stands in earlier logs only.
        route: The route whose prefix breaks.
        at: First part that changes: `tools`, `system`, `messages`, `settings`, or `none` where
            the bytes stand but cannot be read again.
        detail: Names or settings concerned.
        seq: For `messages`, the event from which the bytes may differ.
        drops_reasoning: Whether reasoning from before it is no longer valid on this route, and
            is left out from here on.
        also: Further reasons that came together with the first.
    """

    facts: ClassVar[Facts] = Facts(title="break", surface=False, ignorable=False)

    reason: BreakReason
    route: str
    at: Literal["tools", "system", "messages", "settings", "none"]
    detail: str = ""
    seq: int | None = None
    drops_reasoning: bool = False
    also: tuple[BreakReason, ...] = ()


class RouteDowngrade(Logged, frozen=True, tag="route/downgrade"):
    """An endpoint refused tool-change fields.

    Attributes:
        route: `provider:model`.
        endpoint: Its address, without credentials.
        rejected: Fields named in the refusal.
        projection: The projection used from here on.
        definitions: How additions carry definitions from here on.
    """

    facts: ClassVar[Facts] = Facts(title="refused", surface=False, ignorable=True)

    route: str
    endpoint: str
    rejected: tuple[str, ...]
    projection: Projection
    definitions: Definitions = "by-reference"


class ToolLeftOut(Logged, frozen=True, tag="tool/left-out"):
    """A tool is not offered, or the model is not told all of it, and why.

    Attributes:
        name: The tool: its full name, or its server's own for one that was never offered.
        why: In one line.
        server: The server whose list it stands in, if that is why.
        route: `provider:model` on which it is so; empty where it holds everywhere.
        endpoint: Address of the endpoint that refused its definition, without credentials.
        definition: Digest of the definition concerned (`ToolSchema.definition`).
        partly: Whether it is offered all the same.
    """

    facts: ClassVar[Facts] = Facts(title="left out", surface=False, ignorable=True)

    name: str
    why: str
    server: str = ""
    route: str = ""
    endpoint: str = ""
    definition: str = ""
    partly: bool = False
