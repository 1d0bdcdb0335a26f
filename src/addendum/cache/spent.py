"""What a session's requests cost, from its log: tokens, money, and what was saved.

What a request cost and what no cache would have cost follow from what the provider reported. What
rebinding would have cost is an estimate: wherever the tools of a request are other ones than those
of the request before it, a new tool list would have had to be read instead, and with it all that
this request read from the cache, unless an earlier request with that very list was still there.
It says rather too much: that such a list holds nothing dead, and needs no dispatcher, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

from msgspec import Struct

from addendum.cache.cost import Cost, again, left_in_cache, price, summed
from addendum.errors import AddendumError
from addendum.log.events import EndSeed, Event, RequestContext, RequestHeader
from addendum.log.exchanges import FOLLOWED, Exchange, Exchanges
from addendum.log.values import ToolSchema, Usage
from addendum.routes import Route


class Spent(Struct, frozen=True):
    """One request that was sent.

    Attributes:
        n: Its number in the session.
        turn: Its turn.
        seq: Its event.
        route: `provider:model`.
        purpose: `turn`, `compaction` or `keep-alive`.
        inherited: Whether a parent of the session sent it.
        answered: Whether an answer came to its end.
        usage: What the provider counted.
        cost: What it cost; None if that is not known.
        rebinding: Tokens that a new tool list would have had read again; an estimate. None if
            that is not known.
        rebinding_cost: What these would have cost more, in US dollars.
    """

    n: int
    turn: int
    seq: int
    route: str
    purpose: str
    inherited: bool
    answered: bool
    usage: Usage
    cost: Cost | None
    rebinding: int | None
    rebinding_cost: Decimal | None


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
    at: float
    tools: frozenset[str]
    tokens: int | None


def spent(events: Iterable[Event], route_of: Callable[[str], Route]) -> list[Spent]:
    """Return the requests of a log with what they cost, in the order in which they were sent.

    Args:
        events: The log, or at least its events about requests, answers and forks.
        route_of: Gives a route by the name that a log has; what it does not know has no price.
    """
    follows = Exchanges()
    sent: list[tuple[Exchange, tuple[ToolSchema, ...]]] = []
    contexts: dict[int, RequestContext] = {}
    tools: tuple[ToolSchema, ...] = ()
    inherited = 0
    for event in events:
        data = event.data
        if isinstance(data, RequestHeader):
            tools = data.header.tools
        elif isinstance(data, RequestContext):
            contexts[event.seq] = data
        elif isinstance(data, EndSeed):
            inherited = len(sent)
        elif type(data) in FOLLOWED:
            each = follows.take(event)
            if each is not None and each.end is None:
                sent.append((each, tools))
    routes: dict[str, Route | None] = {}
    left: dict[str, list[_Left]] = {}
    found: list[Spent] = []
    for at, (each, active) in enumerate(sent):
        name = each.sent.route
        if name not in routes:
            routes[name] = _route(name, route_of)
        before = left.setdefault(name, [])
        context = contexts.get(each.sent.context_seq)
        found.append(_spent(each, at < inherited, active, context, routes[name], before))
    return found


def _route(name: str, route_of: Callable[[str], Route]) -> Route | None:
    try:
        return route_of(name)
    except AddendumError:
        return None


def _spent(
    own: Exchange,
    inherited: bool,
    tools: tuple[ToolSchema, ...],
    context: RequestContext | None,
    route: Route | None,
    before: list[_Left],
) -> Spent:
    """Return what a request cost, and put what it leaves in the cache behind `before`."""
    usage, when = own.usage, own.event.time / 1000
    # Without their order: a list written anew has each tool in the place it had before.
    identities = frozenset(tool.identity() for tool in tools)
    lost: int | None = None
    asked = None if context is None else context.ttl
    if route is not None:
        lifetime = route.cache.lifetime(asked)
        lost = _lost(before, identities, usage.cache_read, when, lifetime)
        if own.answered:
            tokens, _ = left_in_cache(usage, route.cache)
            before.append(_Left(when, identities, tokens))
    more = Decimal(0) if lost == 0 else None
    if route is not None and lost and usage.prompt is not None:
        more = again(route, lost, usage.prompt, when, hour=asked == "1h")
    return Spent(
        own.sent.number,
        own.sent.turn,
        own.event.seq,
        own.sent.route,
        own.sent.purpose,
        inherited,
        own.answered,
        usage,
        None if route is None else price(route, usage, when),
        lost,
        more,
    )


def totals(requests: Iterable[Spent]) -> Totals:
    """Add up requests; those without an answer or a count are counted apart."""
    sent = list(requests)
    counted = [each for each in sent if each.answered or each.usage.prompt is not None]

    def add(name: str) -> int | None:
        values: list[int | None] = [getattr(each.usage, name) for each in counted]
        return None if None in values else sum(value or 0 for value in values)

    more = [each.rebinding_cost for each in counted]
    return Totals(
        len(counted),
        len(sent) - len(counted),
        add("prompt"),
        add("cache_read"),
        add("cache_write"),
        add("output"),
        summed(each.cost for each in counted),
        None if None in more else sum((each or Decimal(0) for each in more), Decimal(0)),
    )


def _lost(
    before: list[_Left], tools: frozenset[str], read: int | None, now: float, lifetime: int
) -> int | None:
    """Return the tokens of what was read that a new tool list would have had read again."""
    if not before or before[-1].tools == tools:
        return 0
    if read is None:
        return None
    for each in reversed(before):
        if lifetime and now - each.at > lifetime:
            break
        if each.tools == tools:
            return max(0, read - (each.tokens or 0))
    return read
