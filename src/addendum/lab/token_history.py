"""Earlier requests as rows of tokens, for providers that compare tokens and not blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Seen:
    stream: bytes
    expires: float


class TokenHistory:
    """Streams of tokens by key, each kept until its lifetime since its last use has passed.

    A stream is four bytes a token. One that a later stream extends is dropped for it, so a
    conversation costs one stream however long it is.
    """

    def __init__(self) -> None:
        self._seen: dict[bytes, list[_Seen]] = {}

    def add(self, key: bytes, stream: bytes, expires: float) -> None:
        """Remember a stream until a time in seconds."""
        seen = self._seen.setdefault(key, [])
        seen[:] = [each for each in seen if not stream.startswith(each.stream)]
        seen.append(_Seen(stream, expires))

    def common(self, key: bytes, stream: bytes, now: float) -> int:
        """Return how many tokens `stream` shares with the best earlier one."""
        seen = self._seen.get(key, [])
        seen[:] = [each for each in seen if now < each.expires]
        return max((_common(each.stream, stream) for each in seen), default=0) // 4


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common beginning of two byte strings."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
