"""A session that is open keeps its lease, however long nothing is written."""

from __future__ import annotations

import anyio
import pytest
from tests.agent.stage import CLAUDE, stage

from addendum.agent import driving as module
from addendum.errors import SessionBusy, StoreError
from addendum.log.store import Lease
from addendum.stores import MemoryStore

pytestmark = pytest.mark.anyio


class Renewed(MemoryStore):
    """Counts renewals, and fails at the first."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.lost = False
        self.third = anyio.Event()

    async def renew(self, lease: Lease) -> None:
        self.count += 1
        if self.count >= 3:
            self.third.set()
        if self.lost:
            raise SessionBusy("taken over")
        if self.count == 1:
            raise StoreError("locked")
        await super().renew(lease)


async def test_a_silent_session_renews_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_AFTER_MS", 1)
    store = Renewed()
    async with stage() as here:
        async with here.agent(CLAUDE).open("s", store=store) as session:
            with anyio.fail_after(5):
                await store.third.wait()
            await session.run("one")
        count = store.count
        assert not store._sessions["s"].standing or not store._sessions["s"].standing.nonce
        await anyio.lowlevel.checkpoint()
        assert store.count == count


async def test_a_session_that_was_taken_over_renews_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RENEW_AFTER_MS", 1)
    store = Renewed()
    store.lost = True
    async with stage() as here, here.agent(CLAUDE).open("s", store=store) as session:
        while not store.count:
            await anyio.lowlevel.checkpoint()
        await session.run("one")
        assert store.count == 1
