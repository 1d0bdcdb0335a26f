"""The answers of a session's turns, by route: a fold of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    CompactionSummary,
    Event,
    RequestHeader,
    RequestSent,
    Rewind,
    Span,
    SystemMessage,
)
from addendum.log.values import ToolSchema, Usage


class Answered(Struct, frozen=True):
    """A request of a turn that was answered.

    Attributes:
        seq: Its answer's event.
        sent: When it left, in seconds since the epoch: a lifetime runs from there.
        tools: The tools that were active.
        usage: What the provider counted.
    """

    seq: int
    sent: float
    tools: tuple[ToolSchema, ...]
    usage: Usage


class Answers:
    """What was answered on each route, and what of it still stands."""

    kinds: ClassVar[frozenset[type]] = frozenset(
        {
            AssistantMessage,
            CacheBreak,
            CompactionSummary,
            RequestHeader,
            RequestSent,
            Rewind,
            SystemMessage,
        }
    )

    def __init__(self) -> None:
        self._tools: tuple[ToolSchema, ...] = ()
        self._sent = 0
        self._answered: dict[str, list[Answered]] = {}
        self._standing: dict[str, list[Answered]] = {}
        self._breaks: dict[str, list[tuple[int, CacheBreak]]] = {}

    def take(self, event: Event) -> None:
        """Take in a request, its answer, a break, or that something was replaced."""
        data, placed = event.data, event.surface_op
        if isinstance(placed, Span):
            for standing in self._standing.values():
                while standing and standing[-1].seq >= placed.start:
                    standing.pop()
        if isinstance(data, RequestSent):
            self._sent = event.time
        elif isinstance(data, AssistantMessage):
            answered = Answered(event.seq, self._sent / 1000, self._tools, data.usage)
            self._answered.setdefault(data.route, []).append(answered)
            self._standing.setdefault(data.route, []).append(answered)
        elif isinstance(data, RequestHeader):
            self._tools = data.header.tools
        elif isinstance(data, CacheBreak):
            self._breaks.setdefault(data.route, []).append((event.seq, data))

    def on(self, route: str) -> Sequence[Answered]:
        """Return all that was answered on a route, oldest first."""
        return self._answered.get(route, ())

    def standing(self, route: str) -> Answered | None:
        """Return the last answer on a route since which nothing was cut or summed up in front."""
        standing = self._standing.get(route)
        return standing[-1] if standing else None

    def breaks(self, route: str) -> Sequence[tuple[int, CacheBreak]]:
        """Return the breaks that were declared on a route, with their seqs, oldest first."""
        return self._breaks.get(route, ())
