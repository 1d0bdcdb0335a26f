"""Frames of AWS's binary event stream, as a service sends them."""

from __future__ import annotations

import zlib
from typing import Any

from addendum import encoding

_STRING = 7


def frame(name: str, payload: Any, *, kind: str = "event") -> bytes:
    """Return one frame.

    Args:
        name: Type of the event, or of the exception.
        payload: Its payload, encoded as JSON.
        kind: `event` or `exception`.
    """
    headers = b"".join(
        _header(key, value)
        for key, value in (
            (f":{kind}-type", name),
            (":content-type", "application/json"),
            (":message-type", kind),
        )
    )
    data = encoding.encode(payload)
    size = 12 + len(headers) + len(data) + 4
    prelude = size.to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    whole = prelude + zlib.crc32(prelude).to_bytes(4, "big") + headers + data
    return whole + zlib.crc32(whole).to_bytes(4, "big")


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return (
        bytes([len(name)]) + name.encode() + bytes([_STRING]) + len(text).to_bytes(2, "big") + text
    )
