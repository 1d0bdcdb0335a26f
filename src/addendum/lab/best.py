"""The best way there is: every way of sending a scenario, run and compared.

    found = await best_of(find("g2"), "deepseek:deepseek-flash")
    found.of_best, found.of_floor

A way is what a caller of the public API can choose: how tool changes are told, and where a turn's
instructions stand. Nothing here knows which one `auto` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, get_args

from msgspec import UNSET, Struct

from addendum.cache.cost import price
from addendum.cache.floor import Floor, drops, floor
from addendum.checked import checks_arguments
from addendum.errors import ConfigurationError
from addendum.lab.records import lab_count, rules_of
from addendum.lab.report import Run
from addendum.lab.runner import run_scenario
from addendum.lab.scenario import Scenario, SetTexts
from addendum.lab.server import Clock
from addendum.log.values import TailMode
from addendum.routes import ToolChanges, resolve


class Sending(Struct, frozen=True):
    """One way of sending, and what it cost.

    Attributes:
        tool_changes: How tool changes were told, as it was asked for.
        tail: Where a turn's instructions stood.
        uncached: Tokens of all prompts that were not read from the cache.
        money: US dollars by the route's list prices; None if they are not known.
    """

    tool_changes: ToolChanges
    tail: TailMode
    uncached: int
    money: float | None


class Best(Struct, frozen=True):
    """A run beside every other way of sending the same, and beside what nobody avoids.

    Attributes:
        own: The run's own way.
        ways: All ways that the route takes, the cheapest in tokens first.
        floor: What no way reads.
        drops: Requests of the run that read less than the one before them had.
    """

    own: Sending
    ways: tuple[Sending, ...]
    floor: Floor
    drops: int

    @property
    def of_best(self) -> float:
        """Uncached tokens of the best way as a part of the run's own; 1 where it is the best."""
        return _part(self.ways[0].uncached, self.own.uncached)

    @property
    def of_floor(self) -> float:
        """The same of the floor."""
        return _part(self.floor.uncached, self.own.uncached)

    @property
    def money_of_best(self) -> float | None:
        """Money of the cheapest way as a part of the run's own; None if a price is not known."""
        prices = [way.money for way in self.ways if way.money is not None]
        if not prices or self.own.money is None:
            return None
        return _part(min(prices), self.own.money)

    def json(self) -> dict[str, Any]:
        """Return the object that stands under `best` in `addendum run --best --json`."""
        return {
            "uncached": self.own.uncached,
            "of_best": self.of_best,
            "of_floor": self.of_floor,
            "money_of_best": self.money_of_best,
            "floor": self.floor.uncached,
            "rounding": self.floor.rounding,
            "drops": self.drops,
            "ways": [
                {
                    "tool_changes": way.tool_changes,
                    "tail": way.tail,
                    "uncached": way.uncached,
                    "money": way.money,
                }
                for way in self.ways
            ],
        }


def _part(less: float, more: float) -> float:
    return min(1.0, less / more) if more else 1.0


@checks_arguments
async def best_of(
    scenario: Scenario, route: str, run: Run | None = None, *, clock: Clock | None = None
) -> Best:
    """Run a scenario in every way that a route takes, in the lab, and compare.

    Args:
        scenario: What happens.
        route: `provider:model`, with any `+FACT`.
        run: The run to compare, if it is there already; else one with `auto`.
        clock: The time that caches go by; real time by default.

    Raises:
        ConfigurationError: The scenario cannot be run so.
        ProviderError: The lab's script has no answer.
    """
    if run is None:
        run = await run_scenario(scenario, route, clock=clock)
    own = measured(run)
    ways, floors = [own], [floor_of(run)]
    for tool_changes in ("native", "dispatch", "rebind"):
        for tail in _tails(scenario):
            try:
                other = await run_scenario(
                    scenario, route, tool_changes=tool_changes, tail=tail, clock=clock
                )
            except ConfigurationError:
                continue  # The route has no such way.
            ways.append(measured(other))
            floors.append(floor_of(other))
    ways.sort(key=lambda way: way.uncached)
    # Longer prompts reach a minimum sooner, plain ones have less to say: what neither avoids.
    lowest = min(floors, key=lambda each: each.uncached)
    return Best(own, tuple(ways), lowest, drops(run.report.requests))


def _tails(scenario: Scenario) -> Sequence[TailMode]:
    """Return places of a turn's instructions that differ; one if a scenario has none."""
    told = scenario.turn_instructions is not None or any(
        isinstance(step, SetTexts) and step.turn_instructions not in (None, UNSET)
        for step in scenario.steps
    )
    return get_args(TailMode) if told else ("kept",)


def measured(run: Run) -> Sending:
    """Return what a run cost."""
    uncached, money = 0, 0.0
    unpriced = False
    for row, record in run.rows():
        uncached += (row.prompt_tokens or 0) - (row.cache_read or 0)
        paid = price(resolve(record.route, environ={}), record.usage, record.time_sent)
        unpriced = unpriced or paid is None
        money += 0 if paid is None else float(paid.amount)
    return Sending(run.tool_changes, run.context.tail, uncached, None if unpriced else money)


def floor_of(run: Run) -> Floor:
    """Return the floor of a run, each route by its own rules."""
    whole = Floor()
    by_route = sorted(run.records, key=lambda record: record.route)
    for name, group in groupby(by_route, lambda record: record.route):
        whole += floor(list(group), rules_of(resolve(name, environ={}).cache), lab_count)
    return whole
