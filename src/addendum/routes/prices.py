"""What tokens cost on a route at a time: `prices.toml`, and `genai-prices` where it is installed.

Prices are list prices in US dollars. A route that goes to an address nobody vouches for has no
price here: a gateway makes its own.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from datetime import date, datetime
from datetime import time as clock
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

from addendum.moments import moment
from addendum.routes.model import Route

PACKAGE = "genai_prices"
"""A package of prices that is asked for models the table does not know, if it is there."""

_PACKAGE_PROVIDERS = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "openai-chat": "openai",
    "openrouter": "openrouter",
    "moonshot": "moonshotai",
    "xai": "x-ai",
    "groq": "groq",
    "mistral": "mistral",
    "zai": "zai",
}

_BILLED_AS = {"openai": "openai-chat", "deepseek-chat": "deepseek"}
"""Providers whose models cost what they cost at another one of the table."""


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars per million tokens.

    Attributes:
        input: Input that is neither read from the cache nor written to it.
        output: Output.
        read: Input read from the cache.
        write: Input written to the cache; None if that costs what plain input costs.
        write_1h: Input written for an hour; None if that costs what any write costs.
    """

    input: Decimal
    output: Decimal
    read: Decimal
    write: Decimal | None = None
    write_1h: Decimal | None = None


class Prices(Struct, frozen=True):
    """What a model costs at one time.

    Attributes:
        rates: What tokens cost.
        long: What all tokens of a long prompt cost, if that is something else.
        long_from: A prompt of more tokens than this is long.
        source: Where the figures come from.
        checked: Day on which the source was read.
    """

    rates: Rates
    long: Rates | None = None
    long_from: int = 0
    source: str = ""
    checked: str = ""

    def of(self, prompt: int) -> Rates:
        """Return what tokens cost in a request whose prompt has so many."""
        return self.long if self.long is not None and prompt > self.long_from else self.rates


class _Row(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    models: tuple[str, ...]
    rates: Rates
    since: date | None = None
    hours: tuple[tuple[clock, clock], ...] = ()
    long: Rates | None = None
    long_from: int = 0
    source: str | None = None
    checked: str | None = None

    def holds(self, at: datetime) -> bool:
        moment = at.time().replace(tzinfo=None)
        return (self.since is None or at.date() >= self.since) and (
            not self.hours or any(begin <= moment < end for begin, end in self.hours)
        )


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    price: tuple[_Row, ...]
    source: str
    checked: str
    suffix: str = ""


@cache
def _table() -> _File:
    text = resources.files("addendum.routes").joinpath("prices.toml").read_text("utf-8")
    # As decimals: a fraction must not become a binary one on the way.
    return msgspec.convert(tomllib.loads(text, parse_float=Decimal), _File)


def prices(route: Route, when: float) -> Prices | None:
    """Return what tokens cost on a route.

    Args:
        route: The route. On a loopback address it costs what the provider it stands for costs.
        when: Time of the request, in seconds since the epoch.

    Returns:
        The prices, or None where they are not known.
    """
    if not route.endpoint.vouched:
        return None
    at = moment(when)
    if at is None:
        return None
    table = _table()
    provider = _BILLED_AS.get(route.provider, route.provider)
    for row in table.price:
        if row.provider == provider and row.holds(at) and _names(row, route.model, table):
            return Prices(
                row.rates,
                row.long,
                row.long_from,
                row.source or table.source,
                row.checked or table.checked,
            )
    return _from_package(provider, route.model, at)


def _names(row: _Row, model: str, table: _File) -> bool:
    known = "|".join(re.escape(name) for name in row.models)
    return re.fullmatch(f"(?:{known}){table.suffix}", model) is not None


def _from_package(billed: str, model_id: str, at: datetime) -> Prices | None:
    """Ask `genai-prices`, whose wheel carries its data: nothing is fetched."""
    name = _PACKAGE_PROVIDERS.get(billed)
    if name is None or importlib.util.find_spec(PACKAGE) is None:
        return None
    package: Any = importlib.import_module(f"{PACKAGE}.data")
    provider = next((each for each in package.providers if each.id == name), None)
    model = None if provider is None else provider.find_model(model_id)
    if model is None:
        return None
    found = model.get_prices(at)
    if found.input_mtok is None or found.output_mtok is None:
        return None
    limits = [
        tier.start
        for price in (found.input_mtok, found.output_mtok)
        for tier in getattr(price, "tiers", ())
    ]
    if len(set(limits)) > 1:
        return None  # Several bands cannot be said here: better no figure than a wrong one.
    long_from = limits[0] if limits else 0
    return Prices(
        _band(found, 0),
        _band(found, long_from + 1) if limits else None,
        long_from,
        f"genai-prices {importlib.import_module(PACKAGE).__version__}",
    )


def _band(found: Any, prompt: int) -> Rates:
    def rate(name: str) -> Decimal | None:
        price: Any = getattr(found, name, None)
        for tier in getattr(price, "tiers", ()):
            if prompt > tier.start:
                return tier.price
        return getattr(price, "base", price)

    full = rate("input_mtok") or Decimal(0)
    read = rate("cache_read_mtok")
    return Rates(
        full,
        rate("output_mtok") or Decimal(0),
        full if read is None else read,
        rate("cache_write_mtok"),
        rate("cache_write_1h_mtok"),
    )
