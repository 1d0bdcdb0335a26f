"""What we started ends with us: real trees of processes, and each kind of end.

Nothing of a server's process group lives 3 s after an end, not even as a zombie. What left the
group by `setsid` is let go.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.tools.group_host import SHAPES, spec, specs

from addendum.tools.mcp.connection import Connection
from addendum.tools.mcp.pool import ServerPool, Timings

pytestmark = pytest.mark.anyio

LIMIT = 3.0
# A server that has ended is not started again in the meantime.
CALM = Timings(first_pause=60, longest_pause=60, probe=0.2, idle=0.01)


def pids(folder: Path) -> dict[int, str]:
    """Return the processes that were ever in the trees below a folder, with their shapes."""
    return {int(each.name): each.parent.name for each in folder.glob("*/*")}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def all_gone(folder: Path, within: float = LIMIT) -> list[str]:
    """Wait for the end of every process; return the shapes whose trees are still there."""
    with anyio.move_on_after(within):
        while any(alive(pid) for pid in pids(folder)):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    left = {pid: shape for pid, shape in pids(folder).items() if alive(pid)}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return sorted(left.values())


@asynccontextmanager
async def trees(folder: Path) -> AsyncGenerator[tuple[ServerPool, list[Connection]]]:
    """Yield a pool with a server of each shape, all ready."""
    pool = ServerPool(timings=CALM)
    try:
        connections = [await pool.acquire(each) for each in specs(folder)]
        async with anyio.create_task_group() as tasks:
            for connection in connections:
                tasks.start_soon(connection.ready, 60)
        assert [each.state.status for each in connections] == ["ready"] * len(SHAPES)
        assert {shape for shape in pids(folder).values()} == set(SHAPES)
        yield pool, connections
    finally:
        with anyio.CancelScope(shield=True):
            await pool.aclose()


Trees = tuple[ServerPool, list[Connection]]


async def each_of(
    connections: list[Connection], work: Callable[[Connection], Awaitable[object]]
) -> None:
    async with anyio.create_task_group() as tasks:
        for connection in connections:
            tasks.start_soon(work, connection)


async def closed(pool: ServerPool, connections: list[Connection]) -> None:
    await pool.aclose()


async def idle(pool: ServerPool, connections: list[Connection]) -> None:
    await each_of(connections, pool.release)


async def left_by_its_leader(pool: ServerPool, connections: list[Connection]) -> None:
    # In a pipeline the leader is a shell, which lives on, and so does the rest.
    await each_of(connections, lambda each: each.call("leave", b"{}", timeout=0.5))


async def leader_killed(pool: ServerPool, connections: list[Connection]) -> None:
    for connection in connections:
        assert connection.pid is not None
        os.kill(connection.pid, signal.SIGKILL)


async def leader_stopped(pool: ServerPool, connections: list[Connection]) -> None:
    for connection in connections:
        assert connection.pid is not None
        os.killpg(connection.pid, signal.SIGSTOP)
    # One that does not answer is asked for a sign of life, and killed.
    await each_of(connections, lambda each: each.call("hang", b"{}", timeout=0.1))


def parent_of(connection: Connection) -> int:
    stat = Path(f"/proc/{connection.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


async def keeper_killed(pool: ServerPool, connections: list[Connection]) -> None:
    for connection in connections:
        os.kill(parent_of(connection), signal.SIGKILL)


async def keeper_asked(pool: ServerPool, connections: list[Connection]) -> None:
    for connection in connections:
        os.kill(parent_of(connection), signal.SIGTERM)


@pytest.mark.parametrize(
    "end",
    [closed, idle, left_by_its_leader, leader_killed, leader_stopped, keeper_killed, keeper_asked],
)
async def test_a_tree_ends_while_its_host_lives_on(
    tmp_path: Path, end: Callable[[ServerPool, list[Connection]], Awaitable[None]]
) -> None:
    async with trees(tmp_path) as (pool, connections):
        await end(pool, connections)
        assert await all_gone(tmp_path) == []


SIGNALS = {
    "int": signal.SIGINT,
    "term": signal.SIGTERM,
    "hup": signal.SIGHUP,
    "kill": signal.SIGKILL,
}
ENDS = (*SIGNALS, "raises", "exits", "leaves")
EVERY = os.environ.get("ADDENDUM_EVERY") == "1"


def shapes_of(end: str) -> tuple[str, ...]:
    """Return the shapes that are played with an end of the host: some of them, or every one."""
    first = ENDS.index(end) * 3
    return SHAPES if EVERY else tuple((SHAPES * 3)[first : first + 3])


def test_each_shape_is_played_with_an_end_of_the_host() -> None:
    assert {shape for end in ENDS for shape in shapes_of(end)} == set(SHAPES)


async def test_trees_end_however_their_host_ends(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("group_host.py"))
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    played = [f"{end}={','.join(shapes_of(end))}" for end in ENDS]
    async with await anyio.open_process(
        [sys.executable, script, str(tmp_path), *played], stderr=subprocess.DEVNULL, env=environ
    ) as hosts:
        assert hosts.stdout is not None and hosts.stdin is not None
        ready: dict[str, int] = {}
        text = b""
        with anyio.fail_after(120):
            while len(ready) < len(ENDS):
                text += await hosts.stdout.receive()
                ready = {
                    end: int(pid)
                    for end, pid in (line.decode().split() for line in text.splitlines() if line)
                }
        for end, pid in ready.items():
            assert {shape for shape in pids(tmp_path / end).values()} == set(shapes_of(end))
            if end in SIGNALS:
                os.kill(pid, SIGNALS[end])
            else:
                await hosts.stdin.send(end.encode() + b"\n")
        left: dict[str, list[str]] = {}

        async def look(end: str) -> None:
            left[end] = await all_gone(tmp_path / end)

        async with anyio.create_task_group() as tasks:
            for end in ENDS:
                tasks.start_soon(look, end)
        assert left == {end: [] for end in ENDS}


@pytest.mark.parametrize("shape", ["silent", "rubbish"])
async def test_a_start_that_comes_to_nothing_leaves_nothing(tmp_path: Path, shape: str) -> None:
    timings = Timings(first_pause=60, connect=0.5, grace=0.2)
    pool = ServerPool(timings=timings)
    try:
        connection = await pool.acquire(spec(shape, tmp_path / shape))
        state = await connection.ready(10)
        assert state.status == "failed"
        assert await all_gone(tmp_path) == []
    finally:
        await pool.aclose()


async def test_what_left_the_group_is_let_go(tmp_path: Path) -> None:
    pool = ServerPool(timings=CALM)
    connection = await pool.acquire(spec("child that left", tmp_path / "left"))
    await connection.ready(20)
    leader = connection.pid
    await pool.aclose()
    (left,) = [pid for pid in pids(tmp_path) if alive(pid)]
    assert left != leader
    os.kill(left, signal.SIGKILL)


async def test_a_frozen_program_starts_its_servers_without_a_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    pool = ServerPool(timings=CALM)
    connections = [
        await pool.acquire(spec(shape, tmp_path / shape)) for shape in ("alone", "child")
    ]
    await each_of(connections, lambda each: each.ready(20))
    assert connections[0].pid is not None
    assert int(parent_of(connections[0])) == os.getpid()
    await pool.aclose()
    assert await all_gone(tmp_path) == []
