"""Memory of open sessions: 1,000 of 50 turns each in one process, beside the size of their logs.

The sessions are of one agent with 42 tools, on the memory store; each has run all its turns. What
the process has grown by is divided by their number. It holds the store's copy of the logs, the
events, and what the next request is joined from; connections to providers are not in it.

Usage: memory.py [SESSIONS [ROUTE]]
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from _live import QUESTION, ROUTES, TOOLS, Stub, agent

from addendum.stores import MemoryStore

SESSIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
TURNS = 50


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def measure(route: str) -> None:
    """Print the row of one route."""
    stub, store, began = Stub(route), MemoryStore(), time.perf_counter()
    shared = agent(route, stub)
    async with AsyncExitStack() as stack:
        # The first one pays for what all share.
        for number in range(SESSIONS + 1):
            session = await stack.enter_async_context(shared.open(f"s{number}", store=store))
            for turn in range(TURNS):
                stub.wanted = number == turn == 0
                await session.run(QUESTION.format(turn=turn + 1))
            if not number:
                before = resident()
        each = (resident() - before) / SESSIONS
        took = time.perf_counter() - began
        log = sum(map(len, await store.read("s1")))
        stub.wanted = True
        await session.run("How large is a request now?")
    print(
        f"{route:<28}{each / 1e3:>10.0f}{log / 1e3:>10.0f}{each / log:>8.1f}"
        f"{len(stub.body) / 1e3:>10.0f}{took:>8.0f}"
    )


def main() -> None:
    """Print one row for each wire, each from a process of its own."""
    if not Path("/proc/self/statm").exists():
        print("memory is measured on Linux only")
        return
    if len(sys.argv) > 2:
        anyio.run(measure, sys.argv[2])
        return
    print(f"{SESSIONS:,} open sessions of {TURNS} turns with {TOOLS} tools in one process")
    columns = f"{'memory':>10}{'log':>10}{'ratio':>8}{'request':>10}{'s':>8}"
    print(f"{'kB a session':<28}{columns}", flush=True)
    for route in ROUTES:
        subprocess.run([sys.executable, __file__, str(SESSIONS), route], check=True)


main()
