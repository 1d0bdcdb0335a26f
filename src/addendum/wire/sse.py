"""Server-sent events from bytes: the framing that streaming providers use.

The rules are those of the HTML standard (lines end in CR, LF or CRLF; comments and unknown fields
are skipped; several `data` lines are joined by LF; a BOM may lead), with five differences that
fit providers and what stands between:

- `data` stays bytes: the JSON inside is decoded once, by whoever knows its shape. Bytes that are
  no UTF-8 fail there instead of being replaced here.
- JSON that stands there without `data:` is an event of its own: an error, or a whole answer, that
  a gateway puts into a stream as it is; one object a line, too.
- Several `data` lines that make no JSON together, and each one alone, are an event each: some
  servers leave out the blank line between events.
- At the end of the stream a last event without its blank line counts: some servers leave it out.
  An event cut in the middle is no valid JSON, so its parser refuses it.
- One event may have `limit` bytes; beyond that the stream is broken, not the process.
"""

from __future__ import annotations

import re
from typing import NoReturn

from msgspec import Struct

from addendum import encoding
from addendum.errors import ContentError, StreamBroken

MAX_EVENT = 32 * 1024 * 1024
"""Bytes that one event may have."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data", b"event", b"id", b"retry", b"")


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
        self._bare = False
        self._event: str | None = None
        self._id: str | None = None
        self._first_line = True
        self._after_cr = False

    @property
    def pending(self) -> int:
        """Bytes of the event that is under way."""
        return self._line_size + self._data_size

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
        *lines, rest = _LINE_END.split(chunk)
        if lines:
            if self._line:
                self._grow(lines[0])
                lines[0] = self._whole_line()
            for line in lines:
                if line:
                    self._field(line, events)
                else:
                    self._dispatch(events)
        if rest:
            self._grow(rest)
        return events

    def close(self) -> list[SseEvent]:
        """Return the event that the end of the stream completes, if there is one."""
        events: list[SseEvent] = []
        if self._line:
            self._field(self._whole_line(), events)
        self._dispatch(events)
        return events

    def _grow(self, part: bytes) -> None:
        """Take in a piece of a line that has not ended."""
        self._line.append(part)
        self._line_size += len(part)
        if self._line_size + self._data_size > self._limit:
            self._give_up()

    def _whole_line(self) -> bytes:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        return line

    def _give_up(self) -> NoReturn:
        raise StreamBroken(
            f"one event of the answer is over the limit of {self._limit:,} bytes; "
            "ask for a shorter answer or raise max_event"
        )

    def _field(self, line: bytes, events: list[SseEvent]) -> None:
        """Take in a line that is not empty."""
        if len(line) + self._data_size > self._limit:
            self._give_up()
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name in _FIELDS and self._bare:
            self._dispatch(events)
        if name == b"data":
            self._take(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif self._bare or line.lstrip()[:1] in (b"{", b"["):
            if self._data and not self._bare:
                self._dispatch(events)
            self._bare = True
            self._take(line)

    def _take(self, value: bytes) -> None:
        self._data.append(value)
        self._data_size += len(value) + 1

    def _dispatch(self, events: list[SseEvent]) -> None:
        parts = self._data
        if len(parts) > 1:
            joined = b"\n".join(parts)
            if _is_json(joined) or not all(map(_is_json, parts)):
                parts = [joined]
        for part in parts:
            events.append(SseEvent(self._event or None, part, self._id))
        self._data = []
        self._data_size = 0
        self._bare = False
        self._event = None


def _is_json(data: bytes) -> bool:
    if data.strip() == b"[DONE]":
        return True
    try:
        encoding.decode(data)
    except ContentError:
        return False
    return True
