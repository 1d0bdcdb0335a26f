"""Notices that a stored log was changed since its requests were sent.

A request is computed from the log, so a row that somebody edits, takes out or puts in changes what
was sent long ago, and the next request no longer extends it. Each `request/sent` therefore holds a
checksum of all rows in front of it. It is no protection against somebody who means harm: it is what
lets a session say that its prefix breaks, and it costs little where a long log is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from zlib import crc32

from addendum.log.events import Event, RequestSent


class Seal:
    """A running checksum (CRC-32) over the rows of one log, in order."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, row: bytes) -> None:
        """Take in the next row, as it is stored."""
        self._sum = crc32(row, self._sum)

    def text(self) -> str:
        """Return the checksum of all rows so far, as 8 hex digits."""
        return f"{self._sum:08x}"

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
