"""Whoever stops a turn, and wherever it stands: the log is closed, and the next turn goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.trouble import ROUTES, WIRES, World, attempt, one_line, world

from addendum.agent.agent import Agent
from addendum.agent.results import TextPiece, TurnDone
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.errors import AddendumError, ConfigurationError, StoreError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantAttempt, ToolResult, TurnEnd
from addendum.stores import SqliteStore
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio


@dataclass
class Gate:
    """Tools that tell that they run, and never end by themselves."""

    running: anyio.Event = field(default_factory=anyio.Event)
    finished: anyio.Event = field(default_factory=anyio.Event)

    async def slow(self) -> None:
        """Never ends."""
        self.running.set()
        await anyio.sleep_forever()

    async def quick(self) -> str:
        """Ends at once."""
        self.finished.set()
        return "quick result"


Place = Callable[[World, Gate], Awaitable[None]]


async def in_the_stream(here: World, gate: Gate) -> None:
    await here.lab.until_stalled()


async def in_a_tool(here: World, gate: Gate) -> None:
    await gate.running.wait()
    await gate.finished.wait()


async def at_a_server(here: World, gate: Gate) -> None:
    connection = await here.pool.acquire(HANGS)
    await connection.until(lambda state: state.status == "starting", 5)
    await here.pool.release(connection)


HANGS = ServerSpec(name="s", command=(sys.executable, "-c", "import time; time.sleep(600)"))
PLACES: dict[str, Place] = {
    "in the stream": in_the_stream,
    "before the answer": in_the_stream,
    "in a tool": in_a_tool,
    "at a server": at_a_server,
}


async def by_scope(session: Session, text: str, there: Callable[[], Awaitable[None]]) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.run, text)
            await there()
            scope.cancel()
    assert scope.cancelled_caught


async def by_asyncio(session: Session, text: str, there: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(session.run(text))
    await there()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_leaving_the_loop(
    session: Session, text: str, there: Callable[[], Awaitable[None]]
) -> None:
    stream = session.stream(text)

    async def listen() -> None:
        async for _ in stream:
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await there()
        tasks.cancel_scope.cancel()
    await stream.aclose()


STOPS = [by_scope, by_asyncio, by_leaving_the_loop]


def cancelling(here: World, gate: Gate) -> Agent:
    return here.agent(
        tools=[gate.slow, gate.quick],
        mcp_servers=[HANGS],
        limits=Limits(tool_timeout=60.0, server_wait=60.0),
    )


@pytest.mark.parametrize("route", WIRES)
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.__name__)
@pytest.mark.parametrize("place", PLACES)
async def test_a_turn_that_is_stopped_leaves_a_session_that_goes_on(
    place: str, stop: Any, route: str, tmp_path: Path
) -> None:
    async with world(tmp_path, route) as here:
        gate = Gate()
        text = "please"
        calls = (ScriptCall("slow"), ScriptCall("quick"))
        async with cancelling(here, gate).open("s", store=here.url) as session:
            await session.run("first")
            if place == "at a server":
                await session.tools.enable("s")
            elif place == "in a tool":
                here.lab.script = Script((ScriptStep(text, (Entry(calls=calls),)),))
            else:
                here.lab.stall_next(here.provider, after_events=1 if "stream" in place else 0)
            await stop(session, text, lambda: PLACES[place](here, gate))
            here.lab.release()
            here.lab.script = None
            if place == "at a server":
                await session.tools.disable("s")
            # In the same process.
            assert (await session.run("next")).text == "I heard: 'next'"
        data = await here.data()
        ends = [each.reason for each in data if isinstance(each, TurnEnd)]
        assert ends == ["done", "interrupted", "done"]
        attempts = [each for each in data if isinstance(each, AssistantAttempt)]
        assert [each.code for each in attempts] == (
            ["CANCELLED"] if place in ("in the stream", "before the answer") else []
        )
        if place == "in a tool":
            # In the model's order, and what had ended is told as it ended.
            slow, quick = [each for each in data if isinstance(each, ToolResult)]
            assert (slow.name, slow.code) == ("slow", "TOOL_OUTCOME_UNKNOWN")
            assert (quick.name, quick.text, quick.code) == ("quick", "quick result", None)
        await here.usable()


async def test_the_text_that_had_arrived_is_kept(tmp_path: Path) -> None:
    async with world(tmp_path, ROUTES[2]) as here:
        async with here.agent().open("s", store=here.url) as session:
            here.lab.stall_next(here.provider, after_events=3)
            async for event in session.stream("hello"):
                if isinstance(event, TextPiece):
                    break
            # The generator is closed by hand here; a loop that is left is closed by the event loop.
            here.lab.release()
        (kept,) = [each for each in await here.data() if isinstance(each, AssistantAttempt)]
        assert kept.text
        assert "I heard: 'hello'".startswith(kept.text)
        await here.usable()


async def test_leaving_the_session_ends_a_turn_that_streams(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        async with here.agent().open("s", store=here.url) as session:
            here.lab.stall_next(here.provider, after_events=4)
            stream = session.stream("hello")
            async for event in stream:
                if isinstance(event, TextPiece):
                    break
        await stream.aclose()
        here.lab.release()
        data = await here.data()
        assert [each.code for each in data if isinstance(each, AssistantAttempt)] == ["CANCELLED"]
        assert [each.reason for each in data if isinstance(each, TurnEnd)] == ["interrupted"]
        await here.usable()


async def test_opening_that_is_stopped_while_it_waits_for_a_server(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        spec = ServerSpec(name="s", command=HANGS.command, on=True)
        agent = here.agent(mcp_servers=[spec], limits=Limits(server_wait=60.0))
        with anyio.move_on_after(0.3) as scope:
            async with agent.open("s", store=here.url):
                pytest.fail("it cannot have opened")
        assert scope.cancelled_caught
        await here.usable()


async def test_a_wait_for_another_try_can_be_stopped(tmp_path: Path) -> None:
    waiting = anyio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await anyio.sleep_forever()

    async with world(tmp_path) as here, Transport(TransportSettings(), sleep=sleep) as transport:
        here.lab.fail_next(here.provider, status=529)
        async with here.agent(transport=transport).open("s", store=here.url) as session:
            await by_scope(session, "hello", waiting.wait)
        await here.usable()


@pytest.mark.parametrize("stop", [by_scope, by_asyncio], ids=lambda stop: stop.__name__)
async def test_a_compaction_that_is_stopped_changes_nothing(stop: Any, tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        async with here.agent().open("s", store=here.url) as session:
            await session.run("hello")
            nodes = len(session.log.surface.nodes)
            here.lab.stall_next(here.provider, after_events=0)

            class Compacting:
                run = staticmethod(lambda text: session.compact())

            await stop(Compacting, "", here.lab.until_stalled)
            here.lab.release()
            assert len(session.log.surface.nodes) == nodes
            await session.run("again")
            await session.compact()
        await here.usable()


# -- the store -----------------------------------------------------------------------------------


class Slow:
    """A store whose next append commits, and is cancelled before it says so."""

    def __init__(self, inner: SqliteStore) -> None:
        self._inner = inner
        self.armed = False
        self.committed = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, *arguments: Any) -> None:
        await self._inner.append(*arguments)
        if self.armed:
            self.armed = False
            self.committed.set()
            await anyio.sleep_forever()


@asynccontextmanager
async def slow(here: World) -> AsyncGenerator[Slow]:
    store = await SqliteStore.open(here.url)
    try:
        yield Slow(store)
    finally:
        await store.aclose()


@pytest.mark.parametrize("stop", [by_scope, by_asyncio], ids=lambda stop: stop.__name__)
async def test_a_write_that_was_cancelled_but_done_is_not_done_again(
    stop: Any, tmp_path: Path
) -> None:
    async with world(tmp_path) as here, slow(here) as store:
        async with here.agent().open("s", store=store) as session:  # type: ignore[arg-type]
            await session.run("first")
            store.armed = True
            await stop(session, "second", store.committed.wait)
            assert (await session.run("third")).text == "I heard: 'third'"
            assert session.log.durable == len(session.log)
        await here.usable()


async def test_a_write_that_failed_but_was_done_is_not_done_again(tmp_path: Path) -> None:
    async with world(tmp_path) as here, slow(here) as store:
        async with here.agent().open("s", store=store) as session:  # type: ignore[arg-type]
            inner = store._inner.append

            async def append(*arguments: Any) -> None:
                await inner(*arguments)
                store._inner.append = inner  # type: ignore[method-assign]
                raise StoreError("the disk said no, and was wrong")

            store._inner.append = append  # type: ignore[method-assign]
            assert isinstance(await attempt(session), StoreError)
            await session.run("second")
        await here.usable()


# -- at the same time ----------------------------------------------------------------------------


async def test_two_turns_at_once_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        async with here.agent().open("s", store=here.url) as session:
            texts: list[str] = []

            async def first() -> None:
                texts.append((await session.run("first")).text)

            async with anyio.create_task_group() as tasks:
                here.lab.stall_next(here.provider)
                tasks.start_soon(first)
                await here.lab.until_stalled()
                refusals: list[AddendumError] = []
                for what in (
                    session.run("second"),
                    session.compact(),
                    session.rewind(),
                    anext(session.stream("third")),
                ):
                    with pytest.raises(ConfigurationError) as caught:
                        await what
                    refusals.append(caught.value)
                here.lab.release()
            assert ["turn is running" in one_line(each) for each in refusals] == [True] * 4
            assert texts == ["I heard: 'first'"]
        await here.usable()


async def test_a_fork_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        gate = Gate()
        agent = here.agent(tools=[gate.slow], limits=Limits(tool_timeout=60.0))
        async with agent.open("s", store=here.url) as session:

            async def there() -> None:
                await gate.running.wait()
                async with session.fork("child") as child:
                    (result,) = [
                        event.data
                        for event in child.log.events
                        if isinstance(event.data, ToolResult)
                    ]
                    assert result.code == "TOOL_OUTCOME_UNKNOWN"
                    assert (await child.run("are you there?")).text.startswith("I heard")

            await by_scope(session, "/call slow {}", there)
        await here.usable()
        await here.usable(session="child")


@pytest.mark.parametrize("error", [KeyError, SystemExit, KeyboardInterrupt])
async def test_an_error_of_the_host_comes_out_as_it_is(
    error: type[BaseException], tmp_path: Path
) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(error):
            async with here.agent().open("s", store=here.url) as session:
                async for event in session.stream("hello"):
                    if isinstance(event, TurnDone):
                        raise error("of the host")
        await here.usable()
