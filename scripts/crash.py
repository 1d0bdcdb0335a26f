"""Kill a session's process again and again, and see that nothing acknowledged is lost.

    python -m scripts.crash [--kills N] [--seed N]

Each life is a process that drives a real session: turns with tool calls, a real MCP server on
stdio that is switched on and off, compaction, rewinding, forks. Its providers are in this process.
It says on a pipe what its store has acknowledged, and is killed (SIGKILL) at a random moment after
the first word, or by itself right before or right after a write that ends in a chosen kind of
event. Then, each time:

- every acknowledged event is in the store, byte for byte, and the log is valid;
- every result that was shown stands in it, as it was shown;
- every request that arrived and every tool that ran stands in it (both are logged first);
- no call ran twice, in one life or in several;
- opened again, the session is closed truthfully, runs no tool again, and takes one more turn;
- the strict provider accepts that turn, and its request extends the last answered one, unless a
  break was declared;
- the dead process's server has ended.

At the end it prints which kinds of events came last. From 100 kills on, every kind that can come
last must have.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from scripts.crash_life import ALIVE, STORY, Life, agent_of, digest
from tests.property.reference import blocks, extends

from addendum import encoding
from addendum.lab.server import Lab, open_lab
from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    RequestContext,
    RequestSent,
    ToolCall,
    ToolResult,
)
from addendum.log.session_log import SessionLog
from addendum.stores import SqliteStore
from addendum.tools.mcp.pool import ServerPool
from addendum.wire.transport import Transport, TransportSettings

ROUTES = (
    "anthropic:claude-opus-5-5",
    "deepseek:deepseek-flash",
    "openai-chat:gpt-4.1",
    "openai:gpt-6.2-sol",
    "bedrock:anthropic.claude-sonnet-4-6",
    "gemini:gemini-4-argon",
)
LIVES = 4
"""Lives that one session may have."""

LAST = (
    "session/start",
    "tool/switch",
    "tool/policy",
    "step/start",
    "request/sent",
    "assistant/message",
    "assistant/attempt",
    "tool/call",
    "tool/result",
    "step/end",
    "turn/end",
    "compaction/summary",
    "session/rewind",
    "session/end-seed",
)
"""Kinds of events that a write can end in."""


class Words:
    """What a life has said."""

    def __init__(self) -> None:
        self.first = anyio.Event()
        self.stored: dict[str, list[tuple[int, int, str]]] = {}
        self.ran: list[str] = []
        self.shown: list[tuple[str, str]] = []
        self.servers: set[int] = set()

    async def listen(self, process: Process) -> None:
        """Take in what it says until it says no more."""
        assert process.stdout is not None
        pending = b""
        async for chunk in process.stdout:
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, said: list[Any]) -> None:
        match said:
            case ["stored", session, start, count, digest]:
                self.stored.setdefault(session, []).append((start, count, digest))
                self.first.set()
            case ["ran", call]:
                self.ran.append(call)
            case ["shown", _, call, text]:
                self.shown.append((call, text))
            case ["server", int(pid)]:
                self.servers.add(pid)
            case _:
                pass


class Checker:
    """Starts lives, kills them, and looks at what is left."""

    def __init__(self, lab: Lab, folder: Path, seed: int) -> None:
        self.lab, self.store = lab, folder / "sessions.db"
        self.chance = random.Random(seed)
        self.last: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.breaks: Counter[str] = Counter()
        self.pool = ServerPool()
        self.transport = Transport(TransportSettings(retries=0))
        self.sent: dict[str, dict[int, bytes]] = {}
        self.ran: dict[str, Counter[str]] = {}
        self.number = 0
        self.shown = 0

    def next_life(self, place: int) -> Life:
        """Return how the next process lives and dies."""
        kind = ""
        if place % 2:
            # Those that did not come yet come first.
            kinds = [each for each in LAST if not self.last[each]] or list(LAST)
            kind = self.chance.choice(kinds)
        if place % LIVES == 0 or kind == "session/start":
            self.number += 1
        route = ROUTES[self.number % len(ROUTES)]
        return Life(
            route,
            self.lab.base_url(route.split(":")[0]),
            str(self.store),
            f"session-{self.number}",
            self.chance.randrange(10**9),
            kind,
            self.chance.random() < 0.3,
            self.chance.choice((0, 0, 1, 2)) if kind != "session/start" else 0,
        )

    async def kill_one(self, life: Life) -> None:
        """Run one life to its end and look at what it leaves.

        Raises:
            AssertionError: Something was lost, or is not as it must be.
        """
        words, first = Words(), len(self.lab.captures)
        provider = life.route.split(":")[0]
        counted, known = await self._requests(life), set(await self._sessions())
        command = [sys.executable, "-m", "scripts.crash_life", encoding.encode(life).decode()]
        async with await anyio.open_process(command, stdin=None, stderr=None) as process:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(words.listen, process)
                with anyio.move_on_after(20):
                    if life.kind:
                        await process.wait()
                    else:
                        await words.first.wait()
                        await anyio.sleep(self.chance.expovariate(1.5))
                        if self.chance.random() < 0.4:  # in the middle of an answer
                            self.lab.stall_next(provider, after_events=3)
                            await anyio.sleep(0.1)
                if process.returncode is None:
                    process.kill()
                code = await process.wait()
            assert code == -signal.SIGKILL, f"the process ended by itself ({code})"
        bodies = [capture.body for capture in self.lab.captures[first:]]
        self.lab.release()
        self.lab._faults[provider].clear()  # of a request that never came
        sent = self.sent.setdefault(life.session, {})
        sent.update(enumerate(bodies, counted + 1))
        await self._check(life, words, counted + len(bodies), known)

    async def _requests(self, life: Life) -> int:
        return sum(isinstance(each.data, RequestSent) for each in (await self._log(life)).events)

    async def _log(self, life: Life, session: str | None = None) -> SessionLog:
        name = session or life.session
        there = name in await self._sessions()
        store = await SqliteStore.open(f"sqlite:///{self.store}")
        try:
            return SessionLog.load(name, await store.read(name) if there else [])
        finally:
            await store.aclose()

    async def _sessions(self) -> list[str]:
        store = await SqliteStore.open(f"sqlite:///{self.store}")
        try:
            return [row.id for row in await store.sessions()]
        finally:
            await store.aclose()

    async def _check(self, life: Life, words: Words, arrived: int, known: set[str]) -> None:
        store = await SqliteStore.open(f"sqlite:///{self.store}")
        for session, writes in words.stored.items():
            stored = await store.read(session)
            for start, count, written in writes:
                kept = stored[start : start + count]
                assert digest(kept) == written, f"{session}: events from {start} on are lost"
        await store.aclose()
        log = await self._log(life)
        if len(log):  # none if it died in front of the very first write
            self.last[log.events[-1].type] += 1
        for fork in set(await self._sessions()) - known - {life.session}:
            forked = await self._log(life, fork)
            if fork not in words.stored and len(forked):  # the very last write
                self.last[forked.events[-1].type] += 1
        requests = [each.data for each in log.events if isinstance(each.data, RequestSent)]
        assert arrived <= len(requests), "a request left before it was durable"
        started = Counter(e.data.call_id for e in log.events if isinstance(e.data, ToolCall))
        ran = self.ran.setdefault(life.session, Counter())
        ran.update(words.ran)
        # Two calls may have one id: the lab gives the same answer to the same request.
        assert ran <= started, f"a tool ran before its call was durable, or twice: {ran - started}"
        results = Counter(
            (e.data.call_id, e.data.text) for e in log.events if isinstance(e.data, ToolResult)
        )
        lost = Counter(words.shown) - results
        assert not lost, f"a result was shown before it was durable: {lost}"
        self.shown += len(words.shown)
        await _gone(words.servers)
        await self._go_on(life, log)

    async def _go_on(self, life: Life, before: SessionLog) -> None:
        """Open the session as its next owner would, and run one more turn."""
        ran: list[str] = []
        agent = agent_of(life, self.pool, self.transport, ran.append, record=True)
        first = len(self.lab.captures)
        async with agent.open(life.session, store=f"sqlite:///{self.store}") as session:
            opened = session.log.events[len(before) :]
            results = [each.data for each in opened if isinstance(each.data, ToolResult)]
            assert [each.call_id for each in results] == list(before.unanswered)
            self.codes.update(str(each.code) for each in results)
            result = await session.run(ALIVE)
            log = session.log
            sent = session.sent[-1]
        assert not ran, f"tools ran again: {ran}"
        assert result.text == f"That was {ALIVE}."
        assert [capture.status for capture in self.lab.captures[first:]] == [200]
        answered, declared = _last_answered(log, sent.number)
        self.breaks.update(each.reason for each in declared)
        if answered is not None and not declared:
            number, context = answered
            old = blocks(self.sent[life.session][number], context)
            assert extends(old, blocks(sent.body, sent.context)), "the prefix breaks in silence"
        self.sent[life.session][sent.number] = sent.body

    async def aclose(self) -> None:
        """Close what is open."""
        await self.pool.aclose()
        await self.transport.aclose()


def _last_answered(
    log: SessionLog, number: int
) -> tuple[tuple[int, RequestContext] | None, list[CacheBreak]]:
    """Return the last answered request in front of request `number`, and breaks declared since."""
    answered: tuple[int, RequestContext] | None = None
    latest: RequestSent | None = None
    declared: list[CacheBreak] = []
    for event in log.events:
        match event.data:
            case RequestSent() as data if data.number == number:
                break
            case RequestSent() as data:
                latest = data
            case CacheBreak() as data:
                declared.append(data)
            case AssistantMessage():
                assert latest is not None
                context = log.events[latest.context_seq].data
                assert isinstance(context, RequestContext)
                answered, declared = (latest.number, context), []
            case _:
                pass
    return answered, declared


async def _gone(pids: set[int]) -> None:
    deadline = time.monotonic() + 10
    for pid in pids:
        while await anyio.Path(f"/proc/{pid}/stat").exists():
            assert time.monotonic() < deadline, f"server {pid} outlives its client"
            await anyio.sleep(0.01)


async def kill_many(kills: int, seed: int) -> int:
    """Run the lives, print what came of them, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_lab(STORY) as lab:
            checker = Checker(lab, Path(folder), seed)
            try:
                for place in range(kills):
                    life = checker.next_life(place)
                    try:
                        await checker.kill_one(life)
                    except Exception:
                        print(f"kill {place}: {life}", file=sys.stderr)
                        raise
            finally:
                await checker.aclose()
    print(f"{kills} kills, seed {seed}; last event in the store:")
    for kind in sorted(set(LAST) | set(checker.last)):
        print(f"  {kind:20} {checker.last[kind]:4}")
    print(f"recovery results: {dict(checker.codes)}; declared breaks: {dict(checker.breaks)}")
    missing = [kind for kind in LAST if not checker.last[kind]]
    if missing and kills >= 100:
        print(f"never last: {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"results shown before a kill, all of them kept: {checker.shown}")
    print("Nothing acknowledged was lost, and no call ran twice.")
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.crash")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    return anyio.run(kill_many, given.kills, given.seed)


if __name__ == "__main__":
    sys.exit(main())
