"""The latest of each conversation, as many as fit: what keeps a long check in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from addendum.cache.record import Reading

V = TypeVar("V")

_SEGMENT = 450
"""Bytes that a segment takes in memory beside its text."""


class Kept(Generic[V]):
    """Values by key; those that were not used for longest leave when there is no room.

    Args:
        room: Bytes of values that stay; None for all of them.

    Attributes:
        lost: How often a value was asked for that had left.
    """

    def __init__(self, room: int | None = None) -> None:
        self.lost = 0
        self._room = room
        self._used = 0
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._left: set[Hashable] = set()

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key, or None."""
        value = self._values.get(key)
        if value is None:
            if key in self._left:
                self.lost += 1
                self._left.discard(key)
            return None
        self._values.move_to_end(key)
        return value[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep a value.

        Args:
            key: Its key.
            value: The value; it stays whatever its size, until another one comes.
            size: Its bytes.
        """
        _, before = self._values.pop(key, (None, 0))
        self._values[key] = value, size
        self._used += size - before
        self._left.discard(key)
        while self._room is not None and self._used > self._room and len(self._values) > 1:
            oldest, (_, freed) = self._values.popitem(last=False)
            self._used -= freed
            self._left.add(oldest)


def size_of(reading: Reading) -> int:
    """Return about how many bytes a request takes in memory."""
    return len(reading.record.body) + _SEGMENT * len(reading.segments)
