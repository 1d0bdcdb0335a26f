"""A process that drives a real session until it is killed; `scripts.crash` kills it.

python -m scripts.crash_life LIFE    LIFE is one JSON value, a `Life`
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import anyio
from msgspec import Struct

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.results import ToolFinished
from addendum.agent.session import Session, runtime_of
from addendum.agent.setup import Limits
from addendum.errors import AddendumError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.store import Lease
from addendum.stores import SqliteStore
from addendum.tools.functions import ToolContext, tool
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.transport import Transport, TransportSettings

ALIVE = "are you there?"


def _step(text: str, *rounds: Sequence[str]) -> ScriptStep:
    entries = [
        Entry(thinking="hm", calls=tuple(ScriptCall(name) for name in calls)) for calls in rounds
    ]
    return ScriptStep(text, (*entries, Entry(text=f"That was {text}.")), summary="They talked.")


STORY = Script(
    (
        _step("talk"),
        _step("both", ["note", "slow"], ["note"]),
        _step("server", ["changing__grow"], ["note", "changing__shrink"]),
        _step("nobody", ["nobody"]),
        ScriptStep("fail"),  # no answer: the provider refuses
        _step(ALIVE),
    )
)


class Life(Struct):
    """How one process lives and dies.

    Attributes:
        route: The session's route.
        base_url: Where its provider listens.
        store: Path of the store.
        session: The session.
        seed: For its choices.
        kind: Kind of event in front of whose write, or behind it, the process kills itself; empty
            if it is killed from outside.
        before: Whether that is before the write.
        skip: How many such writes it survives.
    """

    route: str
    base_url: str
    store: str
    session: str
    seed: int
    kind: str = ""
    before: bool = False
    skip: int = 0


def agent_of(life: Life, pool: ServerPool, transport: Transport, ran: Any, **more: Any) -> Agent:
    """Return the agent of a life; `ran` is told of each call before it has its effect."""

    @tool
    async def note(context: ToolContext) -> str:
        """Write a note: it has an effect."""
        ran(context.call_id)
        return "noted " + "x" * 300

    @tool
    async def slow(context: ToolContext) -> str:
        """Take a while."""
        ran(context.call_id)
        await anyio.sleep(0.01)
        return "slowly done"

    command = (sys.executable, "-m", "addendum.lab.mcp_servers", "--changing")
    return Agent(
        life.route,
        instructions="You keep notes. " * 100,
        tools=[note, slow],
        mcp_servers=[ServerSpec(name="changing", command=command)],
        base_url=life.base_url,
        limits=Limits(server_wait=20.0),
        pool=pool,
        transport=transport,
        **more,
    )


def say(word: str, *values: Any) -> None:
    """Tell the parent something; one write, so that a kill cannot tear it."""
    os.write(1, json.dumps([word, *values]).encode() + b"\n")


class Mortal:
    """A store that says what it has acknowledged, and may die right before or after a write."""

    def __init__(self, inner: SqliteStore, life: Life) -> None:
        self._inner, self._life, self._left = inner, life, life.skip

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, lease: Lease, expected: int, events: Sequence[bytes]) -> None:
        """Write, and die in front of it or behind it if its last event is of the chosen kind."""
        with self._fate(lease.session, expected, events):
            await self._inner.append(lease, expected, events)

    async def acquire(self, session: str, *, events: Sequence[bytes] = (), **more: Any) -> Lease:
        """Take a lease; a fork is written with it."""
        with self._fate(session, 0, events):
            return await self._inner.acquire(session, events=events, **more)

    @contextmanager
    def _fate(self, session: str, start: int, events: Sequence[bytes]) -> Generator[None]:
        kind = json.loads(events[-1])["data"]["type"] if events else None
        doomed = kind == self._life.kind
        if doomed and self._left:
            doomed, self._left = False, self._left - 1
        if doomed and self._life.before:
            os.kill(os.getpid(), signal.SIGKILL)
        yield
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        if events:
            say("stored", session, start, len(events), digest(events))


def digest(events: Sequence[bytes]) -> str:
    """Return what tells rows of a store from others."""
    return hashlib.sha256(b"\n".join(events)).hexdigest()


async def live(life: Life) -> None:
    """Drive the session until somebody kills this process."""
    chance = random.Random(life.seed)
    pool, transport = ServerPool(), Transport(TransportSettings(retries=0))
    store = Mortal(await SqliteStore.open(f"sqlite:///{life.store}"), life)
    agent = agent_of(life, pool, transport, lambda call: say("ran", call))
    async with agent.open(life.session, store=store) as session:  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_disturb, session, random.Random(life.seed + 1))
            while True:
                await _act(session, chance, life.kind)
                connection = session.registry.state("changing")
                if connection.status == "ready":
                    held = await pool.acquire(agent.setup.servers[0])
                    say("server", held.pid)
                    await pool.release(held)


async def _disturb(session: Session, chance: random.Random) -> None:
    """Write at any moment, as a host may that switches something while a turn runs."""
    while True:
        await anyio.sleep(chance.uniform(0.001, 0.05))
        if chance.random() < 0.05:
            await session.tools.refuse(*(["slow"] if chance.random() < 0.2 else []))
        else:
            await runtime_of(session).flush()


ACTS = {
    "tool/switch": "switch",
    "assistant/message": "nobody",
    "assistant/attempt": "fail",
    "compaction/summary": "compact",
    "session/rewind": "rewind",
    "session/end-seed": "fork",
}
"""What makes the kinds of events that are rare."""


async def _act(session: Session, chance: random.Random, kind: str) -> None:
    act = chance.choice(("both", "switch", ACTS.get(kind, "both"), *ACTS.values()))
    on = session.tools.on("changing")
    with suppress(AddendumError):  # a request that is refused, nothing left to rewind
        match act:
            case "switch" if on:
                await _run(session, "server")
                await session.tools.disable("changing")
            case "switch":
                await session.tools.enable("changing")
                await _run(session, "server")
            case "compact":
                await _run(session, "talk")
                await session.compact(chance.choice((None, "They talked.")))
            case "rewind":
                await _run(session, "talk")
                await session.rewind()
            case "fork":
                async with session.fork(f"{session.id}-{chance.randrange(10**9)}"):
                    pass
            case text:
                await _run(session, text)


async def _run(session: Session, text: str) -> None:
    """Run a turn and say which results it has shown."""
    async for event in session.stream(text):
        if isinstance(event, ToolFinished):
            say("shown", session.id, event.call_id, event.text)


if __name__ == "__main__":
    anyio.run(live, Life(**encoding.decode(sys.argv[1])))
