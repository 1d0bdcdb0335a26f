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
    EndSeed,
    Event,
    RequestContext,
    RequestHeader,
    RequestSent,
)
from addendum.log.requests import RequestPurpose
from addendum.log.values import Header, Usage

_ENDS = {
    AssistantMessage: "turn",
    AssistantAttempt: "turn",
    CompactionSummary: "compaction",
    CompactionFailed: "compaction",
    CacheKept: "keep-alive",
}
_ENDING = tuple(_ENDS)

FOLLOWED: frozenset[type[Struct]] = frozenset(
    {RequestSent, RequestContext, RequestHeader, CacheBreak, EndSeed, *_ENDS}
)
"""Types of events that `Exchanges` is told of; a long log has many more of others."""

_PLACES = ("settings", "tools", "system", "messages", "none")
"""Places of a break, from the front of a prompt on."""


class Exchange(Struct):
    """The one record of a request that was sent; the last three fields wait for its end.

    Attributes:
        event: Its `request/sent`.
        sent: What stands in that.
        breaks: Breaks that it bears: declared on its route since the last answer of a turn, one
            for each reason.
        context: What it was rendered with; None in a log that does not say.
        header: The tools and settings that it had.
        end: The event that tells how it ended; None if none does.
        answered: Whether an answer came to its end.
        usage: What the provider counted, of an answer that was cut off as well.
    """

    event: Event
    sent: RequestSent
    breaks: tuple[CacheBreak, ...] = ()
    context: RequestContext | None = None
    header: Header | None = None
    end: Event | None = None
    answered: bool = False
    usage: Usage = Usage()

    @property
    def number(self) -> int:
        """Requests of the session so far, this one included."""
        return self.sent.number

    @property
    def seq(self) -> int:
        """The seq of its `request/sent`."""
        return self.event.seq

    @property
    def turn(self) -> int:
        """Its turn."""
        return self.sent.turn

    @property
    def step(self) -> int:
        """Its step."""
        return self.sent.step

    @property
    def route(self) -> str:
        """Its `provider:model`."""
        return self.sent.route

    @property
    def purpose(self) -> RequestPurpose:
        """What it was sent for."""
        return self.sent.purpose

    @property
    def time(self) -> float:
        """When it left, in seconds since the epoch."""
        return self.event.time / 1000

    @property
    def answer(self) -> Event | None:
        """The event of its answer; None where none came to its end."""
        return self.end if self.answered else None

    @property
    def seconds(self) -> float | None:
        """How long its answer took; None without one."""
        return None if self.answer is None else (self.answer.time - self.event.time) / 1000

    @property
    def counted(self) -> bool:
        """Whether it is one to add up: it was answered, or its provider counted it."""
        return self.answered or self.usage.prompt is not None


class Exchanges:
    """Follows the requests of one log, event by event; keeps none but the one that waits.

    Attributes:
        inherited: How many of the requests so far a parent of the session sent.
    """

    def __init__(self) -> None:
        self.inherited = 0
        self._count = 0
        self._header: Header | None = None
        self._contexts: dict[int, RequestContext] = {}
        self._waiting: Exchange | None = None
        self._ahead: dict[str, dict[str, CacheBreak]] = {}

    def take(self, event: Event) -> Exchange | None:
        """Take in the next event; return the exchange that begins or ends with it."""
        data = event.data
        match data:
            case RequestSent():
                return self._sent(event, data)
            case CacheBreak():
                self._declared(data)
                return None
            case RequestHeader():
                self._header = data.header
                return None
            case RequestContext():
                self._contexts[event.seq] = data
                return None
            case EndSeed():
                self.inherited = self._count
                return None
            case _:
                return self._ended(event)

    def _sent(self, event: Event, sent: RequestSent) -> Exchange:
        self._count += 1
        self._waiting = Exchange(
            event,
            sent,
            breaks=self.ahead(sent.route),
            context=self._contexts.get(sent.context_seq),
            header=self._header,
        )
        return self._waiting

    def _ended(self, event: Event) -> Exchange | None:
        data = event.data
        request = self._waiting
        # Without a route no model answered: a person gave the summary, or nothing came.
        if request is None or not isinstance(data, _ENDING) or data.route is None:
            return None
        if _ENDS[type(data)] != request.sent.purpose:
            return None
        self._waiting = None
        request.end, request.usage = event, data.usage
        request.answered = not isinstance(data, AssistantAttempt)
        if request.answered and request.sent.route in self._ahead:
            self._bore(request.sent)
        return request

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
