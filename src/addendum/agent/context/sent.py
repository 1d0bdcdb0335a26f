"""What the log says of the requests that were sent, by route: a fold of it."""

from __future__ import annotations

from typing import ClassVar

from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CacheKept,
    CompactionFailed,
    Event,
    RequestContext,
    RequestSent,
    RouteDowngrade,
    ToolLeftOut,
)
from addendum.log.exchanges import FOLLOWED, Exchanges
from addendum.routes import Route

RENDERING = 2
"""Number of this release's rendering; epochs begun under another keep theirs."""

KNOWN_RENDERINGS = frozenset({1, 2})
"""Renderings that this release can continue."""


class SentRequests:
    """The requests of a session by its log.

    Attributes:
        number: How many were sent so far.
        latest: The latest epoch in the log, on whatever route.
        lost: Everything that tools lost on their way to the model.
    """

    kinds: ClassVar[frozenset[type]] = FOLLOWED | {RequestContext, RouteDowngrade, ToolLeftOut}

    def __init__(self) -> None:
        self.number = 0
        self.latest: RequestContext | None = None
        self.lost: set[ToolLeftOut] = set()
        self._exchanges = Exchanges()
        self._contexts: dict[str, tuple[int, RequestContext]] = {}
        self._used: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        self._rejected: dict[tuple[str, str], frozenset[str]] = {}
        self._left_out: dict[tuple[str, str], frozenset[str]] = {}
        self._answered: dict[str, int] = {}
        self._refused: set[str] = set()
        self._begun: dict[str, Event] = {}
        self._turns: dict[str, Event] = {}
        self._aside: set[str] = set()

    def take(self, event: Event) -> None:
        """Take in what says something of requests."""
        data = event.data
        exchange = self._exchanges.take(event)
        if exchange is not None:
            sent = exchange.sent
            self.number = sent.number
            if exchange.end is None:
                self._left(event, sent)
            elif exchange.answered:
                # A lifetime runs from the start of the request that wrote or read.
                self._used[sent.route] = exchange.event.time
                self._answered[sent.route] = exchange.event.seq
                self._refused.discard(sent.route)
            elif isinstance(data, AssistantAttempt) and data.status in (400, 422):
                self._refused.add(sent.route)
        if isinstance(data, AssistantMessage):
            self._aside.discard(data.route)
        elif isinstance(data, CompactionFailed | CacheKept):
            if data.route is not None:
                self._aside.add(data.route)
        elif isinstance(data, RequestContext):
            self._contexts[data.route] = (event.seq, data)
            self.latest = data
        elif isinstance(data, CacheBreak) and data.drops_reasoning:
            self._floors[data.route] = event.seq
        elif isinstance(data, RouteDowngrade):
            key = data.route, data.endpoint
            self._rejected[key] = self._rejected.get(key, frozenset()).union(data.rejected)
        elif isinstance(data, ToolLeftOut):
            self.lost.add(data)
            if data.endpoint:
                key = data.route, data.endpoint
                self._left_out[key] = self._left_out.get(key, frozenset()) | {data.definition}

    def _left(self, event: Event, sent: RequestSent) -> None:
        if sent.purpose == "turn":
            self._turns[sent.route] = event
            self._aside.discard(sent.route)
        else:
            self._begun.setdefault(sent.route, event)

    def context(self, route: str) -> tuple[int, RequestContext]:
        """Return the last epoch on a route and its seq; there is one."""
        return self._contexts[route]

    def recorded(self, route: str) -> RequestContext | None:
        """Return what the last epoch on a route recorded, if this release can continue it."""
        logged = self._contexts.get(route)
        return logged[1] if logged and logged[1].rendering in KNOWN_RENDERINGS else None

    def idle(self, route: str, now: float) -> float | None:
        """Return the seconds since the last answered request on a route was sent; None if none."""
        used = self._used.get(route)
        return None if used is None else now - used / 1000

    def floor(self, route: str) -> int:
        """Return the seq in front of which reasoning is no longer valid on a route; -1 if none."""
        return self._floors.get(route, -1)

    def rejected(self, route: Route) -> frozenset[str]:
        """Return the fields that the route's endpoint has refused in this session."""
        return self._rejected.get((route.name, route.endpoint.base_url), frozenset())

    def left_out(self, route: Route) -> frozenset[str]:
        """Return the digests of definitions that the route's endpoint has refused here."""
        return self._left_out.get((route.name, route.endpoint.base_url), frozenset())

    def answered(self, route: str) -> int | None:
        """Return the seq of the last answered request on a route; None if none was."""
        return self._answered.get(route)

    def refused_since(self, route: str) -> int | None:
        """Return the seq of the last answered request on a route, if a later one was refused.

        -1 if none was answered; None if none was refused since.
        """
        return self._answered.get(route, -1) if route in self._refused else None

    def in_turn(self, route: str) -> bool:
        """Say whether a turn sent a request on a route."""
        return route in self._turns

    def goes_on_from(self, route: str) -> Event | None:
        """Return the request that the next one on a route extends: the last turn's, else any."""
        return self._turns.get(route) or self._begun.get(route)

    def answered_aside(self, route: str) -> bool:
        """Say whether the last answer on a route, since a turn's request left, was no turn's."""
        return route in self._aside

    def ahead(self, route: str) -> tuple[CacheBreak, ...]:
        """Return the breaks that the coming request bears, those of one nobody answered too."""
        return self._exchanges.ahead(route)
