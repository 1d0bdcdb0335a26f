"""Server-sent events from bytes: the framing that streaming providers use.

The rules are those of the HTML standard (lines end in CR, LF or CRLF; comments and unknown fields
are skipped; several `data` lines are joined by LF; a BOM may lead), with three differences that
fit providers:

- `data` stays bytes: the JSON inside is decoded once, by whoever knows its shape. Bytes that are
  no UTF-8 fail there instead of being replaced here.
- At the end of the stream a last event without its blank line counts: some servers leave it out.
  An event cut in the middle is no valid JSON, so its parser refuses it.
- One event may have `limit` bytes; beyond that the stream is broken, not the process.
"""

from __future__ import annotations

import re

from msgspec import Struct

from addendum.errors import StreamBroken

MAX_EVENT = 32 * 1024 * 1024
"""Bytes that one event may have."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """One server-sent event.

    Attributes:
        event: The event's name, or None if the server gave none.
        data: Its data lines, joined by LF; UTF-8 by the standard, not checked here.
        id: The latest id that the stream set, or None.
    """

    event: str | None
    data: bytes
    id: str | None = None


class SseParser:
    """Turns chunks of bytes, split anywhere, into events.

    Args:
        limit: Bytes that one event may have, its unfinished line included.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event: str | None = None
        self._id: str | None = None
        self._first_line = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes.

        Raises:
            StreamBroken: The event under way is over the limit.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        events: list[SseEvent] = []
        *complete, rest = _LINE_END.split(chunk)
        for part in complete:
            self._grow(part)
            self._end_line(events)
        self._grow(rest)
        return events

    def close(self) -> list[SseEvent]:
        """Return the event that the end of the stream completes, if there is one."""
        events: list[SseEvent] = []
        if self._line_size:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _grow(self, part: bytes) -> None:
        if part:
            self._line.append(part)
            self._line_size += len(part)
            if self._line_size + self._data_size > self._limit:
                raise StreamBroken(
                    f"one event of the answer is over the limit of {self._limit:,} bytes; "
                    "ask for a shorter answer or raise max_event"
                )

    def _end_line(self, events: list[SseEvent]) -> None:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(SseEvent(self._event or None, b"\n".join(self._data), self._id))
            self._data.clear()
            self._data_size = 0
        self._event = None
