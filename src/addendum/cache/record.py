"""One request as it was captured, and its body taken apart and measured.

Providers report totals only. Where a boundary inside a prompt is needed, its tokens are exact if
the caller brings the provider's own counting rule, and else estimated by bytes and flagged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from addendum.errors import ConfigurationError
from addendum.log.values import BreakReason, Definitions, Projection, TailMode, Usage
from addendum.wire.captured import Captured, captured
from addendum.wire.segment import Json, Segment, fields, parse

Count: TypeAlias = Callable[[Segment], int]
"""The provider's own rule: tokens of one segment. An approximation does not belong here."""


class Declared(Struct, frozen=True):
    """A break that was logged before the request was sent.

    Attributes:
        reason: One of the closed list.
        at: First part that changes: `tools`, `system`, `messages`, a message such as
            `messages[4]`, `settings`, or `none` where the bytes stand.
    """

    reason: BreakReason
    at: str


class RequestRecord(Struct, frozen=True):
    """One request that was sent.

    Attributes:
        n: Its number.
        turn: The turn it belongs to.
        session: The conversation.
        route: `provider:model`.
        wire: Name of the wire API.
        body: The captured body.
        usage: What the provider counted.
        time_sent: Seconds, on any clock that all records share.
        time_answered: When its answer had ended; None if unknown, then it counts as answered
            before any later request.
        status: `failed` if no answer came; such a request is the base of none.
        strategy: How tool changes are told.
        definitions: How additions carry definitions.
        removals: How removals are told.
        tail: Where this turn's instructions stand.
        bound: Whether the route's reasoning is bound to the exact prefix.
        tail_text: The turn's instructions as the person set them, if there are any.
        human: The newest human message's text, where it is known.
        head: Identity of the agent's head (its tools and static text) as the LOG has it, so that
            a head whose bytes drift is seen. None: told from the body.
        static_blocks: Prompt texts at the front that are the same in every conversation.
        declared: Breaks logged before it was sent.
        purpose: `turn` or `compaction`.
        caching: Whether the provider's cache is used; without it no mark is set, and the turn's
            instructions stand in the system text.
        parent: The session that this one goes on from, where records of it are another session's.
    """

    n: int
    turn: int
    session: str
    route: str
    wire: str
    body: bytes
    usage: Usage = Usage()
    time_sent: float = 0.0
    time_answered: float | None = None
    status: Literal["answered", "failed"] = "answered"
    strategy: Projection = "in-history"
    definitions: Definitions = "by-reference"
    removals: Literal["block", "omit", "text"] = "text"
    tail: TailMode = "kept"
    bound: bool = False
    tail_text: str | None = None
    human: str | None = None
    head: str | None = None
    static_blocks: int = 1
    declared: tuple[Declared, ...] = ()
    purpose: Literal["turn", "compaction"] = "turn"
    caching: bool = True
    parent: str | None = None


