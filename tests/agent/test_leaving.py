"""Loops that are left, sessions that are closed elsewhere: what was begun ends, and nothing else.

Reported of others as openai/openai-agents-python#574, pydantic/pydantic-ai#5031 and #5756,
google/adk-python#4823: the turn of an abandoned generator goes on, with its tools and their cost.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from tests.agent.stage import CLAUDE, Stage, stage

from addendum import (
    Agent,
    Approval,
    RequestDone,
    Session,
    TextPiece,
    ToolContext,
    ToolFinished,
    ToolStarted,
    TurnDone,
    TurnStream,
)
from addendum.agent.context.epochs import coming
from addendum.agent.session import runtime_of
from addendum.errors import ConfigurationError, SessionBusy, StoreError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import TurnEnd
from addendum.log.session_log import SessionLog
from addendum.stores import MemoryStore

pytestmark = pytest.mark.anyio

BACKENDS = ["asyncio", *(["trio"] if find_spec("trio") else [])]
ACT = Entry(text="I will. " * 20, calls=(ScriptCall("act", {}),))
SCRIPT = Script(
    tuple(
        ScriptStep(
            text, (ACT, ACT, Entry(text="Done.")) if acts else (Entry(text=f"It is {text}."),)
        )
        for text, acts in (("go", True), ("next", False), ("first", False))
    )
)


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


class World:
    """A session whose tool says when it runs."""

    def __init__(self, here: Stage, session: Session, ran: list[str]) -> None:
        self.here, self.session, self.ran = here, session, ran
        self.kept: list[Any] = []

    async def idle(self) -> None:
        """Let everything run that can."""
        for _ in range(30):
            await anyio.sleep(0.001)

    async def good(self) -> None:
        """The session goes on, and its log is valid."""
        assert (await self.session.run("next")).text == "It is next."
        rows = await self.here.store.read(self.session.id)
        assert SessionLog.load("s", rows).turn is None
        assert self.here.refused() == []


@asynccontextmanager
async def world(**more: Any) -> AsyncGenerator[World]:
    ran: list[str] = []

    async def act() -> str:
        """Act."""
        ran.append("act")
        return "done"

    async with stage(SCRIPT) as here:
        async with here.open(here.agent(CLAUDE, tools=[act], **more)) as session:
            yield World(here, session, ran)


Leave = Callable[[World, TurnStream, type], Awaitable[None]]


async def by_break(world: World, stream: AsyncIterator[Any], kind: type) -> None:
    async for event in stream:
        if isinstance(event, kind):
            break


async def by_break_and_kept(world: World, stream: TurnStream, kind: type) -> None:
    world.kept.append(stream)
    await by_break(world, stream, kind)


async def by_an_error(world: World, stream: TurnStream, kind: type) -> None:
    try:
        async for event in stream:
            if isinstance(event, kind):
                raise KeyError("of the host")
    except KeyError:
        pass


async def by_an_error_that_is_kept(world: World, stream: TurnStream, kind: type) -> None:
    """Its traceback holds the frame, and that the stream."""
    try:
        async for event in stream:
            if isinstance(event, kind):
                raise KeyError("of the host")
    except KeyError as error:
        world.kept.append(error)


async def by_its_block(world: World, stream: TurnStream, kind: type) -> None:
    world.kept.append(stream)
    async with stream as events:
        await by_break(world, events, kind)


async def by_aclosing(world: World, stream: TurnStream, kind: type) -> None:
    world.kept.append(stream)
    async with aclosing(stream) as events:
        await by_break(world, events, kind)


async def by_a_generator_around_it(world: World, stream: TurnStream, kind: type) -> None:
    """Who drops their own generator on trio is warned by trio; there it is closed."""

    async def around() -> AsyncGenerator[Any]:
        async for event in stream:
            yield event

    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        async with aclosing(around()) as events:
            return await by_break(world, events, kind)
    await by_break(world, around(), kind)


async def in_a_ring(world: World, stream: TurnStream, kind: type) -> None:
    ring: list[Any] = [stream]
    ring.append(ring)
    await by_break(world, stream, kind)


async def in_another_task(world: World, stream: TurnStream, kind: type) -> None:
    """A task of a web server, which ends; something holds on to the stream."""
    world.kept.append(stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(by_break, world, stream, kind)


async def by_cancelling(world: World, stream: TurnStream, kind: type) -> None:
    with anyio.CancelScope() as scope:
        async for event in stream:
            if isinstance(event, kind):
                scope.cancel()
                await anyio.sleep_forever()


WAYS: list[Leave] = [
    by_break,
    by_break_and_kept,
    by_an_error,
    by_an_error_that_is_kept,
    by_its_block,
    by_aclosing,
    by_a_generator_around_it,
    in_a_ring,
    in_another_task,
    by_cancelling,
]
KEPT = (by_break_and_kept, by_an_error_that_is_kept, in_another_task)


async def left(world: World, way: Leave, kind: type, start: Callable[[], TurnStream]) -> None:
    """Leave a loop; nothing of the stream stays behind in a frame of the test."""
    await way(world, start(), kind)


PLACES = [
    *[(way, kind) for way in WAYS for kind in (TextPiece, ToolStarted)],
    *[(way, kind) for way in (by_break, by_break_and_kept) for kind in (RequestDone, ToolFinished)],
]


@pytest.mark.parametrize(
    ("way", "kind"), PLACES, ids=lambda each: getattr(each, "__name__", str(each))
)
async def test_a_loop_that_is_left_ends_its_turn(way: Leave, kind: type) -> None:
    async with world() as here:
        session = here.session
        await session.run("first")
        await left(here, way, kind, lambda: session.stream("go"))
        gc.collect()
        await here.idle()
        # The call that had started when it was told ran; nothing behind it did.
        assert here.ran == (["act"] if kind in (ToolStarted, ToolFinished) else [])
        if way not in KEPT:
            assert session.log.turn is None, "it ends at once, not with the next turn"
        sent = len(here.here.lab.captures)
        await here.good()
        assert (len(here.here.lab.captures), len(here.ran)) == (sent + 1, len(here.ran))
        ends = [each.data.reason for each in session.log.events if isinstance(each.data, TurnEnd)]
        assert ends == ["done", "interrupted", "done"]


@pytest.mark.parametrize("way", [by_break, *KEPT, by_its_block], ids=lambda way: way.__name__)
@pytest.mark.parametrize("what", ["stream_again", "stream_decide"])
async def test_the_other_streams_are_left_alike(what: str, way: Leave) -> None:
    async with world(approval=Approval() if what == "stream_decide" else None) as here:
        session = here.session
        if what == "stream_again":
            await session.run("go")
            start, kind = (lambda: session.stream_again(1)), TextPiece
        else:
            (waits,) = (await session.run("go")).waiting
            start, kind = (lambda: session.stream_decide({waits.call_id: "approve"})), TextPiece
        before = len(here.ran)
        await left(here, way, kind, start)
        gc.collect()
        await here.idle()
        # What was approved ran; of the answer behind it nothing does.
        assert len(here.ran) == before + (what == "stream_decide")
        await here.good()


async def test_a_turn_does_not_run_ahead_of_who_listens() -> None:
    """And goes on when they come back."""
    async with world() as here:
        stream = here.session.stream("go")
        seen: list[Any] = []
        async for event in stream:
            seen.append(event)
            if isinstance(event, TextPiece):
                break
        await here.idle()
        assert here.ran == []
        seen += [event async for event in stream]
        assert here.ran == ["act", "act"]
        assert isinstance(seen[-1], TurnDone) and seen[-1].result.text == "Done."


USES: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "run": lambda session: session.run("next"),
    "stream": lambda session: anext(session.stream("next")),
    "compact": lambda session: session.compact("They talked."),
    "edit": lambda session: session.edit(1, "next"),
    "retry": lambda session: session.retry(),
    "rewind": lambda session: session.rewind(),
}


@pytest.mark.parametrize("use", USES)
async def test_the_next_use_ends_a_turn_that_nobody_listens_to(use: str) -> None:
    async with world() as here:
        session = here.session
        await session.run("first")
        stream = session.stream("go")
        await by_break(here, stream, TextPiece)
        await USES[use](session)
        # Only whoever asks for the same again has it run.
        assert here.ran == (["act", "act"] if use == "retry" else [])
        with pytest.raises(ConfigurationError, match="was ended: its stream was closed, or the"):
            while True:
                await anext(stream)


async def test_who_listens_still_is_not_taken_for_gone() -> None:
    async with world() as here:
        session, reached, go = here.session, anyio.Event(), anyio.Event()
        done: list[Any] = []

        async def listen() -> None:
            async for event in session.stream("go"):
                if isinstance(event, TextPiece) and not reached.is_set():
                    reached.set()
                    await go.wait()  # a slow client
                done.append(event)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await reached.wait()
            with pytest.raises(ConfigurationError, match="a turn is running"):
                await session.run("next")
            go.set()
        assert isinstance(done[-1], TurnDone)
        await here.good()


async def test_two_tasks_that_ask_for_one_turns_events() -> None:
    async with world() as here:
        here.here.lab.stall_next("anthropic", after_events=0)
        stream = here.session.stream("go")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.__anext__)
            await here.here.lab.until_stalled()
            with pytest.raises(ConfigurationError, match="two tasks ask"):
                await anext(stream)
            here.here.lab.release()
        await stream.aclose()
        await here.good()


async def test_a_stream_that_is_closed_while_somebody_waits_for_an_event() -> None:
    async with world() as here:
        here.here.lab.stall_next("anthropic", after_events=0)
        stream = here.session.stream("go")

        async def listen() -> None:
            with pytest.raises(ConfigurationError, match="this turn was ended"):
                await anext(stream)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await here.here.lab.until_stalled()
            await stream.aclose()
        here.here.lab.release()
        await here.good()


async def test_a_stream_that_was_never_begun_does_nothing() -> None:
    async with world() as here:
        async with here.session.stream("go"):
            pass
        await here.session.stream("go").aclose()
        here.session.stream("go")
        await here.good()
        assert here.session.log.turns == 1


# -- closing -------------------------------------------------------------------------------------


async def in_a_task(work: Callable[[], Awaitable[Any]]) -> Any:
    """Do something in a task that has ended when it is done, as a cell or a web request."""
    found: list[Any] = []

    async def run() -> None:
        found.append(await work())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
    return found[0]


Opened = tuple[Session, Callable[[], Awaitable[None]]]


async def awaited(agent: Agent, store: MemoryStore) -> Opened:
    session = await agent.open("s", store=store)
    return session, session.aclose


async def entered(agent: Agent, store: MemoryStore) -> Opened:
    opening = agent.open("s", store=store)
    session = await opening.__aenter__()
    return session, lambda: opening.__aexit__(None, None, None)


async def on_a_stack(agent: Agent, store: MemoryStore) -> Opened:
    stack = AsyncExitStack()
    return await stack.enter_async_context(agent.open("s", store=store)), stack.aclose


async def forked(agent: Agent, store: MemoryStore) -> Opened:
    async with agent.open("parent", store=store) as parent:
        await parent.run("first")
        child = await parent.fork("s")
    return child, child.aclose


@pytest.mark.parametrize(
    "how", [awaited, entered, on_a_stack, forked], ids=lambda how: how.__name__
)
async def test_opened_used_and_closed_in_three_tasks(how: Any) -> None:
    async with stage(SCRIPT) as here:
        agent = here.agent(CLAUDE)
        session, close = await in_a_task(lambda: how(agent, here.store))
        assert (await in_a_task(lambda: session.run("next"))).text == "It is next."
        events = await in_a_task(lambda: taken(session.stream("next")))
        assert isinstance(events[-1], TurnDone)
        await in_a_task(close)
        for call in (session.run("next"), session.retry(), session.rewind(), session.compact("x")):
            with pytest.raises(ConfigurationError, match="the session is closed; open it again"):
                await call
        with pytest.raises(ConfigurationError, match="the session is closed; open it again"):
            await anext(session.stream("next"))
        async with here.open(agent) as again:
            await again.run("next")


async def taken(stream: TurnStream) -> list[Any]:
    return [event async for event in stream]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_turn_that_runs_ends_when_its_session_is_closed_elsewhere(streams: bool) -> None:
    async with stage(SCRIPT) as here:
        agent = here.agent(CLAUDE)
        session = await agent.open("s", store=here.store)
        here.lab.stall_next("anthropic", after_events=0)

        async def turn() -> None:
            with pytest.raises(ConfigurationError, match="closed while this ran"):
                await (taken(session.stream("go")) if streams else session.run("go"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await here.lab.until_stalled()
            await session.aclose()
            await session.aclose()
        here.lab.release()
        rows = await here.store.read("s")
        last = [e.data for e in SessionLog.load("s", rows).events if isinstance(e.data, TurnEnd)]
        assert [each.reason for each in last] == ["interrupted"]


async def test_a_tool_that_closes_its_own_session() -> None:
    async def act(context: ToolContext) -> str:
        """Act."""
        await context.host.aclose()
        return "never"

    async with stage(SCRIPT) as here:
        agent = here.agent(CLAUDE, tools=[act])
        session = await agent.open("s", store=here.store)
        with pytest.raises(ConfigurationError, match="closed while this ran"):
            await session.run("go")
        await session.aclose()
        async with here.open(agent) as again:
            await again.run("next")


async def test_what_cannot_be_opened_says_so_and_holds_nothing() -> None:
    async with stage(SCRIPT) as here:
        agent = here.agent(CLAUDE)
        session = await agent.open("s", store=here.store)
        for again in (agent.open("s", store=here.store), agent.open("a/b", store=here.store)):
            with pytest.raises((SessionBusy, ConfigurationError)):
                await again
        await session.aclose()
        await (await agent.open("s", store=here.store)).aclose()


async def test_what_could_not_be_made_durable_is_told_by_whoever_closes() -> None:
    async with stage(SCRIPT) as here:
        session = await here.agent(CLAUDE).open("s", store=here.store)
        await session.run("next")

        async def full(*_: Any) -> None:
            raise StoreError("there is no room; free disk space")

        here.store.append = full  # type: ignore[method-assign]
        session.log.append(TurnEnd(1)) if session.log.turn else session.start_series()
        session.log.append(coming(runtime_of(session)))
        with pytest.raises(StoreError, match="free disk space"):
            await session.aclose()
        await session.aclose()


async def test_an_opening_that_is_cancelled_leaves_no_lease() -> None:
    class Slow(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.reached = anyio.Event()

        async def read(self, *arguments: Any, **more: Any) -> list[bytes]:
            if not self.reached.is_set():
                self.reached.set()
                await anyio.sleep_forever()
            return await super().read(*arguments, **more)

    async with stage(SCRIPT) as here:
        here.store = Slow()
        agent = here.agent(CLAUDE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.open("s", store=here.store)._opened())
            await here.store.reached.wait()
            tasks.cancel_scope.cancel()
        async with here.open(agent) as session:
            await session.run("next")


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    async with stage(SCRIPT) as here:
        for error in (
            KeyError("of the host"),
            anyio.EndOfStream(),
            ExceptionGroup("two", [OSError()]),
        ):
            with pytest.raises(type(error)) as caught:
                async with here.agent(CLAUDE).open("s", store=here.store):
                    raise error
            assert caught.value is error


def test_a_loop_that_ends_closes_what_nobody_closed() -> None:
    """A notebook that is shut down, a program that forgot: the lease is given back."""
    stores: list[MemoryStore] = []

    async def forgets() -> None:
        async with stage(SCRIPT) as here:
            stores.append(here.store)
            session = await here.agent(CLAUDE).open("s", store=here.store)
            await session.run("next")

    asyncio.run(forgets())
    kept = stores[0]._sessions["s"]  # pyright: ignore[reportPrivateUsage]
    assert kept.standing is not None and kept.standing.nonce is None
