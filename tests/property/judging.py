"""Hands what was sent to the judge in `addendum.cache`: undeclared misses and invariants."""

from __future__ import annotations

from tests.property.driver import Played

from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.cache.record import Declared, RequestRecord
from addendum.cache.rules import CacheRules
from addendum.log.events import RequestSent, UserMessage
from addendum.routes import resolve
from addendum.wire.segment import Segment


def count(segment: Segment) -> int:
    """The lab's rule for tokens."""
    return -(-(len(segment.role) + segment.size) // 4)


def rules(route: str) -> CacheRules:
    """The rules of a route's own data, in the judge's words."""
    cache = resolve(route, environ={}).cache
    return CacheRules(
        kind=cache.kind,
        minimum=cache.minimum,
        step=cache.step or 1,
        interval=None,
        lookback=cache.lookback,
        text_marks=cache.text_marks,
        result_marks="tool" in cache.mark_roles,
        runs=("tool_use", "tool_result") if cache.runs else (),
        lifetime=float(cache.default_lifetime_s) or None,
    )


def judged(played: Played) -> None:
    """Fail on an undeclared miss, or on a broken invariant."""
    human: dict[int, UserMessage] = {}
    latest: UserMessage | None = None
    for event in played.events:
        if isinstance(event.data, UserMessage):
            latest = event.data
        elif isinstance(event.data, RequestSent) and latest is not None:
            human[event.data.number] = latest
    records: dict[str, list[RequestRecord]] = {}
    for sent in played.sent:
        said = human[sent.number]
        records.setdefault(sent.context.route, []).append(
            RequestRecord(
                sent.number,
                sent.turn,
                "s",
                sent.context.route,
                sent.context.wire,
                sent.body,
                sent.usage,
                sent.sent,
                sent.answered,
                "answered" if sent.answered else "failed",
                sent.context.projection,
                sent.context.definitions,
                sent.context.removals,
                sent.context.tail,
                tail_text=said.tail if sent.context.tail == "moved" else None,
                human=said.text if sent.purpose == "turn" else None,
                bound=sent.context.reasoning_bound,
                declared=tuple(Declared(found.reason, found.at) for found in sent.breaks),
                purpose=sent.purpose,  # type: ignore[arg-type]
            )
        )
    everything = sorted(
        (record for sent in records.values() for record in sent), key=lambda record: record.n
    )
    for route, sent in records.items():
        report = judge(sent, rules(route), count)
        undeclared = [
            (row.n, row.cache_read, row.expected, row.miss)
            for row in report.requests
            if row.miss and not row.miss.declared and row.miss.reason != "provider"
        ]
        assert not undeclared, f"{route}: {undeclared}"
        assert report.totals.provider_misses == 0, f"{route}: {report}"
        violations = check(sent, rules(route), among=everything)
        assert not violations, f"{route}: {violations[:3]}"
