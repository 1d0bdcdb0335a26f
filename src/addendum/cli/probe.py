"""`addendum routes probe`: ask an endpoint what it really does, and keep the answer."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from addendum.cli.flags import BASE_URL, DOLLARS, NAME, PATH, check_folder
from addendum.cli.terminal import echo, json_option, print_json, run_async, table, wrapped
from addendum.lines import one_line
from addendum.routes import Route, credentials, resolve
from addendum.routes.probed import Facts, Probed, keep, overlaid, results_file
from addendum.tell.figures import number
from addendum.version import __version__

if TYPE_CHECKING:
    from addendum.cache.spending import Spending
    from addendum.probe.endpoint import Form
    from addendum.probe.tasks import Score

MOST = 1.0
"""US dollars that a probe may cost unless the caller says otherwise."""

_HEADS = ("form", "change", "endpoint", "called", "control", "prompt", "read", "cache")
_LEGEND = """\
endpoint  taken: it read the change; dropped: it took it in silence and did not
called    whether the model called the tool as it was defined last (behind a
          removal: whether it still tried to)
control   the same request with the change made unknowable
cache     kept: all that the request before had left was read again"""


@click.command()
@click.argument("name", type=NAME, metavar="ROUTE")
@click.option("--tasks", is_flag=True, help="Run tool-use tasks in each way as well.")
@click.option("--base-url", type=BASE_URL, metavar="URL", help="Another address.")
@click.option("--out", type=PATH, metavar="DIR", help="Keep results there.")
@click.option(
    "--max-cost",
    type=DOLLARS,
    default=MOST,
    show_default=True,
    metavar="USD",
    help="Stop once this is passed, by list prices.",
)
@json_option
def probe(
    name: str, tasks: bool, base_url: str | None, out: Path | None, max_cost: float, as_json: bool
) -> None:
    """Ask ROUTE's endpoint what it does when tools change: needs its key, costs a few cents.

    The results are kept with their date, in your data directory, $ADDENDUM_PROBES or --out, and
    sessions that begin on this route at this address afterwards go by them. Exit code 1 if the
    endpoint does otherwise than the route's data say, or nothing could be decided.
    """
    route = resolve(name, base_url=base_url)
    if route.facts:
        raise click.UsageError("a probe tries every form; leave +FACT out of the route")
    credentials(route)
    # What was paid for has to be kept.
    check_folder(results_file(route, out).parent)
    found, spending, forms, scores = run_async(_probed, route, tasks, Decimal(str(max_cost)))
    path = keep(route, found, out)
    if as_json:
        spent = None if spending.spent is None else float(spending.spent)
        extra = {"requests": spending.requests, "cost": spent, "kept": str(path)}
        print_json(msgspec.to_builtins(found) | extra)
    else:
        echo(_shown(route, found, spending, forms, scores))
        echo(f"\nKept in {path}")
    if forms and not _as_told(route, found.facts):
        raise click.exceptions.Exit(1)


def _as_told(route: Route, facts: Facts | None) -> bool:
    """Say whether the endpoint does what the route's data say."""
    if facts is None or facts.tool_update is None:
        return facts is not None and route.capabilities.tool_update is None
    names = ("tool_update", "definitions", "removals", "readd", "redefine")
    return all(getattr(facts, name) == getattr(route.capabilities, name) for name in names)


async def _probed(
    route: Route, tasks: bool, most: Decimal
) -> tuple[Probed, Spending, tuple[Form, ...], tuple[Score, ...]]:
    from addendum.cache.spending import Spending
    from addendum.probe.endpoint import facts
    from addendum.probe.endpoint import probe as ask
    from addendum.probe.tasks import run_tasks

    spending = Spending(route, most)
    forms = await ask(route, spending)
    probed = Probed(
        route.name,
        route.endpoint.base_url,
        f"{datetime.now(UTC):%Y-%m-%d}",
        __version__,
        facts(route, forms),
        tuple(msgspec.to_builtins(each) for each in forms),
    )
    scores: tuple[Score, ...] = ()
    if tasks:
        scores = await run_tasks(overlaid(route, probed), spending)
        told = tuple(msgspec.to_builtins(each) for each in scores)
        probed = msgspec.structs.replace(probed, tasks=told)
    return probed, spending, forms, scores


def _shown(
    route: Route,
    probed: Probed,
    spending: Spending,
    forms: tuple[Form, ...],
    scores: tuple[Score, ...],
) -> str:
    lines = [f"{route.name} at {probed.endpoint}, {probed.date}"]
    if route.endpoint.loopback:
        lines.append("A server on this machine answered: these are not a provider's figures.")
    lines.append("")
    if forms:
        lines += [table(_HEADS, _rows(forms), right=(5, 6)), "", _LEGEND, ""]
    for form in forms:
        if form.preamble:
            said = (
                f"{form.form}: the first change alters the front of the prompt, unless a deferred "
                "placeholder stands in the tool list from the beginning."
            )
            lines.append(wrapped(said, 2))
        lines += [
            wrapped(one_line(f"{form.form}, {each.what}: refused: {each.said}", 300), 2)
            for each in form.checks
            if each.verdict == "refused"
        ]
    if scores:
        heads = ("tools", "tasks", "succeeded", "wrong arguments", "extra requests")
        counts = [
            (each.tasks, each.succeeded, each.wrong_arguments, each.extra_requests)
            for each in scores
        ]
        rows = [[each.way, *map(str, told)] for each, told in zip(scores, counts, strict=True)]
        lines += ["", table(heads, rows, right=(1, 2, 3, 4)), ""]
    cost = "unknown" if spending.spent is None else f"${spending.spent:.4f}"
    lines.append(f"{spending.requests} requests were answered, cost by list prices: {cost}.")
    none = "This wire has no form of tool changes to ask about: sessions use the dispatcher."
    lines.append(wrapped(_conclusion(probed.facts) if forms else none))
    return "\n".join(lines)


def _rows(forms: tuple[Form, ...]) -> list[list[str]]:
    return [
        [
            form.form,
            check.what,
            check.verdict,
            "-" if check.called is None else "yes" if check.called else "no",
            check.control or "-",
            number(check.prompt),
            number(check.cache_read),
            check.cache,
        ]
        for form in forms
        for check in form.checks
    ]


def _conclusion(facts: Facts | None) -> str:
    if facts is None:
        return "This decides nothing: the route's own data holds."
    if facts.tool_update is None:
        return "Tool changes are not understood here: new sessions use the dispatcher."
    said: dict[str, Any] = {
        "removals": facts.removals,
        "readd": facts.readd,
        "redefine": "in place" if facts.redefine else "a break",
    }
    told = ", ".join(f"{name} {value}" for name, value in said.items())
    return f"New sessions go on by {facts.tool_update}, {facts.definitions}; {told}."
