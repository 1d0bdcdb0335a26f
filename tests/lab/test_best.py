"""Every way beside the one that was taken; the measure does not know which that was."""

from __future__ import annotations

import pytest

from addendum.lab.best import best_of
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find

pytestmark = pytest.mark.anyio

CHAT = "openai-chat:gpt-4.1"


async def test_a_way_that_throws_the_cache_away_does_not_look_good() -> None:
    """Rebinding reads all that it could expect, and is told what it could have had."""
    scenario = find("flap")
    run = await run_scenario(scenario, CHAT, tool_changes="rebind")
    assert run.report.totals.ceiling_share == 1.0
    best = await best_of(scenario, CHAT, run)
    assert best.own.tool_changes == "rebind" and best.ways[0].tool_changes != "rebind"
    assert best.of_best < 0.7 and best.of_floor < best.of_best
    assert best.drops > 0 and best.money_of_best is not None and best.money_of_best < 1


async def test_every_way_of_a_route_is_tried_and_the_best_one_stands_first() -> None:
    scenario = find("tail")
    best = await best_of(scenario, CHAT)
    # The route has no native way, and instructions of a turn can stand in two places.
    tried = {(way.tool_changes, way.tail) for way in best.ways if way is not best.own}
    assert tried == {(way, tail) for way in ("dispatch", "rebind") for tail in ("kept", "moved")}
    assert [way.uncached for way in best.ways] == sorted(way.uncached for way in best.ways)
    assert best.floor.uncached < best.ways[0].uncached <= best.own.uncached
    assert best.floor.rounding > 0  # steps of 128 tokens


async def test_the_floor_is_the_same_whichever_way_was_taken() -> None:
    scenario = find("flap")
    floors = {
        (await best_of(scenario, CHAT, await run_scenario(scenario, CHAT, tool_changes=way))).floor
        for way in ("auto", "dispatch", "rebind")
    }
    assert len(floors) == 1
