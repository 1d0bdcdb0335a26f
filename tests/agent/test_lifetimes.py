"""What time does to a cache: expiry, consolidation, and the lifetime that is asked for."""

from __future__ import annotations

import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    body,
    breaks,
    fn,
    names,
    server,
    stage,
    thinking,
)

from addendum.agent.context.lifetime import Gap, certainly_cold, chosen_lifetime, gaps
from addendum.agent.replay import replay
from addendum.log.events import AssistantMessage, CacheBreak, Event, RequestContext, RequestSent
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.routes import resolve

pytestmark = pytest.mark.anyio

OPUS = "anthropic:claude-opus-4-8"
PLAIN = "anthropic:claude-sonnet-4-6"
HOUR = 3_600


@pytest.mark.parametrize("route", [CLAUDE, OPUS, OPUS + "+by-reference", PLAIN, CHAT])
async def test_d13_a_cold_session_is_consolidated_and_stays_so(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.tools.add(fn("late"))
            await session.run("two")
            await session.tools.remove("late")
            await session.run("three")
            dead = [each.dead for each in replay(session.log)]
            assert dead[-1] > 0 == dead[0]
            before = len(breaks(session))
            here.clock.advance(8 * 24 * HOUR)
            await session.run("four")
            (found,) = breaks(session)[before:]
            # OpenAI's key names the head: another one stands in front of everything.
            at = "settings" if route == CHAT else "tools"
            assert found == ("lifetime passed", at)
            # What was added is of the head now, and what is gone is gone.
            assert {"web", "github__t0", "github__t1"} <= set(names(session.sent[-1]))
            assert b'"late"' not in session.sent[-1].body
            assert [each.dead for each in replay(session.log)][-1] == 0
            await session.run("five")
        async with here.open(agent) as session:
            await session.run("six")
            here.clock.advance(8 * 24 * HOUR)
            # There is nothing left to consolidate.
            await session.run("seven")
            assert breaks(session)[before:] == [
                ("lifetime passed", at),
                ("lifetime passed", "none"),
            ]
        assert here.refused() == []
        assert here.judged(route.split("+")[0]).totals.undeclared_misses == 0
        log = SessionLog.load("s", await here.store.read("s"))
        assert [each.record.body for each in replay(log)] == [sent.body for sent in here.sent]
        details = [e.data.detail for e in log.events if isinstance(e.data, CacheBreak)]
        assert details[before] == "consolidated"


async def test_d13_bound_reasoning_is_never_given_up_for_it() -> None:
    async with stage(thinking("one", "two", "three")) as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            await session.run("two")
            here.clock.advance(8 * 24 * HOUR)
            await session.run("three")
            assert breaks(session) == [("lifetime passed", "none")]
            assert names(session.sent[-1]) == names(session.sent[0])
            assert str(body(session.sent[-1])).count("'type': 'thinking'") == 2
        assert here.refused() == []


@pytest.mark.parametrize(("seconds", "consolidate"), [(400, True), (8 * 24 * HOUR, False)])
async def test_what_may_be_there_still_or_was_not_asked_for_stays(
    seconds: int, consolidate: bool
) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, consolidate=consolidate)) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            await session.run("two")
            here.clock.advance(seconds)
            await session.run("three")
            assert breaks(session) == [("lifetime passed", "none")]


async def test_a_lifetime_is_chosen_by_the_gaps_when_the_cache_is_cold() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, ttl="auto")) as session:
            await session.run("one")
            assert session.sent[-1].context.ttl == "5m"
            for number in range(3):
                here.clock.advance(700)
                await session.run(f"later {number}")
            # Long pauses between turns: an hour would have been cheaper.
            assert [sent.context.ttl for sent in session.sent] == ["5m", "5m", "1h", "1h"]
            assert b'"ttl":"1h"' in session.sent[-1].body
            for number in range(40):
                here.clock.advance(20)
                await session.run(f"soon {number}")
            # Warm: what is there is kept for as long as it was.
            assert session.sent[-1].context.ttl == "1h"
            here.clock.advance(3 * HOUR)
            await session.run("cold again")
            assert session.sent[-1].context.ttl in ("5m", "1h")
        assert here.refused() == []
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


def talked(*requests: tuple[float, int]) -> list[Event]:
    """Answered requests at these seconds, with prompts of so many tokens."""
    found: list[Event] = []
    for number, (second, prompt) in enumerate(requests, 1):
        sent = RequestSent(number, 1, number, CLAUDE, 0)
        answer = AssistantMessage(number, 1, CLAUDE, "w", usage=Usage(prompt, 0, 0, 1))
        found.append(Event(len(found), int(second * 1000), sent))
        found.append(Event(len(found), int(second * 1000) + 50_000, answer))
    return found


def test_gaps_run_from_start_to_start() -> None:
    assert list(gaps(talked((0, 100), (60, 150), (90, 120)), CLAUDE)) == [
        Gap(60.0, 100, 50),
        Gap(30.0, 120, 0),
    ]
    assert list(gaps(talked((0, 100), (60, 150)), OPUS)) == []


@pytest.mark.parametrize(
    ("requests", "chosen"),
    [
        ([(0, 10_000)], None),
        # Short gaps: what is new is cheaper at five minutes.
        ([(0, 10_000), (60, 11_000), (120, 12_000)], "5m"),
        # 10,000 tokens written again at 1.25 cost more than 1,000 new ones at 2.
        ([(0, 10_000), (600, 11_000)], "1h"),
        # Beyond an hour neither helps, and five minutes are cheaper to write.
        ([(0, 10_000), (9_000, 11_000)], "5m"),
    ],
)
def test_the_cheaper_lifetime_is_chosen(
    requests: list[tuple[float, int]], chosen: str | None
) -> None:
    assert chosen_lifetime(talked(*requests), resolve(CLAUDE, environ={})) == chosen


def test_a_route_without_a_choice_is_left_its_own() -> None:
    requests = talked((0, 10_000), (600, 11_000))
    assert chosen_lifetime(requests, resolve(CHAT, environ={})) is None


@pytest.mark.parametrize(
    ("route", "ttl", "idle", "cold"),
    [
        (CLAUDE, "5m", 599, False),
        (CLAUDE, "5m", 601, True),
        (CLAUDE, "1h", 7_199, False),
        (CLAUDE, "1h", 7_201, True),
        (CHAT, None, 2 * 86_400, False),
        (CHAT, None, 8 * 86_400, True),
        ("compatible:x", None, 10**9, False),
        # A clock that went back says nothing.
        (CLAUDE, "5m", -(10**9), False),
    ],
)
def test_certainly_cold_is_later_than_perhaps_expired(
    route: str, ttl: str | None, idle: float, cold: bool
) -> None:
    known = resolve(route, base_url="http://127.0.0.1:1", environ={})
    context = RequestContext(route, "w", "in-history", ttl=ttl)  # type: ignore[arg-type]
    assert certainly_cold(known, context, idle) is cold
