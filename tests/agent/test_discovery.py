"""Deferred tools that a search finds: added in the history, called by name, bound nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    DEEPSEEK,
    Stage,
    body,
    breaks,
    data,
    fn,
    names,
    results,
    stage,
    texts,
)

from addendum.agent.calls.hooks import Hook, HookCall, Replace
from addendum.agent.session import Session
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import DeveloperMessage
from addendum.tools.registry import Outcome

pytestmark = pytest.mark.anyio

BY_REFERENCE = "anthropic:claude-opus-4-8+by-reference"
RESPONSES = "openai:gpt-6.1-sol"
NATIVE = (CLAUDE, BY_REFERENCE, DEEPSEEK, RESPONSES)
FIND = '/call tool_search {"query":"rare"}'


def _agent(here: Stage, route: str, **more: Any) -> Any:
    return here.agent(
        route, **{"tools": [fn("web"), fn("rare", deferred=True), fn("odd", deferred=True)]} | more
    )


def added(session: Session) -> list[tuple[str, ...]]:
    return [
        tuple(getattr(block, "tool_name", "") for block in each.content)
        for each in data(session)
        if isinstance(each, DeveloperMessage)
    ]


@pytest.mark.parametrize("route", NATIVE)
async def test_case_t53_what_a_search_finds_is_added_and_called_by_its_name(route: str) -> None:
    async with stage() as here:
        async with here.open(_agent(here, route, tool_changes="native")) as session:
            await session.run("one")
            assert b'"tool_search"' in session.sent[0].body
            await session.run(FIND)
            # Before: deferred where the route has a flag for it, else not told of at all.
            if route == RESPONSES:
                assert b"rare" not in session.sent[0].body
            else:
                tools = {tool["name"]: tool for tool in body(session.sent[0])["tools"]}
                assert all(tools[name]["defer_loading"] is True for name in ("rare", "odd"))
            assert added(session) == [("rare",)]
            await session.run('/call rare {"q0":"x"}')
            assert results(session)[-1].text == "rare v0 result"
            assert breaks(session) == []
            assert b"call_tool" not in session.sent[-1].body
        assert here.refused() == []
        assert here.judged(route).totals.misses == 0


@pytest.mark.parametrize("route", [*NATIVE, "moonshot:kimi-k3"])
async def test_a_tool_that_was_called_unseen_is_added_too(route: str) -> None:
    """The history names it from then on, and a model that knows it needs no search for it."""
    script = Script(
        (
            ScriptStep(
                "guess", (Entry(calls=(ScriptCall("rare", {}, "direct"),)), Entry(text="done"))
            ),
            ScriptStep("and?", (Entry(text="That was it."),)),
        )
    )
    async with stage(script) as here:
        async with here.open(_agent(here, route)) as session:
            await session.run("guess")
            assert results(session)[-1].text == "rare v0 result"
            assert added(session) == [("rare",)]
            await session.run("and?")
            assert added(session) == [("rare",)]
        assert here.refused() == []
        assert here.judged(route).totals.undeclared_misses == 0


@pytest.mark.parametrize("route", NATIVE)
async def test_what_was_found_stays_callable_over_compaction_rewind_and_restart(route: str) -> None:
    async with stage() as here:
        agent = _agent(here, route)
        async with here.open(agent) as session:
            await session.run(FIND)
            await session.compact("short")
            await session.run("/call rare {}")
            await session.rewind()
            await session.run("/call rare {}")
        async with here.open(agent) as session:
            await session.run("/call rare {}")
            assert [each.code for each in results(session)] == [None] * 4
            # Told once in each series, and never again inside one.
            assert added(session) == [("rare",)] * 3
        assert here.refused() == []
        here.judged(route)


async def test_case_t4_on_a_dispatch_route_what_was_found_is_bound_nowhere() -> None:
    async with stage() as here:
        async with here.open(_agent(here, CHAT, tool_dispatch=True)) as session:
            await session.run("one")
            await session.run(FIND)
            await session.run('/call call_tool {"name":"rare","arguments":{}}')
            tools = {json.dumps(body(sent)["tools"]) for sent in session.sent}
            assert len(tools) == 1
            assert names(session.sent[-1]) == ["web", "tool_search", "call_tool"]
            assert not any("<tool_update" in text for _, text in texts(session.sent[-1]))
            # The log says it, whatever the route can do: elsewhere the tool is called by its name.
            assert added(session) == [("rare",)]
        assert here.judged(CHAT).totals.misses == 0


async def test_what_a_hook_takes_out_of_an_answer_was_not_found() -> None:
    def without(call: HookCall, outcome: Outcome) -> Replace:
        return Replace(json.dumps({"found": 0, "tools": []}))

    async with stage() as here:
        agent = _agent(here, CLAUDE, hooks=[Hook("tool_search", after=without)])
        async with here.open(agent) as session:
            await session.run(FIND)
            await session.run("two")
            assert added(session) == []


@pytest.mark.parametrize("changes", ["auto", "rebind"])
async def test_search_is_bound_only_where_something_can_be_found(changes: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, tools=[fn("web")], tool_dispatch=True)) as session:
            await session.run("one")
            assert "tool_search" not in names(session.sent[-1])
        async with here.open(_agent(here, CLAUDE, tool_changes=changes), "other") as session:
            await session.run("one")
            assert ("tool_search" in names(session.sent[-1])) == (changes == "auto")
