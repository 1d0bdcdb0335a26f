"""V8 over whole logs: what was sent is rendered again from the log alone, with its record."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.agent.stage import CHAT, CLAUDE, stage, storing
from tests.agent.trouble import WIRES
from tests.property.judging import count, rules

from addendum.agent.agent import Agent
from addendum.agent.replay import replay
from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.cache.record import RequestRecord
from addendum.errors import LogError, ProviderRefused
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.lab.server import open_lab
from addendum.log import codec
from addendum.log.events import RequestContext
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

CASES = [
    ("redefine", "anthropic:claude-opus-5-5"),
    ("tail", "anthropic:claude-sonnet-4-6"),
    ("prompt-and-tool", "anthropic:claude-opus-4-8+by-reference"),
    ("redefine", "deepseek:deepseek-flash"),
    ("tail", "openai-chat:gpt-4.1"),
]
NOT_IN_THE_LOG = ("n", "time_sent", "time_answered")


@pytest.mark.parametrize(("scenario", "route"), CASES)
async def test_v8_a_log_gives_the_records_of_its_requests(scenario: str, route: str) -> None:
    run = await run_scenario(find(scenario, {}), route)
    again: list[RequestRecord] = []
    for log in run.sessions:
        stored = [codec.encode_event(event) for event in log.events]
        again += [each.record for each in replay(SessionLog.load(log.session, stored))]
    assert len(again) == len(run.records)
    for mine, sent in zip(again, run.records, strict=True):
        for name in RequestRecord.__struct_fields__:
            if name not in NOT_IN_THE_LOG:
                assert getattr(mine, name) == getattr(sent, name), (sent.n, name)
        assert mine.time_answered is not None and mine.time_answered >= mine.time_sent


async def test_a_break_of_a_request_without_an_answer_is_still_ahead() -> None:
    async with open_lab() as lab:
        base_url = lab.base_url("openai-chat")
        agent = Agent("openai-chat:gpt-4.1", base_url=base_url, instructions="One.", record=True)
        async with agent.open("s", store="memory://") as session:
            await session.run("Hello.")
            session.instructions = "Two."
            lab.fail_next("openai-chat", status=400)
            with pytest.raises(ProviderRefused):
                await session.run("And?")
            await session.run("Again.")
            sent = [[(each.reason, each.at) for each in one.breaks] for one in session.sent]
            again = [
                [(each.reason, each.at) for each in one.record.declared]
                for one in replay(session.log)
            ]
            statuses = [one.record.status for one in replay(session.log)]
    assert statuses == ["answered", "failed", "answered"]
    assert again == sent
    assert ("prompt rewritten", "system") in again[1] and ("prompt rewritten", "system") in again[2]


async def test_flags_are_those_that_were_sent() -> None:
    run = await run_scenario(find("redefine", {}), "deepseek:deepseek-flash")
    sent = [capture.headers.get("anthropic-beta", "") for capture in run.captures]
    again = [",".join(each.betas) for log in run.sessions for each in replay(log)]
    assert again == sent


async def test_a_rendering_that_this_release_does_not_know_is_refused() -> None:
    run = await run_scenario(find("redefine", {}), "openai-chat:gpt-4.1")
    stored: list[bytes] = []
    for event in run.sessions[0].events:
        if isinstance(event.data, RequestContext):
            event = structs.replace(event, data=structs.replace(event.data, rendering=999))
        stored.append(codec.encode_event(event))
    log = SessionLog.load(run.sessions[0].session, stored)
    with pytest.raises(LogError, match="rendering 999; use the release that sent it"):
        list(replay(log))


@pytest.mark.parametrize("until", [-1, 0, 10**6])
async def test_a_request_that_leaves_out_what_is_not_in_the_log_is_refused(until: int) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")

        def edited(data: dict[str, Any]) -> None:
            if data["type"] == "request/sent":
                data["until"] = until

        log = SessionLog.load("s", storing(await here.store.read("s"), edited))
    with pytest.raises(LogError, match="the turn that it leaves out is not in the log"):
        list(replay(log))


@pytest.mark.parametrize(
    "route", [CLAUDE, CHAT, *WIRES[3:], "openrouter:anthropic/claude-opus-5.5"]
)
async def test_without_caching_no_rule_of_caching_is_broken(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, caching=False, turn_instructions="Be quick and kind.")
        async with here.open(agent) as session:
            for text in ("one", "/call web {}", "three"):
                await session.run(text)
            session.turn_instructions = "Be slow."
            await session.run("four")
        assert here.refused() == []
        log = SessionLog.load("s", await here.store.read("s"))
        records = [each.record for each in replay(log)]
        assert [each.caching for each in records] == [False] * len(here.sent)
        assert check(records, rules(route)) == ()
        assert not judge(records, rules(route), count).totals.undeclared_misses
        # It is what the record says that excuses them.
        cached = [structs.replace(each, caching=True) for each in records]
        assert {each.rule for each in check(cached, rules(route))} & {"V7", "V10"}
