"""The one JSON encoder, digests, and the rules for JSON and text from outside.

Wire bytes, log bytes and digests all come from here, so that two places never disagree about how
a value is written. The rules for what comes from outside (a model, an MCP server, a provider):

==================  ===============================================================
lone surrogate      each becomes U+FFFD: no encoder may write it, no log could hold it
NaN, Infinity       refused (`ContentError`); they are not JSON
huge integers       kept: JSON has no limit, and neither has Python
numbers like 1e999  refused (`ContentError`): no float holds them
deep nesting        refused (`ContentError`) beyond `MAX_DEPTH` levels
size                refused (`ContentError`) beyond the limit the caller states
duplicate keys      the last one counts
==================  ===============================================================

JSON *text* that a model or provider made is never written again by our encoder: it is carried as
`msgspec.Raw` or `str` and joined as it is.
"""

from __future__ import annotations

import hashlib
import re
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from addendum.errors import ContentError

MAX_DEPTH = 200
"""Levels of arrays and objects that JSON from outside may have."""

MAX_TEXT = 32 * 1024 * 1024
"""Bytes that one JSON text from outside may have, unless the caller states another limit."""


def _plain(value: Any) -> Any:
    """Return text or a number of a class that others made of them, such as `numpy.float64`."""
    # Their own methods may say anything.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


_wire = msgspec.json.Encoder(enc_hook=_plain)
_sorted = msgspec.json.Encoder(enc_hook=_plain, order="sorted")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def encode(value: Any) -> bytes:
    """Encode `value` as compact UTF-8 JSON in the caller's key order.

    Args:
        value: JSON-like data, frozen structs, or `msgspec.Raw` for ready JSON text.

    Raises:
        ContentError: A string holds a lone surrogate; `clean` it where it comes in.
    """
    try:
        return _wire.encode(value)
    except UnicodeEncodeError as error:
        raise ContentError(
            "text holds a lone surrogate; pass it through addendum.encoding.clean first"
        ) from error


def canonical(value: Any) -> bytes:
    """Encode with keys sorted at every level: for identity, never for the wire.

    Args:
        value: JSON-like data. `msgspec.Raw` is decoded first, so that key order inside it does
            not count.
    """
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    return _sorted.encode(value)


def digest(data: bytes | str) -> str:
    """Return the SHA-256 of `data` as 64 hex digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def clean(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def escaped(text: str) -> str:
    """Return text with each of its characters as an escape of JSON."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def decode(data: bytes | str, *, limit: int = MAX_TEXT) -> Any:
    """Decode JSON from outside by the rules of this module.

    Args:
        data: JSON text.
        limit: Bytes it may have.

    Raises:
        ContentError: It is no JSON, or breaks one of the rules.
    """
    raw = clean(data).encode() if isinstance(data, str) else data
    if len(raw) > limit:
        raise ContentError(f"JSON of {len(raw):,} bytes is over the limit of {limit:,}")
    if too_deep(raw):
        raise ContentError(f"JSON is nested deeper than {MAX_DEPTH} levels")
    if _ESCAPED_SURROGATE.search(raw):
        raw = mend_surrogates(raw)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise ContentError(f"not valid JSON: {error}") from error


_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def too_deep(raw: bytes) -> bool:
    """Tell whether JSON text is nested deeper than `MAX_DEPTH`, without decoding it."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    # Every other piece between quotes is a string, once no quote is escaped any more.
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    brackets = b"".join(bare.split(b'"')[::2]).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH


_Bytes = TypeVar("_Bytes", bytes, bytearray)

_ESCAPES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def mend_surrogates(raw: _Bytes) -> _Bytes:
    r"""Return JSON text with each escaped lone surrogate (`\ud800`) replaced by `\ufffd`.

    Text without one is returned as it is, and is not copied.
    """
    if not _ESCAPED_SURROGATE.search(raw):
        return raw
    # In place, for both are six bytes: a list of pieces would take many times the text.
    mended = bytearray(raw)
    for match in _ESCAPES.finditer(raw):
        if match.end() - match.start() == 6:
            mended[match.start() : match.end()] = rb"\ufffd"
    return type(raw)(mended)


def compact(data: bytes | str, *, limit: int = MAX_TEXT) -> msgspec.Raw:
    """Decode JSON from outside and return it as compact text in its own key order.

    Raises:
        ContentError: As `decode`.
    """
    return msgspec.Raw(encode(decode(data, limit=limit)))
