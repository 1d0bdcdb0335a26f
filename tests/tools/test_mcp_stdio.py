"""Servers that are processes: what they may break, how they end, what they leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from addendum.tools.mcp.peer import Peer
from addendum.tools.mcp.pool import Connection, ServerPool, Timings, default_pool
from addendum.tools.mcp.stdio import run_child
from addendum.tools.mcp.values import CallOutcome, ServerSpec, ServerState

pytestmark = pytest.mark.anyio

FAST = Timings(first_pause=0.02, longest_pause=0.1, quiet=0.01, confirm=0.2, demand=10, probe=0.3)
CLASSIC = Path(__file__).with_name("classic_server.py")
CHANGING = (sys.executable, "-m", "addendum.lab.mcp_servers", "--changing")
TIME = (str(Path(sys.executable).with_name("mcp-server-time")),)


def names(state: ServerState) -> list[str]:
    return [tool.name for tool in state.tools]


def plain(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@asynccontextmanager
async def served(
    command: tuple[str, ...], timings: Timings = FAST, **more: Any
) -> AsyncGenerator[Connection]:
    pool = ServerPool(timings=timings)
    try:
        yield await pool.acquire(ServerSpec(name="s", command=command, **more))
    finally:
        with anyio.CancelScope(shield=True), anyio.fail_after(20):
            await pool.aclose()


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    place = tmp_path / "tools.json"
    place.write_text(json.dumps([plain("a")]))
    return place


@pytest.fixture
def classic(listing: Path) -> tuple[str, ...]:
    return (sys.executable, "-S", "-E", str(CLASSIC), str(listing))


def lists(listing: Path, text: str) -> None:
    listing.write_text(text)


def gone(pid: int) -> bool:
    """Whether no process has this id, not even one that ended and was not waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_server_changes_its_list_in_the_middle() -> None:
    async with served(CHANGING) as connection:
        state = await connection.ready(20)
        assert names(state) == ["grow", "shrink"]
        assert (await connection.call("grow", b"{}", timeout=10)).text == "3 tools"
        state = await connection.until(lambda s: s.revision == 2, 10)
        assert names(state) == ["extra_1", "grow", "shrink"]
        assert (await connection.call("extra_1", b"{}", timeout=10)).text == "extra_1 was called"
        await connection.call("shrink", b"{}", timeout=10)
        state = await connection.until(lambda s: s.revision == 3, 10)
        assert names(state) == ["grow", "shrink"]


async def test_a_server_of_the_reference_collection_works() -> None:
    async with served(TIME) as connection:
        state = await connection.ready(20)
        assert names(state) == ["convert_time", "get_current_time"]
        assert json.loads(bytes(state.tools[1].parameters))["required"] == ["timezone"]
        outcome = await connection.call(
            "get_current_time", b'{"timezone": "Europe/Paris"}', timeout=10
        )
        assert (outcome.is_error, json.loads(outcome.text)["timezone"]) == (False, "Europe/Paris")
        outcome = await connection.call("get_current_time", b'{"timezone": "Mars"}', timeout=10)
        assert outcome.is_error
        assert outcome.code is None


async def test_a_killed_server_keeps_its_tools_and_is_started_again(
    classic: tuple[str, ...],
) -> None:
    async with served(classic) as connection:
        await connection.ready(10)
        first = connection.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        state = await connection.until(lambda s: s.status == "lost", 10)
        assert (names(state), state.revision) == (["a"], 1)
        outcome = await connection.call("echo", b'{"x":1}', timeout=10)
        assert outcome.text == '{"x": 1}'
        assert connection.pid not in (None, first)
        assert gone(first)
        assert connection.state.revision == 1


async def test_a_call_in_flight_when_the_server_dies_is_answered(classic: tuple[str, ...]) -> None:
    secret = (("TOKEN", "s3cret-value"),)
    async with served(classic, env=secret, timings=Timings(first_pause=5)) as connection:
        await connection.ready(10)
        outcome = await connection.call("die", b"{}", timeout=10)
        assert (outcome.is_error, outcome.code) == (True, "lost")
        assert "may or may not" in outcome.text
        state = await connection.until(lambda s: s.error is not None and "words" in s.error, 10)
        assert state.error is not None
        assert "fatal: the token *** is no good" in state.error
        assert state.error.isprintable()
        assert "fatal: the token *** is no good" in connection.last_words


