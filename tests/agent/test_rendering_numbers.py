"""D15: an upgrade never breaks a live prefix. Two releases take turns on one session.

The later release is made for the test: it ends what a person writes with a sign of its own in
epochs of its number 2, and knows number 1 as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from tests.agent.stage import CHAT, CLAUDE, Stage, breaks, data, server, stage

from addendum.agent import replay
from addendum.agent.context import epochs, sent
from addendum.log.events import RequestContext
from addendum.log.session_log import SessionLog
from addendum.prompt.blocks import Block, Text
from addendum.prompt.rounds import Rounds

pytestmark = pytest.mark.anyio

SIGN = " (rendered by 2)"
RESPONSES = "openai:gpt-6.1-sol"
ROUTES = [CLAUDE, CLAUDE + "+by-reference", CHAT, RESPONSES]

Release = Callable[[int], None]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Make this process the release with a newest number."""
    say = Rounds.say

    def said(self: Rounds, *arguments: Any) -> list[Block]:
        blocks = say(self, *arguments)
        if self._context.rendering != 2:
            return blocks
        return [
            structs.replace(block, text=block.text + SIGN)
            if isinstance(block, Text) and block.purpose == "human"
            else block
            for block in blocks
        ]

    monkeypatch.setattr(Rounds, "say", said)

    def choose(newest: int) -> None:
        known = frozenset(range(1, newest + 1))
        monkeypatch.setattr(epochs, "RENDERING", newest)
        monkeypatch.setattr(sent, "KNOWN_RENDERINGS", known)
        monkeypatch.setattr(replay, "KNOWN_RENDERINGS", known)

    return choose


async def talk(here: Stage, route: str, *texts: str) -> list[tuple[str, str]]:
    """Open the session, say these, and return all breaks so far."""
    agent = here.agent(route, mcp_servers=[server()])
    async with here.open(agent) as session:
        for text in texts:
            if text == "switch":
                await session.tools.enable("github")
            else:
                await session.run(text)
        return breaks(session)


async def renderings(here: Stage) -> list[int]:
    log = SessionLog.load("s", await here.store.read("s"))
    return [each.data.rendering for each in log.events if isinstance(each.data, RequestContext)]


@pytest.mark.parametrize("route", ROUTES)
async def test_d15_a_later_release_continues_what_an_earlier_began(
    route: str, release: Release
) -> None:
    async with stage() as here:
        for newest, texts in ((1, ["one", "switch", "two"]), (2, ["three"]), (1, ["four"])):
            release(newest)
            assert await talk(here, route, *texts) == []
        release(2)
        assert await talk(here, route, "five") == []
        assert await renderings(here) == [1]
        assert all(SIGN.encode() not in sent.body for sent in here.sent)
        assert here.refused() == []
        assert here.judged(route.split("+")[0]).totals.undeclared_misses == 0
        log = SessionLog.load("s", await here.store.read("s"))
        assert [e.record.body for e in replay.replay(log)] == [s.body for s in here.sent]


@pytest.mark.parametrize("route", ROUTES)
async def test_d15_an_unknown_number_is_declared_once_however_often_they_alternate(
    route: str, release: Release
) -> None:
    async with stage() as here:
        release(2)
        assert await talk(here, route, "one", "switch", "two") == []
        once = [("rendering changed", "tools")]
        for newest, text in ((1, "three"), (2, "four"), (1, "five"), (2, "six")):
            release(newest)
            assert await talk(here, route, text) == once
        assert await renderings(here) == [2, 1]
        signed = [f'"one{SIGN}"'.encode() in sent.body for sent in here.sent]
        assert signed == [True, True, False, False, False, False]
        assert here.refused() == []
        assert here.judged(route.split("+")[0]).totals.undeclared_misses == 0
        log = SessionLog.load("s", await here.store.read("s"))
        assert [e.record.body for e in replay.replay(log)] == [s.body for s in here.sent]


async def test_a_new_session_has_the_newest_number(release: Release) -> None:
    async with stage() as here:
        release(2)
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            (context,) = [each for each in data(session) if isinstance(each, RequestContext)]
            assert context.rendering == 2
