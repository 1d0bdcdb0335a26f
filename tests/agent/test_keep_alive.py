"""Keeping a cache alive: by choice, with its price said first."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.agent.stage import CHAT, CLAUDE, data, stage

from addendum.agent.replay import known_route, replay
from addendum.cache.spent import billed, totals
from addendum.errors import AddendumError, ConfigurationError
from addendum.log.events import CacheKept, RequestSent
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

OPUS = "anthropic:claude-opus-4-8"


@pytest.mark.parametrize("route", [CLAUDE, OPUS])
async def test_a_cache_that_is_kept_is_read_by_a_late_turn(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route)
        async with here.open(agent) as session:
            await session.run("one")
            for _ in range(3):
                here.clock.advance(session.keep_alive_price().due)
                assert session.keep_alive_price().due == 0
                usage = await session.keep_alive()
                # All that was there is read; our question is all that can be new.
                assert usage.cache_read and usage.prompt
                assert usage.cache_read >= (session.sent[0].usage.prompt or 0)
                assert usage.prompt - usage.cache_read < 60
            here.clock.advance(200)
            await session.run("two")
            assert session.sent[-1].usage.cache_read == session.sent[0].usage.prompt
            purposes = [each.purpose for each in data(session) if isinstance(each, RequestSent)]
            assert purposes == ["turn", *["keep-alive"] * 3, "turn"]
            # Nothing of it stays in the conversation.
            assert b"compaction_request" not in session.sent[-1].body
        async with here.open(agent) as session:
            await session.run("three")
        assert here.refused() == []
        log = SessionLog.load("s", await here.store.read("s"))
        assert [each.record.body for each in replay(log)] == [sent.body for sent in here.sent]
        assert here.judged(route).totals.undeclared_misses == 0
        # What it costs is counted with the rest.
        requests = billed(log.events, known_route).requests
        assert [each.request.answered for each in requests] == [True] * 6
        assert totals(requests).requests == 6


@pytest.mark.parametrize(("ttl", "every", "lost"), [("5m", 240.0, "4.8"), ("1h", 2_880.0, "7.8")])
async def test_the_price_is_said_first(ttl: str, every: float, lost: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, ttl=ttl)) as session:
            await session.run("one")
            here.clock.advance(100)
            price = session.keep_alive_price()
            assert price.tokens == session.sent[0].usage.prompt
            assert (price.every, price.due) == (every, every - 100)
            # Read at 0.2 dollars a million, and written anew at 5, or for an hour at 8.
            assert price.cost == price.tokens * Decimal("0.2") / 1_000_000
            assert price.lost == price.tokens * Decimal(lost) / 1_000_000
            assert len(here.sent or session.sent) == 1


async def test_a_clock_that_was_set_back_puts_nothing_off() -> None:
    async with stage() as here:
        behind = 0
        agent = here.agent(CLAUDE, clock=lambda: here.clock.now() - behind)
        async with here.open(agent) as session:
            await session.run("one")
            behind = 365 * 86_400
            assert session.keep_alive_price().due == session.keep_alive_price().every == 240.0


async def test_where_there_is_nothing_to_keep_nothing_is_sent() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            with pytest.raises(ConfigurationError, match="nothing was sent here yet"):
                await session.keep_alive()
            await session.run("one")
            here.clock.advance(301)
            with pytest.raises(ConfigurationError, match="nothing in the cache any more"):
                await session.keep_alive()
        async with here.open(here.agent("openai-chat:gpt-4.1", caching=False), "t") as session:
            await session.run("one")
            with pytest.raises(ConfigurationError, match="no cache of a known lifetime"):
                session.keep_alive_price()
        assert len(here.sent) == 2


async def test_one_that_fails_changes_nothing() -> None:
    async with stage() as here:
        async with here.open(here.agent(CHAT, instructions="Be brief. " * 2_000)) as session:
            await session.run("one")
            here.lab.fail_next("openai-chat", status=400)
            with pytest.raises(AddendumError):
                await session.keep_alive()
            assert not any(isinstance(each, CacheKept) for each in data(session))
            await session.run("two")
        assert here.judged(CHAT).totals.undeclared_misses == 0


async def test_what_was_cut_or_summed_up_since_is_not_kept() -> None:
    async with stage() as here, here.open(here.agent(CLAUDE)) as session:
        for text in ("one " * 200, "two " * 400, "three"):
            await session.run(text)
        await session.rewind(2)
        price = session.keep_alive_price()
        assert price.tokens == session.sent[0].usage.prompt
        assert (await session.keep_alive()).cache_read == price.tokens
        await session.run("four")
        assert session.keep_alive_price().tokens == session.sent[-1].usage.prompt
        await session.compact("In short.")
        with pytest.raises(ConfigurationError, match="nothing in the cache any more"):
            await session.keep_alive()
        await session.run("five")
        price = session.keep_alive_price()
        assert price.tokens == session.sent[-1].usage.prompt
        assert (await session.keep_alive()).cache_read == price.tokens
