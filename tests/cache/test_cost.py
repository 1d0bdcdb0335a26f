"""Money by hand: what a request cost, and what reading tokens again would."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from msgspec import Raw

from addendum.cache.cost import Cost, again, price, summed
from addendum.log.values import Usage
from addendum.routes import Route, resolve

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
NIGHT = datetime(2026, 11, 30, 2, tzinfo=UTC).timestamp()


def route(name: str) -> Route:
    return resolve(name, environ={})


OPUS = route("anthropic:claude-opus-5-5")


def cost(amount: str, saved: str) -> Cost:
    return Cost(Decimal(amount), Decimal(saved))


def test_claude_bills_reads_writes_and_the_rest_apart() -> None:
    # 45 x 4 + 12,000 x 0.2 + 300 x 5 + 120 x 20 = 6,480; without a cache 12,345 x 4 + 2,400.
    assert price(OPUS, Usage(12_345, 12_000, 300, 120), NOON) == cost("0.00648", "0.0453")


def test_a_first_request_costs_more_than_without_a_cache() -> None:
    # 1,000 x 5 + 10 x 20 = 5,200; without 4,200.
    assert price(OPUS, Usage(1000, 0, 1000, 10), NOON) == cost("0.0052", "-0.001")


def test_writes_for_an_hour_are_dearer() -> None:
    raw = Raw(
        b'{"cache_creation":{"ephemeral_5m_input_tokens":200,"ephemeral_1h_input_tokens":100}}'
    )
    # 45 x 4 + 12,000 x 0.2 + 200 x 5 + 100 x 8 + 2,400 = 6,780.
    found = price(OPUS, Usage(12_345, 12_000, 300, 120, raw), NOON)
    assert found is not None and found.amount == Decimal("0.00678")


@pytest.mark.parametrize("raw", [b"[]", b'{"cache_creation":7}', b'{"cache_creation":null}', b"x"])
def test_a_strange_usage_object_counts_as_one_without_hours(raw: bytes) -> None:
    found = price(OPUS, Usage(12_345, 12_000, 300, 120, Raw(raw)), NOON)
    assert found is not None and found.amount == Decimal("0.00648")


def test_a_long_prompt_pays_its_band_on_every_token() -> None:
    haiku = route("anthropic:claude-haiku-5-5")
    # 90,000 x 0.01 + 10,000 x 0.125 + 1,000 x 0.5 = 2,650.
    short = price(haiku, Usage(100_000, 90_000, 10_000, 1000), NOON)
    assert short is not None and short.amount == Decimal("0.00265")
    # 90,000 x 0.05 + 10,001 x 0.625 + 1,000 x 2.5 = 13,250.625.
    long = price(haiku, Usage(100_001, 90_000, 10_001, 1000), NOON)
    assert long is not None and long.amount == Decimal("0.013250625")


def test_deepseek_writes_for_nothing_and_has_two_prices_a_day() -> None:
    flash = route("deepseek:deepseek-flash")
    usage = Usage(1_000_000, 900_000, None, 100_000)
    # 100,000 x 0.15 + 900,000 x 0.003 + 100,000 x 0.6 = 77,700; without 210,000.
    assert price(flash, usage, NOON) == cost("0.0777", "0.1323")
    assert price(flash, usage, NIGHT) == cost("0.1554", "0.2646")


def test_openai_before_5_6_does_not_count_writes() -> None:
    # 16 x 2 + 9,984 x 0.5 + 100 x 8 = 5,824; without 20,800.
    found = price(route("openai-chat:gpt-4.1"), Usage(10_000, 9984, None, 100), NOON)
    assert found == cost("0.005824", "0.014976")


def test_openai_from_5_6_on_bills_writes_inside_the_prompt() -> None:
    # (10,000 - 8,000 - 1,500) x 2 + 8,000 x 0.1 + 1,500 x 2.5 + 100 x 10 = 6,550.
    found = price(route("openai-chat:gpt-6.1-sol"), Usage(10_000, 8000, 1500, 100), NOON)
    assert found is not None and found.amount == Decimal("0.00655")


@pytest.mark.parametrize(
    "usage",
    [
        Usage(None, 10, 10, 10),
        Usage(100, None, 10, 10),
        Usage(100, 10, None, 10),
        Usage(100, 10, 10, None),
        Usage(),
        Usage(100, 90, 20, 10),  # more than the whole
    ],
)
def test_a_figure_that_decides_and_is_missing_leaves_it_unknown(usage: Usage) -> None:
    assert price(OPUS, usage, NOON) is None


def test_a_route_without_a_price_leaves_it_unknown() -> None:
    nobody = route("compatible:anything")
    assert price(nobody, Usage(100, 10, 10, 10), NOON) is None
    assert again(nobody, 100, 100, NOON) is None


def test_reading_again_costs_the_write_less_the_read() -> None:
    # 41,200 x (5 - 0.2) = 197,760.
    assert again(OPUS, 41_200, 41_200, NOON) == Decimal("0.19776")
    # No price for writes: 41,200 x (2 - 0.5) = 61,800.
    assert again(route("openai-chat:gpt-4.1"), 41_200, 41_200, NOON) == Decimal("0.0618")
    assert again(OPUS, 0, 41_200, NOON) == 0
    # Asked to stay for an hour: 41,200 x (8 - 0.2) = 321,360; where there is no choice, as before.
    assert again(OPUS, 41_200, 41_200, NOON, hour=True) == Decimal("0.32136")
    assert again(route("openai-chat:gpt-4.1"), 100, 100, NOON, hour=True) == Decimal("0.00015")


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    one = cost("0.1", "0.2")
    assert summed([one, one]) == cost("0.2", "0.4")
    assert summed([one, None]) is None
    assert summed([]) is None
