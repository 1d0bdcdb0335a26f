"""What a run gave: records, judged by the rules of their routes, and its form as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from addendum.cache.bodies import Violation
from addendum.cache.expected import first_area
from addendum.cache.figures import Report, Row, judge, totals
from addendum.cache.invariants import check
from addendum.cache.record import RequestRecord
from addendum.lab.records import lab_count, rules_of
from addendum.lab.server import Capture
from addendum.log.events import RequestContext, RouteDowngrade
from addendum.log.session_log import SessionLog
from addendum.routes import Route, ToolChanges


class Run(Struct, frozen=True):
    """One scenario on one route.

    Attributes:
        scenario: The scenario's name.
        route: `provider:model+FACT...` as it began.
        tool_changes: What was asked for.
        records: Every request, in the order in which they were sent.
        sessions: The logs of all its sessions, in the order in which they were first used.
        captures: What the lab received; empty where another endpoint answered.
        report: Rows and totals.
        violations: Broken invariants.
        certainty: How sure the data about the route's tool changes is.
        engine: The real engine that evaluated the prompts, with its version; None elsewhere.
    """

    scenario: str
    route: str
    tool_changes: ToolChanges
    records: tuple[RequestRecord, ...]
    sessions: tuple[SessionLog, ...]
    captures: tuple[Capture, ...]
    report: Report
    violations: tuple[Violation, ...]
    certainty: str
    engine: str | None = None

    @property
    def holds(self) -> bool:
        """Whether no invariant is broken and no miss is undeclared."""
        return not self.violations and not self.report.totals.undeclared_misses

    @property
    def context(self) -> RequestContext:
        """What the first epoch was rendered with."""
        for log in self.sessions:
            for event in log.events:
                if isinstance(event.data, RequestContext):
                    return event.data
        raise AssertionError("a run has a request")

    def broken(self) -> dict[str, int]:
        """Return the tokens behind declared breaks, by the reason of the first one of a request."""
        found: dict[str, int] = {}
        for row, record in self.rows():
            first = first_area(record.declared)
            lost = (row.expected or 0) - (row.ceiling or 0)
            if first is not None and lost:
                found[first.reason] = found.get(first.reason, 0) + lost
        return found

    def rows(self) -> list[tuple[Row, RequestRecord]]:
        """Return each answered request's figures and record, in order."""
        answered = [record for record in self.records if record.status == "answered"]
        return list(zip(self.report.requests, answered, strict=True))

    def notes(self) -> list[str]:
        """Return what a reader of the figures should know, a sentence each."""
        found: list[str] = []
        native = self.context.projection in ("in-history", "addition-only")
        if native and self.certainty == "reported":
            found.append("its tool changes are reported, not documented")
        if self.context.tail == "moved" and self.context.reasoning_bound:
            found.append("the tail moves, so the reasoning of earlier turns is left out")
        return found

    def json(self) -> dict[str, Any]:
        """Return the object that `addendum run --json` prints."""
        context = self.context
        real = {} if self.engine is None else {"engine": True, "engine_version": self.engine}
        return {
            "scenario": self.scenario,
            "route": self.route,
            "tool_changes": self.tool_changes,
            "strategy": context.projection,
            "definitions": context.definitions,
            "removals": context.removals,
            "tail": context.tail,
            "rendering": context.rendering,
            "certainty": self.certainty,
            "simulated": bool(self.captures),
            **real,
            "holds": self.holds,
            "requests": [_row(row, record, bool(real)) for row, record in self.rows()],
            "totals": structs.asdict(self.report.totals),
            "broken": self.broken(),
            "notes": self.notes(),
            "violations": [structs.asdict(each) for each in self.violations],
        }


def _row(row: Row, record: RequestRecord, real: bool) -> dict[str, Any]:
    return {
        "n": row.n,
        "turn": row.turn,
        "session": row.session,
        "route": record.route,
        "purpose": record.purpose,
        "prompt_tokens": row.prompt_tokens,
        "cache_read": row.cache_read,
        "cache_write": row.cache_write,
        "expected": row.expected,
        "ceiling": row.ceiling,
        "estimated": row.estimated,
        "base": row.base,
        "miss": None if row.miss is None else structs.asdict(row.miss),
        **({"usage_raw": record.usage.raw} if real else {}),
    }


def judged(
    scenario: str,
    start: Route,
    tool_changes: ToolChanges,
    records: Sequence[RequestRecord],
    sessions: Sequence[SessionLog],
    captures: Sequence[Capture],
    routes: Mapping[str, Route],
) -> Run:
    """Judge what was sent, each route by its own rules.

    Args:
        scenario: The scenario's name.
        start: The route that it began with.
        tool_changes: What was asked for.
        records: Every request, in order.
        sessions: The sessions' logs.
        captures: What the lab received.
        routes: Routes by the names that records have.
    """
    rows: list[Row] = []
    violations: list[Violation] = []
    for name, group in groupby(sorted(records, key=lambda each: each.route), lambda r: r.route):
        own = list(group)
        rules = rules_of(routes[name].cache)
        # Only the lab's own rule is known; where another endpoint answers and counts otherwise,
        # the judge notices and estimates.
        count = lab_count if routes[name].endpoint.loopback else None
        rows += judge(own, rules, count).requests
        violations += check(own, rules, among=records)
    rows.sort(key=lambda row: row.n)
    violations += _refused(captures, sessions)
    return Run(
        scenario,
        start.full_name,
        tool_changes,
        tuple(records),
        tuple(sessions),
        tuple(captures),
        Report(tuple(rows), totals(rows)),
        tuple(sorted(violations, key=lambda each: each.n)),
        start.certainty,
    )


def _refused(captures: Sequence[Capture], sessions: Sequence[SessionLog]) -> list[Violation]:
    """V12: the strict lab accepts every request, but for one in front of each logged downgrade."""
    downgrades = [
        event.data.route.partition(":")[0]
        for log in sessions
        for event in log.events[log.inherited :]
        if isinstance(event.data, RouteDowngrade)
    ]
    found: list[Violation] = []
    for each in captures:
        if each.refusal is None:
            continue
        if each.provider in downgrades:
            downgrades.remove(each.provider)
            continue
        text = f"{each.provider} refused it: {each.refusal}"
        found.append(Violation("V12", "", each.n + 1, "", text))
    return found