class Reading(Struct, frozen=True):
    """A record with its body taken apart.

    Attributes:
        record: The record.
        segments: All segments.
        rendered: Those inside the cached prefix, in order.
        chain: Digest of the prefix that ends with each rendered segment.
        settings: Digests of the settings that count for the prefix.
        explicit_only: Whether the request asks for no boundaries but its marks.
        totals: Tokens of the prefix that ends with each rendered segment; empty if the prompt's
            tokens are unknown.
        exact: For each of `totals`, whether it is no estimate.
        standing: Ends at which the provider has something of it, and until when, by what is known
            of earlier requests too; None where that was not looked up.
    """

    record: RequestRecord
    segments: tuple[Segment, ...]
    rendered: tuple[Segment, ...]
    chain: tuple[str, ...]
    settings: Mapping[str, str]
    explicit_only: bool
    totals: tuple[int, ...] = ()
    exact: tuple[bool, ...] = ()
    standing: tuple[tuple[int, float], ...] | None = None

    @property
    def tail_at(self) -> int | None:
        """Place of the first rendered tail segment, or None."""
        return next((at for at, each in enumerate(self.rendered) if each.tail), None)

    @property
    def tools_end(self) -> int:
        """How many rendered segments are tool entries."""
        return sum(each.kind == "tool" for each in self.rendered)

    @property
    def system_end(self) -> int:
        """How many rendered segments stand in front of the messages."""
        return sum(each.kind != "message" for each in self.rendered)

    @property
    def static_end(self) -> int:
        """How many rendered segments are the same in every conversation."""
        blocks = 0
        for at, each in enumerate(self.rendered):
            if each.kind == "message":
                return at
            if each.kind == "system" and each.type != "message":
                if blocks == self.record.static_blocks:
                    return at
                blocks += 1
        return len(self.rendered)

    @property
    def head(self) -> str:
        """Identity of the agent's head."""
        end = self.static_end
        return self.record.head or (self.chain[end - 1] if end else "")

    def common(self, other: Reading) -> int:
        """Return how many rendered segments both begin with."""
        low, high = 0, min(len(self.chain), len(other.chain))
        while low < high:
            middle = (low + high + 1) // 2
            if self.chain[middle - 1] == other.chain[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def tokens(self, end: int) -> int:
        """Return the tokens of the first `end` rendered segments."""
        return self.totals[end - 1] if end else 0

    def is_exact(self, end: int) -> bool:
        """Return whether `tokens(end)` is no estimate."""
        return self.exact[end - 1] if end else True


def wire_of(record: RequestRecord) -> Captured:
    """Return what takes a record's body apart.

    Raises:
        ConfigurationError: There is nothing for its wire.
    """
    try:
        return captured(record.wire)
    except ConfigurationError as error:
        error.session = record.session
        raise


def readings(
    records: Sequence[RequestRecord], *, count: Count | None = None, deferred_outside: bool = True
) -> tuple[Reading, ...]:
    """Take records apart and measure them.

    Args:
        records: Captured requests.
        count: The provider's own counting rule, if it is known.
        deferred_outside: Whether deferred tool entries lie outside the cached prefix.

    Raises:
        ConfigurationError: Nothing takes a record's wire apart.
        ContentError: A body is not a JSON object.
    """
    plain = [taken_apart(record, parse(record.body), deferred_outside) for record in records]
    hidden = _hidden(plain, count) if count is not None else {}
    return tuple(measured(each, count, hidden.get(_face(each))) for each in plain)


def taken_apart(record: RequestRecord, body: Json, deferred_outside: bool = True) -> Reading:
    """Take a record apart whose body is decoded already; its tokens are not measured.

    Args:
        record: The captured request.
        body: What its body decodes to.
        deferred_outside: As in `readings`.

    Raises:
        ConfigurationError: Nothing takes its wire apart.
    """
    wire = wire_of(record)
    segments = wire.segments(body, record.tail_text if record.tail == "moved" else None)
    rendered = tuple(
        segment
        for segment in segments
        if not segment.deferred or (segment.kind == "tool" and not deferred_outside)
    )
    state = hashlib.sha256()
    chain: list[str] = []
    for segment in rendered:
        state.update(segment.key.encode() + b"\n")
        chain.append(state.hexdigest())
    options = fields(body.get("prompt_cache_options"))
    explicit_only = options.get("mode") == "explicit"
    settings = MappingProxyType(wire.settings(body))
    return Reading(record, segments, rendered, tuple(chain), settings, explicit_only)


def _face(reading: Reading) -> tuple[str, str]:
    """What decides how much hidden text stands in front of a prompt."""
    return reading.record.route, reading.settings.get("deferral", "")


def _hidden(plain: Sequence[Reading], count: Count) -> dict[tuple[str, str], int]:
    """Return the tokens in front that no segment shows, where all records agree on them.

    Reasoning is left to itself: its tokens cannot be counted, so a record that holds some says
    nothing about what is hidden.
    """
    found: dict[tuple[str, str], set[int]] = {}
    for each in plain:
        prompt = each.record.usage.prompt
        if prompt is not None and not any(one.transparent for one in each.rendered):
            rest = prompt - sum(count(one) for one in each.rendered)
            found.setdefault(_face(each), set()).add(rest)
    return {face: min(rests) for face, rests in found.items() if len(rests) == 1}


def measured(reading: Reading, count: Count | None = None, hidden: int | None = None) -> Reading:
    """Return a reading with the tokens of its boundaries.

    Args:
        reading: A record taken apart.
        count: The provider's own counting rule, if it is known.
        hidden: Tokens in front that no segment shows; None if they are not known.
    """
    prompt = reading.record.usage.prompt
    if prompt is None or not reading.rendered:
        return reading
    if count is not None and hidden is not None and hidden >= 0:
        counted = _counted(reading.rendered, prompt - hidden, count)
        if counted is not None:
            totals, exact = counted
            return _with(reading, [hidden + each for each in totals], exact)
    sizes = _running([each.size for each in reading.rendered])
    totals = [prompt * size // sizes[-1] for size in sizes]
    return _with(reading, totals, [False] * (len(totals) - 1) + [True])


def _counted(
    rendered: Sequence[Segment], prompt: int, count: Count
) -> tuple[list[int], list[bool]] | None:
    """Return running tokens by the counting rule; reasoning shares what the others leave."""
    own = [0 if each.transparent else count(each) for each in rendered]
    rest = prompt - sum(own)
    weights = _running([each.size if each.transparent else 0 for each in rendered])
    whole = weights[-1]
    if rest < 0 or (rest and not whole):
        return None
    shares = [rest * weight // whole if whole else 0 for weight in weights]
    totals = [a + b for a, b in zip(_running(own), shares, strict=True)]
    return totals, [weight in (0, whole) for weight in weights]


def _running(values: Sequence[int]) -> list[int]:
    total = 0
    running: list[int] = []
    for value in values:
        total += value
        running.append(total)
    return running


def _with(reading: Reading, totals: Sequence[int], exact: Sequence[bool]) -> Reading:
    return Reading(
        reading.record,
        reading.segments,
        reading.rendered,
        reading.chain,
        reading.settings,
        reading.explicit_only,
        tuple(totals),
        tuple(exact),
    )
