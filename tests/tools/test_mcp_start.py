"""Programs that cannot be started: what is wrong, where, and what to write.

Reports: cline/cline#1160, RooCodeInc/Roo-Code#628, Mintplex-Labs/anything-llm#3854,
langchain-ai/langchainjs-mcp-adapters#63, OkGoDoIt/beemcp#2, juehang/vscode-mcp-server#6
("spawn npx ENOENT", and nothing more).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from addendum.tools.mcp.pool import ServerPool, Timings
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

SCRIPT = "#!/no/such/interpreter\n"


def bare(folder: Path) -> str:
    (folder / "bare").write_text("hello\n")
    (folder / "bare").chmod(0o755)
    return str(folder / "bare")


def script(folder: Path) -> str:
    (folder / "script").write_text(SCRIPT)
    (folder / "script").chmod(0o755)
    return str(folder / "script")


def closed(folder: Path) -> str:
    (folder / "closed").write_text("x")
    return str(folder / "closed")


# The command, and what is told beside the command and the folder.
COMMANDS: dict[str, tuple[Callable[[Path], str] | str, tuple[str, ...]]] = {
    "not installed": ("no-such-program", ("No such file", "install it, or write its whole path")),
    "a path to nothing": ("/no/such/program", ("No such file", "install it")),
    "a relative path": ("./none", ("No such file", "install it")),
    "a command line": (
        "uvx mcp-server-git --repository .",
        ("No such file", '"command": "uvx", "args": ["mcp-server-git", "--repository", "."]'),
    ),
    "a command line with quotes": (
        "node 'my server.js'",
        ('"command": "node", "args": ["my server.js"]',),
    ),
    "a command line with an open quote": (
        "node 'server.js",
        ('"command": "node", "args": ["\'server.js"]',),
    ),
    "a path with a space": (
        "/no such/program",
        ('"command": "/no", "args": ["such/program"]',),
    ),
    "a home folder": ("~/bin/server", ("No such file", "home folder", "~")),
    "a variable": ("$HOME/bin/server", ("No such file", "variable")),
    "an interpreter that is not there": (script, ("No such file", "its first line names")),
    "a folder": (lambda folder: str(folder), ("ermission denied", "it is a folder")),
    "no right to run it": (closed, ("ermission denied", "make it executable")),
    "no form of a program": (bare, ("Exec format error", "begin it with #!")),
    "below a file": (f"{sys.executable}/x", ("Not a directory", "install it")),
}


async def told(spec: ServerSpec) -> str:
    pool = ServerPool(timings=Timings(first_pause=60))
    try:
        connection = await pool.acquire(spec)
        state = await connection.ready(20)
        assert state.status == "failed"
        assert state.error is not None and state.error.isprintable()
        return state.error
    finally:
        await pool.aclose()


@pytest.mark.parametrize("frozen", [False, True], ids=["kept", "frozen"])
@pytest.mark.parametrize("name", COMMANDS)
async def test_a_command_that_cannot_be_started_is_named(
    name: str, frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if frozen:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    command, said = COMMANDS[name]
    path = command if isinstance(command, str) else command(tmp_path)
    error = await told(ServerSpec(name="s", command=(path, "x"), cwd=str(tmp_path)))
    for each in (*said, repr(path), repr(str(tmp_path))):
        assert each in error


@pytest.mark.parametrize("frozen", [False, True], ids=["kept", "frozen"])
@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/no/such/folder", "No such file"),
        (sys.executable, "Not a directory"),
        ("~/projects", "home folder"),
        ("$HOME", "variable"),
        ("", ""),
    ],
)
async def test_a_folder_that_is_not_there_is_named(
    folder: str, said: str, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if frozen:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    if not folder:
        # None is given: ours is named.
        folder = str(Path.cwd())
        error = await told(ServerSpec(name="s", command=("no-such-program",)))
    else:
        error = await told(ServerSpec(name="s", command=(sys.executable,), cwd=folder))
        assert '"cwd"' in error
    assert said in error
    assert repr(folder) in error


async def test_what_holds_a_zero_byte_is_told_and_shown_to_nobody() -> None:
    error = await told(ServerSpec(name="s", command=(sys.executable, "a\0b")))
    assert "NUL" in error


async def test_secrets_of_a_command_are_not_told() -> None:
    spec = ServerSpec(name="s", command=("no-such s3cret-value",), env=(("T", "s3cret-value"),))
    error = await told(spec)
    assert "s3cret" not in error
