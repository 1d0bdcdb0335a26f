"""The binary event stream of AWS from bytes: frames with headers, each checked by two CRCs.

A frame is `total length, length of headers, CRC of these two` (4 bytes each, big endian), headers,
payload, and the CRC of all that. It becomes one event: the event's name is the header
`:event-type`, the data is the payload. An exception that a service reports in the stream becomes an
event named `exception` with an error object, by the names in `_STATUS`.

Source: AWS, "Amazon event stream encoding", as botocore 1.44.8 reads it.
"""

from __future__ import annotations

import zlib

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.wire.reading import table, text
from addendum.wire.sse import MAX_EVENT, SseEvent

EXCEPTION = "exception"
"""Name of an event that reports an exception: its data is `{"error": {...}}`."""

_PRELUDE = 12
_CRC = 4
_WIDTHS = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _STRING = 6, 7
_STATUS = {
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "modelstreamerrorexception": 500,
    "serviceunavailableexception": 503,
    "modeltimeoutexception": 503,
}


class AwsEventParser:
    """Turns chunks of bytes, split anywhere, into events.

    Args:
        limit: Bytes that one frame may have.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._kept = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of the frame that is under way."""
        return len(self._kept)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes.

        Raises:
            StreamBroken: A frame is over the limit or is none, or a checksum is wrong.
        """
        self._kept += chunk
        events: list[SseEvent] = []
        start = 0
        while len(self._kept) - start >= _PRELUDE:
            prelude = bytes(self._kept[start : start + _PRELUDE])
            size, headers = _number(prelude[:4]), _number(prelude[4:8])
            if zlib.crc32(prelude[:8]) != _number(prelude[8:]):
                raise _broken("the checksum of a frame's beginning is wrong")
            if size > self._limit:
                raise StreamBroken(
                    f"an event is over the limit of {self._limit:,} bytes; ask for a shorter answer"
                )
            if size < _PRELUDE + headers + _CRC:
                raise _broken("a frame is shorter than its headers")
            if len(self._kept) - start < size:
                break
            frame = bytes(self._kept[start : start + size])
            if zlib.crc32(frame[:-_CRC]) != _number(frame[-_CRC:]):
                raise _broken("the checksum of a frame is wrong")
            ends = _PRELUDE + headers
            events.append(_event(_headers(frame[_PRELUDE:ends]), frame[ends:-_CRC]))
            start += size
        del self._kept[:start]
        return events

    def close(self) -> list[SseEvent]:
        """Return what is left at the end: nothing.

        Raises:
            StreamBroken: The stream ended in the middle of a frame.
        """
        if self._kept:
            raise StreamBroken("the answer was cut in the middle of an event; send it again")
        return []


def _event(headers: dict[str, str], payload: bytes) -> SseEvent:
    if headers.get(":message-type", "event") == "event":
        return SseEvent(headers.get(":event-type"), payload)
    name = headers.get(":exception-type") or headers.get(":error-code") or "unknown"
    said = headers.get(":error-message", "")
    if not said and payload:
        try:
            said = text(table(encoding.decode(payload)).get("message"))
        except encoding.ContentError:
            said = payload[:2000].decode("utf-8", "replace")
    error = {
        "type": encoding.clean(name),
        "code": _STATUS.get(name.lower(), 500),
        "message": encoding.clean(said),
    }
    return SseEvent(EXCEPTION, encoding.encode({"error": error}))


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are text; others are skipped."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        ends = at + 1 + data[at]
        name, kind = data[at + 1 : ends], data[ends : ends + 1]
        at = ends + 1
        width = _WIDTHS.get(kind[0]) if kind else None
        if kind and kind[0] in (_BYTES, _STRING):
            width, at = _number(data[at : at + 2]), at + 2
        if width is None or at + width > len(data):
            raise _broken("a frame has headers that cannot be read")
        if kind[0] == _STRING:
            found[name.decode("utf-8", "replace")] = data[at : at + width].decode(
                "utf-8", "replace"
            )
        at += width
    return found


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _broken(what: str) -> StreamBroken:
    return StreamBroken(
        f"not an AWS event stream: {what}; send the request again or check the base URL"
    )
