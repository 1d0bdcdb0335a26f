"""Saying a message otherwise or again, going back, and stopping: each stands in the log."""

from __future__ import annotations

import asyncio
import sys

import anyio
import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    DEEPSEEK,
    breaks,
    data,
    fn,
    names,
    server,
    stage,
    texts,
)
from tests.agent.trouble import QUICK

from addendum.agent.context.window import Compaction
from addendum.agent.replay import replay
from addendum.agent.results import TurnDone
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.errors import AddendumError, ConfigurationError
from addendum.log.events import EndSeed, Rewind, TurnEnd, TurnStart, UserMessage
from addendum.log.session_log import SessionLog
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

RESPONSES = "openai:gpt-6.1-sol"


def said(session: Session) -> list[str]:
    """What the person said, as the last request has it."""
    return [text for role, text in texts(session.sent[-1]) if role == "user"]


def rewinds(session: Session) -> list[tuple[int, str]]:
    return [(each.to_turn, each.reason) for each in data(session) if isinstance(each, Rewind)]


@pytest.mark.parametrize("route", [CLAUDE, CHAT, DEEPSEEK, RESPONSES])
async def test_an_edited_message_replaces_its_turn_and_all_behind_it(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            await session.run("three")
            result = await session.edit(2, "two, but better")
            assert result.turn == 4
            assert rewinds(session) == [(2, "edit")]
            body = session.sent[-1].body.decode()
            assert "two, but better" in body and '"three"' not in body
            assert [reason for reason, _ in breaks(session)] == ["rewind"]
            # What was switched on stays on.
            assert "github__t0" in body
            await session.run("five")
        async with here.open(agent) as session:
            await session.run("six")
        assert here.refused() == []
        assert here.judged(route).totals.undeclared_misses == 0
        log = SessionLog.load("s", await here.store.read("s"))
        assert [each.record.body for each in replay(log)] == [sent.body for sent in here.sent]


async def test_a_turn_is_asked_again_however_it_ended() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            first = await session.run("two")
            again = await session.retry()
            assert (first.turn, again.turn) == (2, 3)
            assert said(session) == ["one", "two"]
            here.lab.fail_next("anthropic", status=500)
            with pytest.raises(AddendumError):
                await session.run("three")
            assert (await session.retry()).text
            assert said(session) == ["one", "two", "three"]
            assert rewinds(session) == [(2, "retry"), (4, "retry")]
            kept = [each.text for each in data(session) if isinstance(each, UserMessage)]
            assert kept == ["one", "two", "two", "three", "three"]
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_a_stopped_turn_can_be_asked_again() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            here.lab.stall_next("anthropic", after_events=3)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "two")
                await here.lab.until_stalled()
                tasks.cancel_scope.cancel()
            here.lab.release()
            reasons = [each.reason for each in data(session) if isinstance(each, TurnEnd)]
            assert reasons == ["done", "interrupted"]
            assert (await session.retry()).text
            assert said(session) == ["one", "two"]


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
async def test_a_message_that_waited_for_a_server_is_kept_when_it_is_stopped(first: bool) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    silent = ServerSpec(name="silent", command=command)
    async with stage() as here:
        here.pool = ServerPool(timings=QUICK)
        agent = here.agent(CLAUDE, mcp_servers=[silent], limits=Limits(server_wait=60))
        async with here.open(agent) as session:
            if not first:
                await session.run("one")
            await session.tools.enable("silent")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "two")
                connection = await here.pool.acquire(silent)
                await connection.until(lambda state: state.status == "starting", 5)
                await here.pool.release(connection)
                tasks.cancel_scope.cancel()
            sent = len(session.sent)
            await session.tools.disable("silent")
            # Not the message in front of it.
            assert (await session.retry()).text
            assert said(session) == (["two"] if first else ["one", "two"])
            assert len(session.sent) == sent + 1
            await session.run("three")
        async with here.open(agent) as session:
            await session.run("four")
        assert here.refused() == []
        assert here.judged(CLAUDE).totals.undeclared_misses == 0
        log = SessionLog.load("s", await here.store.read("s"))
        assert [each.record.body for each in replay(log)] == [sent.body for sent in here.sent]


async def test_a_message_that_waited_for_a_summary_is_kept_when_it_is_stopped() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, compaction=Compaction(window=1_000, keep_turns=0))
        async with here.open(agent) as session:
            await session.run("one")
            here.lab.stall_next("anthropic", after_events=0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "two")
                await here.lab.until_stalled()
                tasks.cancel_scope.cancel()
            here.lab.release()
            assert [each.purpose for each in session.sent] == ["turn", "compaction"]
            assert (await session.retry()).text
            assert said(session)[-1] == "two"
        assert here.refused() == []


