"""What only the SQLite store does: durability settings, takeover, cancellation, speed of lists."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from addendum.errors import SessionBusy, SessionMissing
from addendum.stores import SqliteStore, leases, schema

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/kept.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(url)
    yield opened
    await opened.aclose()


@pytest.fixture
def raw(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """The same file, seen past the store."""
    db = sqlite3.connect(store._path, isolation_level=None)
    yield db
    db.close()


def settings(store: SqliteStore, *names: str) -> list[object]:
    assert store._db
    return [store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in names]


async def test_acknowledged_means_durable(store: SqliteStore) -> None:
    full = 2
    assert settings(store, "journal_mode", "synchronous", "fullfsync") == ["wal", full, 1]
    assert store._db
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x"])
    assert not store._db.in_transaction


async def test_it_is_all_there_after_closing(url: str) -> None:
    first = await SqliteStore.open(url)
    lease = await first.acquire("s", parent="p", tenant="t", user="u")
    await first.append(lease, 0, [b"one", b"two"])
    await first.put("catalogue", "k", b"pin")
    rows = await first.sessions()
    await first.aclose()
    second = await SqliteStore.open(url)
    assert await second.read("s") == [b"one", b"two"]
    assert await second.get("catalogue", "k") == b"pin"
    assert await second.sessions() == rows
    later = await second.acquire("s")  # closing has given the lease back
    assert later.token > lease.token
    await second.append(later, 2, [b"three"])
    await second.aclose()


async def test_two_stores_on_one_file_are_two_writers(store: SqliteStore, url: str) -> None:
    lease = await store.acquire("s")
    other = await SqliteStore.open(url)
    with pytest.raises(SessionBusy, match="in this very process"):
        await other.acquire("s")
    await store.append(lease, 0, [b"x"])
    assert await other.read("s") == [b"x"]
    with pytest.raises(SessionBusy):  # a lease works only where it was taken
        await other.append(lease, 1, [b"y"])
    await store.release(lease)
    assert (await other.acquire("s")).token == lease.token + 1
    await other.aclose()


async def test_a_store_that_was_dropped_holds_nothing(store: SqliteStore, url: str) -> None:
    dropped = await SqliteStore.open(url)
    lease = await dropped.acquire("s")
    assert dropped._db
    dropped._db.close()
    del dropped
    gc.collect()
    assert (await store.acquire("s")).token == lease.token + 1


async def test_another_hosts_lease_is_taken_over_once_it_expired(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x"])
    # Another host has taken it over, and is alive ...
    raw.execute(
        "UPDATE leases SET token = 9, host = 'far', machine = 'boot', pid = 4711, nonce = 'n', "
        "expires = ?",
        (leases.now() + 50_000,),
    )
    for call in (store.append(lease, 1, [b"y"]), store.renew(lease)):
        with pytest.raises(SessionBusy, match=r"was taken over by pid 4711 on far; open"):
            await call
    with pytest.raises(SessionBusy, match=r"held by pid 4711 on far; .* try again in (49|50) s"):
        await store.acquire("s")
    await store.release(lease)
    with pytest.raises(SessionBusy):
        await store.acquire("s")
    # ... and is now silent for too long.
    raw.execute("UPDATE leases SET expires = ?", (leases.now(),))
    later = await store.acquire("s")
    assert later.token == 10
    assert await store.read("s") == [b"x"]
    await store.append(later, 1, [b"y"])


async def test_the_token_alone_does_not_make_a_holder(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    """A copy of the file put back may give the same number out twice."""
    lease = await store.acquire("s")
    raw.execute("UPDATE leases SET nonce = 'another', pid = 4711, host = 'far'")
    with pytest.raises(SessionBusy, match="taken over by pid 4711 on far"):
        await store.append(lease, 0, [b"x"])
    assert await store.read("s") == []


async def test_an_expired_lease_that_nobody_took_still_appends(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    lease = await store.acquire("s")
    raw.execute("UPDATE leases SET expires = 1")
    await store.append(lease, 0, [b"x"])
    assert await store.read("s") == [b"x"]


@pytest.mark.parametrize(
    ("left", "prolonged"),
    [
        (leases.LEASE_MS - leases.RENEW_AFTER_MS - 1, True),
        (leases.LEASE_MS - leases.RENEW_AFTER_MS, False),
    ],
)
async def test_an_append_renews_an_older_lease(
    store: SqliteStore,
    raw: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    left: int,
    prolonged: bool,
) -> None:
    monkeypatch.setattr(leases, "now", lambda: 5_000_000)
    lease = await store.acquire("s")
    raw.execute("UPDATE leases SET expires = ?", (5_000_000 + left,))
    await store.append(lease, 0, [b"x"])
    full = 5_000_000 + leases.LEASE_MS
    (found,) = raw.execute("SELECT expires FROM leases").fetchone()
    assert found == (full if prolonged else 5_000_000 + left)
    raw.execute("UPDATE leases SET expires = ?", (5_000_000 + left,))
    await store.renew(lease)
    assert raw.execute("SELECT expires FROM leases").fetchone() == (full,)


async def test_the_list_of_sessions_scans_no_events(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x"] * 3)
    raw.execute("DROP TABLE events")
    assert [row.events for row in await store.sessions()] == [3]


async def test_a_long_session_is_read_by_its_key(store: SqliteStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"%d" % seq for seq in range(20_000)])
    assert store._db
    plan = store._db.execute(
        "EXPLAIN QUERY PLAN SELECT data FROM events WHERE session = ? AND seq >= ? ORDER BY seq",
        ("s", 0),
    ).fetchall()
    assert len(plan) == 1 and "USING INDEX" in plan[0][3], "no sorting, no scan"
    assert await store.read("s", 19_998) == [b"19998", b"19999"]
    assert len(await store.read("s")) == 20_000


async def test_keep_decides_under_the_write_lock(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    """Another process is about to commit its pin when this one asks."""
    asked, answers = threading.Event(), list[bytes]()
    assert store._db
    store._db.set_trace_callback(lambda statement: asked.set())

    async def pin() -> None:
        answers.append(await store.put("catalogue", "k", b"mine", keep=True))

    async with anyio.create_task_group() as group:
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("INSERT INTO records VALUES ('catalogue', 'k', NULL, X'00')")
        group.start_soon(pin)
        await anyio.to_thread.run_sync(asked.wait)
        raw.execute("COMMIT")
    assert answers == [b"\x00"] == [await store.get("catalogue", "k")]


class Gate:
    """Holds the worker thread back in the middle of its next write."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.opened.set()
        self.writing = schema.writing

    def shut(self) -> None:
        self.opened.clear()
        self.reached.clear()

    @contextlib.contextmanager
    def __call__(self, db: sqlite3.Connection) -> Iterator[None]:
        with self.writing(db):
            yield
            self.reached.set()
            self.opened.wait()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(schema, "writing", gate)
    yield gate
    gate.opened.set()


