"""Cases 78, 80 to 84 and 96: retries, compaction, rewind, forks, and long random lives."""

from __future__ import annotations

import pytest
from tests.cases.helpers import (
    ADDITION_ONLY,
    BY_REFERENCE,
    BY_VALUE,
    DEEPSEEK,
    PLAIN,
    blocks,
    declared,
    of,
    talking,
    told,
)

from addendum.lab.exchange import Switches
from addendum.log.events import (
    AssistantMessage,
    DeveloperMessage,
    RequestHeader,
    RouteDowngrade,
    UserMessage,
)
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("route", "switches"),
    [
        (DEEPSEEK, Switches(deepseek_tool_changes=False)),
        (BY_REFERENCE, Switches(claude_tool_changes="none")),
    ],
)
async def test_case_78_refused_tool_changes_in_a_compaction(route: str, switches: Switches) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        # The endpoint changes its mind.
        talk.lab.switches = switches
        assert await talk.session.compact() == "Summary of 4 messages."
        assert len(of(talk.session.log.events, RouteDowngrade)) == 1
        await talk.say("three")
        assert [capture.status for capture in talk.lab.captures].count(400) == 1


@pytest.mark.parametrize("route", [BY_VALUE, BY_REFERENCE, DEEPSEEK, PLAIN])
async def test_case_80_retry(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        provider = route.split(":")[0]
        talk.lab.fail_next(provider, status=503, retry_after=0, times=2)
        events = await talk.say("two", "a b")
        assert [capture.status for capture in talk.lab.captures] == [200, 503, 503, 200]
        for kind in (UserMessage, RequestHeader, DeveloperMessage, AssistantMessage):
            assert len(of(events, kind)) == 1
        assert len(set(talk.raw[1:])) == 1


@pytest.mark.parametrize("route", [BY_REFERENCE, ADDITION_ONLY, DEEPSEEK])
async def test_case_81_compaction(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.session.compact("what was said")
        await talk.say("three")
        assert declared(talk.bodies[-1]) == ["a", "b"]
        assert told(talk.bodies[-1]) == [("user", "text text")]
        assert len(of(talk.session.log.events, DeveloperMessage)) == 1
        # Case 82 goes on from here.
        await talk.say("four", "a b c")
        assert declared(talk.bodies[-1]) == ["a", "b", "c*"]
        assert told(talk.bodies[-1])[1:] == [
            ("assistant", "text"),
            ("user", "text"),
            ("system", "+c"),
        ]


@pytest.mark.parametrize("route", [BY_REFERENCE, ADDITION_ONLY, DEEPSEEK])
async def test_case_83_rewind(route: str) -> None:
    async with talking(route) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.session.rewind(1)
        # The one request that can come before the next header.
        await talk.session.compact()
        assert declared(talk.bodies[-1]) == ["a", "b"]
        assert [role for role, _ in told(talk.bodies[-1])] == ["user", "assistant", "user"]
        loaded = SessionLog.load("s1", await talk.stored())
        assert loaded.events == talk.session.log.events


async def test_case_84_fork() -> None:
    async with talking(BY_REFERENCE) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.say("three", "a")
        before = list(talk.session.log.events)
        async with talk.session.fork("s2") as child:
            assert list(child.log.events[: len(before)]) == before
            branch = talk.beside(child)
            events = await branch.say("four", "a b")
            messages = [event.data for event in of(events, DeveloperMessage)]
            assert [blocks(m) for m in messages if isinstance(m, DeveloperMessage)] == ["+b"]
            assert declared(talk.bodies[-1]) == ["a", "b*"]
            assert told(talk.bodies[-1])[-1] == ("system", "+b")
        assert list(talk.session.log.events) == before
        await talk.say("five")
        assert told(talk.bodies[-1])[-3] == ("system", "-b")
