"""What a request cost, what the cache saved of it, and what reading tokens again would cost.

Pure functions of reported usage and list prices. What is not known stays unknown: a figure is
never guessed, and a missing one never counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec
from msgspec import Struct, UnsetType

from addendum.log.values import Usage
from addendum.routes import CacheRules, Route
from addendum.routes.prices import Rates, prices

_MILLION = Decimal(1_000_000)


class Cost(Struct, frozen=True):
    """Money in US dollars.

    Attributes:
        amount: What the request cost.
        saved: What it would have cost more with no cache at all; negative where writing to the
            cache cost more than reading from it saved.
    """

    amount: Decimal
    saved: Decimal


def price(route: Route, usage: Usage, when: float) -> Cost | None:
    """Return what a request cost by the route's list prices.

    Args:
        route: The route that answered it.
        usage: What the provider reported.
        when: When it was sent, in seconds since the epoch.

    Returns:
        The cost; None if the price is not known, or a count that decides it was not reported.
    """
    found = prices(route, when)
    if found is None or usage.prompt is None or usage.output is None or usage.cache_read is None:
        return None
    rates = found.of(usage.prompt)
    if rates.write is None:
        # Written tokens are plain input here, whether or not they were counted.
        written: int | None = 0
    else:
        written = usage.cache_write
    if written is None:
        return None
    hour = min(written, written_for_an_hour(usage)) if rates.write_1h is not None else 0
    fresh = usage.prompt - usage.cache_read - written
    if fresh < 0:
        return None
    amount = (
        fresh * rates.input
        + usage.cache_read * rates.read
        + (written - hour) * _write(rates)
        + hour * (rates.write_1h or Decimal(0))
        + usage.output * rates.output
    ) / _MILLION
    without = (usage.prompt * rates.input + usage.output * rates.output) / _MILLION
    return Cost(amount, without - amount)


def again(
    route: Route, tokens: int, prompt: int, when: float, *, hour: bool = False
) -> Decimal | None:
    """Return what it costs more that tokens are not read from the cache but written to it anew.

    Args:
        route: The route.
        tokens: The tokens.
        prompt: Tokens of the whole prompt that they are part of.
        when: The time, in seconds since the epoch.
        hour: Whether what is written is asked to stay for an hour.

    Returns:
        US dollars, or None if the price is not known.
    """
    found = prices(route, when)
    if found is None:
        return None
    rates = found.of(prompt)
    write = rates.write_1h if hour and rates.write_1h is not None else _write(rates)
    return tokens * (write - rates.read) / _MILLION


def left_in_cache(usage: Usage, rules: CacheRules) -> tuple[int | None, bool]:
    """Return the tokens that a request left in the cache, and whether that is an estimate.

    Args:
        usage: What the provider reported of it.
        rules: How its route caches.

    Returns:
        The tokens, or None if they are not known.
    """
    prompt, read, written = usage.prompt, usage.cache_read, usage.cache_write
    if prompt is None:
        return None, False
    match rules.kind:
        case "marks" | "boundaries":
            # Both are billed, so they are the stored part to the token.
            if read is not None and written is not None:
                return read + written, False
            return (prompt if prompt >= rules.minimum else 0), True
        case "steps":
            return (prompt // rules.step * rules.step if prompt >= rules.minimum else 0), True
        case "units":
            # The end of an output is the end of a unit too.
            whole = prompt + (usage.output or 0)
            return (whole if whole >= rules.minimum else 0), usage.output is None
        case "none":
            # Whoever reports reads has a cache; how it works is not known.
            return (None if read is None else prompt), True


def summed(costs: Iterable[Cost | None]) -> Cost | None:
    """Add costs up; None if there are none or one of them is not known."""
    amount, saved, count = Decimal(0), Decimal(0), 0
    for cost in costs:
        if cost is None:
            return None
        amount, saved, count = amount + cost.amount, saved + cost.saved, count + 1
    return Cost(amount, saved) if count else None


def _write(rates: Rates) -> Decimal:
    return rates.input if rates.write is None else rates.write


class _Creation(Struct):
    ephemeral_1h_input_tokens: int | None = None


class _Raw(Struct):
    cache_creation: _Creation | None = None


def written_for_an_hour(usage: Usage) -> int:
    """Return the tokens written for an hour, which Anthropic counts beside all that were written.

    Source: Claude docs "Prompt caching" (2026-09-26), `usage.cache_creation`.
    """
    if isinstance(usage.raw, UnsetType):
        return 0
    try:
        creation = msgspec.json.decode(bytes(usage.raw), type=_Raw).cache_creation
    except msgspec.MsgspecError:
        return 0
    return max(0, (creation and creation.ephemeral_1h_input_tokens) or 0)
