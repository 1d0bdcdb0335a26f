"""What a session's requests cost, from its log: tokens, money, and what was saved.

What a request cost and what no cache would have cost follow from what the provider reported. What
rebinding would have cost is an estimate: wherever the tools of a request are other ones than those
of the request before it, a new tool list would have had to be read instead, and with it all that
this request read from the cache, unless an earlier request with that very list was still there.
It says rather too much: that such a list holds nothing dead, and needs no dispatcher, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from msgspec import Struct

from addendum.cache.cost import Cost, again, left_in_cache, price, summed
from addendum.errors import AddendumError
from addendum.log import codec
from addendum.log.events import Event
from addendum.log.exchanges import FOLLOWED, Exchange, Exchanges
from addendum.log.values import Usage
from addendum.routes import Route

_COUNTED = ("request/", "assistant/", "compaction/", "cache/kept", "session/end-seed")
"""Kinds of events that say what requests cost; the others need not be decoded."""


class Spent(Struct, frozen=True):
    """A request that was sent, and what it cost.

    Attributes:
        request: The request.
        cost: What it cost; None if that is not known.
        left: Tokens that the last turn's request on its route left in the cache, at most its own
            prompt; None if that is not known, or it was not answered.
        rebinding: Tokens that a new tool list would have had read again; an estimate. None if
            that is not known.
        rebinding_cost: What these would have cost more, in US dollars.
    """

    request: Exchange
    cost: Cost | None = None
    left: int | None = None
    rebinding: int | None = None
    rebinding_cost: Decimal | None = None

    @property
    def short(self) -> int:
        """Tokens that were left in the cache by the request before, and not read."""
        read = self.request.usage.cache_read
        return 0 if self.left is None or read is None else max(0, self.left - read)


class Totals(Struct, frozen=True):
    """Sums over requests; a figure that one of them does not know is not known.

    Attributes:
        requests: How many were sent and counted by their provider.
        uncounted: How many more were sent that got no answer and no count: what was refused cost
            nothing, what was cut off may have cost something.
        prompt: Tokens of their prompts.
        cache_read: Tokens read from the cache.
        cache_write: Tokens written to it.
        output: Tokens that came back.
        cost: What they cost.
        rebinding: US dollars that rebinding would have cost more; an estimate.
    """

    requests: int
    uncounted: int
    prompt: int | None
    cache_read: int | None
    cache_write: int | None
    output: int | None
    cost: Cost | None
    rebinding: Decimal | None


class _Left(Struct, frozen=True):
    """What an answered request left in the cache: when, with which tools, how many tokens."""

    when: float
    tools: frozenset[str]
    tokens: int | None


class Bill:
    """Follows the requests of a log, and what each of them cost.

    Args:
        route_of: Gives a route by the name that a log has; what it does not know has no price.

    Attributes:
        requests: The requests so far, in the order in which they were sent.
    """

    def __init__(self, route_of: Callable[[str], Route]) -> None:
        self.requests: list[Spent] = []
        self._route_of = route_of
        self._routes: dict[str, Route | None] = {}
        self._follows = Exchanges()
        self._left: dict[str, list[_Left]] = {}
        self._latest: dict[str, Usage] = {}

    @property
    def own(self) -> list[Spent]:
        """The requests that no parent of the session sent."""
        return self.requests[self._follows.inherited :]

    def take(self, event: Event) -> Spent | None:
        """Take in the next event; return the request that begins or ends with it."""
        if type(event.data) not in FOLLOWED:
            return None
        request = self._follows.take(event)
        if request is None:
            return None
        if request.end is None:
            self.requests.append(self._priced(request))
        else:
            self.requests[-1] = self._priced(request)
            if request.answered:
                self._keep(request)
        return self.requests[-1]

    def _priced(self, request: Exchange) -> Spent:
        route, usage = self._route(request.route), request.usage
        if route is None:
            return Spent(request)
        hour = request.context is not None and request.context.ttl == "1h"
        lost = self._lost(request, route)
        more = Decimal(0) if lost == 0 else None
        if lost and usage.prompt is not None:
            more = again(route, lost, usage.prompt, request.time, hour=hour)
        return Spent(
            request,
            cost=price(route, usage, request.time),
            left=self._readable(request, route),
            rebinding=lost,
            rebinding_cost=more,
        )

    def _route(self, name: str) -> Route | None:
        if name not in self._routes:
            try:
                self._routes[name] = self._route_of(name)
            except AddendumError:
                self._routes[name] = None
        return self._routes[name]

    def _readable(self, request: Exchange, route: Route) -> int | None:
        """Return the tokens that an answered request could have read.

        What was counted of one that was cut off need not be all that was read.
        """
        before, prompt = self._latest.get(request.route), request.usage.prompt
        if before is None or prompt is None or not request.answered:
            return None
        tokens, _ = left_in_cache(before, route.cache)
        return None if tokens is None else min(tokens, prompt)

    def _lost(self, request: Exchange, route: Route) -> int | None:
        """Return the tokens of what was read that a new tool list would have had read again."""
        before, tools = self._left.get(request.route), _identities(request)
        if not before or before[-1].tools == tools:
            return 0
        read = request.usage.cache_read
        if read is None:
            return None
        context = request.context
        lifetime = route.cache.lifetime(None if context is None else context.ttl)
        for earlier in reversed(before):
            if lifetime and request.time - earlier.when > lifetime:
                break
            if earlier.tools == tools:
                return max(0, read - (earlier.tokens or 0))
        return read

    def _keep(self, request: Exchange) -> None:
        """Note what an answered request left in the cache."""
        if request.purpose == "turn":
            self._latest[request.route] = request.usage
        route = self._route(request.route)
        if route is not None:
            tokens, _ = left_in_cache(request.usage, route.cache)
            kept = _Left(request.time, _identities(request), tokens)
            self._left.setdefault(request.route, []).append(kept)


def _identities(request: Exchange) -> frozenset[str]:
    """Return a request's tools without their order: a new list has each in the place it had."""
    tools = () if request.header is None else request.header.tools
    return frozenset(tool.identity() for tool in tools)


