"""Notices that a stored log was changed since it was written.

A request is computed from the log, so a row that somebody edits, takes out or puts in changes what
was sent long ago, and the next request no longer extends it. Each `request/sent` therefore holds a
checksum of all rows in front of it. What came behind the last request, an answer, a result, a
question that waits for a person, is guarded by the store: beside each row it keeps the checksum of
all rows up to it, and so it can be said which row is not what was appended.

None of it is a protection against somebody who means harm: it is what lets a session say that its
prefix breaks, or that nobody asked this question; and it costs little where a long log is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast
from zlib import crc32

from addendum.log.events import Event, RequestSent


class Seal:
    """A running checksum (CRC-32) over the rows of one log, in order.

    Attributes:
        value: The checksum of all rows so far.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, row: bytes) -> None:
        """Take in the next row, as it is stored."""
        self.value = crc32(row, self.value)

    def text(self) -> str:
        """Return the checksum of all rows so far, as 8 hex digits."""
        return f"{self.value:08x}"

    def broken(self, rows: Sequence[bytes], requests: Sequence[Event], first: int) -> set[int]:
        """Take in the next rows, and return the seqs of requests that were sent of other ones.

        Args:
            rows: The rows.
            requests: The `request/sent` among them.
            first: Seq of the first row.
        """
        found: set[int] = set()
        start = 0
        for event in requests:
            end = event.seq - first
            self.add(b"".join(rows[start:end]))
            start = end
            # Logs from before there was one have requests without it.
            seal = cast("RequestSent", event.data).seal
            if seal and seal != self.text():
                found.add(event.seq)
        self.add(b"".join(rows[start:]))
        return found


def chained(rows: Iterable[bytes], before: int = 0) -> list[int]:
    """Return what a store keeps beside rows: for each, the checksum of all rows up to it.

    Args:
        rows: Rows that follow on each other.
        before: The checksum of all rows in front of them.
    """
    kept: list[int] = []
    for row in rows:
        before = crc32(row, before)
        kept.append(before)
    return kept


def changed(rows: Sequence[bytes], kept: Sequence[int | None], total: int | None) -> set[int]:
    """Return the seqs of rows that are not as they were appended, or do not follow on theirs.

    Args:
        rows: All rows of a session, from its first on.
        kept: What the store keeps beside each; None beside a row from before it kept any.
        total: The checksum that the store keeps of the whole session; None if these rows are not
            all. A seq behind the last row says that there were more.
    """
    found: set[int] = set()
    before, sealed = 0, False
    for seq, (row, own) in enumerate(zip(rows, kept, strict=True)):
        now = crc32(row, before)
        if own is None and sealed:
            found.add(seq)
            continue
        if own is not None and own != now:
            found.add(seq)
        # Judged by itself: what is wrong in front of a row is not its fault.
        before, sealed = (now, False) if own is None else (own, True)
    if total is not None and total != before:
        found.add(len(rows))
    return found
