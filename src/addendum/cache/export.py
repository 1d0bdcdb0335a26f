"""Requests as files that others read: JSON lines, JSON and HAR.

Each request has its body's very bytes, what the provider counted and, under `addendum`, what was
known when it was sent, so that `addendum check` judges an export as it would judge the session.
Credentials are no part of a request here, and headers are only those that say how a body is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, Struct

from addendum import encoding
from addendum.cache.capture import known_of
from addendum.cache.record import RequestRecord
from addendum.moments import moment
from addendum.version import __version__

_EPOCH = datetime.fromtimestamp(0, UTC)
"""What stands for a time that is no date."""


class Outgoing(Struct, frozen=True):
    """A request to be exported.

    Attributes:
        record: The request.
        url: The address of its route; empty if the route has none of its own.
        headers: Headers that say how its body is read; never credentials.
    """

    record: RequestRecord
    url: str
    headers: Mapping[str, str]


def as_object(request: Outgoing) -> dict[str, Any]:
    """Return a request as the object that JSON and JSON lines hold."""
    record = request.record
    usage = record.usage
    return {
        "url": request.url,
        "headers": dict(request.headers),
        "body": Raw(record.body),
        "usage": {
            "prompt": usage.prompt,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output,
        },
        "time": record.time_sent,
        "addendum": known_of(record),
    }


def json_lines(requests: Sequence[Outgoing]) -> Iterator[bytes]:
    """Yield one line a request, without its end."""
    return (encoding.encode(as_object(each)) for each in requests)


def json_text(session: str, requests: Sequence[Outgoing]) -> bytes:
    """Return one JSON object with all requests of a session."""
    return encoding.encode(
        {
            "addendum_export": 1,
            "session": session,
            "requests": [as_object(each) for each in requests],
        }
    )


def har(requests: Sequence[Outgoing]) -> bytes:
    """Return an HTTP archive (HAR 1.2).

    A log keeps answers as what they said, not as they came: a response holds the usage alone.
    """
    creator = {"name": "addendum", "version": __version__}
    entries = [_entry(each) for each in requests]
    return encoding.encode({"log": {"version": "1.2", "creator": creator, "entries": entries}})


def _entry(request: Outgoing) -> dict[str, Any]:
    record = request.record
    said = encoding.encode({"usage": as_object(request)["usage"]}).decode()
    answered = record.status == "answered"
    seconds = (record.time_answered or record.time_sent) - record.time_sent
    milliseconds = max(0, round(1000 * seconds))
    return {
        "startedDateTime": (moment(record.time_sent) or _EPOCH).isoformat(),
        "time": milliseconds,
        "request": {
            "method": "POST",
            "url": request.url,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [{"name": k, "value": v} for k, v in request.headers.items()],
            "queryString": [],
            "postData": {"mimeType": "application/json", "text": record.body.decode()},
            "headersSize": -1,
            "bodySize": len(record.body),
        },
        "response": {
            "status": 200 if answered else 0,
            "statusText": "",
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [],
            "content": {"size": len(said), "mimeType": "application/json", "text": said},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": -1,
        },
        "cache": {},
        "timings": {"send": 0, "wait": milliseconds, "receive": 0},
        "_addendum": known_of(record),
    }
