"""`addendum demo`: what tool changes cost on each route, beside rebinding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from addendum.cli.flags import FILE, NAME, NEW_FILE
from addendum.cli.live import asked_for_live, live_options, run_live
from addendum.cli.run_table import table_end, table_heads, table_rows
from addendum.cli.terminal import echo, json_option, print_json, run_async
from addendum.lines import one_line
from addendum.paths import told
from addendum.routes import resolve

if TYPE_CHECKING:
    from addendum.lab.report import Run
    from addendum.lab.scenario import Scenario

ROUTES = (
    "anthropic:claude-opus-5-5",
    "anthropic:claude-opus-5-5+by-reference",
    "anthropic:claude-sonnet-4-6",
    "deepseek:deepseek-flash",
    "openai:gpt-6.1-sol",
    "openai:gpt-4.1",
    "moonshot:kimi-k3",
    "openai-chat:gpt-4.1",
    "bedrock:anthropic.claude-sonnet-4-6",
    "gemini:gemini-4-argon",
)
"""Routes that are shown unless others are asked for: each wire, and each way of telling a change
on it."""

SCENARIO = "g2"
"""The scenario that is played unless another is asked for."""


@click.command()
@click.option(
    "--scenario",
    type=FILE,
    default=SCENARIO,
    show_default=True,
    metavar="NAME",
    help="Name or file.",
)
@click.option(
    "--route", "routes", type=NAME, multiple=True, metavar="R", help="A route; may be repeated."
)
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="A scenario variable.")
@click.option(
    "--report",
    type=NEW_FILE,
    metavar="FILE.html",
    help="Write a page with charts as well: one file, nothing is fetched.",
)
@live_options
@json_option
def demo(
    scenario: str,
    routes: tuple[str, ...],
    values: tuple[str, ...],
    report: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Play a scenario in the lab on each route, beside writing the tool list anew.

    Unless routes or another scenario are asked for, a real engine measures a small scenario of
    its own as well. Needs no key and no network. Exit code 1 if a rule is broken or a miss was
    not declared.

    With --live --route R --max-cost USD a small scenario is measured at the route's own endpoint:
    that needs a key and costs money, which is said first and asked for.
    """
    own = scenario != SCENARIO or bool(values)
    asked = asked_for_live(routes, own, as_json, live)
    if asked is not None:
        raise click.exceptions.Exit(run_live(*asked))
    from addendum.lab.engine.server import check_program
    from addendum.lab.places import given_values
    from addendum.lab.scenario_file import find
    from addendum.lab.server import base_path

    if scenario == SCENARIO and not routes:
        check_program()
    found = find(scenario, given_values(values))
    for route in routes:
        resolve(route, environ={})  # what cannot be played is told before anything is printed
        base_path(route.partition(":")[0])
    runs: list[tuple[Run, Run]] = []
    if not as_json:
        echo(f"{_size(found)}; simulated by published rules\n\n{table_heads()}")
    for route in routes or ROUTES:
        runs.append(run_async(_pair, found, route))
        if not as_json:
            echo(table_rows(*runs[-1]))
    why = _measure(runs, quiet=as_json) if scenario == SCENARIO and not routes else None
    if as_json:
        said = {} if why is None else {"engine_unavailable": why}
        print_json({"runs": [each.json() for pair in runs for each in pair], **said})
    else:
        echo(table_end(runs))
    if report is not None:
        from addendum.lab.report_page import page

        with told("write", report, "name another file"):
            report.write_text(page(runs, why), "utf-8")
        if not as_json:
            echo(f"written: {report}")
    if not all(each.holds for pair in runs for each in pair):
        raise click.exceptions.Exit(1)


async def _pair(scenario: Scenario, route: str) -> tuple[Run, Run]:
    from addendum.lab.runner import run_scenario

    ours = await run_scenario(scenario, route)
    return ours, await run_scenario(scenario, route, tool_changes="rebind")


async def _pair_on_engine(scenario: Scenario, wire: str) -> tuple[Run, Run]:
    from addendum.lab.engine.run import run_on_engine

    ours = await run_on_engine(scenario, wire)
    return ours, await run_on_engine(scenario, wire, "rebind")


def _measure(runs: list[tuple[Run, Run]], quiet: bool) -> str | None:
    """Add what the real engine measures on its own scenario; return why it cannot, if so."""
    from addendum.lab.engine.run import ROUTES as surfaces
    from addendum.lab.engine.run import SCENARIO as own
    from addendum.lab.engine.server import EngineUnavailable
    from addendum.lab.scenario_file import find

    scenario, titled = find(own), quiet
    try:
        for wire in surfaces:
            runs.append(run_async(_pair_on_engine, scenario, wire))
            if not titled:
                by = f"measured by {runs[-1][0].engine}, a real engine; the script speaks"
                echo(f"\n{_size(scenario)}; a token is a byte\n{one_line(by, 79)}")
                titled = True
            if not quiet:
                echo(table_rows(*runs[-1]))
    except EngineUnavailable as error:
        if not quiet:
            echo(f"\n{one_line(f'No real engine: {error}', 79)}")
        return str(error)
    return None


def _size(scenario: Scenario) -> str:
    from addendum.lab.scenario import Compact, Say

    turns = [step for step in scenario.steps if isinstance(step, Say)]
    summaries = sum(isinstance(step, Compact) for step in scenario.steps)
    requests = sum(len(step.entries) for step in turns) + summaries
    return f"{one_line(scenario.name, 30)}: {len(turns)} turns, {requests} requests"
