"""Results that are too long to be shown whole: their beginning, a note, and their end.

How much is shown is decided once, before a result is first sent, and stands in its event; what is
shown follows from the two alone. So a result never changes because the conversation around it has
grown. The whole result stays in the log.
"""

from __future__ import annotations

_NOTE = 200
"""Bytes over the limit that are let be: the note would take as much."""


def tier(text: str, limit: int) -> int | None:
    """Return how many bytes of a new result are shown; None if all of it.

    Args:
        text: The result.
        limit: Bytes that may be shown.
    """
    # A character has at most four bytes: most results need not be counted.
    if len(text) * 4 <= limit or len(text.encode()) <= limit + _NOTE:
        return None
    return limit


def shown(text: str, size: int | None) -> str:
    """Return what the model reads of a result.

    Args:
        text: The result.
        size: Bytes that are shown, three quarters of them from the beginning; None for all.
    """
    if size is None:
        return text
    data = text.encode()
    tail = size // 4
    head = data[: size - tail].decode(errors="ignore")
    end = data[len(data) - tail :].decode(errors="ignore") if tail else ""
    left = len(data) - len(head.encode()) - len(end.encode())
    note = f"[left out here: {left:,} of {len(data):,} bytes; ask for less at once to read them]"
    return f"{head}\n{note}\n{end}" if end else f"{head}\n{note}"
