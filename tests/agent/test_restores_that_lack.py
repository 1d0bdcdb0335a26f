"""What a restore may find gone or strange: tools, servers, routes, time, part of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    Stage,
    breaks,
    fn,
    names,
    results,
    server,
    stage,
    storing,
)
from tests.cli.commands import call, told

from addendum.agent.replay import replay
from addendum.errors import (
    AppendRefused,
    ConfigurationError,
    LogError,
    UnknownEvent,
    UnknownRoute,
)
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.session_log import SessionLog
from addendum.stores import open_store

pytestmark = pytest.mark.anyio


async def moved(here: Stage, stored: list[bytes], name: str) -> None:
    lease = await here.store.acquire(name)
    await here.store.append(lease, 0, stored)
    await here.store.release(lease)


@pytest.mark.parametrize("route", [CLAUDE, CHAT])
async def test_a_server_and_a_tool_that_are_gone_are_told_and_refused(route: str) -> None:
    calls = (ScriptCall("github__t0", {"q": "x"}), ScriptCall("late", {}))
    script = Script(
        (
            ScriptStep("one", (Entry(text="1"),)),
            ScriptStep("two", (Entry(calls=calls), Entry(text="2"))),
            ScriptStep("three", (Entry(calls=calls), Entry(text="3"))),
        )
    )
    async with stage(script) as here:
        async with here.open(here.agent(route, mcp_servers=[server()])) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.tools.add(fn("late"))
            await session.run("two")
        async with here.open(here.agent(route, tool_dispatch=True)) as session:
            await session.run("three")
            last = results(session)[-2:]
            assert [each.is_error for each in last] == [True, True]
            # The head, and all that was said, is as it was.
            assert names(session.sent[0]) == names(here.sent[0])
            assert breaks(session) == []
        assert here.refused() == []
        assert here.judged(route).totals.undeclared_misses == 0


async def test_a_route_that_is_gone_is_gone_on_from_with_another() -> None:
    def renamed(event: dict[str, Any]) -> None:
        if "route" in event:
            event["route"] = "nobody:model"

    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
        await moved(here, storing(await here.store.read("s"), renamed), "t")
        async with here.open(here.agent(CLAUDE), "t") as session:
            await session.run("two")
            assert breaks(session) == [("route changed", "messages")]
            assert "one" in session.sent[-1].body.decode()
            with pytest.raises(UnknownRoute, match="nobody"):
                list(replay(session.log))
        assert here.refused() == []


def test_the_commands_tell_a_session_of_a_route_that_is_gone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"

    def renamed(event: dict[str, Any]) -> None:
        if "route" in event:
            event["route"] = "nobody:model"

    async def make() -> None:
        store = await open_store(url)
        async with stage() as here:
            async with here.agent(CLAUDE).open("s", store=here.store) as session:
                await session.run("one")
            lease = await store.acquire("gone")
            await store.append(lease, 0, storing(await here.store.read("s"), renamed))
            await store.release(lease)
        await store.aclose()

    anyio.run(make)
    (request,) = told("show", "gone", "--store", url)["requests"]
    assert request["answered"] and request["prompt_tokens"]
    assert (request["cost"], request["saved"], request["dead_weight"]) == (None, None, None)
    assert "cost -; saved against no cache -" in call("show", "gone", "--store", url).stdout
    (row,) = told("sessions", "--store", url)["sessions"]
    assert row["totals"]["cost"] is None and row["totals"]["prompt_tokens"]


async def test_a_clock_that_goes_back_changes_no_prefix() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, ttl="auto", mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            agent.setup.clock = lambda: here.clock.now() - 100_000
        async with here.open(agent) as session:
            await session.run("three")
            assert breaks(session) == []
            assert session.sent[0].body.startswith(here.sent[1].body[:2_000])
            agent.setup.clock = here.clock.now
        async with here.open(agent) as session:
            await session.run("four")
            assert {reason for reason, _ in breaks(session)} <= {"lifetime passed"}
        assert here.refused() == []
        log = SessionLog.load("s", await here.store.read("s"))
        assert [each.record.body for each in replay(log)] == [sent.body for sent in here.sent]


async def stored() -> list[bytes]:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("/call web {}")
        return await here.store.read("s")


def changed(raw: bytes, **fields: Any) -> bytes:
    event = json.loads(raw)
    event["data"] |= fields
    return json.dumps(event, separators=(",", ":")).encode()


async def test_a_log_that_was_cut_anywhere_is_a_log() -> None:
    whole = await stored()
    for end in range(1, len(whole)):
        async with stage() as here:
            await moved(here, whole[:end], "s")
            async with here.open(here.agent(CLAUDE)) as session:
                assert session.log.turn is None
                await session.run("and now?")
            assert here.refused() == []


async def test_a_log_that_was_damaged_or_edited_is_refused_with_the_place() -> None:
    whole = await stored()
    results_at = next(at for at, raw in enumerate(whole) if b'"tool/result"' in raw)
    strange: list[tuple[list[bytes], type[LogError], str]] = [
        ([*whole[:3], *whole[4:]], LogError, "event 3 is missing"),
        ([*whole[:3], whole[3][:-9], *whole[4:]], LogError, "'s': event 3 is damaged .*no event"),
        ([changed(whole[0], format=9)], LogError, "format 9"),
        ([*whole[:3], changed(whole[3], type="some/thing")], UnknownEvent, "some/thing"),
        ([*whole[:3], changed(whole[3], more=1)], UnknownEvent, "'more'"),
        (
            [*whole[:results_at], changed(whole[results_at], call_id="other")],
            AppendRefused,
            f"'s': event {results_at} is damaged .*no call 'other' waits.*; restore the store",
        ),
    ]
    for events, kind, says in strange:
        with pytest.raises(kind, match=says):
            SessionLog.load("s", events)


async def test_a_fork_takes_the_place_of_no_session() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE), "taken") as session:
            await session.run("one")
        before = await here.store.read("taken")
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            for name, says in (("taken", "there is a session 'taken' already"), ("", "session id")):
                with pytest.raises(ConfigurationError, match=says):
                    async with session.fork(name):
                        pass
            await session.run("two")
        assert await here.store.read("taken") == before
