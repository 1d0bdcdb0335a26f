"""What every store keeps to, run on each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from addendum.errors import (
    ConfigurationError,
    Conflict,
    SessionBusy,
    SessionMissing,
    StoreError,
)
from addendum.log.store import Lease, SessionRow, Store
from addendum.stores import MemoryStore, SqliteStore, leases, open_store

pytestmark = pytest.mark.anyio

AnyStore = MemoryStore | SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/kept.db"
    opened = await open_store(url)
    assert isinstance(opened, AnyStore)
    assert opened.url == url
    yield opened
    await opened.aclose()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The stores' time in milliseconds, as the only item."""
    time = [1_000_000]
    monkeypatch.setattr(leases, "now", lambda: time[0])
    return time


def events(start: int, stop: int) -> list[bytes]:
    return [b'{"seq":%d,"data":{"type":"turn/start"}}' % seq for seq in range(start, stop)]


def one_line(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Return the message, which is one line and hides no driver's error behind it."""
    text = str(caught.value)
    assert text and "\n" not in text
    assert caught.value.__cause__ is None and (
        caught.value.__context__ is None or caught.value.__suppress_context__
    )
    return text


async def test_it_is_a_store(store: AnyStore) -> None:
    kept: Store = store  # for the type checker
    assert await open_store(kept) is store


async def test_what_is_appended_is_read_back_byte_for_byte(store: AnyStore) -> None:
    lease = await store.acquire("s")
    odd = [b"", b"\x00\xff", '{"text":"\u4e2d\u6587 \U0001f600"}'.encode(), b" " * 70_000]
    await store.append(lease, 0, events(0, 3))
    await store.append(lease, 3, odd)
    assert await store.read("s") == events(0, 3) + odd
    assert await store.read("s", 2) == events(2, 3) + odd
    assert await store.read("s", 7) == []
    assert await store.read("s", 99) == []


async def test_sessions_are_kept_apart(store: AnyStore) -> None:
    for name in ("a", "b"):
        lease = await store.acquire(name)
        await store.append(lease, 0, [name.encode()])
    assert await store.read("a") == [b"a"]
    assert await store.read("b") == [b"b"]


async def test_a_later_change_of_the_callers_list_changes_nothing(store: AnyStore) -> None:
    lease = await store.acquire("s")
    mine = events(0, 2)
    await store.append(lease, 0, mine)
    mine.clear()
    (await store.read("s")).clear()
    assert await store.read("s") == events(0, 2)


@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_an_append_at_another_length_writes_nothing(store: AnyStore, expected: int) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, events(0, 2))
    with pytest.raises(Conflict) as caught:
        await store.append(lease, expected, events(expected, expected + 1))
    text = one_line(caught)
    assert "'s' has 2 events" in text and f"{expected} were expected" in text
    assert (caught.value.session, caught.value.seq) == ("s", expected)
    assert await store.read("s") == events(0, 2)
    assert (await store.sessions())[0].events == 2
    await store.append(lease, 2, events(2, 3))


async def test_an_append_of_nothing_checks_all_the_same(store: AnyStore) -> None:
    lease = await store.acquire("s")
    await store.append(lease, 0, [])
    with pytest.raises(Conflict):
        await store.append(lease, 1, [])
    await store.release(lease)
    with pytest.raises(SessionBusy):
        await store.append(lease, 0, [])


async def test_many_appends_at_once_keep_one_order(store: AnyStore) -> None:
    lease = await store.acquire("s")
    won: list[int] = []

    async def add(number: int) -> None:
        try:
            await store.append(lease, 0, [b"%d" % number])
            won.append(number)
        except Conflict:
            pass

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(add, number)
    assert len(won) == 1
    assert await store.read("s") == [b"%d" % won[0]]


async def test_the_second_writer_of_one_process_is_refused(store: AnyStore) -> None:
    lease = await store.acquire("s")
    with pytest.raises(SessionBusy) as caught:
        await store.acquire("s")
    text = one_line(caught)
    assert f"session 's' is held by {lease.holder};" in text and "close it" in text
    assert caught.value.session == "s"
    await store.append(lease, 0, events(0, 1))
    other = await store.acquire("t")
    assert other.session == "t"


async def test_a_lease_names_its_holder_and_its_token_grows(store: AnyStore) -> None:
    tokens: list[int] = []
    for _ in range(3):
        lease = await store.acquire("s")
        assert lease.holder == str(leases.this_process())
        tokens.append(lease.token)
        await store.release(lease)
    assert tokens == sorted(set(tokens))


async def test_an_older_lease_can_do_nothing(store: AnyStore) -> None:
    old = await store.acquire("s")
    await store.append(old, 0, events(0, 1))
    await store.release(old)
    for call in (store.renew(old), store.append(old, 1, events(1, 2))):
        with pytest.raises(SessionBusy) as caught:
            await call
        assert "given back; open the session again" in one_line(caught)
    new = await store.acquire("s")
    for call in (store.renew(old), store.append(old, 1, events(1, 2))):
        with pytest.raises(SessionBusy) as caught:
            await call
        assert f"was taken over by {new.holder}; open" in one_line(caught)
    await store.release(old)  # no error, and the new lease still stands
    with pytest.raises(SessionBusy):
        await store.acquire("s")
    await store.renew(new)
    await store.append(new, 1, events(1, 2))
    assert await store.read("s") == events(0, 2)


async def test_a_lease_that_nobody_gave_is_refused(store: AnyStore) -> None:
    real = await store.acquire("s")
    for forged in (Lease("s", real.holder, real.token + 1), Lease("s", real.holder, 0)):
        with pytest.raises(SessionBusy):
            await store.append(forged, 0, events(0, 1))
        await store.release(forged)
    with pytest.raises(SessionMissing):
        await store.append(Lease("none", real.holder, 1), 0, events(0, 1))
    await store.append(real, 0, events(0, 1))


