"""Which of the captured requests continue each other, where nobody says so.

A request without an answer of the model in it begins a conversation, unless it repeats or extends
what one holds. Any other request continues one: of those whose messages it begins with, the one
that it extends whole, else the one that it shares most with. One that shares no message at all
continues the latest conversation with the same tools and prompt: a date in the first message
breaks everything behind it, and that is what has to be found.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from typing import TypeVar

from addendum.cache.record import Reading
from addendum.wire.segment import Segment

K = TypeVar("K")

KNOWN = 4096
"""Conversations that are remembered; those that were not used for longest are forgotten."""


class _Conversation:
    """What is known of a conversation: its latest request, as digests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: array[int] = array("Q")
        self.head = ""
        self.bucket = 0


class Conversations:
    """Sorts the requests of one capture, in the order in which they were sent."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Conversation] = OrderedDict()
        self._buckets: dict[int, OrderedDict[str, _Conversation]] = {}
        self._heads: dict[str, OrderedDict[str, _Conversation]] = {}
        self._count = 0

    def name(self, reading: Reading) -> str:
        """Return the name of the next request's conversation; one that it has already is kept."""
        if reading.record.session:
            return reading.record.session
        messages = _digests(reading)
        head = f"{reading.record.wire} {_head(reading)}"
        found = self._continued(reading, messages, head)
        if found is None:
            self._count += 1
            found = _Conversation(f"conversation {self._count}")
        else:
            self._forget(found)
        found.messages, found.head = messages, head
        found.bucket = messages[0] if messages else 0
        self._known[found.name] = found
        self._buckets.setdefault(found.bucket, OrderedDict())[found.name] = found
        self._heads.setdefault(head, OrderedDict())[found.name] = found
        if len(self._known) > KNOWN:
            self._forget(next(iter(self._known.values())))
        return found.name

    def _forget(self, known: _Conversation) -> None:
        del self._known[known.name]
        _take_out(self._buckets, known.bucket, known.name)
        _take_out(self._heads, known.head, known.name)

    def _continued(self, reading: Reading, messages: array[int], head: str) -> _Conversation | None:
        answered = any(segment.role in ("assistant", "model") for segment in reading.segments)
        best: _Conversation | None = None
        score = (False, 0)
        bucket = self._buckets.get(messages[0] if messages else 0)
        # The one that was used last comes last, and wins.
        for segment in bucket.values() if bucket is not None else ():
            common = _common(segment.messages, messages)
            whole = common == len(segment.messages)
            if common and (answered or whole) and (whole, common) >= score:
                best, score = segment, (whole, common)
        if best is None and answered:
            same = self._heads.get(head)
            return None if same is None else next(reversed(same.values()))
        return best


def _take_out(index: dict[K, OrderedDict[str, _Conversation]], key: K, name: str) -> None:
    del index[key][name]
    if not index[key]:
        del index[key]


def _digests(reading: Reading) -> array[int]:
    """Return the digest of each beginning of a request's messages."""
    state = hashlib.blake2b(reading.record.wire.encode(), digest_size=8)
    found: array[int] = array("Q")
    for segment in reading.segments:
        if _counts(segment):
            state.update(segment.key.encode())
            found.append(int.from_bytes(state.digest()))
    return found


def _counts(segment: Segment) -> bool:
    # Reasoning comes and goes by rules of the provider.
    return (
        segment.kind == "message"
        and not (segment.deferred or segment.tail or segment.transparent)
        and segment.type != "message"
    )


def _head(reading: Reading) -> str:
    return reading.chain[reading.system_end - 1] if reading.system_end else ""


def _common(old: array[int], new: array[int]) -> int:
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[middle - 1] == new[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
