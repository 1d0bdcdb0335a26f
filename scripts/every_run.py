"""Check V1 to V12 over every scenario, route and way of telling a change.

Each cell is a run as a user would make it: the real agent, real HTTP, the strict lab, and what was
sent judged by its bytes. A line that fails names scenario, route, form, request, invariant and
JSON path; the last line is the count.

Usage: python scripts/every_run.py [WORD...]     a WORD picks cells whose name holds it
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from addendum.agent.replay import replay
from addendum.cache.bodies import Violation
from addendum.cache.compare import compare
from addendum.cache.figures import PROVIDER
from addendum.cache.invariants import RULES
from addendum.cache.record import RequestRecord, readings
from addendum.cli.demo import ROUTES
from addendum.errors import AddendumError
from addendum.lab.report import Run
from addendum.lab.runner import run_scenario
from addendum.lab.scenario import Scenario
from addendum.lab.scenario_file import bundled, find
from addendum.routes import ToolChanges

FORMS: tuple[ToolChanges, ...] = ("auto", "dispatch", "rebind")
INVARIANTS = (*RULES, "V8", "V11", "V12")


@dataclass(frozen=True)
class Cell:
    """A scenario on a route, with changes told in one way."""

    scenario: str
    route: str
    form: ToolChanges

    @property
    def name(self) -> str:
        """How it is called in the output."""
        return f"{self.scenario} | {self.route} | {self.form}"


def cells(scenarios: Sequence[str] = (), routes: Sequence[str] = ()) -> Iterator[Cell]:
    """Yield the cells of the matrix.

    Args:
        scenarios: Names of scenarios; all that come with addendum if empty.
        routes: Names of routes; those of the demo if empty.
    """
    for scenario in scenarios or sorted(bundled()):
        for route in routes or ROUTES:
            yield from (Cell(scenario, route, form) for form in FORMS)


def broken(run: Run) -> list[Violation]:
    """Return what a run breaks, by request: all of `INVARIANTS`."""
    found = [*run.violations, *missed(run), *reopened(run)]
    return sorted(found, key=lambda each: each.n)


def missed(run: Run) -> Iterator[Violation]:
    """V11: every miss is declared or the provider's."""
    for row in run.report.requests:
        miss = row.miss
        if miss is not None and not miss.declared and miss.reason != PROVIDER:
            yield Violation("V11", row.session, row.n, miss.at, miss.reason)


def reopened(run: Run) -> Iterator[Violation]:
    """V8: what is rendered again from the stored logs is what was sent, byte for byte."""
    for log in run.sessions:
        sent = [each for each in run.records if each.session == log.session]
        again = [each.record for each in replay(log) if each.seq >= log.inherited]
        if len(again) != len(sent):
            text = f"the log has {len(again)} requests, but {len(sent)} were sent"
            yield Violation("V8", log.session, sent[-1].n if sent else 0, "", text)
        for ours, theirs in zip(sent, again, strict=False):
            if ours.body != theirs.body:
                yield Violation("V8", log.session, ours.n, _place(ours, theirs), "other bytes")


def _place(ours: RequestRecord, theirs: RequestRecord) -> str:
    seen = compare(*readings([ours, theirs]))
    if seen.first is not None:
        return seen.first.path
    changed = [each for each in seen.changes if each.state != "same"]
    if changed:
        return changed[0].after or changed[0].before or ""
    return seen.settings[0].name if seen.settings else ""


def line(cell: Cell, violation: Violation) -> str:
    """Return the line of a violation."""
    path = violation.path or "-"
    return f"{cell.name} | request {violation.n} | {violation.rule} | {path} | {violation.text}"


async def play(cell: Cell, scenario: Scenario) -> Run:
    """Run a cell."""
    return await run_scenario(scenario, cell.route, tool_changes=cell.form)


def main(words: Sequence[str]) -> int:
    """Run all cells; return 1 if one breaks a rule, 2 if there are none."""
    began = time.monotonic()
    count = requests = failed = 0
    automatic: dict[tuple[str, str], str] = {}
    for cell in cells():
        if words and not all(word in cell.name for word in words):
            continue
        key = cell.scenario, cell.route
        if automatic.get(key) == cell.form:
            continue  # What `auto` does there; it was run already.
        try:
            run = anyio.run(partial(play, cell, find(cell.scenario)))
        except AddendumError as error:
            print(f"{cell.name} | cannot be run: {error}", flush=True)
            failed += 1
            continue
        if cell.form == "auto":
            automatic[key] = run.context.projection
        count += 1
        requests += len(run.records)
        for each in broken(run):
            print(line(cell, each), flush=True)
            failed += 1
    if not count:
        print("no cell has such a name", file=sys.stderr)
        return 2
    seconds = time.monotonic() - began
    print(
        f"{count} runs of {requests:,} requests, {len(INVARIANTS)} invariants each: "
        f"{'all hold' if not failed else f'{failed} do not hold'} ({seconds:.0f} s)"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
