"""List prices: what the table says, and when it says something else."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from addendum.routes import prices as module
from addendum.routes import resolve
from addendum.routes.data import providers
from addendum.routes.prices import Rates, prices


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = at("2026-11-30T12:00:00")


def rates(route: str, when: float = NOW, prompt: int = 1000) -> Rates | None:
    found = prices(resolve(route, environ={}), when)
    return None if found is None else found.of(prompt)


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package_of_prices")


def test_every_row_can_be_met_and_reads_cost_less_than_input() -> None:
    rows = module._table().price
    for row in rows:
        assert row.provider in providers()
        for model in row.models:
            assert providers()[row.provider].row(model) is not None
        for band in filter(None, (row.rates, row.long)):
            assert 0 < band.read < band.input < band.output
            assert band.write is None or band.input < band.write
            assert band.write_1h is None or (band.write is not None and band.write < band.write_1h)
        assert (row.long is None) == (row.long_from == 0)
    # An earlier row without a condition would hide a later one of the same model.
    always: set[tuple[str, str]] = set()
    for row in rows:
        names = {(row.provider, model) for model in row.models}
        assert not names & always
        if row.since is None and not row.hours:
            always |= names


def test_the_multipliers_of_claude_are_the_published_ones() -> None:
    read = {"claude-opus-5-5": 20, "claude-fable-5-1": 40, "claude-sonnet-5-5": 20}
    for model in ("claude-opus-5", "claude-haiku-4-5", "claude-sonnet-4-6", *read):
        found = rates(f"anthropic:{model}")
        assert found is not None and found.write is not None
        assert found.write == found.input * Decimal("1.25")
        assert found.write_1h == found.input * 2
        assert found.input == found.read * read.get(model, 10)


def test_a_dated_id_costs_what_its_model_costs(no_package: None) -> None:
    assert rates("anthropic:claude-opus-5-5-20260901") == rates("anthropic:claude-opus-5-5")
    assert rates("anthropic:claude-opus-5-5@20260901") is not None
    assert rates("openai-chat:gpt-4o-2024-05-13") is None


def test_a_price_that_changed_counts_from_its_day_on() -> None:
    before = rates("anthropic:claude-sonnet-5-5", at("2026-10-06T23:59:59"))
    after = rates("anthropic:claude-sonnet-5-5", at("2026-10-07T00:00:00"))
    assert before is not None and before.read == Decimal("0.2")
    assert after is not None and after.read == Decimal("0.1")


@pytest.mark.parametrize(
    ("clock", "dear"),
    [
        *(("00:59:59", False), ("01:00:00", True), ("03:59:59", True), ("04:00:00", False)),
        *(("06:00:00", True), ("09:59:59", True), ("10:00:00", False)),
    ],
)
def test_deepseek_costs_twice_as_much_in_its_busy_hours(clock: str, dear: bool) -> None:
    found = rates("deepseek:deepseek-flash", at(f"2026-11-30T{clock}"))
    assert found is not None
    assert found.input == (Decimal("0.3") if dear else Decimal("0.15"))


def test_a_long_prompt_has_its_own_price() -> None:
    short = rates("anthropic:claude-haiku-5-5", prompt=100_000)
    long = rates("anthropic:claude-haiku-5-5", prompt=100_001)
    assert short is not None and short.input == Decimal("0.1")
    assert long is not None and long.input == Decimal("0.5")


def test_what_is_not_known_has_no_price(no_package: None) -> None:
    assert rates("compatible:anything") is None
    assert rates("anthropic:claude-3-5-haiku") is None
    assert rates("deepseek:deepseek-v4-pro", at("2026-08-16T12:00:00")) is None


@pytest.mark.parametrize("when", [1e15, -1e15, 1e300])
def test_at_a_time_that_is_no_date_there_is_no_price(when: float) -> None:
    assert rates("anthropic:claude-opus-5-5", when) is None


def test_a_gateway_makes_its_own_prices() -> None:
    own = resolve("anthropic:claude-opus-5-5", environ={})
    lab = resolve("anthropic:claude-opus-5-5", base_url="http://127.0.0.1:1/anthropic")
    gateway = resolve("anthropic:claude-opus-5-5", base_url="https://gateway.example")
    assert prices(own, NOW) == prices(lab, NOW) is not None
    assert prices(gateway, NOW) is None


class _Tiered(SimpleNamespace):
    pass


def _package(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    model = SimpleNamespace(get_prices=lambda when: found)
    provider = SimpleNamespace(
        id="anthropic", find_model=lambda name: model if name == "claude-3-5-haiku" else None
    )
    package, data = ModuleType("prices_of_a_test"), ModuleType("prices_of_a_test.data")
    package.__spec__ = SimpleNamespace(name="prices_of_a_test")  # type: ignore[assignment]
    package.__version__ = "9.9"  # type: ignore[attr-defined]
    data.providers = [provider]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "prices_of_a_test", package)
    monkeypatch.setitem(sys.modules, "prices_of_a_test.data", data)
    monkeypatch.setattr(module, "PACKAGE", "prices_of_a_test")


def test_a_package_of_prices_is_asked_where_the_table_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tiers(low: str, high: str) -> _Tiered:
        tier = SimpleNamespace(start=200_000, price=Decimal(high))
        return _Tiered(base=Decimal(low), tiers=[tier])

    _package(
        monkeypatch,
        SimpleNamespace(
            input_mtok=tiers("3", "6"),
            output_mtok=tiers("15", "22.5"),
            cache_read_mtok=tiers("0.3", "0.6"),
            cache_write_mtok=None,
        ),
    )
    route = resolve("anthropic:claude-3-5-haiku", environ={})
    found = prices(route, NOW)
    assert found is not None and found.source == "genai-prices 9.9"
    assert found.of(200_000) == Rates(Decimal(3), Decimal(15), Decimal("0.3"))
    assert found.of(200_001) == Rates(Decimal(6), Decimal("22.5"), Decimal("0.6"))
    assert rates("anthropic:claude-9") is None


def test_a_package_without_a_price_of_output_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    _package(monkeypatch, SimpleNamespace(input_mtok=Decimal(3), output_mtok=None))
    assert rates("anthropic:claude-3-5-haiku") is None


def test_the_package_agrees_with_the_table() -> None:
    """Runs where `genai-prices` is installed: both say the same of every model both know."""
    package = pytest.importorskip("genai_prices")
    assert re.match(r"\d+\.\d+", package.__version__)
    when = datetime.fromtimestamp(NOW, UTC)
    for row in module._table().price:
        for model in row.models:
            route = resolve(f"{row.provider}:{model}", environ={})
            theirs = module._from_package(row.provider, model, when)
            ours = prices(route, NOW)
            assert ours is not None
            if theirs is not None:
                assert (theirs.rates, theirs.long) == (ours.rates, ours.long), model
