"""Which of the captured requests continue each other, where nobody says so.

A request without an answer of the model in it begins a conversation, unless it repeats or extends
what one holds. Any other request continues one: of those whose messages it begins with, the one
that it extends whole, else the one that it shares most with. One that shares no message at all
continues the latest conversation with the same tools and prompt: a date in the first message
breaks everything behind it, and that is what has to be found.
"""

from __future__ import annotations

from collections.abc import Sequence

from addendum.cache.record import Reading
from addendum.wire.segment import Segment


class _Conversation:
    """What is known of a conversation: its latest request."""

    def __init__(self, name: str, reading: Reading, messages: Sequence[str]) -> None:
        self.name = name
        self.messages = messages
        self.head = _head(reading)
        self.wire = reading.record.wire


def sorted_out(readings: Sequence[Reading]) -> tuple[str, ...]:
    """Return the name of each request's conversation.

    Args:
        readings: Requests of one capture in the order in which they were sent; a session that is
            not empty is kept.
    """
    known: list[_Conversation] = []
    names: list[str] = []
    for reading in readings:
        if reading.record.session:
            names.append(reading.record.session)
            continue
        messages = [each.key for each in reading.segments if _counts(each)]
        found = _continued(reading, messages, known)
        if found is None:
            found = _Conversation(f"conversation {len(known) + 1}", reading, messages)
        else:
            known.remove(found)
            found.messages, found.head = messages, _head(reading)
        known.append(found)
        names.append(found.name)
    return tuple(names)


def _continued(
    reading: Reading, messages: Sequence[str], known: Sequence[_Conversation]
) -> _Conversation | None:
    answered = any(each.role in ("assistant", "model") for each in reading.segments)
    best: _Conversation | None = None
    score = (False, 0)
    for each in known:  # the one that was used last comes last, and wins
        if each.wire != reading.record.wire:
            continue
        common = _common(each.messages, messages)
        whole = common == len(each.messages)
        if common and (answered or whole) and (whole, common) >= score:
            best, score = each, (whole, common)
    if best is None and answered:
        head = _head(reading)
        return next((each for each in reversed(known) if each.head == head), None)
    return best


def _counts(segment: Segment) -> bool:
    # Reasoning comes and goes by rules of the provider.
    return (
        segment.kind == "message"
        and not (segment.deferred or segment.tail or segment.transparent)
        and segment.type != "message"
    )


def _head(reading: Reading) -> tuple[str, ...]:
    return tuple(each.key for each in reading.rendered[: reading.system_end])


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    for ours, theirs in zip(old, new, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
