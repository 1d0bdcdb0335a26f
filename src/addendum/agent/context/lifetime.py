"""Time: whether a session's cache is still there, what then, and for how long to ask.

A cache that has surely expired makes a change of the prompt's front free. Then a session may be
consolidated: what was added becomes part of the head, and definitions that nothing can call any
more go. It never is where that would cost reasoning that is bound to the exact prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from addendum.log.events import AssistantMessage, Event, RequestContext
from addendum.log.exchanges import exchanges
from addendum.log.session_log import SessionLog
from addendum.prompt.breaks import reasoning_floor
from addendum.prompt.projector import REASONING
from addendum.routes import Route
from addendum.routes.choose import Lifetime
from addendum.tools.ledger import Ledger
from addendum.wire.apis import facts

LifetimeChoice: TypeAlias = Lifetime | Literal["auto"]

_MARGIN = 2
"""A cache of marks is certainly cold after so many of its lifetimes: expiry is no exact moment."""

_DAYS = 7 * 86_400
"""Seconds after which any other cache is certainly cold: those who say more say hours to days."""

_WRITE_5M, _WRITE_1H, _READ = 1.25, 2.0, 0.1
"""What a token costs by Anthropic's prices, in tokens of plain input ("Prompt caching",
2026-09-26)."""


class Gap(Struct, frozen=True):
    """Two requests of a session's turns that follow on each other on a route.

    Attributes:
        seconds: From the one's start to the other's.
        kept: Tokens of the first one's prompt.
        new: Tokens that the second one has more; 0 if it has less.
    """

    seconds: float
    kept: int
    new: int


def certainly_cold(route: Route, context: RequestContext, idle: float) -> bool:
    """Say whether nothing of an epoch can be in the cache any more.

    Args:
        route: The route.
        context: The epoch.
        idle: Seconds since its last request was sent.
    """
    known = route.cache.lifetime(context.ttl)
    if not known or route.cache.kind == "none":
        return False
    return idle > (known * _MARGIN if route.cache.kind == "marks" else max(known, _DAYS))


def gaps(events: Sequence[Event], route: str) -> Iterator[Gap]:
    """Yield the gaps between the answered requests of a session's turns on a route, in order."""
    last: tuple[int, int] | None = None
    for each in exchanges(events):
        if not each.answered or each.purpose != "turn" or each.route != route:
            continue
        sent, prompt = each.event.time, each.usage.prompt
        if prompt is None:
            last = None
            continue
        if last is not None:
            at, before = last
            yield Gap((sent - at) / 1000, min(before, prompt), max(0, prompt - before))
        last = sent, prompt


def chosen_lifetime(events: Sequence[Event], route: Route) -> Lifetime | None:
    """Return the lifetime that would have been cheaper for the gaps so far.

    Args:
        events: The session's log.
        route: The route.

    Returns:
        `5m` or `1h`; None, the provider's default, where there were no gaps or no choice.
    """
    if not {"5m", "1h"} <= set(route.cache.lifetimes):
        return None
    seen = list(gaps(events, route.name))
    if not seen:
        return None

    def cost(seconds: int, write: float) -> float:
        return sum(
            _READ * gap.kept + write * gap.new
            if gap.seconds <= seconds
            else write * (gap.kept + gap.new)
            for gap in seen
        )

    return "1h" if cost(3600, _WRITE_1H) < cost(300, _WRITE_5M) else "5m"


def consolidates(
    log: SessionLog, route: Route, context: RequestContext | None, idle: float | None
) -> bool:
    """Say whether the coming request folds what was added into the head (D13).

    Args:
        log: The session's log.
        route: Its route.
        context: What the last epoch there recorded.
        idle: Seconds since its last request was sent.
    """
    if context is None or idle is None or context.projection == "rebind":
        return False
    if not certainly_cold(route, context, idle) or not _tells_changes(log):
        return False
    return not (context.reasoning_bound and _reasons(log, route, facts(route).kind))


def _tells_changes(log: SessionLog) -> bool:
    """Say whether the history tells a change of tools that a new head would spare it."""
    ledger = Ledger()
    ledger.read(log)
    return bool(ledger.updates())


def _reasons(log: SessionLog, route: Route, kind: Callable[..., str]) -> bool:
    """Say whether reasoning on the surface is still valid on a route."""
    floor = reasoning_floor(log.rare, route.name)
    return any(
        isinstance(node.data, AssistantMessage)
        and node.data.route == route.name
        and node.seq >= floor
        and any(kind(raw) in REASONING for raw in node.data.native)
        for node in log.surface.nodes
    )