async def test_a_program_that_is_not_there_or_ends_at_once_is_told(tmp_path: Path) -> None:
    async with served((str(tmp_path / "none"),)) as connection:
        state = await connection.ready(10)
        assert state.status == "failed"
        # test_mcp_start.py has what else is told.
        assert state.error is not None and state.error.startswith("No such file or directory: ")
    script = "import sys; print('not a server'); sys.exit('no licence')"
    async with served((sys.executable, "-S", "-c", script)) as connection:
        state = await connection.ready(10)
        assert state.status == "failed"
        assert state.error is not None
        assert "not a server" in state.error
        assert "no licence" in state.error
        outcome = await connection.call("a", b"{}", timeout=10)
        assert outcome.code == "unreachable"
        assert "no licence" in outcome.text


async def test_a_stopped_server_lets_calls_time_out_and_is_replaced(
    classic: tuple[str, ...],
) -> None:
    # It is not asked to end, which it could not: only a kill is in time.
    async with served(classic, msgspec.structs.replace(FAST, grace=60)) as connection:
        await connection.ready(10)
        first = connection.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        with anyio.fail_after(2):
            outcome = await connection.call("echo", b"{}", timeout=0.2)
        assert (outcome.is_error, outcome.code) == (True, "timeout")
        state = await connection.until(lambda s: s.status == "lost", 10)
        assert names(state) == ["a"]
        await connection.until(lambda s: s.status == "ready", 10)
        assert (await connection.call("echo", b"{}", timeout=10)).text == "{}"
        assert connection.pid != first
        assert gone(first)


async def test_a_call_to_a_server_that_reads_no_more_times_out(classic: tuple[str, ...]) -> None:
    async with served(classic) as connection:
        await connection.call("deaf", b"{}", timeout=10)
        # More than a pipe holds: writing it never ends.
        arguments = json.dumps({"x": "y" * 1_000_000}).encode()
        with anyio.fail_after(3):
            outcome = await connection.call("echo", arguments, timeout=0.2)
        assert outcome.code == "timeout"
        first = connection.pid
        await connection.until(lambda s: s.status == "lost", 10)
        outcome = await connection.call("echo", b"{}", timeout=10)
        assert (outcome.text, connection.pid == first) == ("{}", False)


async def test_a_slow_tool_times_out_and_its_server_lives_on(classic: tuple[str, ...]) -> None:
    async with served(classic) as connection:
        await connection.ready(10)
        first = connection.pid
        outcome = await connection.call("hang", b"{}", timeout=0.1)
        assert (outcome.is_error, outcome.code) == (True, "timeout")
        await until_cancelled(connection, 1)
        assert (connection.pid, connection.state.status) == (first, "ready")


async def until_cancelled(connection: Connection, count: int) -> None:
    with anyio.fail_after(10):
        while (await connection.call("cancelled", b"{}", timeout=5)).text != str(count):
            pass


async def test_cancelling_a_call_cancels_it_at_the_server(classic: tuple[str, ...]) -> None:
    async with served(classic) as connection:
        await connection.ready(10)
        with anyio.move_on_after(0.05) as scope:
            await connection.call("hang", b"{}", timeout=60)
        assert scope.cancelled_caught
        await until_cancelled(connection, 1)
        assert connection.state.status == "ready"


async def test_calls_run_side_by_side(classic: tuple[str, ...]) -> None:
    async with served(classic) as connection:
        await connection.ready(10)
        outcomes: list[CallOutcome] = []

        async def call() -> None:
            outcomes.append(await connection.call("pair", b"{}", timeout=10))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            tasks.start_soon(call)
        assert [o.is_error for o in outcomes] == [False, False]
        assert int(outcomes[0].text) == int(outcomes[1].text) + 1


async def test_classic_notices_are_followed_and_coalesced(
    classic: tuple[str, ...], listing: Path
) -> None:
    async with served(classic, env=(("INSTRUCTIONS", "ask first"),)) as connection:
        state = await connection.ready(10)
        assert state.instructions == "ask first"
        seen: list[ServerState] = []
        connection.subscribe(seen.append)
        lists(listing, json.dumps([plain("b"), plain("a")]))
        await connection.call("notify", b'{"times": "30"}', timeout=10)
        state = await connection.until(lambda s: s.revision == 2, 10)
        assert names(state) == ["a", "b"]
        assert len(seen) == 1


async def test_pages_are_read_to_the_end(classic: tuple[str, ...], listing: Path) -> None:
    pages = {"": [plain("c")], "two": [plain("a")], "three": [plain("b"), plain("a", x=1)]}
    lists(listing, json.dumps(pages))
    async with served(classic) as connection:
        state = await connection.ready(10)
        assert names(state) == ["a", "b", "c"]
        assert state.notes == ("a: listed twice, the first one counts",)


