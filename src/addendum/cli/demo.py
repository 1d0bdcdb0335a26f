"""`addendum demo`: what tool changes cost on each route, beside rebinding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from addendum.cli.flags import FILE, NAME, NEW_FILE
from addendum.cli.live import asked_for_live, live_options, run_live
from addendum.cli.run import problems
from addendum.cli.terminal import echo, json_option, line, print_json, run_async, style
from addendum.paths import told
from addendum.routes import resolve
from addendum.tell.figures import number, percent

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

_HEADS = ("share", "expected", "ceiling", "not read", "misses", "undecl.")
_LEGEND = """\
share     part of the prompt tokens that was read from the cache
expected  part of what the request before had left there
ceiling   the same, without what lies behind breaks declared beforehand
not read  prompt tokens that were not read from the cache
undecl.   misses without a reason that was logged before the request was sent"""


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
                echo(f"\n{_size(scenario)}; a token is a byte\n{line(by, 79)}")
                titled = True
            if not quiet:
                echo(table_rows(*runs[-1]))
    except EngineUnavailable as error:
        if not quiet:
            echo(f"\n{line(f'No real engine: {error}', 79)}")
        return str(error)
    return None


def _size(scenario: Scenario) -> str:
    from addendum.lab.scenario import Compact, Say

    turns = [step for step in scenario.steps if isinstance(step, Say)]
    summaries = sum(isinstance(step, Compact) for step in scenario.steps)
    requests = sum(len(step.entries) for step in turns) + summaries
    return f"{line(scenario.name, 30)}: {len(turns)} turns, {requests} requests"


def table_heads() -> str:
    """Return the table's titles."""
    head = "".join(each.rjust(wide) for each, wide in zip(_HEADS, _WIDTHS, strict=True))
    return style(f"{'':{_LABEL}}{head}", bold=True)


_LABEL = 27
_WIDTHS = (8, 10, 9, 10, 8, 8)


def table_rows(*runs: Run) -> str:
    """Return a route's rows: its name, and one row a run."""
    return "\n".join([style(line(runs[0].route, 79), bold=True), *(_row(run) for run in runs)])


def _row(run: Run) -> str:
    totals = run.report.totals
    cells = (
        percent(totals.share),
        percent(totals.expected_share),
        percent(totals.ceiling_share),
        number(totals.prompt_tokens - totals.cache_read) if totals.share is not None else "-",
        str(totals.misses),
        str(totals.undeclared_misses),
    )
    shown = "".join(cell.rjust(wide) for cell, wide in zip(cells, _WIDTHS, strict=True))
    return f"  {_told(run):{_LABEL - 2}}{shown}"


def _told(run: Run) -> str:
    context = run.context
    if context.projection == "rebind":
        return "rebinding"
    if context.projection == "in-history":
        return f"in-history, {context.definitions.replace('-', ' ')}"
    return context.projection


def table_end(runs: Sequence[tuple[Run, ...]]) -> str:
    """Return what stands below the table: its words, what was broken, whether all rules hold.

    Args:
        runs: The runs of each route, ours first.
    """
    lines = ["", _LEGEND]
    for ours, *_ in runs:
        for reason, lost in ours.broken().items():
            lines.append(line(f"{ours.route}: {number(lost)} tokens broken: {reason}", 79))
        lines += [line(f"{ours.route}: {note}", 79) for note in ours.notes()]
    failed = [each for pair in runs for each in pair if not each.holds]
    for run in failed:
        lines += [f"{line(run.route, 40)} ({_told(run)})", *problems(run)]
    verdict = "Not all rules hold." if failed else "All rules hold."
    lines += ["", style(verdict, fg="red" if failed else "green")]
    return "\n".join(lines)
