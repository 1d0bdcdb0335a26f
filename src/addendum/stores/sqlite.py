"""The default store: one SQLite file that many processes may share.

Acknowledged means durable: a method that writes returns when its transaction is on the disk.
There is one connection a store object, used by one worker thread at a time, in the order of the
calls. A call that is cancelled has either not begun, or is carried to its end before it is left:
in a cancel scope of anyio with its result, cancelled by asyncio alone (`task.cancel()`) with the
cancellation, and then the session is to be read again before anything is appended.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread

from addendum.errors import ConfigurationError, StoreError
from addendum.log.store import Lease, SessionRow
from addendum.paths import FOREIGN, reason, shown
from addendum.stores import leases, rows, schema
from addendum.stores.leases import Claim, Standing

T = TypeVar("T")

PREFIX = "sqlite:///"


def path_of(url: str) -> Path:
    """Return the absolute path that an address names.

    Args:
        url: `sqlite:///path.db` (relative to the working directory, `~` is the home directory)
            or `sqlite:////absolute/path.db`.

    Raises:
        ConfigurationError: It names no file.
    """
    name = url.removeprefix(PREFIX)
    if name == url or not name or name.startswith(":"):
        raise ConfigurationError(
            f"the store address {url!r} names no file: write sqlite:///path.db, "
            "sqlite:////absolute/path.db or memory://"
        )
    try:
        return Path(name).expanduser().absolute()
    except FOREIGN as error:
        raise ConfigurationError(
            f"the store address {shown(url)!r} cannot be used ({reason(error)}): "
            "write sqlite:////absolute/path.db"
        ) from None


class SqliteStore:
    """Keeps sessions in a SQLite file. Make one with `open`.

    Every method may raise `StoreError`: disk full, read-only, damaged, locked for too long, moved
    away.
    """

    def __init__(
        self, url: str, path: Path, db: sqlite3.Connection, files: tuple[tuple[int, int], ...]
    ) -> None:
        self._url = url
        self._path = path
        self._files = files
        self._db: sqlite3.Connection | None = db
        self._claims: dict[tuple[str, int], Claim] = {}
        self._turn = anyio.Lock(fast_acquire=True)
        # Its own: threads that wait for a tool must not keep the store waiting.
        self._limiter = CapacityLimiter(1)

    @classmethod
    async def open(cls, url: str) -> SqliteStore:
        """Open the file, made if there is none, and bring its tables up to date.

        Args:
            url: As `path_of`. A missing directory (0700) and file (0600) are made.

        Raises:
            ConfigurationError: The address names no file.
            StoreTooNew: A later release wrote the file.
            StoreError: It is not a store, or cannot be opened.
        """
        path = path_of(url)

        def work() -> tuple[sqlite3.Connection, tuple[tuple[int, int], ...]]:
            try:
                db = schema.connect(path)
            except schema.FOREIGN as error:
                raise schema.explain(error, path) from None
            try:
                return db, schema.files(path)
            except StoreError:
                db.close()
                raise

        return cls(url, path, *await to_thread.run_sync(work))

    @property
    def url(self) -> str:
        """The address it was opened with."""
        return self._url

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
        """Take the session's lease, or take it over from a holder that is gone.

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
            SessionBusy: Another living writer holds it; the message names the holder.
            SessionMissing: There is none and `create` is false.
        """
        leases.check_session(session)
        claim = leases.new_claim()

        def work(db: sqlite3.Connection) -> Lease:
            time = leases.now()
            count = rows.count(db, session, self._path)
            if count is None:
                if not create:
                    raise leases.missing(session)
                db.execute(
                    "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (session, time, time, len(events), parent, tenant, user),
                )
                rows.insert(db, session, 0, events, self._path)
            elif events:
                raise leases.conflict(session, 0, count)
            standing = rows.standing(db, session, self._path)
            if standing and leases.living(standing, time):
                raise leases.busy(session, standing, time)
            token = standing.token + 1 if standing else 1
            at = claim.holder
            expires = time + leases.LEASE_MS
            db.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (session, token, at.host, at.machine, at.pid, at.started, claim.nonce, expires),
            )
            return Lease(session, str(at), token)

        try:
            lease = await self._write(work)
        except anyio.get_cancelled_exc_class():
            # By asyncio alone: the lease may have been taken, and nobody would know of it.
            with CancelScope(shield=True), contextlib.suppress(StoreError):
                await self._give_back([(session, claim)])
            raise
        self._claims[session, lease.token] = claim
        return lease

    async def release(self, lease: Lease) -> None:
        """Give the lease back, cancelled or not. One that was taken over is no error."""
        claim = self._claims.pop((lease.session, lease.token), None)
        if claim:
            with CancelScope(shield=True):
                await self._give_back([(lease.session, claim)])

    async def renew(self, lease: Lease) -> None:
        """Keep the lease alive for another `leases.LEASE_MS`.

        Raises:
            SessionBusy: It was given back or taken over.
        """

        def work(db: sqlite3.Connection) -> None:
            self._held(db, lease)
            _prolong(db, lease)

        await self._write(work)

    async def append(self, lease: Lease, expected: int, events: Sequence[bytes]) -> None:
        """Add events durably, all or none: compare-and-set on the log's length.

        Args:
            lease: The writer's lease, taken from this store object; also renewed by this.
            expected: How many events the session must have now.
            events: Encoded events with seqs `expected`, `expected + 1` ...

        Raises:
            Conflict: The session has another length.
            SessionBusy: The lease was given back or taken over.
        """
        session = lease.session

        def work(db: sqlite3.Connection) -> None:
            standing = self._held(db, lease)
            count = rows.count(db, session, self._path)
            if count is None:
                raise leases.missing(session)
            if count != expected:
                raise leases.conflict(session, expected, count)
            rows.insert(db, session, expected, events, self._path)
            time = leases.now()
            db.execute(
                "UPDATE sessions SET events = ?, updated = ? WHERE id = ?",
                (expected + len(events), time, session),
            )
            if leases.aged(standing, time):
                _prolong(db, lease)

        await self._write(work)

    async def read(self, session: str, start: int = 0, *, limit: int | None = None) -> list[bytes]:
        """Return the encoded events from seq `start` on, at most `limit`.

        Raises:
            ConfigurationError: The id breaks the rule.
            SessionMissing: There is no such session.
            StoreError: The file has lost events of it.
        """
        leases.check_session(session)

        def count(db: sqlite3.Connection) -> int:
            found = rows.count(db, session, self._path)
            if found is None:
                raise leases.missing(session)
            return found

        def work(db: sqlite3.Connection) -> list[bytes]:
            wanted = max(0, count(db) - start)
            events = rows.events(db, session, start, limit, self._path)
            # Unless it was deleted meanwhile.
            if len(events) < (wanted if limit is None else min(wanted, limit)) and count(db):
                raise StoreError(
                    f"session {session!r} has lost events: {len(events)} of {wanted} from "
                    f"{start} on are there; restore {shown(self._path)} from a copy",
                    session=session,
                )
            # Unless somebody has appended meanwhile.
            if len(events) > wanted and len(events) > max(0, count(db) - start):
                raise StoreError(
                    f"session {session!r} has events that nobody appended: {len(events)} from "
                    f"{start} on in place of {wanted}; restore {shown(self._path)} from a copy",
                    session=session,
                )
            return events

        return await self._run(work)

    async def seal(self, session: str, count: int) -> tuple[int | None, int | None]:
        """Return the checksums of the first `count` events, and of all if these are all."""

        def work(db: sqlite3.Connection) -> tuple[int | None, int | None]:
            return rows.seal(db, session, count, self._path)

        return await self._run(work)

    async def seals(self, session: str, *, limit: int) -> list[int | None]:
        """Return the checksum that is kept with each of the first events."""

        def work(db: sqlite3.Connection) -> list[int | None]:
            return rows.seals(db, session, limit)

        return await self._run(work)

    async def delete(self, lease: Lease) -> None:
        """Delete a session with all of its events, and with it the lease.

        The file keeps no readable trace: freed pages are overwritten, and the write-ahead log is
        emptied, unless a reader in another process still needs it.

        Raises:
            SessionBusy: The lease was given back or taken over.
        """

        def work(db: sqlite3.Connection) -> None:
            db.execute("PRAGMA secure_delete = ON")
            with schema.writing(db):
                self._held(db, lease)
                for table in ("events", "seals"):
                    db.execute(f"DELETE FROM {table} WHERE session = ?", (lease.session,))
                # The token stays: no later session of this id takes an old lease for its own.
                db.execute("UPDATE leases SET nonce = NULL WHERE session = ?", (lease.session,))
                db.execute("DELETE FROM sessions WHERE id = ?", (lease.session,))
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

        await self._run(work)
        claim = self._claims.pop((lease.session, lease.token), None)
        if claim:
            leases.forget(claim)

    async def sessions(self) -> list[SessionRow]:
        """Return all sessions, newest update first."""

        def work(db: sqlite3.Connection) -> list[SessionRow]:
            found = db.execute(
                "SELECT id, created, updated, events, parent, tenant, user FROM sessions "
                "ORDER BY updated DESC, id"
            )
            return [rows.listed(row, self._path) for row in found]

        return await self._run(work)

    async def get(self, kind: str, key: str) -> bytes | None:
        """Return a small record, or None; expired ones are gone."""
        return await self._run(lambda db: rows.record(db, kind, key, leases.now()))

    async def put(
        self, kind: str, key: str, value: bytes, *, expires: int | None = None, keep: bool = False
    ) -> bytes:
        """Keep a small record and return what is kept.

        Args:
            kind: What it is.
            key: Its key within the kind.
            value: Its content.
            expires: Milliseconds since the epoch from which on it is gone.
            keep: If a record stands already, leave it and return it; decided within one
                transaction, so processes that put at once agree.
        """

        def work(db: sqlite3.Connection) -> bytes:
            time = leases.now()
            if keep and (standing := rows.record(db, kind, key, time)) is not None:
                return standing
            db.execute("DELETE FROM records WHERE expires <= ?", (time,))
            db.execute(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (kind, key, expires, value)
            )
            return value

        return await self._write(work)

    async def aclose(self) -> None:
        """Give back the leases that are still held, and close the file, cancelled or not."""
        claims = [(session, claim) for (session, _), claim in self._claims.items()]
        self._claims.clear()

        with CancelScope(shield=True):
            try:
                if claims:
                    await self._give_back(claims)
            finally:
                async with self._turn:
                    db, self._db = self._db, None
                    if db:
                        await self._in_thread(sqlite3.Connection.close, db)

    async def _give_back(self, claims: Sequence[tuple[str, Claim]]) -> None:
        """Mark leases as free; those that were taken over have another nonce by now."""

        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                "UPDATE leases SET nonce = NULL WHERE session = ? AND nonce = ?",
                [(session, claim.nonce) for session, claim in claims],
            )

        try:
            await self._write(work)
        finally:
            # Also where the file takes no write: this process holds them no longer.
            for _, claim in claims:
                leases.forget(claim)

    def _held(self, db: sqlite3.Connection, lease: Lease) -> Standing:
        """Return the session's lease if it is this one; the nonce tells a restored file apart."""
        standing = rows.standing(db, lease.session, self._path)
        claim = self._claims.get((lease.session, lease.token))
        if (
            standing is None
            or claim is None
            or (standing.token, standing.nonce) != (lease.token, claim.nonce)
        ):
            raise leases.lost(lease, standing)
        return standing

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` as one durable transaction."""

        def inside(db: sqlite3.Connection) -> T:
            with schema.writing(db):
                return work(db)

        return await self._run(inside)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection, in the worker thread, when its turn has come."""

        def inside(db: sqlite3.Connection) -> T:
            if schema.files(self._path) != self._files:
                raise schema.replaced(self._path)
            return work(db)

        async with self._turn:
            if self._db is None:
                raise StoreError(f"the store {shown(self._path)} is closed; open it again")
            try:
                return await self._in_thread(inside, self._db)
            except schema.FOREIGN as error:
                raise schema.explain(error, self._path) from None

    async def _in_thread(
        self, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection
    ) -> T:
        job: Future[T] = Future()

        def call() -> None:
            if job.set_running_or_notify_cancel():
                try:
                    job.set_result(work(db))
                except BaseException as error:
                    job.set_exception(error)

        cancelled = anyio.get_cancelled_exc_class()
        try:
            await to_thread.run_sync(call, limiter=self._limiter)
        except cancelled:
            # The thread cannot be stopped: either it has not begun and never will, or this waits.
            # A cancel scope waits by itself; asyncio's `task.cancel()` does not.
            job.cancel()
            while not job.done():
                with CancelScope(shield=True), contextlib.suppress(cancelled):
                    await to_thread.run_sync(wait, [job], limiter=self._limiter)
            raise
        return job.result()


def _prolong(db: sqlite3.Connection, lease: Lease) -> None:
    db.execute(
        "UPDATE leases SET expires = ? WHERE session = ?",
        (leases.now() + leases.LEASE_MS, lease.session),
    )
