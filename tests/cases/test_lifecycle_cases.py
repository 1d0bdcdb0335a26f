"""Cases 78, 80 to 84 and 96: retries, compaction, rewind, forks, and long random lives."""

from __future__ import annotations

import json
from random import Random

import pytest
from tests.cases.helpers import (
    ADDITION_ONLY,
    BY_REFERENCE,
    BY_VALUE,
    CHAT,
    DEEPSEEK,
    PLAIN,
    Talk,
    blocks,
    declared,
    function,
    of,
    part,
    talking,
    told,
    tools,
)
from tests.cases.judge import OURS, of_schema, replayed, seen

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


@pytest.mark.parametrize(
    ("route", "changes"), [(BY_VALUE, "auto"), (PLAIN, "dispatch"), (CHAT, "dispatch")]
)
async def test_told_again_after_a_compaction(route: str, changes: str) -> None:
    """Where the head stays, the tools of a new series are told behind its first user message."""
    async with talking(route, "a b", tool_changes=changes) as talk:
        await talk.say("one")
        await talk.say("two", "a c")
        await talk.say("three", "a c'")
        await talk.session.compact("what was said")
        await talk.say("four")
        assert seen(talk.bodies[-1]).offered == {t.name: of_schema(t) for t in tools("a c'")}
        assert len({part(body, "tools") for body in talk.raw}) == 1


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


LIVES: dict[str, tuple[str, dict[str, str]]] = {
    "by-value": (BY_VALUE, {}),
    "by-reference": (BY_REFERENCE, {}),
    "addition-only": (ADDITION_ONLY, {}),
    "deepseek": (DEEPSEEK, {}),
    "dispatch": (PLAIN, {"tool_changes": "dispatch"}),
    "dispatch on chat": (CHAT, {"tool_changes": "dispatch"}),
    "rebind": (PLAIN, {"tool_changes": "rebind"}),
}


class Life:
    """A session whose tools, history and surface change at random."""

    def __init__(self, talk: Talk, seed: int) -> None:
        self.talk = talk
        self.random = Random(seed)
        self.versions: dict[str, int] = {}
        self.turns = 0

    def word(self, name: str) -> str:
        flag = "*" if name in "gh" else ""
        return name + "'" * (self.versions.get(name, 0) % 4) + flag

    async def step(self) -> None:
        """Change one thing at random; about every fourth step changes a second one."""
        session, chance = self.talk.session, self.random
        active = [tool.name for tool in session.registry.snapshot().active]
        active = [name for name in active if name in "abcdefgh"]
        absent = [name for name in "abcdefgh" if name not in active]
        kind = chance.choices(
            ["add", "remove", "redefine", "compact", "rewind", "series", "nothing"],
            [30, 25, 20, 4, 8, 2, 11],
        )[0]
        if kind == "add" and absent:
            await session.tools.add(function(self.word(chance.choice(absent))))
        elif kind == "remove" and active:
            await session.tools.remove(chance.choice(active))
        elif kind == "redefine":
            name = chance.choice("abcdefgh")
            self.versions[name] = self.versions.get(name, 0) + 1
            if name in active:
                await session.tools.add(function(self.word(name)))
        elif kind == "compact" and self.turns > 2:
            await session.compact()
        elif kind == "rewind" and self.turns > 2:
            live = sum(isinstance(n.data, UserMessage) for n in session.log.surface.nodes)
            if live:
                await session.rewind(chance.randint(1, min(live, 3)))
        elif kind == "series":
            session.start_series()
        if chance.random() < 0.25:
            await self.step()

    async def say(self) -> None:
        """Run a turn, and judge its request by what arrived."""
        self.turns += 1
        await self.talk.session.run(f"question {self.turns}")
        told = seen(json.loads(self.talk.lab.captures[-1].body))
        header = self.talk.session.log.header
        assert header is not None
        active = {tool.name: of_schema(tool) for tool in header.header.tools}
        due = {t.name for t in header.header.tools if not t.defer_loading} - OURS
        assert told.undeclared == []
        assert due <= told.offered.keys() <= active.keys()
        assert all(active[name] == text for name, text in told.offered.items())


@pytest.mark.parametrize("seed", [1, 6, 19])
@pytest.mark.parametrize("mode", LIVES)
async def test_case_96_random_lives(mode: str, seed: int) -> None:
    route, options = LIVES[mode]
    async with talking(route, "a b g*", **options) as talk:
        life = Life(talk, seed)
        for _ in range(100):
            await life.step()
            await life.say()
        log = SessionLog.load("s1", await talk.stored())
        sent = [capture.body for capture in talk.lab.captures]
        assert {capture.status for capture in talk.lab.captures} == {200}
        assert len(sent) >= 100
        assert replayed(log.events, talk.session.route) == sent
