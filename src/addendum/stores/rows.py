"""Rows of the SQLite store, read as the types that their columns have.

A file may be damaged, or somebody else may have written to it. Each row is checked where it comes
in: one that is not as we write them is a `StoreError` of its own, and no other row suffers for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from addendum.errors import StoreError
from addendum.log.seal import Seal, chained
from addendum.log.store import SessionRow
from addendum.stores.leases import Holder, Standing
from addendum.stores.schema import damaged

T = TypeVar("T")

_BYTES = {bytes}
_LISTED = tuple[str, int, int, int, str | None, str | None, str | None]
_LEASE = tuple[int, str, str, int, int, str | None, int]
_TOTAL = "SELECT seal FROM seals WHERE session = ?1 ORDER BY seq DESC LIMIT 1"


def typed(row: object, kind: type[T], path: Path) -> T:
    """Return a row of the types that its columns have.

    Raises:
        StoreError: It is of others.
    """
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise damaged(path, error) from None


def count(db: sqlite3.Connection, session: str, path: Path) -> int | None:
    """Return how many events a session has; None if there is no such session."""
    found = db.execute("SELECT events FROM sessions WHERE id = ?", (session,)).fetchone()
    return None if found is None else typed(found, tuple[int], path)[0]


def listed(row: Sequence[object], path: Path) -> SessionRow:
    """Return a line of the list; a damaged one hides no other, and says its id only."""
    try:
        return SessionRow(*typed(row, _LISTED, path))
    except StoreError:
        return SessionRow(str(row[0]), 0, 0, 0)


def standing(db: sqlite3.Connection, session: str, path: Path) -> Standing | None:
    """Return a session's lease as it stands; None if it never had one."""
    row = db.execute(
        "SELECT token, host, machine, pid, started, nonce, expires FROM leases WHERE session = ?",
        (session,),
    ).fetchone()
    if row is None:
        return None
    token, host, machine, pid, started, nonce, expires = typed(row, _LEASE, path)
    return Standing(token, Holder(host, machine, pid, started), nonce, expires)


def record(db: sqlite3.Connection, kind: str, key: str, time: int) -> bytes | None:
    """Return a small record; one that is damaged is as good as none: it is found out again."""
    row = db.execute(
        "SELECT value FROM records WHERE kind = ? AND key = ? AND (expires IS NULL OR expires > ?)",
        (kind, key, time),
    ).fetchone()
    return row[0] if row and type(row[0]) is bytes else None


def events(
    db: sqlite3.Connection, session: str, start: int, limit: int | None, path: Path
) -> list[bytes]:
    """Return the events of a session from seq `start` on.

    Raises:
        StoreError: One is none.
    """
    rows = db.execute(
        "SELECT data FROM events WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?",
        (session, start, -1 if limit is None else limit),
    )
    found: list[bytes] = [data for (data,) in rows]
    if not set(map(type, found)) <= _BYTES:
        seq = next(seq for seq, data in enumerate(found, start) if type(data) is not bytes)
        raise damaged(path, f"event {seq} of session {session}", session=session)
    return found


def insert(
    db: sqlite3.Connection, session: str, first: int, events: Sequence[bytes], path: Path
) -> None:
    """Add events, and beside each the checksum of all up to it."""
    if not events:
        return
    before = 0
    if first:
        row = db.execute(f"SELECT ({_TOTAL})", (session,)).fetchone()
        (known,) = typed(row, tuple[int | None], path)
        before = _summed(db, session, path) if known is None else known
    numbered = [(session, seq, event) for seq, event in enumerate(events, first)]
    db.executemany("INSERT INTO events VALUES (?, ?, ?)", numbered)
    # Of rows that somebody took out, their last checksum stays in those that follow.
    db.execute("DELETE FROM seals WHERE session = ? AND seq >= ?", (session, first))
    kept = enumerate(chained(events, before), first)
    db.executemany(
        "INSERT INTO seals VALUES (?, ?, ?)", [(session, seq, seal) for seq, seal in kept]
    )


def _summed(db: sqlite3.Connection, session: str, path: Path) -> int:
    """Return the checksum of the rows of a session from before there were checksums."""
    total = Seal()
    for row in events(db, session, 0, None, path):
        total.add(row)
    return total.value


def seal(
    db: sqlite3.Connection, session: str, count: int, path: Path
) -> tuple[int | None, int | None]:
    """Return the checksums of the first `count` events, and of all if these are all."""
    # In one statement, so that nobody appends between two of them.
    counts = db.execute(
        f"SELECT events, seal, ({_TOTAL}) FROM sessions "
        "LEFT JOIN seals ON session = id AND seq = ?2 - 1 WHERE id = ?1",
        (session, count),
    ).fetchone()
    if counts is None:
        return None, None
    there, own, total = typed(counts, tuple[int, int | None, int | None], path)
    return (total, total) if there <= count else (own, None)


def seals(db: sqlite3.Connection, session: str, limit: int) -> list[int | None]:
    """Return the checksum beside each of the first events; None beside one that has none."""
    rows = db.execute(
        "SELECT events.seq, seal FROM events LEFT JOIN seals USING (session, seq) "
        "WHERE session = ? ORDER BY seq LIMIT ?",
        (session, limit),
    )
    return [own if type(own) is int else None for _, own in rows]
