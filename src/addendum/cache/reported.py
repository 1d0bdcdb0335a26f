"""What an answer said of tokens, read from an answer that somebody else kept.

An answer is a message, a stream of events, or no more than a usage object. What cannot be read is
unknown: a capture whose answers were lost can still be checked by its bodies.
"""

from __future__ import annotations

import zlib
from typing import Any, cast

from msgspec import Raw

from addendum import encoding
from addendum.errors import AddendumError
from addendum.log.values import Usage
from addendum.wire.captured import captured
from addendum.wire.segment import Json, fields

MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer that are looked at."""

_OURS = ("prompt", "cache_read", "cache_write", "output")
_ZIPPED = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


def usage_of(wire: str, value: Any) -> Usage:
    """Return the tokens that a usage object states.

    Args:
        wire: Name of the wire API.
        value: The provider's own object, or one in our words (`prompt`, `cache_read`,
            `cache_write`, `output`).

    Raises:
        ConfigurationError: Nothing reads this wire.
    """
    said = fields(value)
    if not said:
        return Usage()
    if "prompt" in said:
        counts = [said.get(name) for name in _OURS]
        prompt, read, written, output = (
            each if isinstance(each, int) and not isinstance(each, bool) and each >= 0 else None
            for each in counts
        )
        return Usage(prompt, read, written, output)
    raw = encoding.encode(said)
    return captured(wire).usage(Raw(raw))


def usage_in(wire: str, answer: bytes | str, coding: str = "") -> Usage:
    """Return the tokens that a whole answer states.

    Args:
        wire: Name of the wire API.
        answer: The body of an answer: JSON or server-sent events.
        coding: Its `content-encoding`, if it still has one.

    Returns:
        The usage; all unknown if the answer cannot be read.
    """
    data = answer.encode("utf-8", "replace") if isinstance(answer, str) else answer
    try:
        plain = _unzipped(data[:MAX_ANSWER], coding)
        return usage_of(wire, _stated_in(wire, plain))
    except (AddendumError, zlib.error):
        return Usage()


def _unzipped(data: bytes, coding: str) -> bytes:
    bits = _ZIPPED.get(coding.strip().lower())
    if bits is None and data[:2] == b"\x1f\x8b":
        bits = _ZIPPED["gzip"]
    if bits is None or data[:1] in (b"{", b"d", b"e"):
        return data  # plain, whatever the header says: whoever kept it may have unpacked it
    return zlib.decompressobj(bits).decompress(data, MAX_ANSWER)


def _stated_in(wire: str, data: bytes) -> Json:
    """Return the usage of an answer: what a later event says counts, null says nothing."""
    stated: Json = {}
    for value in _events(wire, data):
        stated |= {name: each for name, each in _stated(value).items() if each is not None}
    return stated


def _events(wire: str, data: bytes) -> list[Any]:
    start = data.lstrip()[:1]
    if start in (b"{", b"["):
        value = encoding.decode(data)
        return cast("list[Any]", value) if isinstance(value, list) else [value]
    parser = captured(wire).events()
    events = (*parser.feed(data), *parser.close())
    return [encoding.decode(event.data) for event in events if b"sage" in event.data]


def _stated(value: Any) -> Json:
    said = fields(value)
    for holder in (said, fields(said.get("message")), fields(said.get("response"))):
        for name in ("usage", "usageMetadata"):
            if isinstance(holder.get(name), dict):
                return fields(holder[name])
    return {}
