"""Keep-alive: a request that is sent for nothing but to keep a session's cache from expiring.

It is never sent by itself. What one costs is said first, and how soon the next one is due; whoever
wants the cache to stay asks for each.
"""

from __future__ import annotations

from contextlib import aclosing
from decimal import Decimal

from msgspec import Struct

from addendum.agent.context.epochs import outside_turns
from addendum.agent.context.exchange import Asking
from addendum.agent.runtime import Runtime
from addendum.cache.cost import again, left_in_cache
from addendum.errors import ConfigurationError
from addendum.log.events import CacheKept
from addendum.log.values import Usage
from addendum.routes.prices import prices

_SHARE = 0.8
"""Part of a lifetime after which the next request is due: it needs time to arrive."""


class KeepAlive(Struct, frozen=True):
    """What keeping a cache takes.

    Attributes:
        tokens: Tokens that are kept, and read by each request.
        due: Seconds from now until one has to be sent; 0 if at once.
        every: Seconds between two.
        cost: US dollars for one, its few tokens of output left out; None if that is not known.
        lost: US dollars that it costs more to write all of it anew once it has expired.
    """

    tokens: int
    due: float
    every: float
    cost: Decimal | None
    lost: Decimal | None


def quote(run: Runtime) -> KeepAlive:
    """Return what keeping the session's cache takes.

    Raises:
        ConfigurationError: There is nothing to keep, or no lifetime is known.
    """
    route, now = run.route, run.setup.clock()
    context, idle = run.state.sent.recorded(route.name), run.idle()
    if context is None or idle is None:
        raise ConfigurationError("nothing was sent here yet; there is no cache to keep")
    seconds = route.cache.lifetime(context.ttl)
    held = _readable(run)
    if not seconds or route.cache.kind == "none" or not context.caching:
        raise ConfigurationError(
            f"{route.full_name} has no cache of a known lifetime to keep", route=route.name
        )
    if idle > seconds or not held:
        raise ConfigurationError("there is nothing in the cache any more; the next turn fills it")
    found = prices(route, now)
    read = None if found is None else held * found.of(held).read / 1_000_000
    every = seconds * _SHARE
    # A clock that was set back since says nothing of how long it was.
    due = min(every, max(0.0, every - idle))
    lost = again(route, held, held, now, hour=context.ttl == "1h")
    return KeepAlive(held, due, every, read, lost)


def _readable(run: Runtime) -> int | None:
    """Return the tokens in the cache that a request of now reads; None if they are not known.

    That is what the last request left in whose time nothing was said that was cut or summed up
    since.
    """
    answer = run.state.answers.standing(run.route.name)
    return 0 if answer is None else left_in_cache(answer.usage, run.route.cache)[0]


async def keep(run: Runtime) -> Usage:
    """Send one request that reads all of the session's cache; return what it cost.

    Raises:
        ConfigurationError: As `quote`.
        ProviderError: The request failed.
    """
    quote(run)
    request = Asking(run, outside_turns(run), purpose="keep-alive")
    async with aclosing(request.events()) as events:
        async for _ in events:
            pass
    run.log.append(CacheKept(run.route.name, request.answer.usage))
    await run.flush()
    return request.answer.usage
