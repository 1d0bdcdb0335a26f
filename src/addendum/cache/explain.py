"""Why requests read less than expected: judged rows with their evidence and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from addendum.cache.causes import AREAS, CAUSES, area_of, words
from addendum.cache.compare import First, SettingChange, compare
from addendum.cache.cost import again, written_for_an_hour
from addendum.cache.figures import PROVIDER, Row
from addendum.cache.record import Reading, RequestRecord, readings
from addendum.routes import Route


class Explanation(Struct, frozen=True):
    """Why one request read less than expected.

    Attributes:
        n: Its number.
        turn: Its turn.
        route: Its route.
        base: Number of the request that it could have read from.
        prompt_tokens: The whole prompt.
        cache_read: Read from the cache.
        expected: What could have been read.
        lost: Tokens of it that were not read.
        estimated: Whether `expected` is an estimate.
        verdict: `declared`: a reason was logged before it was sent. `provider`: our bytes and
            marks do not explain it. `undeclared`: ours, and nothing was logged.
        reason: The declared reason, `provider`, or what the bytes show.
        at: Part of the request that breaks, or the path of a segment.
        text: What happened, in words.
        advice: What to do about it.
        anthropic: Anthropic's word for it (`cache_miss_reason.type`), or None.
        openai: OpenAI's word for it (`prompt_cache_diagnostics`), or None.
        first: First content that differs from the base; None if the base is extended.
        settings: Settings that differ from the base's.
        cost: US dollars for what was lost; None if the price is not known.
    """

    n: int
    turn: int
    route: str
    base: int | None
    prompt_tokens: int | None
    cache_read: int | None
    expected: int | None
    lost: int
    estimated: bool
    verdict: Literal["declared", "provider", "undeclared"]
    reason: str
    at: str
    text: str
    advice: str
    anthropic: str | None
    openai: str | None
    first: First | None
    settings: tuple[SettingChange, ...]
    cost: Decimal | None


def explain(
    rows: Sequence[Row], records: Sequence[RequestRecord], route: Route
) -> tuple[Explanation, ...]:
    """Explain the misses among rows.

    Args:
        rows: Judged requests of one route.
        records: The records they were judged from; numbers are unique among them.
        route: The route.
    """
    known = {record.n: record for record in records}
    explanations: list[Explanation] = []
    for row in rows:
        if row.miss is not None and row.base is not None:
            base, own = readings([known[row.base], known[row.n]])
            explanations.append(explained(row, base, own, route))
    return tuple(explanations)


def explained(row: Row, base: Reading, own: Reading, route: Route) -> Explanation:
    """Explain a miss.

    Args:
        row: The judged request that has it.
        base: The request that it could have read from.
        own: The request itself.
        route: Its route.
    """
    miss = row.miss
    assert miss is not None
    seen = compare(base, own)
    lost = max(0, (row.expected or 0) - (row.cache_read or 0))
    changed = [each.name for each in seen.settings]
    verdict: Literal["declared", "provider", "undeclared"] = (
        "declared" if miss.declared else "provider" if miss.reason == PROVIDER else "undeclared"
    )
    key, at = miss.reason, miss.at
    if verdict == "undeclared":
        key = _key(miss.reason, seen.first, changed)
        at = "settings" if key == "settings" else miss.at
    cause = CAUSES[key]
    # What is out of reach, or was lost, has no part that changed.
    area = "none" if key in ("unreached", PROVIDER) else key if key in AREAS else at
    said = words(key, area, changed)
    return Explanation(
        n=row.n,
        turn=row.turn,
        route=own.record.route,
        base=row.base,
        prompt_tokens=row.prompt_tokens,
        cache_read=row.cache_read,
        expected=row.expected,
        lost=lost,
        estimated=row.estimated,
        verdict=verdict,
        reason=miss.reason,
        at=at,
        text=cause.text,
        advice=cause.advice,
        anthropic=said.anthropic,
        openai=said.openai,
        first=seen.first,
        settings=seen.settings,
        cost=again(
            route,
            lost,
            row.prompt_tokens or 0,
            own.record.time_sent,
            hour=written_for_an_hour(own.record.usage) > 0,
        ),
    )


def _key(reason: str, first: First | None, settings: Sequence[str]) -> str:
    """Return the key of `CAUSES` for a miss that nothing was declared for."""
    if settings:
        return "settings"
    if reason == "the bytes differ":
        return area_of(first.area if first is not None else "messages")
    return "answer" if reason.startswith("the answer") else "unreached"
