"""The table of runs, of the demo and of a measurement: a route's rows, and what stands below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from addendum.cli.run import problems
from addendum.cli.terminal import style
from addendum.lines import one_line
from addendum.tell.figures import number, percent

if TYPE_CHECKING:
    from addendum.lab.report import Run

_HEADS = ("share", "expected", "ceiling", "not read", "misses", "undecl.")
_LEGEND = """\
share     part of the prompt tokens that was read from the cache
expected  part of what the request before had left there
ceiling   the same, without what lies behind breaks declared beforehand
not read  prompt tokens that were not read from the cache
undecl.   misses without a reason that was logged before the request was sent"""


def table_heads() -> str:
    """Return the table's titles."""
    head = "".join(each.rjust(wide) for each, wide in zip(_HEADS, _WIDTHS, strict=True))
    return style(f"{'':{_LABEL}}{head}", bold=True)


_LABEL = 27
_WIDTHS = (8, 10, 9, 10, 8, 8)


def table_rows(*runs: Run) -> str:
    """Return a route's rows: its name, and one row a run."""
    return "\n".join([style(one_line(runs[0].route, 79), bold=True), *(_row(run) for run in runs)])


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
            lines.append(one_line(f"{ours.route}: {number(lost)} tokens broken: {reason}", 79))
        lines += [one_line(f"{ours.route}: {note}", 79) for note in ours.notes()]
    failed = [each for pair in runs for each in pair if not each.holds]
    for run in failed:
        lines += [f"{one_line(run.route, 40)} ({_told(run)})", *problems(run)]
    verdict = "Not all rules hold." if failed else "All rules hold."
    lines += ["", style(verdict, fg="red" if failed else "green")]
    return "\n".join(lines)