def billed(events: Iterable[Event], route_of: Callable[[str], Route]) -> Bill:
    """Return the bill of a log.

    Args:
        events: The log, or at least its events of the types in `log.exchanges.FOLLOWED`.
        route_of: Gives a route by the name that a log has; what it does not know has no price.
    """
    bill = Bill(route_of)
    for event in events:
        bill.take(event)
    return bill


def totals(requests: Iterable[Spent]) -> Totals:
    """Add up requests; those without an answer or a count are counted apart."""
    sent = list(requests)
    counted = [each for each in sent if each.request.counted]

    def add(name: str) -> int | None:
        values: list[int | None] = [getattr(each.request.usage, name) for each in counted]
        return None if None in values else sum(value or 0 for value in values)

    more = [each.rebinding_cost for each in counted]
    return Totals(
        requests=len(counted),
        uncounted=len(sent) - len(counted),
        prompt=add("prompt"),
        cache_read=add("cache_read"),
        cache_write=add("cache_write"),
        output=add("output"),
        cost=summed(each.cost for each in counted),
        rebinding=None if None in more else sum((each or Decimal(0) for each in more), Decimal(0)),
    )


def totals_of(stored: Sequence[bytes], route_of: Callable[[str], Route]) -> Totals | None:
    """Return what a session's own requests cost; None if this release cannot read it.

    Args:
        stored: Its events as they are stored.
        route_of: As for `billed`.
    """
    try:
        events = [codec.decode_event(raw) for raw in stored if _counts(raw)]
    except AddendumError:
        return None
    return totals(billed(events, route_of).own)


def _counts(raw: bytes) -> bool:
    """Say whether a stored event is about a request; its type stands in front of its content."""
    _, found, rest = raw.partition(b'"data":{"type":"')
    return not found or rest[:40].decode(errors="replace").startswith(_COUNTED)
