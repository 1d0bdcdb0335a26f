"""Sessions that pages look at: their logs, kept as long as somebody looks, and followed.

A session that this process drives is seen as it is written. Any other is read from the store, and
what another process adds to it is looked for while a page waits. One that was deleted and begun
anew is another session: its log is read from the start, and pages that show the old one are loaded
again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from addendum.errors import LogError, SessionMissing
from addendum.log import codec
from addendum.log.session_log import SessionLog
from addendum.log.store import Store
from addendum.viewer.index import Index
from addendum.viewer.room import Room

if TYPE_CHECKING:
    from addendum.viewer.inspect import Look

POLL_SECONDS = 0.7
"""How often the store is asked for what another process has added."""

BUSY_SECONDS = 0.1
"""How often the log of a session is looked at in which a turn runs here."""

KEPT = 8
"""Logs that are kept although nobody looks at them."""


class Watched:
    """One session that pages look at.

    Attributes:
        id: The session's id.
        log: Its log, to be read only.
        index: What is known of it.
        room: The session as it is driven here, if it is.
        viewers: Event streams that follow it.
        looks: Requests that were taken apart last; a long one takes a while.
        version: Grows with every change that is not in the log.
    """

    def __init__(self, session: str) -> None:
        self.id = session
        self.log = SessionLog(session)
        self.index = Index()
        self.room: Room | None = None
        self.viewers = 0
        self.version = 0
        self.looks: dict[tuple[int, int | None, bool], Look] = {}
        self._read = -math.inf
        self._changed = anyio.Event()
        self._reading = anyio.Lock()

    @property
    def count(self) -> int:
        """Events that pages can show: those that the index has taken in."""
        return len(self.index.turn_of)

    def place(self, seq: int) -> str:
        """Return what a page is told of an event, to say later how far it has come.

        Args:
            seq: The event's seq; -1 in front of all.
        """
        return f"{seq}.{self.log.events[seq].time}" if seq >= 0 else "-1"

    def seen(self, place: str) -> int | None:
        """Return the seq that a page names; None if that is an event of another session.

        Args:
            place: As `place` gave it. Nonsense is in front of all.
        """
        seq, _, time = place.partition(".")
        if not (seq.isdecimal() and time.isdecimal() and len(place) < 40):
            return -1
        at = int(seq)
        return at if at < self.count and self.log.events[at].time == int(time) else None

    def notify(self) -> None:
        """Wake up whoever waits for a change."""
        self.version += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def drive(self, room: Room | None) -> None:
        """Say what drives the session from now on here; None if nothing does."""
        async with self._reading:
            self.room = room
            if room is not None:
                self.log = room.session.log
                self.index.read(self.log.events)
        self.notify()

    async def refresh(self, store: Store) -> None:
        """Take in what is new.

        Raises:
            SessionMissing: The store has no such session.
            LogError: It is damaged.
        """
        async with self._reading:
            if self.room is not None:
                self.index.read(self.log.events)
                return
            self._read = anyio.current_time()
            last = self.log.events[-1:]
            # With the last one that is known: a session begun anew has another in its place.
            try:
                stored = await store.read(self.id, max(0, len(self.log) - 1))
            except SessionMissing:
                self._forget()
                raise
            if last and [codec.decode_event(raw) for raw in stored[:1]] != last:
                self._forget()
                stored = await store.read(self.id)
            elif last:
                stored = stored[1:]
            if stored:
                log, index = self.log, self.index
                # A long log takes a second; the page stays alive meanwhile.
                await anyio.to_thread.run_sync(_extend, log, index, stored)

    def _forget(self) -> None:
        self.log, self.index, self.looks = SessionLog(self.id), Index(), {}
        self.version += 1

    async def wait(self, store: Store, beyond: int, version: int, patience: float) -> None:
        """Wait until the log has more than `beyond` events or something else changed.

        Args:
            store: Where the session is kept.
            beyond: Events that are known.
            version: The version that is known.
            patience: Seconds after which to return without a change.
        """
        deadline = anyio.current_time() + patience
        while True:
            changed = self._changed
            if self.room is not None or anyio.current_time() - self._read > POLL_SECONDS / 2:
                await self.refresh(store)
            left = deadline - anyio.current_time()
            if self.count > beyond or self.version != version or left <= 0:
                return
            busy = self.room is not None and self.room.busy
            with anyio.move_on_after(min(left, BUSY_SECONDS if busy else POLL_SECONDS)):
                await changed.wait()


def _extend(log: SessionLog, index: Index, stored: list[bytes]) -> None:
    for raw in stored:
        event = codec.decode_event(raw)
        if event.seq != len(log):
            raise LogError(
                f"session {log.session!r}: event {len(log)} is missing; restore the store",
                session=log.session,
                seq=len(log),
            )
        log._admit(event)  # pyright: ignore[reportPrivateUsage]
    index.read(log.events)


class Watch:
    """All sessions that pages look at.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[str, Watched] = {}

    def notify(self) -> None:
        """Wake up everybody who waits."""
        for each in self._watched.values():
            each.notify()

    async def open(self, session: str) -> Watched:
        """Return a session as it is now.

        Raises:
            SessionMissing: There is none of that id.
            LogError: It cannot be read.
        """
        found = self._watched.pop(session, None) or Watched(session)
        try:
            await found.refresh(self._store)
        finally:
            if len(found.log):
                # The one that was asked for last stands at the end.
                self._watched[session] = found
        for each in list(self._watched.values()):
            if len(self._watched) <= KEPT:
                break
            if not each.viewers and each.room is None and each is not found:
                del self._watched[each.id]
        return found
