"""What nobody avoids to send uncached: a floor that knows no way of telling tool changes.

`expected` asks what the requests before could have left behind, so a way that throws the cache away
is measured by what little it left. The floor asks less and forgives nothing: whatever is new in a
request has to be sent once; whatever an earlier request of the conversation said, anywhere in its
prompt, could have been read. What the provider rounds away, by the step of its cache or by a
minimum, is counted apart: no way of sending gets it back.

The requests it is taken from should be plain ones (`rebind`), in which each definition stands once
and nothing of ours is added. Taken from other requests, as of a stored session, it is an estimate.
Where a provider keeps the end of its own answers (`units`), an answer is not new when it goes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from addendum.cache.figures import Row
from addendum.cache.record import Count, RequestRecord, readings
from addendum.cache.rules import CacheRules


class Floor(Struct, frozen=True):
    """Tokens that no way of sending the same conversation reads from a cache.

    Attributes:
        fresh: Tokens that no earlier request of their conversation had.
        rounding: Tokens behind the last step of the provider's cache, or under its minimum.
    """

    fresh: int = 0
    rounding: int = 0

    @property
    def uncached(self) -> int:
        """Both together."""
        return self.fresh + self.rounding

    def __add__(self, other: Floor) -> Floor:
        return Floor(self.fresh + other.fresh, self.rounding + other.rounding)


def floor(records: Sequence[RequestRecord], rules: CacheRules, count: Count | None = None) -> Floor:
    """Return the floor of the requests of one route.

    Args:
        records: Captured requests in the order in which they were sent; those without an answer
            are passed over.
        rules: How the route caches.
        count: The provider's own counting rule, if it is known.

    Raises:
        ConfigurationError: Nothing takes a record's wire apart.
        ContentError: A body is not a JSON object.
    """
    known: dict[str, set[str]] = {}
    whole = Floor()
    for reading in readings(records, count=count, deferred_outside=rules.deferred_outside):
        prompt = reading.record.usage.prompt
        if reading.record.status != "answered" or prompt is None:
            continue
        session = reading.record.session
        if session not in known:
            # A fork could have read what its parent said.
            known[session] = set(known.get(reading.record.parent or "", ()))
        sent, fresh = known[session], 0
        for end, segment in enumerate(reading.rendered, 1):
            answer = rules.kind == "units" and segment.role == "assistant"
            if segment.key not in sent and not answer:
                sent.add(segment.key)
                fresh += reading.tokens(end) - reading.tokens(end - 1)
        whole += Floor(fresh, rounded_away(prompt - fresh, rules))
    return whole


def rounded_away(tokens: int, rules: CacheRules) -> int:
    """Return how many of the tokens that could be read the provider's step and minimum keep back.

    Args:
        tokens: The longest prefix that could be read.
        rules: How the route caches.
    """
    if rules.kind == "none" or tokens < rules.minimum:
        return tokens
    step = rules.interval or rules.step
    # A prompt's last tokens are evaluated again, whatever is stored.
    return tokens - (tokens - rules.fresh) // step * step if step > 1 else min(rules.fresh, tokens)


def drops(rows: Sequence[Row]) -> int:
    """Count requests that read less than the one before them in their conversation had read.

    This is what a person sees in a provider's figures, declared or not.
    """
    latest: dict[str, int] = {}
    count = 0
    for row in rows:
        if row.cache_read is not None:
            count += row.cache_read < latest.get(row.session, 0)
            latest[row.session] = row.cache_read
    return count