async def begun(gate: Gate) -> None:
    await anyio.to_thread.run_sync(gate.reached.wait)


async def test_an_append_that_asyncio_cancels_midway_is_carried_to_its_end(
    store: SqliteStore, gate: Gate
) -> None:
    lease = await store.acquire("s")
    gate.shut()
    append = asyncio.ensure_future(store.append(lease, 0, [b"x", b"y"]))
    await begun(gate)
    reading = asyncio.ensure_future(store.read("s"))
    for _ in range(3):  # impatience changes nothing
        append.cancel()
        for _ in range(20):
            await anyio.to_thread.run_sync(int)
        assert not append.done() and not reading.done()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert await reading == [b"x", b"y"], "calls keep their order"
    await store.append(lease, 2, [b"z"])
    assert await store.read("s") == [b"x", b"y", b"z"]


async def test_an_append_that_asyncio_cancels_before_its_turn_writes_nothing(
    store: SqliteStore, gate: Gate
) -> None:
    lease = await store.acquire("s")
    gate.shut()
    first = asyncio.ensure_future(store.append(lease, 0, [b"x"]))
    await begun(gate)
    second = asyncio.ensure_future(store.append(lease, 1, [b"y"]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.opened.set()
    await first
    assert await store.read("s") == [b"x"]


async def test_an_append_that_asyncio_cancels_on_its_way_to_the_thread_writes_nothing(
    store: SqliteStore,
) -> None:
    lease = await store.acquire("s")
    append = asyncio.ensure_future(store.append(lease, 0, [b"x"]))
    await asyncio.sleep(0)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert await store.read("s") == []


async def test_a_lease_taken_while_asyncio_cancels_is_given_back(
    store: SqliteStore, gate: Gate, raw: sqlite3.Connection
) -> None:
    gate.shut()
    taking = asyncio.ensure_future(store.acquire("s"))
    await begun(gate)
    taking.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert raw.execute("SELECT token, nonce FROM leases").fetchall() == [(1, None)]


async def test_a_cancel_scope_lets_an_append_end_and_succeed(
    store: SqliteStore, gate: Gate
) -> None:
    lease = await store.acquire("s")
    gate.shut()
    done: list[str] = []
    with anyio.CancelScope() as scope:

        async def append() -> None:
            await store.append(lease, 0, [b"x"])
            done.append("acknowledged")

        async def cancel() -> None:
            await begun(gate)
            scope.cancel()
            gate.opened.set()

        async with anyio.create_task_group() as group:
            group.start_soon(append)
            group.start_soon(cancel)
    assert done == ["acknowledged"]
    assert await store.read("s") == [b"x"]


@pytest.mark.parametrize("how", ["release", "aclose"])
async def test_cleaning_up_is_not_cancelled(
    store: SqliteStore, raw: sqlite3.Connection, how: str
) -> None:
    lease = await store.acquire("s")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await (store.release(lease) if how == "release" else store.aclose())
    assert raw.execute("SELECT nonce FROM leases").fetchall() == [(None,)]
    assert (store._db is None) is (how == "aclose")


async def test_closing_waits_for_what_is_under_way(
    store: SqliteStore, gate: Gate, url: str
) -> None:
    lease = await store.acquire("s")
    gate.shut()
    append = asyncio.ensure_future(store.append(lease, 0, [b"x"]))
    await begun(gate)
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    gate.opened.set()
    await append
    await closing
    again = await SqliteStore.open(url)
    assert await again.read("s") == [b"x"]
    await again.aclose()


async def test_a_session_whose_row_is_gone_takes_no_event(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    lease = await store.acquire("s")
    raw.execute("DELETE FROM sessions")
    with pytest.raises(SessionMissing):
        await store.append(lease, 0, [b"x"])
    assert raw.execute("SELECT count(*) FROM events").fetchone() == (0,)