@pytest.mark.parametrize("text", ["", "  "])
async def test_what_cannot_be_said_cuts_nothing(text: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            with pytest.raises(
                ConfigurationError, match="no message to ask again: nothing was said"
            ):
                await session.retry()
            with pytest.raises(
                ConfigurationError, match="cannot rewind 1 turn; the model sees none"
            ):
                await session.rewind()
            await session.run("one")
            await session.run("two")
            await session.rewind()
            before = len(session.log)
            with pytest.raises(ConfigurationError):
                await session.edit(1, text)
            for turn in (0, 2, 7):
                with pytest.raises(ConfigurationError, match=f"turn {turn} is not .*: 1"):
                    await session.edit(turn, "else")
            assert len(session.log) == before


async def test_a_turn_in_a_summary_can_no_longer_be_edited() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            await session.compact("In short.")
            with pytest.raises(ConfigurationError, match="these are: none"):
                await session.edit(1, "else")
            await session.run("two")
            await session.edit(2, "else")
            assert "In short." in said(session)[0] and said(session)[1] == "else"


async def test_nothing_is_edited_while_a_turn_runs() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            here.lab.stall_next("anthropic", after_events=3)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "two")
                await here.lab.until_stalled()
                with pytest.raises(ConfigurationError, match="a turn is running"):
                    await session.edit(1, "else")
                here.lab.release()
            assert rewinds(session) == []


async def test_a_fork_goes_back_on_its_own() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run("one")
            await session.run("two")
            async with session.fork("child") as child:
                await child.tools.add(fn("more"))
                await child.edit(2, "two, differently")
                assert rewinds(child) == [(2, "edit")]
                assert names(child.sent[-1]) == names(session.sent[-1])
            assert rewinds(session) == []
            await session.run("three")
            assert said(session) == ["one", "two", "three"]


@pytest.mark.parametrize("route", [CLAUDE, f"{CLAUDE}+by-reference", CHAT, DEEPSEEK])
async def test_a_fork_goes_on_from_any_turn_whatever_became_of_it(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, mcp_servers=[server()])
        async with here.open(agent) as session:
            for text in ("one", "two"):
                await session.run(text)
            await session.tools.enable("github")
            for text in ("three", "four"):
                await session.run(text)
            await session.compact("In short.", keep_turns=1)
            await session.rewind()
            for turn, switched in ((1, False), (2, True), (3, True), (4, True)):
                async with session.fork(f"child {turn}", turn=turn) as child:
                    live = [each.data for each in child.log.surface.nodes]
                    texts = [each.text for each in live if isinstance(each, UserMessage)]
                    assert texts == ["one", "two", "three", "four"][:turn]
                    assert child.tools.on("github") == switched
                    await child.run("and now?")
                    # It reads what its parent has sent, and nothing breaks for it.
                    assert breaks(child) == []
                    assert child.sent[0].usage.cache_read
                    assert (b"github__t0" in child.sent[0].body) == switched
                own = await here.store.read("s")
                events = await here.store.read(f"child {turn}")
                ended = [isinstance(each.data, EndSeed) for each in child.log.events].index(True)
                assert events[:ended] == own[:ended]
            for turn in (0, 5):
                with pytest.raises(ConfigurationError, match=f"no turn {turn}; the newest is 4"):
                    async with session.fork(turn=turn):
                        pass
        assert here.refused() == []


@pytest.mark.parametrize(("text", "reason"), [("else", "edit"), (None, "retry")])
async def test_a_turn_that_is_said_again_gives_its_events(text: str | None, reason: str) -> None:
    async with stage() as here, here.open(here.agent(CLAUDE)) as session:
        await session.run("one")
        await session.run("two")
        events = [event async for event in session.stream_again(1, text)]
        assert isinstance(events[-1], TurnDone) and events[-1].result.turn == 3
        assert rewinds(session) == [(1, reason)]
        assert said(session) == [text or "one"]
        with pytest.raises(ConfigurationError, match="turn 2 is not in the conversation"):
            await anext(session.stream_again(2, text))


async def test_a_message_that_is_lost_is_not_taken_for_the_one_in_front_of_it() -> None:
    async with stage() as here, here.open(here.agent(CLAUDE)) as session:
        await session.run("one")
        # What a process leaves that dies while it waits for a server.
        session.log.append(TurnStart(2))
        session.log.close_open()
        with pytest.raises(ConfigurationError, match="was lost"):
            await session.retry()
        await session.rewind()
        await session.run("two")
        assert (await session.retry()).turn == 4


async def test_a_turn_that_went_in_the_meantime_is_not_said_again() -> None:
    async with stage() as here, here.open(here.agent(CLAUDE)) as session:
        for text in ("one", "two", "three"):
            await session.run(text)
        again = session.stream_again(3, "else")
        found, _ = await asyncio.gather(anext(again), session.rewind(2), return_exceptions=True)
        assert isinstance(found, ConfigurationError) and "these are: 1" in str(found)
        assert rewinds(session) == [(2, "rewind")]
