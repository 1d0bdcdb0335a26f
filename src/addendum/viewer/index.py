"""What is known of a log at a glance: its turns, its requests, what a rewind has cut.

An index follows its log: reading costs what is new in it, so a page of a long session costs no more
than one of a short one.
"""

from __future__ import annotations

import bisect
import functools
from array import array
from collections.abc import Sequence

from msgspec import Struct

from addendum.agent.replay import known_route
from addendum.cache.cost import Cost, left_in_cache, price
from addendum.errors import AddendumError
from addendum.log.events import (
    CacheBreak,
    EndSeed,
    Event,
    RequestHeader,
    Rewind,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.exchanges import FOLLOWED, Exchange, Exchanges
from addendum.log.values import Usage
from addendum.routes import Route
from addendum.viewer.text import discreet


class Request(Struct):
    """One request of a log.

    Attributes:
        number: Requests of the session so far, this one included.
        seq: Its `request/sent`.
        turn: Its turn.
        step: Its step.
        route: `provider:model`.
        purpose: `turn`, `compaction` or `keep-alive`.
        time: When it left, in seconds since the epoch.
        breaks: Breaks that it bears.
        answer: Seq of its answer; None without one.
        answered: When the answer was there.
        usage: What the provider counted, of an answer that was cut off as well.
        left: Tokens that the request before it on this route left in the cache, at most this
            prompt; None if that is not known.
        cost: What it cost; None if that is not known.
    """

    number: int
    seq: int
    turn: int
    step: int
    route: str
    purpose: str
    time: float
    breaks: tuple[CacheBreak, ...] = ()
    answer: int | None = None
    answered: float | None = None
    usage: Usage = Usage()
    left: int | None = None
    cost: Cost | None = None

    @property
    def counted(self) -> bool:
        """Whether it is one to add up: it was answered, or its provider counted it."""
        return self.answer is not None or self.usage.prompt is not None

    @property
    def short(self) -> int:
        """Tokens that were left in the cache by the request before, and not read."""
        if self.left is None or self.usage.cache_read is None:
            return 0
        return max(0, self.left - self.usage.cache_read)


@functools.lru_cache(maxsize=64)
def route_named(name: str) -> Route | None:
    """Return what is known of a route, or None if this release knows nothing of it."""
    try:
        return known_route(name)
    except AddendumError:
        return None


class Index:
    """Follows one log.

    Attributes:
        turns: How many turns have begun.
        turn_of: The turn of each event; what stands between two turns belongs to the first.
        starts: Seq of each turn's first event, by turn; turn 0 is what stands in front.
        requests: Its requests, in order.
        headers: Seqs of its headers.
        cut: Turns that a rewind has cut.
        reasons: How each turn ended, where that is not `done`.
        title: The first message.
        parent: The session it was forked from.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.turn_of = array("l")
        self.starts: list[int] = [0]
        self.requests: list[Request] = []
        self.headers: list[int] = []
        self.cut: set[int] = set()
        self.reasons: dict[int, str] = {}
        self.title = ""
        self.parent: str | None = None
        self._seqs: list[int] = []
        self._exchanges = Exchanges()
        self._latest: dict[str, Request] = {}

    def read(self, events: Sequence[Event]) -> None:
        """Take in what is new in the log."""
        for seq in range(len(self.turn_of), len(events)):
            self._take(events[seq])
            self.turn_of.append(self.turns)

    def span(self, turn: int) -> range:
        """Return the seqs of a turn's events."""
        end = self.starts[turn + 1] if turn < self.turns else len(self.turn_of)
        return range(self.starts[turn], end)

    def request(self, number: int) -> Request | None:
        """Return a request by its number; of two with one number the later."""
        # A fork's numbers go on where its parent's stood, so the place is near the number.
        for each in reversed(self.requests):
            if each.number == number:
                return each
        return None

    def of_turn(self, turn: int) -> list[Request]:
        """Return the requests of a turn."""
        span = self.span(turn)
        start = bisect.bisect_left(self._seqs, span.start)
        return self.requests[start : bisect.bisect_left(self._seqs, span.stop)]

    def answered_since(self, seq: int) -> bool:
        """Say whether a request was answered by an event from `seq` on."""
        return bool(self.requests) and (self.requests[-1].answer or -1) >= seq

    def request_at(self, seq: int) -> Request | None:
        """Return the request of a `request/sent`."""
        at = bisect.bisect_left(self._seqs, seq)
        return self.requests[at] if at < len(self._seqs) and self._seqs[at] == seq else None

    def header_before(self, seq: int) -> int | None:
        """Return the seq of the last header in front of an event."""
        at = bisect.bisect_left(self.headers, seq)
        return self.headers[at - 1] if at else None

    def _take(self, event: Event) -> None:
        data = event.data
        if type(data) in FOLLOWED:
            found = self._exchanges.take(event)
            if found is not None and found.end is None:
                self._sent(found)
            elif found is not None:
                self._ended(found, event)
            return
        match data:
            case TurnStart():
                self.turns = data.turn
                self.starts.append(event.seq)
            case TurnEnd():
                if data.reason != "done":
                    self.reasons[data.turn] = data.reason
            case UserMessage():
                self.title = self.title or discreet(data.text)[:200]
            case Rewind():
                self.cut.update(range(data.to_turn, self.turns + 1))
            case EndSeed():
                self.parent = data.parent
            case RequestHeader():
                self.headers.append(event.seq)
            case _:
                pass

    def _sent(self, found: Exchange) -> None:
        event, sent = found.event, found.sent
        self._seqs.append(event.seq)
        self.requests.append(
            Request(
                sent.number,
                event.seq,
                sent.turn,
                sent.step,
                sent.route,
                sent.purpose,
                event.time / 1000,
                found.breaks,
            )
        )

    def _ended(self, found: Exchange, end: Event) -> None:
        own, usage = self.requests[-1], found.usage
        own.usage = usage
        route = route_named(own.route)
        if route is not None:
            own.cost = price(route, usage, own.time)
        if not found.answered:
            # What was counted until it was cut off need not be all that was read.
            return
        own.answer, own.answered = end.seq, end.time / 1000
        before = self._latest.get(own.route)
        if route is not None and before is not None and usage.prompt is not None:
            left, _ = left_in_cache(before.usage, route.cache)
            own.left = None if left is None else min(left, usage.prompt)
        if own.purpose == "turn":
            self._latest[own.route] = own
