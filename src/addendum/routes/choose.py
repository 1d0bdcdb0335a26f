"""From route data and configuration to what an epoch records: projection, context, downgrade.

This is the one place that turns what is known of a route into a `RequestContext`; from then on the
log says how an epoch renders, and later changes of the data do not touch it.

What a projection fixes, whatever the route:

===============  ===============  ============  ===========  ==========
projection       definitions      removals      readd        redefine
===============  ===============  ============  ===========  ==========
native           the route's      the route's   the route's  the route's
dispatch         by-value         text          text         yes
rebind           by-reference     omit          redeclare    no
===============  ===============  ============  ===========  ==========

By-value means that the definition stands in the history, by-reference that it stands in `tools`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from msgspec import structs

from addendum.checked import AtLeastOne, checks_arguments
from addendum.errors import ConfigurationError
from addendum.log.events import RequestContext
from addendum.log.values import Definitions, Projection, TailMode
from addendum.routes.model import Capabilities, Route
from addendum.routes.resolve import DISPATCH, by_reference
from addendum.routes.shapes import SHAPES
from addendum.routes.wires import wire_data

ToolChanges: TypeAlias = Literal["auto", "native", "dispatch", "rebind"]
TailChoice: TypeAlias = TailMode | Literal["auto"]
Lifetime: TypeAlias = Literal["5m", "1h"]

SYSTEM_ROLE = "role:system"
"""Name, among the fields of a request, of a system message inside `messages`."""

MESSAGE_TOOLS = "messages.tools"
"""Name, among the fields of a request, of a message that holds `tools` and no `content`."""

TOOLS_REFUSED = "tools:"
"""In front of a number, among the fields of a request: so many tools were refused."""


@checks_arguments
def choose_projection(
    route: Route,
    tool_changes: ToolChanges = "auto",
    *,
    has_servers: bool = False,
    has_deferred: bool = False,
    tool_dispatch: bool = False,
    tools: int = 0,
    rejected: Iterable[str] = (),
) -> Projection:
    """Return how tool changes are told on `route`.

    `auto` is native where the route's data says so; else dispatch if the configuration can meet a
    change (or the route was named `+dispatch`); else rebind. Where each removal breaks the prefix
    of a native route (`omit`), such a configuration is dispatched too, unless the route was named
    by that form (`+addition-only`). With more tools than the endpoint takes it is dispatch.

    Args:
        route: The route.
        tool_changes: What was asked for.
        has_servers: Whether MCP servers are configured.
        has_deferred: Whether a configured tool is deferred.
        tool_dispatch: Whether the dispatcher was asked for (B1).
        tools: How many tools are active.
        rejected: Fields that the endpoint has refused before.

    Raises:
        ConfigurationError: `native` on a route without the capability, or no such choice.
    """
    if tool_changes in ("dispatch", "rebind"):
        return tool_changes
    if tool_changes == "auto" and too_many(route, tools, rejected):
        return "dispatch"
    native = route.capabilities.tool_update
    if tool_changes == "native":
        if native is None:
            raise ConfigurationError(_no_native(route), route=route.name)
        return native
    breaks = route.capabilities.removals == "omit" and native not in route.facts
    if native is not None and not breaks:
        return native
    if has_servers or has_deferred or tool_dispatch or DISPATCH in route.facts:
        return "dispatch"
    return "rebind" if native is None else native


def too_many(route: Route, tools: int, rejected: Iterable[str] = ()) -> bool:
    """Say whether an endpoint is known to refuse so many tools.

    Args:
        route: The route.
        tools: How many are active.
        rejected: Fields that the endpoint has refused before.
    """
    counts = (each.removeprefix(TOOLS_REFUSED) for each in rejected if TOOLS_REFUSED in each)
    limit = route.schemas.tools
    refused = any(each.isdigit() and tools >= int(each) for each in counts)
    return refused or bool(limit and tools > limit)


def dispatching(route: Route, current: RequestContext) -> RequestContext:
    """Return an epoch like another one that tells tools through the dispatcher."""
    return _told(route, current, "dispatch", "by-value")


@checks_arguments
def context(
    route: Route,
    projection: Projection,
    *,
    tail: TailChoice = "auto",
    caching: bool = True,
    ttl: Lifetime | None = None,
    rendering: AtLeastOne = 1,
    rejected: Iterable[str] = (),
) -> RequestContext:
    """Return what an epoch on `route` records.

    Args:
        route: The route.
        projection: How tool changes are told, from `choose_projection`.
        tail: Where per-turn instructions stand; `auto` is the route's own choice.
        caching: Whether the cache is used. Without it they stand in the system text of their
            turn, which is what `moved` says, whatever `tail` asks for.
        ttl: Lifetime asked of marks; None is the provider's default. Not recorded on routes whose
            marks carry none.
        rendering: Number of the rendering.
        rejected: Fields that the endpoint has refused before; see `weaker`.

    Raises:
        ConfigurationError: The route cannot do what is asked for.
    """
    native = projection in ("in-history", "addition-only")
    if native and projection != route.capabilities.tool_update:
        raise ConfigurationError(_no_native(route), route=route.name)
    base = RequestContext(
        route=route.name,
        wire=route.wire,
        projection=projection,
        prompt_update=route.capabilities.prompt_update,
        tail=_tail(route, tail) if caching else "moved",
        caching=caching,
        ttl=_ttl(route, ttl) if caching else None,
        reasoning_bound=route.capabilities.reasoning_bound,
        cache_rules=route.cache.version,
        rendering=rendering,
        shows=route.capabilities.shows,
        avoids=route.shapes.refuses,
    )
    definitions = route.capabilities.definitions if native else "by-reference"
    chosen = _told(route, base, projection, definitions)
    return weaker(route, chosen, rejected) or chosen


def fields(route: Route, current: RequestContext) -> frozenset[str]:
    """Return the names that requests of an epoch may carry and an endpoint may refuse.

    These are block types, keys and beta flags, `SYSTEM_ROLE` and `MESSAGE_TOOLS`; a refusal that
    names one of them is answered with `weaker`.
    """
    names = set(current.betas)
    if current.projection in ("in-history", "addition-only"):
        told = wire_data(current.wire).fields
        names.update(told.always, route.block_betas)
        if current.removals == "block":
            names.update(told.removals)
        names.update(told.by_value if current.definitions == "by-value" else told.by_reference)
        if current.placeholder:
            names.update(told.placeholder)
    if current.prompt_update:
        names |= {SYSTEM_ROLE}
    if current.tail == "scoped":
        names |= {"clear_at", SYSTEM_ROLE}
    return frozenset(names)


def shapes(current: RequestContext) -> frozenset[str]:
    """Return the shapes that a history of an epoch may have and an endpoint may refuse."""
    taken = SHAPES if wire_data(current.wire).shaped else frozenset[str]()
    return taken.difference(current.avoids)


def weaker(route: Route, current: RequestContext, rejected: Iterable[str]) -> RequestContext | None:
    """Return the strongest way to go on that uses none of the rejected fields.

    The ladder is by-value, by-reference (where the route takes it), dispatch; on every rung,
    scoped tails, appended prompts and shapes of a history are given up if they were refused.

    Args:
        route: The route.
        current: What the refused request was rendered with.
        rejected: Names from `fields` and `shapes` that the endpoint's refusal named; others do not
            count.

    Returns:
        The context of the epoch that replaces this one, or None if nothing that was rejected is
        in use, so that no downgrade helps.
    """
    refused = frozenset(rejected)
    if not (fields(route, current) | shapes(current)) & refused:
        return None
    for rung in _ladder(route, current):
        candidate = _softened(route, rung, refused)
        if not fields(route, candidate) & refused:
            return candidate
    return None


def _ladder(route: Route, current: RequestContext) -> list[RequestContext]:
    """Return `current` and all that is weaker, the strongest first."""
    rungs = [current]
    if current.projection in ("in-history", "addition-only"):
        if current.definitions == "by-value" and "by-reference" in route.capabilities.also:
            rungs.append(_told(route, current, current.projection, "by-reference"))
        rungs.append(_told(route, current, "dispatch", "by-value"))
    return rungs


def _softened(route: Route, rung: RequestContext, refused: frozenset[str]) -> RequestContext:
    scoped = {beta.name for beta in route.capabilities.betas if beta.needed_for == "clear_at"}
    if rung.tail == "scoped" and refused & {"clear_at", SYSTEM_ROLE, *scoped}:
        rung = structs.replace(
            rung,
            tail="kept",
            betas=tuple(beta for beta in rung.betas if beta not in scoped),
        )
    if SYSTEM_ROLE in refused:
        rung = structs.replace(rung, prompt_update=False)
    if given_up := sorted(refused & shapes(rung)):
        rung = structs.replace(rung, avoids=(*rung.avoids, *given_up))
    return rung


def _told(
    route: Route, base: RequestContext, projection: Projection, definitions: Definitions
) -> RequestContext:
    """Return `base` with all that follows from a projection."""
    has = _form(route.capabilities, projection, definitions)
    needed = {definitions} if has.tool_update is not None else set[str]()
    needed |= {"clear_at"} if base.tail == "scoped" else set()
    return structs.replace(
        base,
        projection=projection,
        definitions=has.definitions,
        removals=has.removals,
        readd=has.readd,
        redefine=has.redefine,
        placeholder=has.placeholder,
        betas=tuple(beta.name for beta in has.betas if beta.needed_for in needed),
    )


def _form(
    capabilities: Capabilities, projection: Projection, definitions: Definitions
) -> Capabilities:
    if projection in ("in-history", "addition-only"):
        weaken = definitions == "by-reference" and capabilities.definitions == "by-value"
        return by_reference(capabilities) if weaken else capabilities
    dispatch = projection == "dispatch"
    return Capabilities(
        definitions="by-value" if dispatch else "by-reference",
        removals="text" if dispatch else "omit",
        readd="text" if dispatch else "redeclare",
        redefine=dispatch,
        betas=capabilities.betas,
    )


def _tail(route: Route, asked: TailChoice) -> TailMode:
    own = route.capabilities.tail
    if asked == "auto":
        return own
    # A route that has scoped instructions uses them by default, so the default tells.
    if asked == "scoped" and own != "scoped":
        raise ConfigurationError(
            f"{route.full_name} has no scoped instructions; use tail 'auto', 'kept' or 'moved'",
            route=route.name,
        )
    return asked


def _ttl(route: Route, asked: Lifetime | None) -> Lifetime | None:
    if route.cache.kind != "marks":
        return None
    there = [name for name in get_args(Lifetime) if name in route.cache.lifetimes]
    if asked is None:
        default = route.cache.lifetimes[0] if route.cache.lifetimes else None
        return next((name for name in there if name == default), None)
    if asked not in there:
        raise ConfigurationError(
            f"{route.full_name} has no cache lifetime {asked!r}; use {' or '.join(there)}",
            route=route.name,
        )
    return asked


def _no_native(route: Route) -> str:
    why = (
        "cannot be told of tool changes natively"
        if route.endpoint.vouched
        else "is not known to take tool changes at this address (trusted=True vouches for it)"
    )
    return f"{route.full_name} {why}; use tool_changes 'auto', 'dispatch' or 'rebind'"
