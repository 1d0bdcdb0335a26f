"""Tools that are refused, redefined and restored in a session that is under way; and forks."""

from __future__ import annotations

import pytest
from tests.agent.stage import CHAT, CLAUDE, breaks, data, fn, names, results, stage, texts

from addendum import encoding
from addendum.agent.agent import ToolDispatch
from addendum.log.events import RequestHeader
from addendum.log.values import ToolSchema

pytestmark = pytest.mark.anyio


async def test_a_tool_that_the_agent_disables_later_is_refused_in_an_existing_session() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
        async with here.open(here.agent(CLAUDE, disabled=["web"])) as session:
            await session.run('/call web {"q0":"x"}')
            assert [(each.name, each.code) for each in results(session)] == [("web", "E5")]
            assert breaks(session) == []
            assert session.log.disabled == ("web",)
        assert here.judged(CLAUDE).totals.misses == 0


async def test_a_bound_tool_that_is_what_it_was_again_is_announced_as_restored() -> None:
    async with stage() as here:
        async with here.open(here.agent(CHAT, tool_dispatch=True)) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.run("two")
            await session.tools.add(fn("web", 0))
            await session.run("three")
            said = [text for _, text in texts(session.sent[-1]) if text.startswith("<tool_update>")]
            assert said[0].startswith('<tool_update>{"changed":[')
            assert said[1:] == ['<tool_update>{"restored":["web"]}</tool_update>']
            await session.run('/call web {"q0":"x"}')
            await session.run('/call call_tool {"name":"web","arguments":{"q0":"x"}}')
            assert [each.code for each in results(session)] == [None, "E6"]
            assert results(session)[0].text == "web v0 result"
        assert here.judged(CHAT).totals.misses == 0


async def test_search_shows_what_the_dispatcher_reaches_and_nothing_else() -> None:
    def allowed(name: str, schema: ToolSchema) -> bool:
        return name != "secret"

    async with stage() as here:
        agent = here.agent(
            CHAT,
            tools=[fn("web"), fn("secret", deferred=True), fn("rare", deferred=True)],
            tool_dispatch=ToolDispatch(can_dispatch=allowed),
        )
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.tools.refuse("rare")
            await session.run("two")
            found = encoding.decode(session.search('{"query":"tool"}'))
            assert [tool["name"] for tool in found["tools"]] == ["web"]
            for name, code in (("secret", "E7"), ("rare", "E5"), ("web", None)):
                await session.run(f'/call call_tool {{"name":"{name}","arguments":{{}}}}')
                assert results(session)[-1].code == code
            assert results(session)[-1].text == "web v1 result"


@pytest.mark.parametrize("route", [CHAT, CLAUDE])
async def test_a_function_replaced_by_hand_is_the_agents_own_when_reopened(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, tool_dispatch=True)
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.run("two")
        async with here.open(agent) as session:
            await session.run('/call web {"q0":"x"}')
            assert results(session)[-1].text == "web v0 result"
            headers = [each.header for each in data(session) if isinstance(each, RequestHeader)]
            assert ["version 1" in header.tools[0].description for header in headers] == [
                False,
                True,
                False,
            ]
            assert breaks(session) == []
        assert here.judged(route).totals.misses == 0


async def test_a_fork_carries_texts_and_tools_that_were_added_by_hand() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, conversation_instructions="A", turn_instructions="T")
        async with here.open(agent) as session:
            session.instructions = "Mine. " * 300
            session.conversation_instructions = "B. " * 50
            session.turn_instructions = None
            await session.run("one")
            await session.tools.add(fn("mine"))
            await session.run("two")
            async with session.fork("child") as child:
                await child.run("/call mine {}")
                assert breaks(child) == []
                assert [each.text for each in results(child)] == ["mine v0 result"]
                assert child.sent[0].body.startswith(session.sent[-1].body[:2_000])
                assert child.sent[0].usage.cache_read
                assert names(child.sent[0]) == names(session.sent[-1])
                assert child.turn_instructions is None
            # The parent goes its own way.
            await session.run("three")
            assert breaks(session) == []
            assert results(session) == []
