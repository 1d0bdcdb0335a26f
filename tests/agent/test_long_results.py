"""Long results: shortened once, when they are first sent, and whole in the log; empty ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from tests.agent.stage import CHAT, CLAUDE, DEEPSEEK, results, stage
from tests.agent.trouble import WIRES

from addendum import Limits
from addendum.agent.replay import replay
from addendum.errors import ConfigurationError
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.prompt.long_results import shown, tier
from addendum.tools.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio

LONG = "".join(f"line {number} of what it gave\n" for number in range(4_000))


def reader() -> FunctionTool[..., Any]:
    async def run(arguments: dict[str, Any]) -> str:
        return LONG

    return FunctionTool.from_schema(
        ToolSchema("read", "Reads.", Raw(b'{"type":"object","properties":{}}')), run
    )


@pytest.mark.parametrize("route", [CLAUDE, CHAT, DEEPSEEK])
async def test_case_t73_a_long_result_is_shortened_once_and_for_ever(route: str) -> None:
    async with stage() as here:
        small = here.agent(route, tools=[reader()], limits=Limits(shown_bytes=2_000))
        async with here.open(small) as session:
            await session.run("/call read {}")
            for number in range(3):
                await session.run(f"more {number} " + "x" * 5_000)
        # Another limit is for results that come, not for those that were sent.
        large = here.agent(route, tools=[reader()], limits=Limits(shown_bytes=9_000))
        async with here.open(large) as session:
            await session.run("still there")
            (result,) = results(session)
            assert (result.text, result.shown) == (LONG, 2_000)
            assert session.result(result.call_id) == LONG
            with pytest.raises(ConfigurationError, match="has a result"):
                session.result("another")
        bodies = [sent.body.decode() for sent in here.sent[1:]]
        assert all("left out here: " in body for body in bodies)
        assert all("line 2000 of" not in body for body in bodies)
        assert all("line 0 of" in body and "line 3999 of" in body for body in bodies)
        log = SessionLog.load("s", await here.store.read("s"))
        assert [each.record.body for each in replay(log)] == [sent.body for sent in here.sent]
        assert here.judged(route).totals.undeclared_misses == 0


@pytest.mark.parametrize("sign", ["x", "é", "\U0001f600"])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 1_000])
def test_what_is_shown_is_bounded_and_whole_characters(sign: str, limit: int) -> None:
    text = sign * 2_000
    assert tier(text, limit) == limit
    told = shown(text, limit)
    assert "\ufffd" not in told
    assert limit - 6 <= len(told.replace("\n", "").encode()) - _note(told) <= limit
    assert f"of {len(text.encode()):,} bytes" in told


def _note(told: str) -> int:
    return len(told[told.index("[left") : told.index("]") + 1])


@pytest.mark.parametrize(("length", "fits"), [(0, True), (100, True), (300, True), (301, False)])
def test_a_result_that_the_note_would_not_shorten_is_left_alone(length: int, fits: bool) -> None:
    assert (tier("x" * length, 100) is None) is fits
    assert shown("x" * length, None) == "x" * length


@pytest.mark.parametrize("route", [*WIRES, "openrouter:anthropic/claude-opus-5.5"])
@pytest.mark.parametrize("said", ["", " \n"], ids=["nothing", "blanks"])
async def test_a_result_that_says_nothing_is_taken_and_marked(route: str, said: str) -> None:
    async def quiet() -> str:
        """Say nothing."""
        return said

    async with stage() as here:
        async with here.open(here.agent(route, tools=[tool(quiet)])) as session:
            for _ in range(2):
                await session.run("/call quiet {}")
        assert here.refused() == []
        report = here.judged(route)
        assert not report.totals.undeclared_misses
