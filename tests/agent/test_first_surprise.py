"""The first tools of an agent that was configured for none, and all that come and go later."""

from __future__ import annotations

import pytest
from tests.agent.stage import CHAT, CLAUDE, breaks, fn, stage

pytestmark = pytest.mark.anyio

NATIVE = (
    CLAUDE,
    f"{CLAUDE}+by-reference",
    "anthropic:claude-opus-4-8",
    "openai:gpt-6.1-sol",
    "moonshot:kimi-k3",
)


@pytest.mark.parametrize("route", [*NATIVE, CHAT, "gemini:gemini-4-argon"])
async def test_only_the_first_tool_of_all_costs_a_break(route: str) -> None:
    """Also if all of them leave in between: those that left stand in front of the prompt still."""
    async with stage() as here:
        async with here.open(here.agent(route, tools=[])) as session:
            for text in ("one", "two"):
                await session.run(text)
            assert breaks(session) == []
            await session.tools.add(fn("first"))
            await session.run("three")
            ((reason, _),) = breaks(session)
            assert reason == "head changed"
            await session.tools.remove("first")
            await session.run("four")
        async with here.open(here.agent(route, tools=[])) as session:
            for add, remove in (("first", ""), ("second", "first"), ("", "second"), ("first", "")):
                if add:
                    await session.tools.add(fn(add))
                if remove:
                    await session.tools.remove(remove)
                await session.run(f"{add}, not {remove}")
            assert len(breaks(session)) == 1
        assert here.refused() == []
        totals = here.judged(route).totals
        assert totals.undeclared_misses == 0 and totals.misses <= 1


@pytest.mark.parametrize("route", [*NATIVE, CHAT, "gemini:gemini-4-argon"])
async def test_whoever_says_that_tools_will_change_pays_nothing(route: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, tools=[], tool_dispatch=True)) as session:
            await session.run("one")
            await session.tools.add(fn("first"))
            await session.run("two")
            await session.tools.remove("first")
            await session.run("three")
            assert breaks(session) == []
        assert here.judged(route).totals.misses == 0
