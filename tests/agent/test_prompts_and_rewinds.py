"""Prompts that come and go, tails that say nothing, and what a rewind takes with it."""

from __future__ import annotations

import pytest
from tests.agent.stage import CHAT, CLAUDE, DEEPSEEK, LONG, body, breaks, server, stage, texts

from addendum.agent.setup import Settings
from addendum.errors import AddendumError, ConfigurationError
from addendum.log.events import SystemMessage, UserMessage

pytestmark = pytest.mark.anyio


async def test_a_prompt_that_comes_later_without_a_head_stands_once() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, instructions="")) as session:
            await session.run("one " + "x" * 6_000)
            session.instructions = "Now be brief."
            for text in ("two", "three", "four"):
                await session.run(text)
            for sent in session.sent:
                assert "system" not in body(sent)
            for sent in session.sent[1:]:
                assert texts(sent).count(("system", "Now be brief.")) == 1
            assert breaks(session) == []
        report = here.judged(CLAUDE)
        assert report.totals.misses == 0
        assert report.requests[-1].cache_read


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_rewind_cuts_the_turns_asked_for_though_prompts_were_emptied(turns: int) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            session.instructions = "B"
            await session.run("two")
            session.start_series()
            session.instructions = "C"
            await session.run("three")
            await session.rewind(turns)
            nodes = [node.data for node in session.log.surface.nodes]
            left = [data.text for data in nodes if isinstance(data, UserMessage)]
            assert left == ["one", "two", "three"][: 3 - turns]
            # The head stays; a prompt that a cut turn appended does not.
            assert isinstance(nodes[0], SystemMessage)
            with pytest.raises(ConfigurationError, match="cannot rewind 4 turns"):
                await session.rewind(4)
            await session.run("on")
            said = [text for role, text in texts(session.sent[-1]) if role == "user"]
            assert said == [*left, "on"]
            assert body(session.sent[-1])["system"][0]["text"] == "C"
        assert here.refused() == []


@pytest.mark.parametrize("route", [CLAUDE, CLAUDE + "+by-reference", CHAT, DEEPSEEK])
async def test_a_compaction_that_fails_behind_a_rewind_changes_nothing(route: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, mcp_servers=[server()])) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            await session.rewind()
            here.lab.fail_next(route.split(":")[0], status=400)
            with pytest.raises(AddendumError):
                await session.compact()
            await session.run("three")
            header = session.log.header
            assert header is not None
            assert header.new_series
            assert b"github__t0" in session.sent[-1].body
            await session.run("four")
            assert {reason for reason, _ in breaks(session)} == {"rewind"}
        assert here.refused() == ["the lab was asked to fail with 400"]
        assert here.judged(route.split("+")[0]).totals.undeclared_misses == 0


async def test_settings_are_no_change_of_tools_for_the_prompt() -> None:
    route = "openai-chat:gpt-5.6"
    async with stage() as here:
        agent = here.agent(route, tool_changes="rebind")
        async with here.open(agent) as session:
            await session.run("one " + "x" * 8_000)
            agent.setup.settings = Settings(effort="low")
            session.instructions = "B " * 1_000
            await session.run("two")
            assert breaks(session) == [("settings changed", "settings")]
            # Where the tools stay, a new prompt is appended as everywhere.
            roles = [message["role"] for message in body(session.sent[-1])["messages"]]
            assert roles == ["system", "user", "assistant", "user", "system"]
            assert LONG in str(body(session.sent[-1])["messages"][0])


@pytest.mark.parametrize("tail", ["", " \n", None])
@pytest.mark.parametrize("route", [CLAUDE, "anthropic:claude-sonnet-4-6", CHAT])
async def test_an_empty_tail_is_none(route: str, tail: str | None) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, turn_instructions=tail)) as session:
            await session.run("one")
            await session.run("two")
            assert b"turn_instructions>" not in session.sent[-1].body.replace(b"<_", b"")
            assert b"clear_at" not in session.sent[-1].body
        assert here.refused() == []
