"""Following a session that somebody else writes, and deleting one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from addendum.errors import SessionBusy, SessionMissing
from addendum.stores import MemoryStore, SqliteStore, open_store
from addendum.stores.tail import tail

pytestmark = pytest.mark.anyio

AnyStore = MemoryStore | SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/kept.db"
    opened = await open_store(url)
    assert isinstance(opened, AnyStore)
    yield opened
    await opened.aclose()


async def test_what_is_there_comes_first_then_what_is_added(store: AnyStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"0", b"1"])
    seen: list[list[bytes]] = []
    async with aclosing(tail(store, "s", 1, poll=0.001)) as batches:
        async for batch in batches:
            seen.append(batch)
            if len(seen) == 3:
                break
            await store.append(lease, 1 + sum(map(len, seen)), [b"%d" % len(seen)] * len(seen))
    assert seen == [[b"1"], [b"1"], [b"2", b"2"]]


async def test_an_empty_session_is_told_at_once(store: AnyStore) -> None:
    await store.acquire("s")
    async with aclosing(tail(store, "s")) as batches:
        with anyio.fail_after(5):
            assert await anext(batches) == []


async def test_following_ends_where_the_session_is_deleted(store: AnyStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"0"])
    async with aclosing(tail(store, "s", poll=0.001)) as batches:
        assert await anext(batches) == [b"0"]
        await store.delete(lease)
        with pytest.raises(SessionMissing):
            await anext(batches)


@pytest.mark.parametrize("events", [1, 2, 3])
async def test_following_ends_where_the_session_was_begun_anew(
    store: AnyStore, events: int
) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"0", b"1"])
    async with aclosing(tail(store, "s", poll=0.001)) as batches:
        assert await anext(batches) == [b"0", b"1"]
        await store.delete(lease)
        await store.append(await store.acquire("s"), 0, [b"anew"] * events)
        with pytest.raises(SessionMissing, match="deleted and begun anew"):
            await anext(batches)


async def test_a_deleted_session_is_gone_and_its_lease_with_it(store: AnyStore) -> None:
    lease = await store.acquire("s")
    other = await store.acquire("other", parent="s")
    await store.append(lease, 0, [b"0"])
    await store.append(other, 0, [b"kept"])
    await store.delete(lease)
    assert [row.id for row in await store.sessions()] == ["other"]
    assert await store.read("other") == [b"kept"]
    with pytest.raises(SessionMissing):
        await store.read("s")
    with pytest.raises((SessionMissing, SessionBusy)):
        await store.append(lease, 1, [b"1"])
    # A later session of this id is another one: the old writer stays out.
    again = await store.acquire("s")
    with pytest.raises(SessionBusy):
        await store.append(lease, 0, [b"old"])
    await store.append(again, 0, [b"new"])
    assert await store.read("s") == [b"new"]


async def test_only_who_holds_a_session_may_delete_it(store: AnyStore) -> None:
    lease = await store.acquire("s")
    await store.release(lease)
    newer = await store.acquire("s")
    with pytest.raises(SessionBusy):
        await store.delete(lease)
    await store.append(newer, 0, [b"0"])
    assert await store.read("s") == [b"0"]


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_the_file_keeps_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    store = await SqliteStore.open(f"sqlite:///{tmp_path}/kept.db")
    lease = await store.acquire("s")
    secret = b"something that nobody else may read"
    await store.append(lease, 0, [secret * 200])
    await store.delete(lease)
    left = await anyio.to_thread.run_sync(contents, tmp_path)
    await store.aclose()
    assert secret not in left
