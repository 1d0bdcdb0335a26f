"""What a session needs of the place it is kept in.

A store keeps encoded events (one JSON text an event, see `addendum.log.codec`), leases and small
records. It never reads an event. Implementations live in `addendum.stores`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import anyio
from msgspec import Struct


class Lease(Struct, frozen=True):
    """The right to append to one session.

    Attributes:
        session: The session's id.
        holder: Who holds it, in words a person understands (`pid 4711 on HOST`).
        token: Fencing token; grows with every lease of the session. An append with an older
            token is refused, so a writer that was taken over can do no harm.
    """

    session: str
    holder: str
    token: int


class SessionRow(Struct, frozen=True):
    """A line of the list of sessions.

    Attributes:
        id: The session's id.
        created: Milliseconds since the epoch.
        updated: Milliseconds since the epoch.
        events: How many events it has.
        parent: The session it was forked from, if any.
        tenant: Free label for hosts that serve many; unused by us.
        user: Free label, likewise.
    """

    id: str
    created: int
    updated: int
    events: int
    parent: str | None = None
    tenant: str | None = None
    user: str | None = None


@runtime_checkable
class Store(Protocol):
    """Keeps sessions. All methods may raise `StoreError`."""

    @property
    def url(self) -> str:
        """The address it was opened with."""
        ...

    async def acquire(
        self,
        session: str,
        *,
        create: bool = True,
        parent: str | None = None,
        events: Sequence[bytes] = (),
    ) -> Lease:
        """Take the session's lease, or take it over from a holder that is gone.

        Args:
            session: Id; 1 to 200 printable characters without `/`.
            create: Whether a session that does not exist is made.
            parent: Of a session that is made: the one it was forked from.
            events: What a session that is made begins with: written with it, or neither is.

        Raises:
            Conflict: There are to be first events, and there is a session of this id.
            SessionBusy: Another living writer holds it; the message names the holder.
            SessionMissing: There is none and `create` is false.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back. Giving back one that was taken over is no error."""
        ...

    async def renew(self, lease: Lease) -> None:
        """Keep the lease alive.

        Raises:
            SessionBusy: It was taken over.
        """
        ...

    async def append(self, lease: Lease, expected: int, events: Sequence[bytes]) -> None:
        """Add events durably, all or none: compare-and-set on the log's length.

        Args:
            lease: The writer's lease; also renewed by this.
            expected: How many events the session must have now.
            events: Encoded events with seqs `expected`, `expected + 1` ...

        Raises:
            Conflict: The session has another length.
            SessionBusy: The lease was taken over.
        """
        ...

    async def read(self, session: str, start: int = 0, *, limit: int | None = None) -> list[bytes]:
        """Return the encoded events from seq `start` on, at most `limit`.

        Raises:
            SessionMissing: There is no such session.
        """
        ...

    async def seal(self, session: str, count: int) -> tuple[int | None, int | None]:
        """Return what is kept to notice that stored events were changed (`addendum.log.seal`).

        Args:
            session: The session's id.
            count: How many of its events were read.

        Returns:
            The checksum of the first `count` events as they were appended, None where none is
            kept; and that of the whole session if it has no more than these, else None.
        """
        ...

    async def seals(self, session: str, *, limit: int) -> list[int | None]:
        """Return, for each of the first events, the checksum of all events up to it.

        It is None for one from before there were any.
        """
        ...

    async def delete(self, lease: Lease) -> None:
        """Delete a session with all of its events, and with it the lease.

        Requests are rendered from events, so nothing of what was sent is left.

        Raises:
            SessionBusy: The lease was given back or taken over.
        """
        ...

    async def sessions(self) -> list[SessionRow]:
        """Return all sessions, newest update first."""
        ...

    async def get(self, kind: str, key: str) -> bytes | None:
        """Return a small record (a catalogue pin, a downgrade), or None; expired ones are gone."""
        ...

    async def put(
        self, kind: str, key: str, value: bytes, *, expires: int | None = None, keep: bool = False
    ) -> bytes:
        """Keep a small record and return what is kept.

        Args:
            kind: What it is (`catalogue`, `downgrade` ...).
            key: Its key within the kind.
            value: Its content.
            expires: Milliseconds since the epoch after which it is gone.
            keep: If a record stands already, leave it and return it: two processes that pin the
                same thing at once agree on the first.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


@asynccontextmanager
async def held(
    store: Store, session: str, *, parent: str | None = None, events: Sequence[bytes] = ()
) -> AsyncGenerator[Lease]:
    """Hold a session's lease, and give it back in any case.

    Args:
        store: Where the session is kept.
        session: As in `Store.acquire`.
        parent: Likewise.
        events: Likewise.

    Raises:
        Conflict: As `Store.acquire`.
        SessionBusy: As `Store.acquire`.
    """
    lease = await store.acquire(session, parent=parent, events=events)
    try:
        yield lease
    finally:
        with anyio.CancelScope(shield=True):
            await store.release(lease)


def new_id() -> str:
    """Return a new session id: sorts by time, and is easy to type the beginning of."""
    return f"{int(time.time()):x}-{uuid.uuid4().hex[:6]}"
