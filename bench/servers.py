"""Processes of shared servers: 500 open sessions on 20 MCP servers over stdio.

Every session has all 20 servers on, and calls a tool of one of them. Connections belong to the
process, so there are as many server processes as servers.

Usage: servers.py [SESSIONS [SERVERS]]
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from _live import ROUTES, Stub

from addendum import Agent
from addendum.stores import MemoryStore
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec

SESSIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
SERVERS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
COMMAND = (sys.executable, "-m", "addendum.lab.mcp_servers", "--changing")


def children() -> int:
    """Return how many processes this one has started that still run."""
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        count += int(parent) == os.getpid() and state != "Z"
    return count


async def main() -> None:
    """Open the sessions, count, close them, and count again."""
    stub, store, pool = Stub(ROUTES[0]), MemoryStore(), ServerPool(idle_seconds=0.1)
    agent = Agent(
        ROUTES[0],
        instructions="You help.",
        mcp_servers=[ServerSpec(name=f"s{n}", command=COMMAND, on=True) for n in range(SERVERS)],
        base_url="http://127.0.0.1:9",
        transport=stub,  # type: ignore[arg-type]
        pool=pool,
    )
    times: list[float] = []
    async with AsyncExitStack() as stack:
        for number in range(SESSIONS):
            start = time.perf_counter()
            session = await stack.enter_async_context(agent.open(f"n{number}", store=store))
            stub.called = f"s{number % SERVERS}__shrink"
            await session.run("Please call it.")
            times.append(time.perf_counter() - start)
            result = next(e.data for e in session.log.events if e.type == "tool/result")
            assert result.text == "shrink was called", result  # type: ignore[union-attr]
        running = children()
    await pool.aclose()
    print(f"{SESSIONS:,} open sessions on {SERVERS} stdio servers: {running} server processes")
    print(
        f"opening one and running a turn that calls a server: the first {times[0]:.1f} s, "
        f"then {statistics.median(times) * 1e3:.1f} ms (median); after closing: {children()} left"
    )
    assert (running, children()) == (SERVERS, 0)


if Path("/proc/self/stat").exists():
    anyio.run(main)
else:
    print("processes are counted on Linux only")
