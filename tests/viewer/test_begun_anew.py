"""A session that is deleted and begun anew while pages look at it: nothing of the old one stays."""

from __future__ import annotations

import anyio
import pytest
from tests.viewer.staged import Stage, long_log, stage, stored

from addendum.log.events import TurnStart, UserMessage
from addendum.log.session_log import SessionLog
from addendum.stores import MemoryStore
from addendum.tell.words import words
from addendum.viewer import feed

pytestmark = pytest.mark.anyio


def _other(turns: int) -> SessionLog:
    """Another log of the same name, with a first message of its own."""
    log = SessionLog("long", clock=lambda: 7)
    for event in long_log(1).events[:2]:
        log.append(event.data)  # type: ignore[arg-type]
    log.append(UserMessage(1, "Something else"))
    log.close_open()
    for turn in range(2, turns + 1):
        log.append(TurnStart(turn))
        log.close_open()
    return log


async def _begin_anew(staged: Stage, turns: int) -> None:
    store = staged.house.store
    await store.delete(await store.acquire("long"))
    await stored(store, _other(turns))


@pytest.mark.parametrize("turns", [1, 90], ids=["shorter", "longer"])
async def test_pages_show_the_session_that_is_there_now(turns: int) -> None:
    store = MemoryStore()
    await stored(store, long_log(3))
    async with stage(store=store) as staged:
        seen = await staged.house.watch.open("long")
        assert seen.index.title.startswith("Question 1") and seen.index.requests
        assert "Question 1" in await staged.get("/s/long/trajectory")
        assert "Question 1" in await staged.get("/sessions")
        await _begin_anew(staged, turns)
        for path in ("/s/long/trajectory?before=9", "/sessions", "/s/long"):
            page = await staged.get(path)
            assert "Something else" in page and "Question" not in page
        seen = await staged.house.watch.open("long")
        assert len(seen.log) == seen.count == len(_other(turns))
        assert seen.index.requests == [] and seen.looks == {}
        await store.delete(await store.acquire("long"))
        assert (await staged.client.get("/s/long")).status_code == 404


@pytest.mark.parametrize("turns", [0, 1, 90], ids=["deleted", "shorter", "longer"])
async def test_a_stream_has_its_page_loaded_again(turns: int) -> None:
    store = MemoryStore()
    await stored(store, long_log(3))
    async with stage(store=store) as staged:
        seen = await staged.house.watch.open("long")
        events = feed.ledger(staged.house, seen, -1, words("en"))
        heard = [await anext(events), await anext(events)]
        if turns:
            await _begin_anew(staged, turns)
        else:
            await store.delete(await store.acquire("long"))
        with anyio.fail_after(10):
            heard += [each async for each in events if not each.startswith(b":")]
        kinds = [each.partition(b"\n")[0] for each in heard]
        assert kinds[0] == b"retry: 1000"
        assert heard[-1] == b"event: reload\ndata: {}\n\n"
        assert kinds[-2].startswith(b"id: ") and len(kinds) == 3


@pytest.mark.parametrize("turns", [1, 90], ids=["shorter", "longer"])
@pytest.mark.parametrize("view", ["ledger", "chat"])
async def test_a_page_that_comes_back_is_not_told_of_another_session(view: str, turns: int) -> None:
    store = MemoryStore()
    await stored(store, long_log(3))
    async with stage(store=store) as staged:
        seen = await staged.house.watch.open("long")
        place = seen.place(seen.count - 1)
        page = await staged.get("/s/long/trajectory")
        assert f'data-after="{place}"' in page
        assert f'data-after="{place}"' in await staged.get("/s/long")
        room = await staged.house.room("long")
        room.used = -1e9
        await room.closed.wait()
        await _begin_anew(staged, turns)
        path = f"/s/long/events?view={view}"
        for query, headers in ((f"&after={place}", {}), ("", {"last-event-id": place})):
            answer = await staged.client.get(path + query, headers=headers)
            assert answer.text.split("\n\n")[-2] == "event: reload\ndata: {}"
        for nonsense in ("", "x", "1.x", "1.2.3", "-1.1", ".", "9" * 40, "9"):
            assert seen.seen(nonsense) == -1


async def test_what_a_session_cost_is_counted_anew() -> None:
    store = MemoryStore()
    await stored(store, long_log(1))
    async with stage(store=store) as staged:
        first = await staged.get("/")
        assert "Question 1" in first
        assert staged.house.sums
        count = len(long_log(1))
        await store.delete(await store.acquire("long"))
        log = SessionLog("long", clock=lambda: 7)
        for event in _other(1).events:
            log.append(event.data)  # type: ignore[arg-type]
        turn = 2
        while len(log) < count:
            log.append(TurnStart(turn))
            log.close_open()
            turn += 1
        await stored(store, log)
        ((_, sums),) = list(staged.house.sums.values())
        assert sums is not None and sums.requests
        await staged.get("/")
        ((_, sums),) = list(staged.house.sums.values())
        assert sums is not None and not sums.requests
