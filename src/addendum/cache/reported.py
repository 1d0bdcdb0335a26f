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
from addendum.wire.anthropic_messages.parse import parse_body
from addendum.wire.openai_chat.usage import read_usage
from addendum.wire.segment import Json, fields
from addendum.wire.sse import SseParser

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
    if wire == "anthropic_messages":
        return parse_body(b'{"type":"message","content":[],"usage":' + raw + b"}").usage
    return read_usage(Raw(raw))


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
        if plain.lstrip()[:1] == b"{":
            return usage_of(wire, _stated(encoding.decode(plain)))
        return usage_of(wire, _streamed(plain))
    except (AddendumError, zlib.error):
        return Usage()


def _unzipped(data: bytes, coding: str) -> bytes:
    bits = _ZIPPED.get(coding.strip().lower())
    if bits is None and data[:2] == b"\x1f\x8b":
        bits = _ZIPPED["gzip"]
    if bits is None or data[:1] in (b"{", b"d", b"e"):
        return data  # plain, whatever the header says: whoever kept it may have unpacked it
    return zlib.decompressobj(bits).decompress(data, MAX_ANSWER)


def _stated(value: Any) -> Json:
    said = fields(value)
    return fields(said.get("usage")) or fields(fields(said.get("message")).get("usage"))


def _streamed(data: bytes) -> Json:
    """Return the usage that events state: what a later one says counts, null says nothing."""
    parser = SseParser()
    found: Json = {}
    for event in (*parser.feed(data), *parser.close()):
        if b"usage" not in event.data:
            continue
        stated = _stated(cast(Any, encoding.decode(event.data)))
        found |= {name: value for name, value in stated.items() if value is not None}
    return found
