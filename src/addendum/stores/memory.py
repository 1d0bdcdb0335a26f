"""A store that lasts as long as the process: for tests, demos and throw-away sessions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from addendum.errors import StoreError
from addendum.log.seal import chained
from addendum.log.store import Lease, SessionRow
from addendum.stores import leases
from addendum.stores.leases import Standing


class _Kept(Struct):
    row: SessionRow
    events: list[bytes]
    seals: list[int]
    standing: Standing | None = None


class MemoryStore:
    """Keeps sessions in this process; same rules as every store. Use it from one event loop.

    Nobody but this object can hold its leases, so none is ever taken over.
    """

    def __init__(self) -> None:
        self._deleted: dict[str, int] = {}
        self._sessions: dict[str, _Kept] = {}
        self._records: dict[tuple[str, str], tuple[bytes, int | None]] = {}
        self._closed = False

    @property
    def url(self) -> str:
        """The address it was opened with."""
        return "memory://"

    async def acquire(
        self,
        session: str,
        *,
        create: bool = True,
        parent: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        events: Sequence[bytes] = (),
    ) -> Lease:
        """Take the session's lease.

        Args:
            session: Id; 1 to 200 printable characters without `/`.
            create: Whether a session that does not exist is made.
            parent: Of a session that is made: the one it was forked from.
            tenant: Of a session that is made: a free label.
            user: Of a session that is made: a free label.
            events: What a session that is made begins with: written with it, or neither is.

        Raises:
            ConfigurationError: The id breaks the rule.
            Conflict: There are to be first events, and there is a session of this id.
            SessionBusy: It is held already.
            SessionMissing: There is none and `create` is false.
        """
        self._check_open()
        leases.check_session(session)
        kept = self._sessions.get(session)
        time = leases.now()
        if kept is None:
            if not create:
                raise leases.missing(session)
            row = SessionRow(session, time, time, len(events), parent, tenant, user)
            kept = self._sessions[session] = _Kept(row, list(map(_copied, events)), chained(events))
        elif events:
            raise leases.conflict(session, 0, len(kept.events))
        standing = kept.standing
        if standing and standing.nonce is not None:
            raise leases.busy(session, standing, time)
        token = (standing.token if standing else self._deleted.get(session, 0)) + 1
        holder = leases.this_process()
        kept.standing = Standing(token, holder, "held", 0)
        return Lease(session, str(holder), token)

    async def release(self, lease: Lease) -> None:
        """Give the lease back. Giving back one that was taken over is no error."""
        kept = self._sessions.get(lease.session)
        if kept and kept.standing and kept.standing.token == lease.token:
            kept.standing = msgspec.structs.replace(kept.standing, nonce=None)

    async def renew(self, lease: Lease) -> None:
        """Check that the lease is still held; here it never expires.

        Raises:
            SessionBusy: It was given back or taken over.
        """
        self._held(lease)

    async def append(self, lease: Lease, expected: int, events: Sequence[bytes]) -> None:
        """Add events, all or none: compare-and-set on the log's length.

        Args:
            lease: The writer's lease.
            expected: How many events the session must have now.
            events: Encoded events with seqs `expected`, `expected + 1` ...

        Raises:
            Conflict: The session has another length.
            SessionBusy: The lease was given back or taken over.
        """
        kept = self._held(lease)
        if len(kept.events) != expected:
            raise leases.conflict(lease.session, expected, len(kept.events))
        kept.events.extend(map(_copied, events))
        kept.seals += chained(events, kept.seals[-1] if kept.seals else 0)
        kept.row = msgspec.structs.replace(kept.row, updated=leases.now(), events=len(kept.events))

    async def read(self, session: str, start: int = 0, *, limit: int | None = None) -> list[bytes]:
        """Return the encoded events from seq `start` on, at most `limit`.

        Raises:
            ConfigurationError: The id breaks the rule.
            SessionMissing: There is no such session.
        """
        self._check_open()
        leases.check_session(session)
        kept = self._sessions.get(session)
        if kept is None:
            raise leases.missing(session)
        return kept.events[start : None if limit is None else start + limit]

    async def seal(self, session: str, count: int) -> tuple[int | None, int | None]:
        """Return the checksums of the first `count` events, and of all if these are all."""
        kept = self._sessions.get(session)
        if kept is None or not count:
            return None, None
        if count >= len(kept.events):
            return kept.seals[-1], kept.seals[-1]
        return kept.seals[count - 1], None

    async def seals(self, session: str, *, limit: int) -> list[int | None]:
        """Return the checksum that is kept with each of the first events."""
        kept = self._sessions.get(session)
        if kept is None:
            return []
        missing = len(kept.events) - len(kept.seals)
        return [*kept.seals, *[None] * missing][:limit]

    async def delete(self, lease: Lease) -> None:
        """Delete a session with all of its events, and with it the lease.

        Raises:
            SessionBusy: The lease was given back or taken over.
        """
        self._held(lease)
        # A later session of this id must not take an old lease for its own.
        self._deleted[lease.session] = lease.token
        del self._sessions[lease.session]

    async def sessions(self) -> list[SessionRow]:
        """Return all sessions, newest update first."""
        self._check_open()
        rows = [kept.row for kept in self._sessions.values()]
        return sorted(rows, key=lambda row: (-row.updated, row.id))

    async def get(self, kind: str, key: str) -> bytes | None:
        """Return a small record, or None; expired ones are gone."""
        self._check_open()
        value, expires = self._records.get((kind, key), (None, None))
        return value if expires is None or leases.now() < expires else None

    async def put(
        self, kind: str, key: str, value: bytes, *, expires: int | None = None, keep: bool = False
    ) -> bytes:
        """Keep a small record and return what is kept.

        Args:
            kind: What it is.
            key: Its key within the kind.
            value: Its content.
            expires: Milliseconds since the epoch from which on it is gone.
            keep: If a record stands already, leave it and return it.
        """
        standing = await self.get(kind, key)
        if keep and standing is not None:
            return standing
        self._records[kind, key] = (value, expires)
        return value

    async def aclose(self) -> None:
        """Forget everything."""
        self._closed = True
        self._sessions.clear()
        self._records.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store memory:// is closed; open a new one")

    def _held(self, lease: Lease) -> _Kept:
        self._check_open()
        kept = self._sessions.get(lease.session)
        standing = kept.standing if kept else None
        if kept is None or standing is None or standing.token != lease.token:
            raise leases.lost(lease, standing)
        if standing.nonce is None:
            raise leases.lost(lease, standing)
        return kept


def _copied(event: bytes) -> bytes:
    """Return a copy: the encoder leaves room behind what it wrote, up to half of it."""
    return bytes(memoryview(event))
