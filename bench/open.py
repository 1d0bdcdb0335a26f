"""Opening a long session, and its next request, beside a bare SQLite loop over the same rows.

The session has 100,000 events in a SQLite file: turns with one call each, as a usual agent makes
them. Each row is measured in a process of its own, after everything is imported: reading the rows,
opening the session (`Agent.open`), and from there to the bytes of the next request. The time is
the process's own (user and system, all threads): the rows are in the page cache, and what else
the machine does at the moment does not count.

Usage: open.py [EVENTS [ROUTE]]
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
from _live import QUESTION, RESULT, Stub, agent

from addendum.log import codec
from addendum.log.events import Event, RequestContext, TurnStart
from addendum.log.session_log import SessionLog
from addendum.stores import open_store

EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
ROUTE = sys.argv[2] if len(sys.argv) > 2 else "anthropic:claude-opus-5-5"
GOAL = 3.0


async def make(url: str) -> None:
    """Write the session: two real turns, and then the second one again and again."""
    store, stub = await open_store(url), Stub(ROUTE)
    async with agent(ROUTE, stub).open("s", store=store) as session:
        for turn in (1, 2):
            await session.run(QUESTION.format(turn=turn))
    stored = await store.read("s")
    first = [codec.decode_event(raw) for raw in stored]
    start = next(e.seq for e in first if isinstance(e.data, TurnStart) and e.data.turn == 2)
    pattern, events = first[start:], list(first)
    while len(events) < EVENTS:
        turn = events[-1].data.turn + 1  # type: ignore[union-attr]
        events += [_again(event, len(events) + at, turn) for at, event in enumerate(pattern)]
    encoded = [codec.encode_event(event) for event in events[len(first) :]]
    SessionLog.load("s", [*stored, *encoded])
    lease = await store.acquire("s")
    await store.append(lease, len(first), encoded)
    await store.release(lease)
    await store.aclose()


def _again(event: Event, seq: int, turn: int) -> Event:
    data = event.data
    if hasattr(data, "turn") and not isinstance(data, RequestContext):
        data = msgspec.structs.replace(data, turn=turn)  # type: ignore[type-var]
    if hasattr(data, "text") and getattr(data, "call_id", None):
        data = msgspec.structs.replace(data, text=f"Found in turn {turn}. {RESULT}")  # type: ignore[type-var]
    return Event(seq, event.time, data, event.surface_op, event.sources)


def resident() -> float:
    """Return the MB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def bare(path: str, load: Callable[[bytes], object]) -> tuple[float, float]:
    """Read the rows, and do no more with them than `load` does; return seconds and MB."""
    before, began = resident(), time.process_time()
    db = sqlite3.connect(path)
    rows = [
        load(data)
        for (data,) in db.execute(
            "SELECT data FROM events WHERE session = ? AND seq >= ? ORDER BY seq", ("s", 0)
        )
    ]
    took = time.process_time() - began
    assert len(rows) >= EVENTS
    return took, resident() - before


async def opened(path: str) -> None:
    """Print seconds and MB of opening, and then of the next request."""
    # What importing left to collect is not what opening costs.
    gc.collect()
    stub = Stub(ROUTE, clock=time.process_time)
    made, before, began = agent(ROUTE, stub), resident(), time.process_time()
    async with made.open("s", store=f"sqlite:///{path}") as session:
        took = time.process_time() - began
        print(f"{took} {resident() - before}")
        before = resident()
        stub.entered, stub.wanted = time.process_time(), True
        await session.run("What was that about?")
        print(f"{stub.spans[0]} {resident() - before} {len(stub.body)}")


def child(what: str, path: str) -> list[list[float]]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, str(EVENTS), ROUTE]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, what: path}
    )
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def main() -> None:
    """Print one row for each measurement, each the best of five."""
    if not Path("/proc/self/statm").exists():
        print("memory is measured on Linux only")
        return
    if path := os.environ.get("BENCH_BARE"):
        print(*bare(path, lambda row: row))
        return
    if path := os.environ.get("BENCH_JSON"):
        print(*bare(path, json.loads))
        return
    if path := os.environ.get("BENCH_OPEN"):
        anyio.run(opened, path)
        return
    with tempfile.TemporaryDirectory(prefix="addendum-") as folder:
        path = str(Path(folder) / "kept.db")
        anyio.run(make, f"sqlite:///{path}")
        size = Path(path).stat().st_size / 1e6
        print(f"a session of {EVENTS:,} events, {size:,.0f} MB, on {ROUTE}")
        loops = [child("BENCH_BARE", path)[0] for _ in range(5)]
        parsed = [child("BENCH_JSON", path)[0] for _ in range(5)]
        runs = [child("BENCH_OPEN", path) for _ in range(5)]
    loop = [min(each[at] for each in loops) for at in (0, 1)]
    print(f"{'':<34}{'CPU s':>8}{'ratio':>8}{'MB':>8}{'ratio':>8}")
    for name, row in (("open", 0), ("build the next request", 1)):
        seconds, grown = (min(run[row][at] for run in runs) for at in (0, 1))
        ratios = f"{seconds / loop[0]:>8.1f}{grown:>8.0f}{grown / loop[1]:>8.1f}"
        print(f"{name:<34}{seconds:>8.2f}{ratios}")
    print(f"{'bare SQLite loop':<34}{loop[0]:>8.2f}{'':>8}{loop[1]:>8.0f}")
    seconds, grown = (min(each[at] for each in parsed) for at in (0, 1))
    ratios = f"{seconds / loop[0]:>8.1f}{grown:>8.0f}{grown / loop[1]:>8.1f}"
    print(f"{'the same, each row by json.loads':<34}{seconds:>8.2f}{ratios}")
    print(f"the request has {runs[0][1][2] / 1e6:.1f} MB; the goal is {GOAL:g} times the loop")


main()
