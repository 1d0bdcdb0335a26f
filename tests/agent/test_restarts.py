"""A4, C4, V8 by whole scenarios: closed and opened anew at every step boundary, the same bytes.

The suite plays a sample; `ADDENDUM_EVERY` (`make matrix`) has every scenario with canned results on
every route.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from addendum.lab.runner import run_scenario
from addendum.lab.scenario import Redefine, Restart, Scenario, Step
from addendum.lab.scenario_file import find
from addendum.routes import describe

pytestmark = pytest.mark.anyio

HERE = Path(__file__).resolve()
SCENARIOS = HERE.parents[2] / "src" / "addendum" / "lab" / "scenarios"
EXAMPLES = HERE.parents[2] / "examples"
OTHERS = (
    "anthropic:claude-opus-5-5+by-reference",
    "anthropic:claude-opus-5-5+addition-only",
    "compatible:some-model",
)
SAMPLE = (
    ("redefine", "anthropic:claude-opus-5-5"),
    ("tail", "anthropic:claude-sonnet-4-6"),
    ("prompt-and-tool", "deepseek:deepseek-flash"),
    ("empty-head", "openai:gpt-6.1-sol"),
    ("shop", "openai-chat:gpt-4.1"),
    ("tail", "bedrock:anthropic.claude-opus-5-5"),
    ("redefine", "gemini:gemini-3.8-flash"),
)


def canned() -> Iterator[str]:
    """Names of the scenarios whose results do not depend on a real server."""
    for path in sorted([*SCENARIOS.glob("*.yaml"), *EXAMPLES.glob("*.yaml")]):
        scenario = loaded(path.stem)
        if all(server.canned for server in scenario.servers):
            yield path.stem


def loaded(name: str) -> Scenario:
    example = EXAMPLES / f"{name}.yaml"
    return find(str(example) if example.exists() else name, {})


def restarting(scenario: Scenario) -> Scenario:
    """Return the scenario with a restart behind every step but the last.

    A server that defines a tool anew tells those who are connected; a session that was opened anew
    hears of it when it uses the server next. So around such a step there is none.
    """
    steps: list[Step] = []
    for step, following in zip(scenario.steps, (*scenario.steps[1:], None), strict=True):
        told = [each for each in (step, following) if isinstance(each, Redefine) and each.server]
        steps += [step] if told or following is None else [step, Restart()]
    return structs.replace(scenario, steps=tuple(steps))


def every() -> Iterator[tuple[str, str]]:
    """Each scenario on each route that is named in our data, the lab speaking for its provider."""
    named = [each["route"] for each in describe() if not each["route"].endswith(":MODEL")]
    for name in canned():
        yield from ((name, route) for route in (*named, *OTHERS))


CASES = list(every() if "ADDENDUM_EVERY" in os.environ else SAMPLE)


@pytest.mark.parametrize(("name", "route"), CASES)
async def test_c4_a_restart_at_every_step_changes_no_byte(name: str, route: str) -> None:
    scenario = loaded(name)
    whole = await run_scenario(scenario, route)
    interrupted = await run_scenario(restarting(scenario), route)
    assert [each.body for each in interrupted.records] == [each.body for each in whole.records]
    assert [each.declared for each in interrupted.records] == [
        each.declared for each in whole.records
    ]
    assert interrupted.violations == whole.violations == ()
    assert interrupted.report.totals.undeclared_misses == 0
