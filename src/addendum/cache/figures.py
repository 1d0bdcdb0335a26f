"""Rows and totals: what was read, what was expected, and why something was not read.

Unknown stays unknown: a request whose provider reports no cached tokens has a row with nulls, is
part of no sum, and is counted in `unknown`. A request that got no answer has no row.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from addendum.cache.expected import Earlier, Prospect, first_area, prospect
from addendum.cache.record import Count, Reading, RequestRecord, readings
from addendum.cache.rules import Boundary, CacheRules, distance, found

PROVIDER = "provider"
"""Reason of a miss that our bytes and marks do not explain."""


class Miss(Struct, frozen=True):
    """Why a request read less than expected.

    Attributes:
        declared: Whether a reason was logged before it was sent that explains all of it.
        reason: The declared reason; `provider` where a stored prefix stood within reach and was
            not read; else what the bytes show.
        at: The part that breaks: as declared, or the path of the first segment that differs, or
            of the one that a stored prefix ends with.
    """

    declared: bool
    reason: str
    at: str


class Row(Struct, frozen=True):
    """One answered request. All figures are tokens, None where they are unknown.

    Attributes:
        n: Its number.
        turn: Its turn.
        prompt_tokens: The whole prompt.
        cache_read: Read from the cache.
        cache_write: Written to it.
        expected: What could have been read.
        ceiling: The same, less what lies behind a declared break.
        miss: Why less than expected was read; None if it was not, or if it is unknown.
        estimated: Whether `expected` or `ceiling` lies at a boundary that was estimated.
        session: Its conversation.
        base: Number of the request it could read from, None if there is none.
    """

    n: int
    turn: int
    prompt_tokens: int | None
    cache_read: int | None
    cache_write: int | None
    expected: int | None
    ceiling: int | None
    miss: Miss | None
    estimated: bool
    session: str
    base: int | None


class Totals(Struct, frozen=True):
    """Sums over the requests whose figures are known.

    Attributes:
        requests: Answered requests, those with unknown figures among them.
        prompt_tokens: Sum of prompts.
        cache_read: Sum of tokens read.
        expected: Sum of what could have been read.
        ceiling: The same, less what lies behind declared breaks.
        share: Read part of the prompts; None if nothing is known.
        expected_share: Sum of what was read, each at most its `expected`, over the sum of
            `expected`; misses of the provider are left out of both. 1 if nothing was expected,
            None if nothing is known.
        ceiling_share: The same for `ceiling`.
        broken_tokens: What declared breaks cost: expected less ceiling.
        provider_tokens: What the provider lost.
        misses: Requests that read less than expected.
        undeclared_misses: Those that are neither declared nor the provider's.
        provider_misses: Those that are the provider's.
        unknown: Requests with unknown figures.
    """

    requests: int
    prompt_tokens: int
    cache_read: int
    expected: int
    ceiling: int
    share: float | None
    expected_share: float | None
    ceiling_share: float | None
    broken_tokens: int
    provider_tokens: int
    misses: int
    undeclared_misses: int
    provider_misses: int
    unknown: int


class Report(Struct, frozen=True):
    """What a run of requests cost.

    Attributes:
        requests: One row an answered request, in order.
        totals: Sums over them.
    """

    requests: tuple[Row, ...]
    totals: Totals


def judge(
    records: Sequence[RequestRecord], rules: CacheRules, count: Count | None = None
) -> Report:
    """Judge the requests of one route, of one conversation or of several.

    Args:
        records: Captured requests in the order in which they were sent.
        rules: How the route caches.
        count: The provider's own rule for the tokens of a segment. With it boundaries inside a
            prompt are exact; without it they are estimated by bytes and flagged.

    Raises:
        ConfigurationError: Nothing takes a record's wire apart.
        ContentError: A body is not a JSON object.
    """
    judging = Judge(rules)
    read = readings(records, count=count, deferred_outside=rules.deferred_outside)
    judged = [judging.see(each) for each in read]
    rows = [each[0] for each in judged if each is not None]
    return Report(tuple(rows), totals(rows))


class Judge:
    """Judges the requests of one route one after the other, and keeps no more than it needs.

    Args:
        rules: How the route caches.
        room: Bytes of earlier requests that are kept; None for all that can be needed.
    """

    def __init__(self, rules: CacheRules, room: int | None = None) -> None:
        self._rules = rules
        self._earlier = Earlier(room)

    @property
    def lost(self) -> int:
        """How many requests had a base for which there was no room."""
        return self._earlier.lost

    def see(self, reading: Reading) -> tuple[Row, Reading | None] | None:
        """Judge the next request.

        Args:
            reading: The request, measured.

        Returns:
            Its figures and its base; None if it got no answer.
        """
        if reading.record.status != "answered":
            return None
        row = _row(reading, self._earlier, self._rules)
        self._earlier.add(reading, self._rules)
        return row


def totals(rows: Sequence[Row]) -> Totals:
    """Return the sums over rows, for instance over those of one turn."""
    known = [row for row in rows if _known(row)]
    own = [row for row in known if not _is_provider(row)]
    read = sum(row.cache_read or 0 for row in known)
    prompt = sum(row.prompt_tokens or 0 for row in known)
    expected = sum(row.expected or 0 for row in known)
    ceiling = sum(row.ceiling or 0 for row in known)
    misses = [row.miss for row in rows if row.miss is not None]
    lost = [row for row in known if _is_provider(row)]
    return Totals(
        requests=len(rows),
        prompt_tokens=prompt,
        cache_read=read,
        expected=expected,
        ceiling=ceiling,
        share=read / prompt if prompt else None,
        expected_share=_share(own, [row.expected or 0 for row in own]),
        ceiling_share=_share(own, [row.ceiling or 0 for row in own]),
        broken_tokens=expected - ceiling,
        provider_tokens=sum((row.ceiling or 0) - (row.cache_read or 0) for row in lost),
        misses=len(misses),
        undeclared_misses=sum(not miss.declared and miss.reason != PROVIDER for miss in misses),
        provider_misses=len(lost),
        unknown=len(rows) - len(known),
    )


def _known(row: Row) -> bool:
    return None not in (row.prompt_tokens, row.cache_read, row.expected)


def _is_provider(row: Row) -> bool:
    return row.miss is not None and row.miss.reason == PROVIDER


def _share(rows: Sequence[Row], wanted: Sequence[int]) -> float | None:
    if not rows:
        return None
    got = sum(min(row.cache_read or 0, want) for row, want in zip(rows, wanted, strict=True))
    return got / sum(wanted) if sum(wanted) else 1.0


def _row(reading: Reading, earlier: Earlier, rules: CacheRules) -> tuple[Row, Reading | None]:
    record = reading.record
    usage = record.usage
    seen = prospect(reading, earlier, rules)
    unknown = usage.prompt is None or seen.expected is None or seen.ceiling is None
    expected, ceiling = (None, None) if unknown else (seen.expected, seen.ceiling)
    miss = None
    if expected is not None and ceiling is not None and usage.cache_read is not None:
        miss = _miss(reading, usage.cache_read, seen, expected, ceiling, rules)
    row = Row(
        n=record.n,
        turn=record.turn,
        prompt_tokens=usage.prompt,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        expected=None if expected is None else expected.tokens,
        ceiling=None if ceiling is None else ceiling.tokens,
        miss=miss,
        estimated=any(each is not None and each.slack > 0 for each in (expected, ceiling)),
        session=record.session,
        base=None if seen.base is None else seen.base.record.n,
    )
    return row, seen.base


def _miss(
    reading: Reading,
    read: int,
    prospect: Prospect,
    expected: Boundary,
    ceiling: Boundary,
    rules: CacheRules,
) -> Miss | None:
    base, proven = prospect.base, prospect.proven
    if base is None or proven is None or read >= expected.tokens - expected.slack:
        return None
    declared = first_area(reading.record.declared)
    if declared is not None and read >= ceiling.tokens - ceiling.slack:
        return Miss(True, declared.reason, declared.at)
    # What a declared break does not explain lies in front of it.
    target = proven if declared is None or proven.tokens <= ceiling.tokens else ceiling
    changed = sorted(
        name
        for name in {*base.settings, *reading.settings}
        if base.settings.get(name) != reading.settings.get(name)
    )
    if changed:
        return Miss(False, f"settings changed: {', '.join(changed)}", "settings")
    if prospect.extends < target.end:
        return Miss(False, "the bytes differ", _path(reading, prospect.extends))
    if not found(reading, rules, target.end):
        return Miss(False, _unreached(reading, rules, target), _path(reading, target.end - 1))
    if read < target.tokens - target.slack:
        return Miss(False, PROVIDER, _path(reading, target.end - 1))
    return Miss(
        False, "the answer was not read again as it was sent back", _path(reading, target.end)
    )


def _unreached(reading: Reading, rules: CacheRules, target: Boundary) -> str:
    if rules.kind != "marks":
        return "no boundary of this request stands where the prefix was stored"
    walked = distance(reading, rules, target.end)
    if walked == float("inf"):
        return "no mark stands at the stored prefix or behind it"
    return f"the stored prefix is {walked:.0f} positions back, the lookback is {rules.lookback}"


def _path(reading: Reading, at: int) -> str:
    """Return the path of a segment, or where the request ends."""
    return reading.rendered[at].path if at < len(reading.rendered) else "end"