async def test_one_bad_tool_does_not_cost_the_others(
    classic: tuple[str, ...], listing: Path
) -> None:
    deep = '{"type":"object","x":' + "[" * 300 + "]" * 300 + "}"
    lists(
        listing,
        r"""[{"name":"good","description":"cut off \ud83d","inputSchema":{"type":"object",
        "b":"\ud83d","a":"\ud83d\ude00 \\ud83d"}},"""
        f'{{"name":"deep","inputSchema":{deep}}},'
        r"""{"name":"worse\ud83d\u0000","inputSchema":{"type":"object"}},{"name":"x"},7,
        {"name":"told","description":["no"],"inputSchema":{}},{"name":"bare","inputSchema":{}}]
        """.replace("\n", " "),
    )
    async with served(classic) as connection:
        state = await connection.ready(10)
        assert state.status == "ready"
        assert names(state) == ["bare", "good"]
        assert state.tools[1].description == "cut off \ufffd"
        assert json.loads(bytes(state.tools[1].parameters)) == {
            "type": "object",
            "b": "\ufffd",
            "a": "\U0001f600 \\ud83d",
        }
        assert [note.split(":")[0] for note in state.notes] == [
            "deep",
            "worse\ufffd\ufffd",
            "x",
            "an entry that is no object",
            "told",
        ]


async def test_a_list_that_breaks_the_protocol_fails_and_joins_later(
    classic: tuple[str, ...], listing: Path
) -> None:
    lists(listing, '"none"')
    async with served(classic) as connection:
        state = await connection.ready(10)
        assert state.status == "failed"
        assert state.error is not None
        assert state.error.startswith("its list of tools cannot be used: ")
        assert state.error.isprintable()
        lists(listing, json.dumps([plain("a")]))
        state = await connection.until(lambda s: s.status == "ready", 10)
        assert (names(state), state.error) == (["a"], None)


async def test_a_huge_result_is_cut(classic: tuple[str, ...]) -> None:
    result = json.dumps({"content": [{"type": "text", "text": "x" * 3_000_000}]})
    async with served(classic) as connection:
        outcome = await connection.call(
            "answer", json.dumps({"result": result}).encode(), timeout=10
        )
        assert outcome.text.endswith(
            "\n[cut: the result had 3,000,000 bytes, these are the first 1,048,576]"
        )
        assert len(outcome.text) < 1_048_700


async def test_noise_on_stdout_disturbs_nobody(
    classic: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    async with served(classic) as connection:
        assert (await connection.call("noise", b"{}", timeout=10)).text == "after the noise"
        assert "this is no JSON" in connection.last_words
        await connection.call("die", b"{}", timeout=10)
        await connection.until(lambda s: s.status == "lost", 10)
    assert capfd.readouterr() == ("", "")


async def test_a_child_gets_few_variables_of_ours(
    classic: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "s3cret")
    async with served(classic, env=(("MINE", "yes"),)) as connection:
        text = (await connection.call("environment", b"{}", timeout=10)).text
        assert json.loads(text)["MINE"] == "yes"
        assert "s3cret" not in text


async def test_a_child_that_ignores_everything_is_killed(tmp_path: Path) -> None:
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    script = (
        "import signal, sys, time, os\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pipe)!r}, 'w').write(str(os.getpid()))\n"
        "while True: time.sleep(60)\n"
    )
    timings = Timings(grace=0.1)
    async with served((sys.executable, "-S", "-c", script), timings) as connection:
        assert (await connection.ready(0)).status in ("idle", "starting")
        pid = int(await anyio.Path(pipe).read_text())
        assert not gone(pid)
    # The kernel may take its time on a busy machine.
    with anyio.fail_after(10):
        while not gone(pid):  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_processes_are_gone_when_the_pool_is_closed(classic: tuple[str, ...]) -> None:
    async with served(classic) as connection:
        await connection.ready(10)
        pid = connection.pid
        assert pid is not None
    assert gone(pid)
    assert connection.state.status == "idle"


def test_processes_are_gone_when_the_event_loop_ends(classic: tuple[str, ...]) -> None:
    async def main() -> int | None:
        connection = await default_pool().acquire(ServerSpec(name="s", command=classic))
        await connection.ready(10)
        return connection.pid

    pid = asyncio.run(main())
    assert pid is not None
    assert gone(pid)


async def test_a_start_that_is_cancelled_midway_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[Any]] = []
    original = subprocess.Popen

    def popen(*given: Any, **more: Any) -> subprocess.Popen[Any]:
        started.append(original(*given, **more))
        return started[-1]

    async def start(spec: ServerSpec) -> None:
        async with run_child(spec, Peer(), 0.1):
            await anyio.sleep_forever()

    monkeypatch.setattr(subprocess, "Popen", popen)
    spec = ServerSpec(name="s", command=("/bin/sh", "-c", "sleep 600"))
    for waits in range(8):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start, spec)
            for _ in range(waits):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert started and all(process.returncode is not None for process in started)
