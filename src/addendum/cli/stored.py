"""Reading stored sessions: without the writer's lease, so a running session is no obstacle."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from addendum.cli.terminal import wrapped
from addendum.errors import ConfigurationError, SessionMissing
from addendum.lines import one_line
from addendum.log.events import RequestSent
from addendum.log.reading import change_of, read
from addendum.log.session_log import SessionLog
from addendum.log.store import SessionRow, Store
from addendum.paths import shown, there
from addendum.stores import DEFAULT_URL, open_store
from addendum.stores.sqlite import PREFIX, path_of
from addendum.stores.tail import tail

_SHOWN = 5
"""How many ids are named where a prefix fits several."""


@asynccontextmanager
async def reading(url: str | None) -> AsyncGenerator[Store]:
    """Open a store that is there already.

    Args:
        url: Its address; the user's own store if None.

    Raises:
        ConfigurationError: There is none: looking must not make one.
    """
    address = url or DEFAULT_URL
    if address.startswith(PREFIX) and not there(path_of(address)):
        raise ConfigurationError(
            f"there is no store at {shown(path_of(address))}; name one with --store or "
            "$ADDENDUM_STORE"
        )
    store = await open_store(address)
    try:
        yield store
    finally:
        await store.aclose()


async def all_rows(url: str | None) -> list[SessionRow]:
    """Return the sessions of a store, newest first; none where the user's own is not there yet.

    Raises:
        ConfigurationError: There is no such store.
    """
    if url is None and not there(path_of(DEFAULT_URL)):
        return []
    async with reading(url) as store:
        return await store.sessions()


async def delete(url: str | None, beginning: str) -> SessionRow:
    """Delete the one session whose id is, or begins with, a text; return what it was.

    Args:
        url: The store; the user's own if None.
        beginning: The id, or as much of it as no other has.

    Raises:
        SessionMissing: There is none.
        SessionBusy: Somebody has it open.
        ConfigurationError: There are several, or no store.
    """
    async with reading(url) as store:
        row = _chosen(await store.sessions(), beginning, url)
        await store.delete(await store.acquire(row.id, create=False))
        return row


async def followed(url: str | None, beginning: str) -> AsyncGenerator[SessionLog]:
    """Yield the log of a session, and again each time it has grown; it never ends by itself.

    Args:
        url: The store; the user's own if None.
        beginning: The id, or as much of it as no other has.

    Raises:
        SessionMissing: There is none, or it was deleted meanwhile.
        ConfigurationError: There are several, or no store.
    """
    async with reading(url) as store:
        log = SessionLog(_chosen(await store.sessions(), beginning, url).id)
        async for events in tail(store, log.session):
            log.extend(events)
            yield log


async def read_log(url: str | None, beginning: str) -> tuple[SessionRow, SessionLog]:
    """Return the one session whose id is, or begins with, a text.

    Args:
        url: The store; the user's own if None.
        beginning: The id, or as much of it as no other has.

    Raises:
        SessionMissing: There is none.
        ConfigurationError: There are several, or no store.
    """
    async with reading(url) as store:
        row = _chosen(await store.sessions(), beginning, url)
        log = SessionLog(row.id)
        await read(log, store)
        return row, log


def altered(log: SessionLog) -> list[int]:
    """Return the numbers of requests in front of which the stored log was changed since."""
    found = (log.events[seq].data for seq in sorted(log.altered))
    return [data.number for data in found if isinstance(data, RequestSent)]


def altered_lines(log: SessionLog) -> list[str]:
    """Return what people are told of a log that was changed by hand; nothing of any other."""
    numbers, change = altered(log), change_of(log)
    texts = [] if change is None else [change]
    if numbers:
        texts.append(
            f"the stored log was changed since request {numbers[-1]} was sent: what left may have "
            "been other than it is told here"
        )
    return list(map(wrapped, texts))


def where(url: str | None) -> str:
    """Return how a store is named to people: its file, or its address.

    Args:
        url: Its address; the user's own store if None.
    """
    address = url or DEFAULT_URL
    return shown(path_of(address)) if address.startswith(PREFIX) else one_line(address, 60)


def _chosen(rows: list[SessionRow], beginning: str, url: str | None) -> SessionRow:
    found = [row for row in rows if row.id == beginning]
    found = found or [row for row in rows if beginning and row.id.startswith(beginning)]
    if not found:
        raise SessionMissing(
            f"no session begins with {beginning[:60]!r} in {where(url)}; `addendum sessions` lists "
            "them, --store names another store"
        )
    if len(found) > 1:
        names = ", ".join(row.id for row in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ConfigurationError(
            f"{beginning[:60]!r} begins {len(found)} sessions ({names}{more}); write more of it"
        )
    return found[0]
