"""Conversations of one agent that begin at the same moment."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.agent.stage import CHAT, CLAUDE, LONG, breaks, stage
from tests.agent.trouble import world

from addendum.agent.context.firsts import FirstRequests
from addendum.agent.session import Session
from addendum.errors import AddendumError
from addendum.log.events import CacheBreak

pytestmark = pytest.mark.anyio

TOGETHER = ("concurrent first requests", "none")


def test_only_while_another_is_in_flight_and_none_was_answered() -> None:
    firsts = FirstRequests()
    assert not firsts.begin("a")
    assert not firsts.begin("b")
    assert firsts.begin("a")
    firsts.end("a", answered=False)
    assert firsts.begin("a")
    firsts.end("a", answered=True)
    firsts.end("", answered=True)
    assert not firsts.begin("a")


@pytest.mark.parametrize("route", [CLAUDE, CHAT])
async def test_first_requests_that_leave_together_say_so(route: str, tmp_path: Path) -> None:
    provider = route.split(":")[0]
    async with world(tmp_path, route) as here:
        agent = here.agent(instructions=LONG)
        here.lab.stall_next(provider, after_events=0, times=2)
        told: list[str] = []

        async def say(session: Session) -> None:
            told.extend((await session.run("hello")).notices)

        async with (
            agent.open("a", store=here.url) as one,
            agent.open("b", store=here.url) as two,
            agent.open("c", store=here.url) as three,
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say, one)
                tasks.start_soon(say, two)
                with anyio.fail_after(10):
                    await here.lab.until_stalled(2)
                here.lab.release()
            assert sorted([breaks(one), breaks(two)]) == [[], [TOGETHER]]
            assert told == ["the cache holds less than it could: concurrent first requests"]
            # Each has a request behind it now, and a third one has what was stored.
            for session in (one, two, three):
                await session.run("and?")
            found = [*breaks(one), *breaks(two), *breaks(three)]
            assert found == [TOGETHER]


async def test_one_that_failed_leaves_nobody_waiting_for_it(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        agent = here.agent(instructions=LONG)
        for name in ("a", "b"):
            here.lab.fail_next(here.provider, status=500)
            async with agent.open(name, store=here.url) as session:
                with pytest.raises(AddendumError):
                    await session.run("hello")
        async with agent.open("c", store=here.url) as session:
            await session.run("hello")
        assert not [each for each in await here.data("c") if isinstance(each, CacheBreak)]


async def test_without_a_cache_nothing_is_lost() -> None:
    async with stage() as here:
        for more in ({"caching": False}, {"route": "compatible:model"}):
            route = more.pop("route", CLAUDE)
            agent = here.agent(str(route), **more)
            name = str(route)[:9]
            async with here.open(agent, name) as one, here.open(agent, name + "b") as two:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(one.run, "hello")
                    tasks.start_soon(two.run, "hello")
                assert breaks(one) == breaks(two) == []
