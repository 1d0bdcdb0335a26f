"""Running digests over a request: what a provider stores a prefix under."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def running(key: bytes, parts: Iterable[bytes]) -> list[bytes]:
    """Return the digest of the prefix that ends at each part.

    Args:
        key: What has to be equal besides the parts: model, account, settings.
        parts: The parts in order; the boundary between two parts counts.
    """
    state = hashlib.sha256(_framed(key))
    found: list[bytes] = []
    for part in parts:
        state.update(_framed(part))
        found.append(state.copy().digest())
    return found


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part
