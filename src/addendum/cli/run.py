"""`addendum run`: one scenario on one route."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from addendum.cli.flags import BASE_URL, FILE, NAME
from addendum.cli.terminal import (
    echo,
    json_option,
    print_json,
    run_async,
    store_option,
    style,
    table,
    wrapped,
)
from addendum.lines import one_line
from addendum.routes import ToolChanges
from addendum.tell.figures import number, percent

if TYPE_CHECKING:
    from addendum.lab.best import Best
    from addendum.lab.report import Run


@click.command()
@click.argument("file", type=FILE)
@click.option("--route", type=NAME, required=True, metavar="R", help="provider:model[+FACT].")
@click.option(
    "--base-url", type=BASE_URL, metavar="URL", help="An endpoint that answers in place of the lab."
)
@click.option(
    "--tool-changes",
    type=click.Choice(get_args(ToolChanges)),
    default="auto",
    show_default=True,
    help="How tool changes are told.",
)
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="A scenario variable.")
@click.option("--best", is_flag=True, help="Compare with every other way, run in the lab.")
@store_option
@json_option
def run(
    file: str,
    route: str,
    base_url: str | None,
    tool_changes: ToolChanges,
    values: tuple[str, ...],
    best: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Run the scenario FILE (or one that comes with addendum, by its name) on a route.

    Without --base-url the lab answers by the scenario's script. With it the endpoint answers.
    """
    from addendum.lab.best import best_of
    from addendum.lab.places import given_values
    from addendum.lab.runner import run_scenario
    from addendum.lab.scenario_file import find

    if best and base_url is not None:
        raise click.UsageError("--best runs every way in the lab; leave --base-url out")
    scenario = find(file, given_values(values))

    async def play() -> tuple[Run, Best | None]:
        done = await run_scenario(
            scenario, route, tool_changes=tool_changes, base_url=base_url, store=store
        )
        return done, await best_of(scenario, route, done) if best else None

    done, compared = run_async(play)
    if as_json:
        print_json(done.json() | ({} if compared is None else {"best": compared.json()}))
    else:
        echo("\n".join([_shown(done), *([] if compared is None else _beside(compared))]))
    if not done.holds:
        raise click.exceptions.Exit(1)


def _shown(run: Run) -> str:
    context = run.context
    by = "simulated by published rules" if run.captures else "as the endpoint reported"
    rows: list[list[str]] = []
    for row, record in run.rows():
        miss = ""
        if row.miss is not None:
            miss = f"{'' if row.miss.declared else 'UNDECLARED '}{row.miss.reason}"
        rows.append(
            [
                str(row.n),
                str(row.turn) if record.purpose == "turn" else "sum",
                number(row.prompt_tokens),
                number(row.cache_read),
                number(row.expected),
                number(row.ceiling),
                one_line(miss, 37),
            ]
        )
    heads = ("n", "turn", "prompt", "read", "expected", "ceiling", "miss")
    totals = run.report.totals
    lines = [
        wrapped(
            f"{one_line(run.scenario, 40)} on {run.route}: {context.projection}, definitions "
            f"{context.definitions}, removals {context.removals}, tail {context.tail}; {by}"
        ),
        "",
        table(heads, rows, right=range(6)),
        "",
        f"read {percent(totals.share)} of {number(totals.prompt_tokens)} prompt tokens; "
        f"{percent(totals.expected_share)} of what could be expected,",
        f"{percent(totals.ceiling_share)} of what was left after declared breaks; "
        f"misses: {totals.misses}, undeclared: {totals.undeclared_misses}",
    ]
    lines += [f"broken: {number(lost)} tokens, {reason}" for reason, lost in run.broken().items()]
    lines += [f"note: {each}" for each in run.notes()]
    lines += problems(run)
    return "\n".join(lines)


def _beside(best: Best) -> list[str]:
    """Return how a run stands beside every other way, and beside what nobody avoids."""
    money = best.money_of_best
    rows = [
        [
            way.tool_changes,
            way.tail,
            number(way.uncached),
            "" if way.money is None else f"${way.money:.4f}",
            "this run" if way is best.own else "",
        ]
        for way in best.ways
    ]
    return [
        "",
        table(("tool changes", "tail", "uncached", "money", ""), rows, right=(2, 3)),
        "",
        f"of the best way: {percent(best.of_best)} in tokens"
        + ("" if money is None else f", {percent(money)} in money"),
        f"of the floor (what is new, sent once: {number(best.floor.uncached)} tokens): "
        f"{percent(best.of_floor)}",
        f"of which the provider's step and minimum: {number(best.floor.rounding)}",
        f"requests that read less than the one before had: {number(best.drops)}",
    ]


def problems(run: Run) -> list[str]:
    """Return what does not hold, a line each."""
    found = [
        style(
            one_line(f"{each.rule} broken by request {each.n}: {each.path} {each.text}", 200),
            fg="red",
        )
        for each in run.violations
    ]
    for row in run.report.requests:
        if row.miss is not None and not row.miss.declared and row.miss.reason != "provider":
            said = f"undeclared miss in request {row.n} at {row.miss.at}: {row.miss.reason}"
            found.append(style(one_line(said, 200), fg="red"))
    return found
