"""Reads a session from its store, and notes which of its events are not what was appended."""

from __future__ import annotations

from addendum.errors import LogError, UnknownEvent
from addendum.log.events import RequestContext, StepStart
from addendum.log.requests import RequestSent
from addendum.log.seal import chained, changed
from addendum.log.session_log import SessionLog
from addendum.log.store import Store

_PAGE = 2_000
"""Events that are read at once."""


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


def context_of(log: SessionLog, sent: RequestSent) -> RequestContext | None:
    """Return what a request was rendered with; None where a damaged log does not say it."""
    if not 0 <= sent.context_seq < len(log):
        return None
    data = log.events[sent.context_seq].data
    return data if isinstance(data, RequestContext) else None


def lost(log: SessionLog, what: str) -> LogError:
    """Return the error for a log that can be read and lacks what it must have.

    Args:
        log: The log.
        what: What is not in it.
    """
    return LogError(
        f"session {log.session!r} is damaged: {what} is not in its log; "
        "restore the store from a copy, or begin another session",
        session=log.session,
    )


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
