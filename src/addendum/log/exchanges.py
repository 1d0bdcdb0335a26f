"""Requests and how they ended: whose an answer is, and which breaks a request bears.

A request leaves in one event and ends in another. Those of a session follow on each other, so what
ends is the last one that left, and it ends in an event of the kind that its purpose asks for. One
that nobody answered leaves its breaks to the next one on its route.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CacheKept,
    CompactionFailed,
    CompactionSummary,
    Event,
    RequestSent,
)
from addendum.log.values import Usage

_ENDS = {
    AssistantMessage: "turn",
    AssistantAttempt: "turn",
    CompactionSummary: "compaction",
    CompactionFailed: "compaction",
    CacheKept: "keep-alive",
}
_ENDING = tuple(_ENDS)

FOLLOWED: frozenset[type[Struct]] = frozenset({RequestSent, CacheBreak, *_ENDS})
"""Types of events that `Exchanges` is told of; a long log has many more of others."""

_PLACES = ("settings", "tools", "system", "messages", "none")
"""Places of a break, from the front of a prompt on."""


class Exchange(Struct):
    """A request and how it ended; the last three fields are filled in when it does.

    Attributes:
        event: Its `request/sent`.
        sent: What stands in that.
        breaks: Breaks that it bears: declared on its route since the last answer of a turn, one
            for each reason.
        end: The event that tells how it ended; None if none does.
        answered: Whether an answer came to its end.
        usage: What the provider counted, of an answer that was cut off as well.
    """

    event: Event
    sent: RequestSent
    breaks: tuple[CacheBreak, ...]
    end: Event | None = None
    answered: bool = False
    usage: Usage = Usage()

    @property
    def counted(self) -> bool:
        """Whether it is one to add up: it was answered, or its provider counted it."""
        return self.answered or self.usage.prompt is not None


class Exchanges:
    """Follows the requests of one log, event by event; keeps none but the one that waits."""

    def __init__(self) -> None:
        self._waiting: Exchange | None = None
        self._ahead: dict[str, dict[str, CacheBreak]] = {}

    def take(self, event: Event) -> Exchange | None:
        """Take in the next event; return the exchange that begins or ends with it."""
        data = event.data
        if isinstance(data, RequestSent):
            borne = self._ahead.get(data.route)
            found = self._waiting = Exchange(event, data, tuple(borne.values()) if borne else ())
            return found
        if isinstance(data, CacheBreak):
            self._declared(data)
            return None
        found = self._waiting
        # Without a route no model answered: a person gave the summary, or nothing came.
        if found is None or not isinstance(data, _ENDING) or data.route is None:
            return None
        if _ENDS[type(data)] != found.sent.purpose:
            return None
        self._waiting = None
        found.end, found.usage = event, data.usage
        found.answered = not isinstance(data, AssistantAttempt)
        if found.answered and found.sent.route in self._ahead:
            self._bore(found.sent)
        return found

    def ahead(self, route: str) -> tuple[CacheBreak, ...]:
        """Return the breaks that a request on a route would bear now."""
        return tuple(self._ahead.get(route, {}).values())

    def _declared(self, found: CacheBreak) -> None:
        """Take in a break. Of two for one reason the one in front counts.

        What was answered last stands in front of both.
        """
        ahead = self._ahead.setdefault(found.route, {})
        known = ahead.pop(found.reason, found)
        ahead[found.reason] = min(found, known, key=lambda each: _PLACES.index(each.at))

    def _bore(self, sent: RequestSent) -> None:
        """Leave out the breaks that an answered request has made good."""
        ahead = self._ahead.pop(sent.route)
        if sent.purpose != "turn":
            # It has filled the cache here. What breaks the bytes breaks them for the turn as well.
            self._ahead[sent.route] = {
                reason: each
                for reason, each in ahead.items()
                if each.at != "none" and reason != "route changed"
            }


def exchanges(events: Iterable[Event]) -> list[Exchange]:
    """Return the requests of a log and how they ended, in the order in which they were sent.

    Args:
        events: The log, or at least its events of the types in `FOLLOWED`.
    """
    found: list[Exchange] = []
    follows = Exchanges()
    for event in events:
        if type(event.data) in FOLLOWED:
            each = follows.take(event)
            if each is not None and each.end is None:
                found.append(each)
    return found
