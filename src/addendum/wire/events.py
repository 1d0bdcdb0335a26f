"""What stands in the events of an answer, whatever the wire: an object, an error, or nothing.

Providers and what stands between send more than their documents say: keep-alives as data (`null`,
`[PING]`, a date, a comment), events of other kinds, errors without an error's status. What is no
JSON object says nothing and is passed over. What begins as one and cannot be read may have held a
piece of the answer, and breaks the stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.wire.reading import slices, table, text, values
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_PINGS = frozenset({"ping", "keepalive", "keep-alive", "keep_alive", "heartbeat"})
_PING = re.compile(rb'\{\s*"type"\s*:\s*"(?:ping|keep-?_?alive|heartbeat)"')
_BOM = b"\xef\xbb\xbf"
_BARE = frozenset(
    "code detail message msg request_id requestId retry_after status success timestamp trace_id"
    " type __type".split()
)
"""Fields of an error that stands alone, in no `error` object: FastAPI, DashScope, Z.ai, AWS."""


def read(event: SseEvent, *, ended: bool = False) -> tuple[Mapping[str, Any], Raw] | None:
    """Return the object that an event holds, as values and as text; None if it says nothing.

    Args:
        event: The event.
        ended: Whether the answer has ended. What comes behind it cannot spoil it any more.

    Raises:
        StreamBroken: It begins as an object and cannot be read.
        ProviderRefused: It reports an error that blames the request.
        ProviderBusy: It reports any other error.
    """
    data = payload(event)
    if not data:
        return None
    if data[:1] != b"{":
        if event.event == "error" and not ended:
            raise stream_error(data)
        return None
    try:
        value = values(data)
    except StreamBroken:
        if ended:
            return None
        raise
    if event.event == "error" or is_error(value):
        if ended:
            return None
        raise stream_error(data)
    return value, Raw(data)


def keeps_alive(event: SseEvent) -> bool:
    """Say whether an event tells nothing but that the connection lives, by its first bytes."""
    data = payload(event)
    if event.event == "error":
        return False
    if event.event in _PINGS:
        return True
    if data[:1] != b"{":
        # The name of an event of AWS may say it all.
        return not (is_done(event) or (event.event and not data))
    return _PING.match(data) is not None


def payload(event: SseEvent) -> bytes:
    """Return an event's data without what may stand around its JSON."""
    return event.data.strip().removeprefix(_BOM).lstrip()


def is_done(event: SseEvent) -> bool:
    """Say whether an event is the `[DONE]` with which streams in OpenAI's manner end."""
    return len(event.data) < 32 and payload(event).strip(b'"').upper() == b"[DONE]"


def is_error(value: Mapping[str, Any]) -> bool:
    """Say whether an object reports an error, by the shapes that `addendum.wire.refusal` reads."""
    if value.get("error") or "error" in (value.get("type"), value.get("object")):
        return True
    said = value.get("message") or value.get("detail") or value.get("msg")
    if not isinstance(said, str | list) or value.keys() - _BARE:
        return False
    status = value.get("status", "error")
    if status not in ("error", "fail", "failed", "failure") and not _is_refusal(status):
        return False
    kind = text(value.get("type")).lower()
    return not kind or "error" in kind or "exception" in kind


def _is_refusal(status: Any) -> bool:
    return isinstance(status, int) and status >= 400


def joined_usage(before: Raw | None, later: Raw) -> Raw:
    """Return the counts of two usage objects of one answer.

    The later one counts, but what it leaves out, nulls, or sets to zero keeps what was counted:
    some servers end with an object of zeros (BerriAI/litellm#17136).

    Args:
        before: Text of the earlier object, if there was one.
        later: Text of the later one.
    """
    if before is None:
        return later
    earlier, own = slices(before), slices(later)
    stated = {name: raw for name, raw in own.items() if name not in earlier or not _nothing(raw)}
    whole = {**earlier, **stated}
    return later if whole == own else Raw(encoding.encode(whole))


def _nothing(raw: Raw) -> bool:
    """Say whether a field counts nothing: null, zero, or an object of such fields."""
    value = encoding.decode(bytes(raw))
    return _empty(value)


def _empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_empty(each) for each in table(value).values())
    return value is None or (isinstance(value, int | float) and not value)
