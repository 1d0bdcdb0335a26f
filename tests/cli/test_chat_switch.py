"""What a switch costs on each kind of route, and what the next request then says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal

import anyio
import pytest

from addendum.agent.agent import Agent
from addendum.agent.context.preview import upcoming_breaks
from addendum.agent.context.switch_cost import SwitchCost, switch_cost
from addendum.agent.session import Session, runtime_of
from addendum.cache.cost import left_in_cache
from addendum.cli.switch_cost import told
from addendum.errors import ConfigurationError
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.lab.server import Clock, Lab, open_lab
from addendum.log.values import Usage
from addendum.routes import CacheRules, resolve
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

NOW = 1_796_040_000.0
"""Noon in UTC on 2026-11-30."""

OPUS = "anthropic:claude-opus-5-5"
FLASH = "anthropic:claude-opus-5-5+addition-only"


def canned(name: str) -> CannedTool:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    return CannedTool(name, f"Says what it knows of {name}. " * 10, schema, f"{name} was called")


class Chat:
    def __init__(self, session: Session, lab: Lab, clock: Clock, server: CannedServer) -> None:
        self.session = session
        self.lab = lab
        self.clock = clock
        self.server = server

    async def switch(self, on: bool) -> SwitchCost:
        await (self.session.tools.enable if on else self.session.tools.disable)("docs")
        await self.session.registry.settle(10)
        return switch_cost(runtime_of(self.session))

    async def say(self, text: str) -> Usage:
        """Run a turn and return what its last request was billed."""
        self.clock.advance(1)
        return (await self.session.run(text)).requests[-1].usage


@asynccontextmanager
async def chatting(
    name: str, *, instructions: str = "Be brief. " * 400, rebind: bool = False
) -> AsyncGenerator[Chat]:
    clock = Clock(NOW)
    server = in_process("docs", [canned("find"), canned("open")])
    async with open_lab(clock=clock) as lab:
        pool = ServerPool()
        agent = Agent(
            resolve(name, base_url=lab.base_url(name.partition(":")[0])),
            instructions=instructions,
            mcp_servers=[ServerSpec(name="docs", server=server)],
            tool_changes="rebind" if rebind else "auto",
            pool=pool,
            clock=clock.now,
        )
        async with agent.open(store="memory://") as session:
            yield Chat(session, lab, clock, server)
        await pool.aclose()


def cached(usage: Usage) -> int:
    return (usage.cache_read or 0) + (usage.cache_write or 0)


# -- routes ---------------------------------------------------------------------------------


async def test_in_history_a_switch_costs_nothing_either_way() -> None:
    async with chatting(OPUS) as chat:
        first = await chat.say("hello")
        on = await chat.switch(True)
        assert (on.held, on.again, on.rebinding, on.estimated) == (cached(first), 0, on.held, False)
        assert on.cost == 0
        assert on.rebinding_cost == cached(first) * (Decimal(5) - Decimal("0.2")) / 1_000_000
        second = await chat.say("what is there?")
        assert second.cache_read == on.held
        off = await chat.switch(False)
        assert (off.held, off.again) == (cached(second), 0)
        assert (await chat.say("thanks")).cache_read == off.held


async def test_by_the_dispatcher_a_switch_costs_nothing_either_way() -> None:
    async with chatting("openai-chat:gpt-4.1") as chat:
        first = await chat.say("hello")
        assert first.prompt is not None
        on = await chat.switch(True)
        assert on.held == first.prompt // 128 * 128 and on.estimated
        assert (on.again, on.rebinding) == (0, on.held)
        assert (await chat.say("what is there?")).cache_read == on.held
        assert (await chat.switch(False)).again == 0


async def test_where_removals_break_the_cost_is_told_before_it_is_paid() -> None:
    async with chatting(FLASH) as chat:
        await chat.say("hello")
        assert (await chat.switch(True)).again == 0
        await chat.say("what is there? " * 60)
        await chat.say("and what else?")
        last = await chat.say("say more")
        off = await chat.switch(False)
        assert off.reasons == ("removal",) and off.estimated
        assert last.prompt is not None and last.output is not None
        assert off.held is not None and off.again is not None
        assert off.held == last.prompt
        # The first turn and the prompt stay: what is read again lies behind the addition.
        assert 0 < off.again < off.held
        after = await chat.say("thanks")
        assert after.cache_read == off.held - off.again
        # A new list would be no worse here: that of the first request is still cached.
        assert off.rebinding == off.again and off.rebinding_cost == off.cost != 0


async def test_rebinding_costs_the_whole_prompt_and_says_so() -> None:
    async with chatting(OPUS, rebind=True) as chat:
        first = await chat.say("hello")
        on = await chat.switch(True)
        assert on.again == on.held == on.rebinding == cached(first)
        assert on.reasons == ("rebinding",) and on.cost == on.rebinding_cost
        assert (await chat.say("what is there?")).cache_read == 0


async def test_a_list_that_is_still_cached_would_not_be_read_again() -> None:
    async with chatting(OPUS) as chat:
        first = await chat.say("hello")
        await chat.switch(True)
        back = await chat.switch(False)
        assert (back.again, back.rebinding, back.rebinding_cost) == (0, 0, 0)
        assert "still cached" in told(back)
        await chat.switch(True)
        second = await chat.say("what is there?")
        # Rebinding would find the first request's list, and read what came since.
        again = await chat.switch(False)
        assert again.rebinding == cached(second) - cached(first)


async def test_a_compaction_is_paid_for_by_either_way_of_telling_a_switch() -> None:
    async with chatting(OPUS) as chat:
        await chat.say("hello")
        await chat.switch(True)
        await chat.say("what is there? " * 60)
        await chat.say("and what else?")
        await chat.say("say more")
        await chat.session.compact()
        cost = switch_cost(runtime_of(chat.session))
        assert cost.reasons == ("compaction",) and cost.estimated
        assert cost.again == cost.rebinding == cost.held != 0
        assert cost.cost == cost.rebinding_cost != 0
        # The first request had these tools, but what was said behind it is cut.
        off = await chat.switch(False)
        assert off.again == off.rebinding == off.held
        await chat.say("thanks")
        # The list with the server on was last sent in front of the compaction; this one is new.
        on = await chat.switch(True)
        assert on.again == 0 and on.rebinding == on.held != 0
        assert switch_cost(runtime_of(chat.session)).rebinding_cost != 0
        assert (await chat.switch(False)).rebinding == 0


# -- sizes ----------------------------------------------------------------------------------


async def test_before_the_first_request_there_is_nothing_to_lose() -> None:
    async with chatting(OPUS) as chat:
        assert upcoming_breaks(runtime_of(chat.session)) == ()
        said = told(await chat.switch(True))
        assert said == (
            "0 of 0 tokens read again; rebinding would have cost $0 (nothing was sent here yet)"
        )


async def test_a_prompt_too_short_to_be_cached_costs_nothing() -> None:
    async with chatting(OPUS, instructions="Be brief.") as chat:
        first = await chat.say("hello")
        said = told(await chat.switch(True))
        assert said.startswith(f"0 of {first.prompt} tokens read again; rebinding would have cost")
        assert said.endswith("$0 (too short: cached from 512 tokens on)")


async def test_an_expired_cache_has_nothing_to_lose() -> None:
    async with chatting(OPUS) as chat:
        await chat.say("hello")
        chat.clock.advance(301)
        cost = await chat.switch(True)
        assert (cost.held, cost.again, cost.rebinding) == (0, 0, 0)
        assert "the cache has expired" in told(cost)


async def test_a_lifetime_runs_from_the_start_of_the_request() -> None:
    async with chatting(OPUS) as chat:
        session = chat.session

        chat.lab.stall_next("anthropic", after_events=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.run, "hello")
            await chat.lab.until_stalled()
            chat.clock.advance(40)  # the answer takes its time
            chat.lab.release()
        chat.clock.advance(261)
        cost = await chat.switch(True)
        assert (cost.held, cost.again, cost.rebinding) == (0, 0, 0)
        assert "the cache has expired" in told(cost)
        with pytest.raises(ConfigurationError, match="nothing in the cache any more"):
            session.keep_alive_price()


async def test_a_cache_that_was_kept_alive_is_still_there() -> None:
    async with chatting(OPUS) as chat:
        await chat.say("hello")
        chat.clock.advance(200)
        await chat.session.keep_alive()
        chat.clock.advance(200)
        cost = await chat.switch(True)
        assert cost.held == chat.session.keep_alive_price().tokens != 0
        assert cost.again == 0
        # A list written anew would have found nothing, and the old one what we find.
        assert cost.rebinding == cost.held
        assert (await chat.switch(False)).rebinding == 0


async def test_looking_ahead_leaves_no_trace() -> None:
    async with chatting(FLASH) as chat:
        await chat.say("hello")
        await chat.switch(True)
        await chat.say("what is there?")
        await chat.session.tools.disable("docs")
        events = list(chat.session.log.events)
        found = upcoming_breaks(runtime_of(chat.session))
        assert [each.reason for each in found] == ["removal"]
        assert list(chat.session.log.events) == events
        result = await chat.session.run("thanks")
        assert [each.reason for each in result.requests[0].breaks] == ["removal"]


RULES = {
    "marks": CacheRules("marks", minimum=512),
    "boundaries": CacheRules("boundaries", minimum=1024),
    "steps": CacheRules("steps", minimum=1024, step=128),
    "units": CacheRules("units", minimum=64),
    "none": CacheRules("none"),
}


@pytest.mark.parametrize(
    ("kind", "usage", "left"),
    [
        ("marks", Usage(2000, 1500, 400, 9), (1900, False)),
        ("marks", Usage(300, 0, 0, 9), (0, False)),
        ("marks", Usage(2000, 1500, None, 9), (2000, True)),
        ("marks", Usage(300, None, None, 9), (0, True)),
        ("boundaries", Usage(2000, 1500, 400, 9), (1900, False)),
        ("steps", Usage(2000, 0, None, 9), (1920, True)),
        ("steps", Usage(1000, 0, None, 9), (0, True)),
        ("units", Usage(2000, 0, None, 9), (2009, False)),
        ("none", Usage(2000, 1500, None, 9), (2000, True)),
        ("none", Usage(2000, None, None, 9), (None, True)),
        ("marks", Usage(), (None, False)),
    ],
)
def test_what_a_request_left_follows_its_cache_rules(
    kind: str, usage: Usage, left: tuple[int | None, bool]
) -> None:
    assert left_in_cache(usage, RULES[kind]) == left


# -- words ----------------------------------------------------------------------------------


def cost(**given: object) -> SwitchCost:
    fields: dict[str, object] = {
        "prompt": 41_300,
        "held": 41_200,
        "again": 0,
        "estimated": False,
        "rebinding": 41_200,
        "cost": Decimal(0),
        "rebinding_cost": Decimal("0.13"),
        **given,
    }
    return SwitchCost(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            cost(),
            "0 of 41,200 tokens read again; rebinding would have cost $0.13 (41,200 tokens)",
        ),
        (
            cost(estimated=True),
            "0 of about 41,200 tokens read again; rebinding would have cost $0.13 "
            "(about 41,200 tokens)",
        ),
        (
            cost(again=12_300, estimated=True, cost=Decimal("0.041"), reasons=("redefinition",)),
            "about 12,300 of 41,200 tokens read again for $0.041 (redefinition); rebinding would "
            "have cost $0.13 (about 41,200 tokens)",
        ),
        (
            cost(rebinding_cost=None),
            "0 of 41,200 tokens read again; rebinding would have cost an unknown sum "
            "(41,200 tokens)",
        ),
        (
            cost(prompt=None, held=None, again=None, rebinding=None, rebinding_cost=None),
            "no token is read again; what rebinding would have cost is unknown",
        ),
        (
            cost(held=None, again=None, rebinding=None, reasons=("rebinding",)),
            "the prompt is read again (rebinding); what rebinding would have cost is unknown",
        ),
    ],
)
def test_the_cost_is_a_sentence(given: SwitchCost, said: str) -> None:
    assert told(given) == said
