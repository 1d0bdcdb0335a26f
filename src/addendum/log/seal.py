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
from typing import TYPE_CHECKING, cast
from zlib import crc32

from addendum.errors import LogError, UnknownEvent
from addendum.log.events import Event, RequestSent, StepStart

if TYPE_CHECKING:
    from addendum.log.session_log import SessionLog
    from addendum.log.store import Store


_PAGE = 2_000
"""Events that are read at once."""


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


async def read(log: SessionLog, store: Store) -> None:
    """Read all of a session into its log, which is empty, and note what was changed in it.

    Args:
        log: The log.
        store: Where the session is kept.

    Raises:
        SessionMissing: There is no such session.
        UnknownEvent: It holds a required type of a later release.
        LogError: It is damaged; the message names the event.
        StoreError: It cannot be read.
    """
    # By pages: what was read of one is gone when the next comes.
    while page := await store.read(log.session, len(log), limit=_PAGE):
        first = len(log)
        try:
            log.extend(page)
        except UnknownEvent as error:
            seq = first if error.seq is None else error.seq
            if await _appended(log, store, seq, page[seq - first]):
                raise
            raise LogError(
                f"session {log.session!r}: event {seq} is damaged: it is not as it was written; "
                "restore the store from a copy",
                session=log.session,
                seq=seq,
            ) from None
    await compare(log, store)


async def _appended(log: SessionLog, store: Store, seq: int, row: bytes) -> bool:
    """Say whether a row is as it was appended, as far as the store can tell."""
    kept = (await store.seals(log.session, limit=seq + 1))[max(0, seq - 1) :]
    before = [0, *kept] if seq == 0 else kept
    return len(before) < 2 or None in before or chained([row], before[0] or 0)[0] == before[1]


async def compare(log: SessionLog, store: Store) -> None:
    """Note in a log that was just read which of its events are not as they were appended.

    One number says whether all are; only where it differs the rows are read once more.

    Args:
        log: A log as the store has it, whole or from its first event to any.
        store: The store.

    Raises:
        StoreError: It cannot be read.
    """
    kept, total = await store.seal(log.session, len(log))
    if kept is None or (kept == log.seal.value and total in (None, kept)):
        return
    rows = await store.read(log.session, limit=len(log))
    beside = await store.seals(log.session, limit=len(log))
    # Else it is another session by now.
    if len(rows) == len(beside) and chained(rows)[-1:] == [log.seal.value]:
        log.changed = changed(rows, beside, total)


def change_of(log: SessionLog) -> str | None:
    """Return what a person is told of a log that was changed, in one line; None of any other."""
    if not log.changed:
        return None
    first, rest = min(log.changed), len(log.changed) - 1
    what = f"event {first} ({log.events[first].type})" if first < len(log) else "its end"
    more = f" and {rest} more" if rest else ""
    return f"the stored log was changed: {what}{more} is not as it was written"


def doubtful(log: SessionLog) -> bool:
    """Say whether something of the open step is not as it was written, so that nothing may run.

    What waits there for a person may be another call than the model made, or may be decided
    already.
    """
    if not log.changed:
        return False
    steps = (event.seq for event in reversed(log.events) if isinstance(event.data, StepStart))
    return max(log.changed) >= next(steps, 0)