async def test_a_session_is_made_only_when_asked_for(store: AnyStore) -> None:
    for call in (store.acquire("s", create=False), store.read("s")):
        with pytest.raises(SessionMissing) as caught:
            await call
        assert "no session 's'" in one_line(caught)
        assert caught.value.session == "s"
    assert await store.sessions() == []
    await store.release(await store.acquire("s"))
    assert await store.read("s") == []
    assert (await store.acquire("s", create=False)).session == "s"


@pytest.mark.parametrize("name", ["a", "x" * 200, "with space", "..", "名前 😀", "a'b\"c%_"])
async def test_ids_within_the_rule_are_taken(store: AnyStore, name: str) -> None:
    lease = await store.acquire(name)
    await store.append(lease, 0, [b"x"])
    assert await store.read(name) == [b"x"]
    assert [row.id for row in await store.sessions()] == [name]


@pytest.mark.parametrize("name", ["", "x" * 201, "a/b", "a\nb", "a\x00", "\x1b[31m", "\ud800"])
async def test_ids_outside_the_rule_are_refused(store: AnyStore, name: str) -> None:
    for call in (store.acquire(name), store.acquire(name, create=False), store.read(name)):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert "1 to 200 printable characters without '/'" in one_line(caught)
    assert await store.sessions() == []


async def test_the_list_of_sessions(store: AnyStore, clock: list[int]) -> None:
    first = await store.acquire("b", tenant="acme", user="ann")
    await store.release(await store.acquire("a"))
    clock[0] += 5
    await store.release(await store.acquire("fork", parent="b"))
    clock[0] += 5
    await store.append(first, 0, events(0, 4))
    start = clock[0] - 10
    assert await store.sessions() == [
        SessionRow("b", start, start + 10, 4, None, "acme", "ann"),
        SessionRow("fork", start + 5, start + 5, 0, "b"),
        SessionRow("a", start, start, 0),
    ]
    clock[0] += 5
    await store.acquire("fork", parent="another", tenant="t")  # it exists: nothing changes
    assert (await store.sessions())[1] == SessionRow("fork", start + 5, start + 5, 0, "b")


async def test_records_are_kept_by_kind_and_key(store: AnyStore) -> None:
    assert await store.get("catalogue", "k") is None
    assert await store.put("catalogue", "k", b"\x00one") == b"\x00one"
    assert await store.put("downgrade", "k", b"two") == b"two"
    assert await store.get("catalogue", "k") == b"\x00one"
    assert await store.put("catalogue", "k", b"three") == b"three"
    assert await store.get("catalogue", "k") == b"three"
    assert await store.get("downgrade", "k") == b"two"
    assert await store.get("catalogue", "other") is None


async def test_keep_leaves_what_stands(store: AnyStore) -> None:
    assert await store.put("catalogue", "k", b"", keep=True) == b""
    assert await store.put("catalogue", "k", b"second", keep=True) == b""
    assert await store.get("catalogue", "k") == b""
    answers: list[bytes] = []

    async def pin(value: bytes) -> None:
        answers.append(await store.put("catalogue", "new", value, keep=True))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(pin, b"%d" % number)
    assert len(set(answers)) == 1
    assert await store.get("catalogue", "new") == answers[0]


async def test_expired_records_are_gone(store: AnyStore, clock: list[int]) -> None:
    await store.put("downgrade", "k", b"old", expires=clock[0] + 10)
    await store.put("downgrade", "stays", b"x")
    clock[0] += 9
    assert await store.get("downgrade", "k") == b"old"
    assert await store.put("downgrade", "k", b"new", keep=True) == b"old"
    clock[0] += 1
    assert await store.get("downgrade", "k") is None
    assert await store.put("downgrade", "k", b"new", keep=True) == b"new"
    clock[0] += 1_000_000
    assert await store.get("downgrade", "k") == b"new"
    assert await store.get("downgrade", "stays") == b"x"


async def test_a_cancelled_append_has_written_nothing(store: AnyStore) -> None:
    lease = await store.acquire("s")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        await store.append(lease, 0, events(0, 1))
    assert await store.read("s") == []


async def test_a_lease_is_given_back_in_a_cancelled_scope(store: AnyStore) -> None:
    with anyio.CancelScope() as scope:
        lease = await store.acquire("s")
        scope.cancel()
        await store.release(lease)
    await store.acquire("s")


async def test_a_closed_store_says_so(store: AnyStore) -> None:
    lease = await store.acquire("s")
    await store.aclose()
    await store.aclose()
    calls = (
        store.acquire("t"),
        store.renew(lease),
        store.append(lease, 0, events(0, 1)),
        store.read("s"),
        store.sessions(),
        store.get("k", "k"),
        store.put("k", "k", b""),
    )
    for call in calls:
        with pytest.raises(StoreError) as caught:
            await call
        assert "is closed; open" in one_line(caught)


async def test_a_session_and_what_it_begins_with_are_written_together(store: AnyStore) -> None:
    lease = await store.acquire("child", parent="s", events=events(0, 3))
    (row,) = await store.sessions()
    assert (row.id, row.parent, row.events) == ("child", "s", 3)
    await store.append(lease, 3, events(3, 4))
    assert await store.read("child") == events(0, 4)
    await store.release(lease)
    with pytest.raises(Conflict, match="4 events") as caught:
        await store.acquire("child", events=events(0, 1))
    one_line(caught)
    assert await store.read("child") == events(0, 4)
    # Nobody holds it since.
    await store.release(await store.acquire("child"))
