"""Follows a session that another process writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio

from addendum.errors import SessionMissing
from addendum.log.store import Store

POLL = 0.2
"""Seconds between two looks at the store."""


async def tail(
    store: Store, session: str, start: int = 0, *, poll: float = POLL
) -> AsyncGenerator[list[bytes]]:
    """Yield a session's encoded events from seq `start` on: those that are there, then each more.

    It needs no lease and sees only what is durable; it goes on until it is closed or cancelled.
    The first list comes at once and may be empty.

    Args:
        store: Where the session is kept.
        session: Its id.
        start: The first seq.
        poll: Seconds between two looks.

    Raises:
        SessionMissing: There is no such session, or it was deleted meanwhile, even if another
            of its name was begun since.
    """
    first, last = True, list[bytes]()
    while True:
        # With the last one that was seen: a session begun anew has another in its place.
        events = await store.read(session, start - len(last))
        if events[: len(last)] != last:
            raise SessionMissing(
                f"session {session!r} was deleted and begun anew; read it from its start",
                session=session,
            )
        events = events[len(last) :]
        if events or first:
            yield events
        first = False
        start += len(events)
        last = events[-1:] or last
        await anyio.sleep(poll)
