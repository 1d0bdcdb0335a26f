"""The ledger of a trajectory: events as rows, a page at a time, and a search over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from addendum.log.events import Event, RequestHeader, RequestSent, TurnStart
from addendum.tell.changes import ToolChange
from addendum.tell.events import Telling, describe, is_quiet
from addendum.tell.words import Words
from addendum.viewer.figures import Bar, bar
from addendum.viewer.index import Index
from addendum.viewer.text import discreet, line

PAGE = 120
"""Rows that a page of the ledger has."""

EXCERPT = 220
"""Characters of a text that a row shows."""

DETAIL = 4_000
"""Characters of each text that a row opens to."""

MAX_FOUND = 200
"""Events that a search gives at most."""


class Row(Struct, frozen=True):
    """An event in the ledger.

    Attributes:
        seq: The event.
        kind: What it is: key of its label, and class of its row.
        turn: Its turn.
        time: Milliseconds since the epoch.
        text: What it says, on one line.
        opens: Turn that begins with this row, if one does.
        number: For a request, its number.
        bar: For a request, its figures.
        change: For a change of tools, what it says.
        lines: What the row opens to.
        tone: `warn` or `bad` where something is to be seen.
        child: A session that the row leads to, or empty.
    """

    seq: int
    kind: str
    turn: int
    time: int
    text: str = ""
    opens: int | None = None
    number: int | None = None
    bar: Bar | None = None
    change: ToolChange | None = None
    lines: tuple[str, ...] = ()
    tone: str = ""
    child: str = ""


class Page(Struct, frozen=True):
    """Some rows of a ledger.

    Attributes:
        rows: The rows.
        first: First event that the page covers.
        end: Event behind the last one that it covers.
        total: Events of the log.
    """

    rows: tuple[Row, ...]
    first: int
    end: int
    total: int


class Ledger:
    """Makes rows of a log's events.

    Args:
        events: The events.
        index: What is known of them.
        words: The reader's language.
    """

    def __init__(self, events: Sequence[Event], index: Index, words: Words) -> None:
        self._events = events
        self._index = index
        self._words = words

    def page(
        self, *, before: int | None = None, after: int | None = None, at: int | None = None
    ) -> Page:
        """Return a page: the last one, or the one in front of, behind or around an event.

        Args:
            before: The event that the page ends in front of.
            after: The event that it begins behind.
            at: An event that it holds.
        """
        total = len(self._index.turn_of)
        if after is not None:
            return self._forward(min(after + 1, total))
        if at is not None:
            start = self._back(min(at, total - 1), PAGE // 2)
            return self._forward(start)
        end = total if before is None else max(0, min(before, total))
        start = self._back(end, PAGE)
        return Page(tuple(self.rows(start, end)), start, end, total)

    def _back(self, end: int, count: int) -> int:
        """Return where to begin so that at least `count` rows stand in front of `end`."""
        start, found = max(0, end), 0
        while start > 0 and found < count:
            start -= 1
            found += not is_quiet(self._events[start])
        return start

    def _forward(self, start: int) -> Page:
        end, found, total = start, 0, len(self._index.turn_of)
        while end < total and found < PAGE:
            found += not is_quiet(self._events[end])
            end += 1
        return Page(tuple(self.rows(start, end)), start, end, total)

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """Yield the rows of events from `start` up to, not including, `end`."""
        opens: int | None = None
        if start > 0 and isinstance(self._events[start - 1].data, TurnStart):
            opens = self._index.turn_of[start - 1]
        for seq in range(start, end):
            event = self._events[seq]
            if isinstance(event.data, TurnStart):
                opens = event.data.turn
            row = self._row(event)
            if row is None:
                continue
            if opens is not None:
                row = structs.replace(row, opens=opens)
                opens = None
            yield row

    def search(self, text: str) -> list[Row]:
        """Return the rows of events that hold a text, newest first; at most `MAX_FOUND`."""
        wanted = text.casefold()
        rows: list[Row] = []
        for seq in range(len(self._index.turn_of) - 1, -1, -1):
            event = self._events[seq]
            telling = describe(event, self._words)
            said = f"{telling.text}\n{telling.searched}"
            # What is masked cannot be searched either: it could be found letter by letter.
            if wanted in said.casefold() and wanted in discreet(said).casefold():
                row = self._row(event)
                if row is not None:
                    rows.append(row)
                    if len(rows) == MAX_FOUND:
                        break
        return rows

    # -- one row ------------------------------------------------------------------------------

    def _telling(self, event: Event) -> Telling:
        before = None
        if isinstance(event.data, RequestHeader):
            earlier = self._index.header_before(event.seq)
            data = None if earlier is None else self._events[earlier].data
            before = data if isinstance(data, RequestHeader) else None
        return describe(event, self._words, before)

    def _row(self, event: Event) -> Row | None:
        if is_quiet(event):
            return None
        telling = self._telling(event)
        row = Row(
            event.seq,
            telling.kind,
            self._index.turn_of[event.seq],
            event.time,
            line(telling.text, EXCERPT),
            lines=tuple(line(each, DETAIL) for each in telling.detail),
            tone=telling.tone,
            change=telling.change,
            child=telling.child,
        )
        return self._request(row, event.data) if isinstance(event.data, RequestSent) else row

    def _request(self, row: Row, data: RequestSent) -> Row:
        """Return the row of a request with its figures."""
        own = self._index.request_at(row.seq)
        tone = row.tone
        if own is not None and own.short:
            tone = "warn" if own.request.breaks else "bad"
        figures = None if own is None else bar([own])
        return structs.replace(row, number=data.number, bar=figures, tone=tone)
