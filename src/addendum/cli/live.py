"""`addendum demo --live`: a small g2 at a real endpoint, beside writing the tool list anew.

It costs money, so the price is said and asked for before anything is sent. What is shown and kept
are figures that the endpoint reported; what it did not report stays unknown.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Struct

from addendum import encoding
from addendum.cache.cost import price
from addendum.cli.flags import BASE_URL, DOLLARS, PATH, check_folder, unwritable
from addendum.cli.live_run import (
    SCENARIO,
    WAYS,
    Estimate,
    Outcome,
    estimated,
    live_scenario,
    measured,
    new_marker,
    total_cost,
)
from addendum.cli.run_table import table_end, table_heads, table_rows
from addendum.cli.terminal import echo, print_json, run_async, wrapped
from addendum.errors import ConfigurationError
from addendum.lines import one_line
from addendum.log.values import Usage
from addendum.routes import Route, credentials, resolve
from addendum.routes.prices import prices
from addendum.tell.figures import money, number
from addendum.version import __version__

if TYPE_CHECKING:
    from addendum.lab.report import Run

RESULTS = "docs/live-results"
"""Where results are kept unless another folder is named."""

F = TypeVar("F", bound=Callable[..., Any])


class Wanted(Struct, frozen=True):
    """What the command line asks for.

    Attributes:
        max_cost: US dollars.
        base_url: Another address for the route's provider.
        keep: Folder to keep the figures in.
        yes: Go on without asking.
        as_json: Print JSON.
    """

    max_cost: Decimal
    base_url: str | None = None
    keep: Path | None = None
    yes: bool = False
    as_json: bool = False


# -- the command ----------------------------------------------------------------------------


def live_options(command: F) -> F:
    """Add the options that go with `--live` to a command; it gets them by keyword."""
    for option in reversed(
        (
            click.option(
                "--live",
                is_flag=True,
                help="Measure at a real endpoint; needs --route, --max-cost, a key.",
            ),
            click.option(
                "--max-cost", type=DOLLARS, metavar="USD", help="Live: stop once this is passed."
            ),
            click.option("--base-url", type=BASE_URL, metavar="URL", help="Live: another address."),
            click.option(
                "--keep",
                type=PATH,
                metavar="[DIR]",
                is_flag=False,
                flag_value=RESULTS,
                help=f"Live: keep the figures in a dated file; in {RESULTS} if DIR is left out.",
            ),
            click.option("--yes", is_flag=True, help="Live: do not ask."),
        )
    ):
        command = option(command)
    return command


def asked_for_live(
    routes: Sequence[str], own_scenario: bool, as_json: bool, given: dict[str, Any]
) -> tuple[str, Wanted] | None:
    """Return the route and what is wanted of it, or None without `--live`.

    Args:
        routes: Routes that were named.
        own_scenario: Whether a scenario or a variable of one was named.
        as_json: Whether JSON is to be printed.
        given: What the options of `live_options` hold.

    Raises:
        UsageError: The options do not go together.
    """
    if not given["live"]:
        for name in ("max_cost", "base_url", "keep", "yes"):
            if given[name] is not None and given[name] is not False:
                raise click.UsageError(f"--{name.replace('_', '-')} goes with --live only")
        return None
    if len(routes) != 1:
        raise click.UsageError(
            "--live measures one route; name it with --route, and a limit with --max-cost USD"
        )
    if own_scenario:
        raise click.UsageError("--live has a scenario of its own; leave --scenario and --set out")
    most = given["max_cost"]
    if most is None:
        raise click.UsageError("--live costs money; say how much it may with --max-cost USD")
    keep = given["keep"]
    return routes[0], Wanted(
        Decimal(str(most)),
        given["base_url"],
        keep,
        given["yes"],
        as_json,
    )


def run_live(name: str, wanted: Wanted) -> int:
    """Say the price, ask, measure, and show what was measured.

    Returns:
        0 if all rules hold, 1 if not, or if it was not wanted or stopped on the way.

    Raises:
        AddendumError: It cannot be run so, or no request was answered.
    """
    route = resolve(name, base_url=wanted.base_url)
    address = urlsplit(route.endpoint.url).netloc
    credentials(route)
    markers = [new_marker() for _ in WAYS]
    scenarios = [live_scenario(route, marker) for marker in markers]
    estimate = run_async(estimated, route, scenarios)
    _affordable(estimate, wanted, route)
    if wanted.keep is not None:
        check_folder(wanted.keep)
    # JSON stands alone on stdout.
    echo(_price_said(estimate, wanted, route, address), err=wanted.as_json)
    if not wanted.yes and not click.confirm("Go on?", default=False, err=wanted.as_json):
        echo("Nothing was sent.", err=wanted.as_json)
        return 1
    moment = datetime.now(UTC)
    outcome = run_async(measured, route, scenarios, wanted.max_cost)
    figures = _figures(route, moment, estimate, wanted, outcome)
    unkept: ConfigurationError | None = None
    if wanted.keep is not None:
        try:
            figures["kept"] = str(_keep(wanted.keep, route, moment, figures))
        except ConfigurationError as error:
            unkept = error
    if wanted.as_json:
        print_json(figures)
    else:
        echo(_shown(route, moment, outcome))
        kept = figures.get("kept")
        said = f"Kept in {kept}" if kept else f"--keep keeps these figures in {RESULTS}."
        echo(f"\n{said}")
    if unkept is not None:
        raise unkept
    holds = outcome.stopped is None and all(run.holds for run in outcome.runs)
    return 0 if holds else 1


# -- the price ------------------------------------------------------------------------------


def _affordable(estimate: Estimate, wanted: Wanted, route: Route) -> None:
    """Refuse what is too dear, or what nobody can be asked about."""
    if estimate.cost is None:
        if not wanted.yes:
            raise ConfigurationError(
                f"the price of {route.full_name} is not known, so --max-cost cannot stop it; "
                f"about {number(estimate.prompt)} prompt tokens would be sent; add --yes if "
                "that is well"
            )
    elif estimate.cost > wanted.max_cost:
        raise ConfigurationError(
            f"about {_money(estimate.cost)} would be used, more than --max-cost "
            f"{_money(wanted.max_cost)}; allow more, or take another route"
        )
    if not wanted.yes and not _terminal():
        raise ConfigurationError(
            f"about {_money(estimate.cost)} would be used and there is no terminal to ask at; "
            "add --yes if that is well"
        )


def _terminal() -> bool:
    return sys.stdin.isatty()


def _price_said(estimate: Estimate, wanted: Wanted, route: Route, address: str) -> str:
    about = (
        f"{SCENARIO} on {route.full_name} at {address}, once told as the route allows and once "
        f"with the tool list written anew: about {estimate.requests} requests, "
        f"{number(estimate.prompt)} prompt tokens and {number(estimate.output)} of output, by four "
        "bytes a token."
    )
    found = prices(route, time.time())
    if found is None:
        cost = "What they cost is not known, so --max-cost cannot stop it."
    else:
        dated = f" of {found.checked}" if found.checked else ""
        cost = (
            f"About {_money(estimate.cost)} by the list prices{dated}, "
            f"{_money(estimate.uncached)} if nothing were read from the cache; no request leaves "
            f"once {_money(wanted.max_cost)} are passed."
        )
    return f"{wrapped(about)}\n{wrapped(cost)}\n"


# -- showing and keeping --------------------------------------------------------------------


def _shown(route: Route, moment: datetime, outcome: Outcome) -> str:
    from addendum.log.events import RouteDowngrade

    runs = outcome.runs
    lines = [f"{SCENARIO}: measured at {route.full_name}, {moment:%Y-%m-%d}"]
    if route.endpoint.loopback:
        lines.append("A server on this machine answered: these are not a provider's figures.")
    lines += ["", table_heads(), table_rows(*runs), ""]
    costs = [f"{_way(run)} {_money(_cost(route, run))}" for run in runs]
    lines.append(f"cost by list prices: {', '.join(costs)}")
    for run in runs:
        totals = run.report.totals
        if totals.unknown:
            said = f"{totals.unknown} requests did not report all figures and are in no sum"
            lines.append(f"{_way(run)}: {said}")
        if totals.provider_misses:
            lines.append(f"{_way(run)}: {totals.provider_misses} misses are the provider's own")
        for event in run.sessions[0].events:
            if isinstance(event.data, RouteDowngrade):
                told = f"{', '.join(event.data.rejected)} refused, going on by"
                lines.append(one_line(f"{_way(run)}: {told} {event.data.projection}", 79))
    lines.append(table_end([runs]))
    if outcome.stopped is not None:
        lines += ["", wrapped(one_line(f"Stopped: {outcome.stopped}", 400))]
    return "\n".join(lines)


def _figures(
    route: Route, moment: datetime, estimate: Estimate, wanted: Wanted, outcome: Outcome
) -> dict[str, Any]:
    """Return all that is printed as JSON and kept: figures, and no text of the conversations."""
    stopped = outcome.stopped
    code = None if stopped is None else str(getattr(stopped, "code", None) or "provider error")
    return {
        "measured": {
            "route": route.full_name,
            "date": f"{moment:%Y-%m-%d}",
            "time": f"{moment:%H:%M:%S}Z",
            "address": urlsplit(route.endpoint.url).netloc,
            "loopback": route.endpoint.loopback,
            "addendum": __version__,
        },
        "estimate": {
            "requests": estimate.requests,
            "prompt_tokens": estimate.prompt,
            "output_tokens": estimate.output,
            "cost": _dollars(estimate.cost),
            "uncached_cost": _dollars(estimate.uncached),
        },
        "max_cost": _dollars(wanted.max_cost),
        "cost": {_way(run): _dollars(_cost(route, run)) for run in outcome.runs},
        "stopped": None if code is None else one_line(code, 60),
        "runs": [_run_figures(run) for run in outcome.runs],
    }


def _run_figures(run: Run) -> dict[str, Any]:
    figures = run.json()
    for row, (_, record) in zip(figures["requests"], run.rows(), strict=True):
        row["output_tokens"] = record.usage.output
        row["usage"] = _counts(record.usage)
    # What a violation says may quote the conversation.
    figures["violations"] = [
        {"rule": each.rule, "n": each.n, "path": each.path} for each in run.violations
    ]
    return figures


def _counts(usage: Usage) -> dict[str, Any]:
    """Return the numbers of what the provider itself reported."""

    def numbers(value: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, each in value.items():
            if isinstance(each, dict):
                kept[name] = numbers(cast("dict[str, Any]", each))
            elif isinstance(each, int | float) and not isinstance(each, bool):
                kept[name] = each
        return kept

    raw = usage.raw
    value = None if isinstance(raw, msgspec.UnsetType) else encoding.decode(bytes(raw))
    return numbers(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}


def _keep(folder: Path, route: Route, moment: datetime, found: dict[str, Any]) -> Path:
    """Write a new file, named by day and route; what is there already stays."""
    name = f"{moment:%Y-%m-%d}-{re.sub(r'[^A-Za-z0-9.+-]+', '-', route.full_name)[:100]}"
    text = msgspec.json.format(encoding.encode(found), indent=2) + b"\n"
    for count in range(1, 1000):
        path = folder / f"{name}{'' if count == 1 else f'-{count}'}.json"
        try:
            with path.open("xb") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise unwritable(folder, error.strerror) from None
        return path
    raise unwritable(folder, "it has a thousand results of this day")


def _way(run: Run) -> str:
    return "rebinding" if run.tool_changes == "rebind" else "ours"


def _cost(route: Route, run: Run) -> Decimal | None:
    return total_cost(price(route, each.usage, each.time_sent) for _, each in run.rows())


def _money(amount: Decimal | None) -> str:
    return "an unknown sum" if amount is None else money(amount)


def _dollars(amount: Decimal | None) -> float | None:
    return None if amount is None else round(float(amount), 6)
