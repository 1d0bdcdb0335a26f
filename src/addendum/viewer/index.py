"""What is known of a log at a glance: its turns, its requests, what a rewind has cut.

An index follows its log: reading costs what is new in it, so a page of a long session costs no more
than one of a short one.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence

from addendum.agent.replay import known_route
from addendum.cache.spent import Bill, Spent
from addendum.log.events import (
    EndSeed,
    Event,
    RequestHeader,
    Rewind,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.viewer.text import discreet


class Index:
    """Follows one log.

    Attributes:
        turns: How many turns have begun.
        turn_of: The turn of each event; what stands between two turns belongs to the first.
        starts: Seq of each turn's first event, by turn; turn 0 is what stands in front.
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
        self.headers: list[int] = []
        self.cut: set[int] = set()
        self.reasons: dict[int, str] = {}
        self.title = ""
        self.parent: str | None = None
        self._seqs: list[int] = []
        self._bill = Bill(known_route)

    def read(self, events: Sequence[Event]) -> None:
        """Take in what is new in the log."""
        for seq in range(len(self.turn_of), len(events)):
            self._take(events[seq])
            self.turn_of.append(self.turns)

    @property
    def requests(self) -> list[Spent]:
        """Its requests and what they cost, in order."""
        return self._bill.requests

    def span(self, turn: int) -> range:
        """Return the seqs of a turn's events."""
        end = self.starts[turn + 1] if turn < self.turns else len(self.turn_of)
        return range(self.starts[turn], end)

    def request(self, number: int) -> Spent | None:
        """Return a request by its number; of two with one number the later."""
        # A fork's numbers go on where its parent's stood, so the place is near the number.
        for each in reversed(self.requests):
            if each.request.number == number:
                return each
        return None

    def of_turn(self, turn: int) -> list[Spent]:
        """Return the requests of a turn."""
        span = self.span(turn)
        start = bisect.bisect_left(self._seqs, span.start)
        return self.requests[start : bisect.bisect_left(self._seqs, span.stop)]

    def answered_since(self, seq: int) -> bool:
        """Say whether a request was answered by an event from `seq` on."""
        answer = self.requests[-1].request.answer if self.requests else None
        return answer is not None and answer.seq >= seq

    def request_at(self, seq: int) -> Spent | None:
        """Return the request of a `request/sent`."""
        at = bisect.bisect_left(self._seqs, seq)
        return self.requests[at] if at < len(self._seqs) and self._seqs[at] == seq else None

    def header_before(self, seq: int) -> int | None:
        """Return the seq of the last header in front of an event."""
        at = bisect.bisect_left(self.headers, seq)
        return self.headers[at - 1] if at else None

    def _take(self, event: Event) -> None:
        spent = self._bill.take(event)
        if spent is not None and spent.request.end is None:
            self._seqs.append(event.seq)
        data = event.data
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
