"""Follows a session that another process writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio

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
        SessionMissing: There is no such session, or it was deleted meanwhile.
    """
    first = True
    while True:
        events = await store.read(session, start)
        if events or first:
            yield events
        first = False
        start += len(events)
        await anyio.sleep(poll)
