"""What comes in from outside and cannot be used: one line that says what to do, exit code 2.

The table is walked by command and parameter, so a new parameter without a row fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.abc
import click
import pytest
from tests.agent.stage import CHAT, stage
from tests.cli.commands import call, complaint, told

from addendum.app import start
from addendum.app.main import COMMANDS, main
from addendum.stores import SqliteStore

pytestmark = pytest.mark.anyio

ROUTE = "openai-chat:gpt-4.1"
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="pipes, links, signals")


# -- files ---------------------------------------------------------------------------------------


def bad_files(folder: Path, *, text: bool = False) -> Iterator[str]:
    """Paths of files that cannot be read as what they are named for."""
    empty, binary, huge = folder / "empty", folder / "binary", folder / "huge"
    broken, closed, pipe, loop = (folder / name for name in ("broken", "closed", "pipe", "loop"))
    yield str(folder / "nosuch.json")
    yield str(folder)
    yield f"{folder}/"
    yield str(folder / ("x" * 300))
    yield str(folder / ("x/" * 3_000))
    yield str(folder / "a\udc80b")
    yield "/dev/null"
    yield "/dev/zero"
    if not pipe.exists():
        os.mkfifo(pipe)
        loop.symlink_to(loop)
        binary.write_bytes(b"\x7fELF" + bytes(range(256)) * 20)
        with huge.open("wb") as file:
            file.truncate(3 * 1024 * 1024 * 1024)  # sparse
    yield str(pipe)
    yield str(loop)
    yield str(huge)
    yield str(binary)
    if not text:
        empty.touch()
        broken.write_text('{"a": [1, 2')
        closed.write_text("\x00")
        yield from map(str, (empty, broken, closed))


def bad_outputs(folder: Path) -> Iterator[str]:
    """Paths that nothing can be written to."""
    taken = folder / "taken"
    taken.touch()
    yield str(folder)
    yield str(folder / ("x" * 300))
    yield f"{taken}/below.json"
    yield str(folder / ("x/" * 3_000) / "y.json")


def bad_stores(folder: Path) -> Iterator[str]:
    """Addresses of what is no store."""
    for path in bad_files(folder, text=True):
        if path.endswith(("nosuch.json", "a\udc80b")):
            continue  # A store is made there.
        yield f"sqlite:///{path}"
    yield from ("redis://u:secret@h/0", "kept.db", "sqlite://", "sqlite:///", "memory://x")
    yield "sqlite:///~nobody-of-this-name/x.db"


ODD = ("", " ", "nosuch", "\x1b[31mred", "a\nb", "a/b", "..", "x" * 5_000, "\udc80", "é\u202e")
WORDS = (
    "",
    ":",
    "x",
    "nobody:x",
    "\x1b[31m",
    "a\nb:c",
    "x" * 5_000,
    "\udc80:\udc80",
    "compatible:",
)
URLS = (
    "",
    "x",
    "http://",
    "ftp://h",
    "http://[",
    "http://h:99999/",
    "http://\x00/",
    "javascript:1",
)
SETS = ("", "x", "=1", "x=1", "\x1b=1", "a\nb=c")
HOSTS = ("256.1.1.1", "no such host", "\udc80", "x" * 300)

VALUES: dict[str, Callable[[Path], Iterator[str]]] = {
    "file": bad_files,
    "scenario": bad_files,
    "captures": bad_files,
    "mcp": bad_files,
    "instructions": lambda folder: (f"@{path}" for path in bad_files(folder, text=True)),
    "out": bad_outputs,
    "report": bad_outputs,
    "store": bad_stores,
    "session": lambda folder: iter(ODD),
    "session_id": lambda folder: iter(each for each in ODD if each not in ("nosuch", "é\u202e")),
    "route": lambda folder: iter(WORDS),
    "routes": lambda folder: iter(WORDS),
    "name": lambda folder: iter(WORDS),
    "base_url": lambda folder: iter(URLS),
    "values": lambda folder: iter(SETS),
    "host": lambda folder: iter(HOSTS),
    "token": lambda folder: iter(("", "short")),
    "command": lambda folder: iter((str(folder), str(folder / "nosuch"), "x" * 5_000, "\udc80")),
    "what_if": lambda folder: iter(WORDS),
}
"""Values that cannot be used, by the name of a parameter."""

CHECKED = {
    *("tool_changes", "ask", "form", "allow", "language"),  # a choice
    *("port", "at", "request", "a", "b", "max_cost"),  # a number in a range
    *(
        "best",
        "live",
        "yes",
        "as_json",
        "tasks",
        "in_lab",
        "resources",
        "follow",
        "unredacted",
    ),  # flags
    "keep",  # only with --live, which needs keys
}
"""Parameters whose values the parser itself refuses, or that have none."""

GOOD: dict[str, list[str]] = {
    "demo": ["--scenario", "g2", "--route", ROUTE],
    "run": ["g2", "--route", ROUTE],
    "lab": [],
    "routes list": ["openai-chat"],
    "routes probe": [ROUTE, "--base-url", "http://127.0.0.1:9/v1", "--max-cost", "1"],
    "chat": ["--lab"],
    "serve": ["--lab", "--port", "0"],
    "sessions": [],
    "sessions delete": ["s"],
    "show": ["s"],
    "tools of": ["s"],
    "tools pin": [],
    "why": ["s"],
    "diff": ["s", "1", "2"],
    "check": ["captures.jsonl"],
    "record": ["--", "true"],
    "export": ["s"],
}
"""For each command, words with which it could be used."""

SKIPPED = {
    ("routes list", "name"): {""},  # all of them
    ("chat", "base_url"): {*URLS},  # not with --lab
    ("lab", "values"): {*SETS},  # only with a file
    ("why", "base_url"): {*URLS},  # only with --ask
}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield name, click.Command(name, params=command.params)
            for each in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), each)
                assert found is not None
                yield f"{name} {each}", found
        else:
            yield name, command


ROWS = [
    (name, parameter.name, parameter)
    for name, command in commands()
    for parameter in command.params
    if parameter.name not in CHECKED
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a session in it."""
    found = f"sqlite:///{tmp_path_factory.mktemp('store')}/kept.db"

    async def make() -> None:
        store = await SqliteStore.open(found)
        async with stage() as here, here.agent(CHAT).open("s", store=store) as session:
            await session.run("one")
            await session.run("two")
        await store.aclose()

    anyio.run(make)
    return found


def words(name: str, parameter: click.Parameter, value: str) -> list[str]:
    """A call of a command in which one value is another one."""
    given = [*name.split(), *GOOD[name]]
    if isinstance(parameter, click.Option):
        option = parameter.opts[0]
        if option in given:
            at = given.index(option)
            del given[at : at + 2]
        return [*name.split(), f"{option}={value}", *given[len(name.split()) :]]
    count = len(name.split())
    place = {"b": count + 2, "a": count + 1}.get(parameter.name or "", count)
    if parameter.name == "command":
        return [*given[:count], "--", value]
    return [*given[:count], "--", *given[count:place], value, *given[place + 1 :]][:99]


@POSIX
@pytest.mark.parametrize(("name", "parameter", "made"), ROWS, ids=[f"{n} {p}" for n, p, _ in ROWS])
def test_what_cannot_be_used_is_one_line(
    name: str,
    parameter: str,
    made: click.Parameter,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADDENDUM_STORE", url)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    for value in VALUES[parameter](tmp_path):
        if value in SKIPPED.get((name, parameter), ()):
            continue
        said = complaint(*words(name, made, value))
        assert "internal error" not in said and "Traceback" not in said, (value[:80], said)
        shown = said.removesuffix("\n")
        assert shown.isprintable() and len(shown) < 1_100, (value[:80], said)
        assert "secret" not in said


# -- the terminal --------------------------------------------------------------------------------

START = (sys.executable, "-m", "addendum.app.start")


def shell(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which `addendum` is this program."""
    program = " ".join(START)
    return subprocess.run(
        ["bash", "-c", f'addendum() {{ {program} "$@"; }}; {command}'],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "ADDENDUM_STORE": f"sqlite:///{folder}/kept.db", **env},
    )


NO_HOME = f"env -u HOME XDG_DATA_HOME= ADDENDUM_STORE= {' '.join(START)}"
PLAIN = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 addendum"
AWAY = "mkdir gone; cd gone; rmdir ../gone; addendum"


@POSIX
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("addendum routes | head -1; exit ${PIPESTATUS[0]}", (0, 141), ""),
        ("addendum routes --json | head -c 10; exit ${PIPESTATUS[0]}", (0, 141), ""),
        ("addendum routes >/dev/full", (2,), "addendum: the system refused it: No space left on"),
        ("addendum routes --json >/dev/full", (2,), "No space left on"),
        ("addendum routes >&-", (0,), ""),
        ("addendum routes <&- >&- 2>&-", (0,), ""),
        ("addendum show nosuch 2>&-", (2,), ""),
        ("addendum show nosuch 2>/dev/full", (2,), ""),
        ("addendum chat --lab <&-", (0,), ""),
        ("addendum chat --lab </dev/null >&-", (0,), ""),
        ("addendum chat --lab <.", (1, 2), ""),
        ("printf '\\xff\\xfe hello\\n' | addendum chat --lab", (0, 1), ""),
        (f"{AWAY} demo --scenario nosuch", (2,), "no scenario"),
        (f"{AWAY} show x --store sqlite:///x.db", (2,), "write"),
        ("PYTHONIOENCODING=ascii addendum routes", (0,), ""),
        ("PYTHONIOENCODING=ascii addendum show 'é\u202e'", (2,), "there is no store"),
        ("echo é | PYTHONIOENCODING=ascii addendum chat --lab", (0,), ""),
        (f"{PLAIN} routes", (0,), ""),
        (f"{NO_HOME} show nosuch --store 'sqlite:///~/no/such.db'", (2,), "there is no store"),
        (f"ulimit -n 6; addendum run g2 --route {ROUTE}", (0, 2), ""),
    ],
)
def test_a_terminal_that_is_not_as_usual(
    command: str, code: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    done = shell(command, tmp_path)
    assert done.returncode in code, (done.returncode, done.stderr)
    assert said in done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr
    assert done.stderr.count("\n") <= 1 or done.returncode in (0, 1), done.stderr


def test_json_loses_nothing_where_a_terminal_cannot_show_a_sign(tmp_path: Path) -> None:
    for encoding in ("ascii", "latin-1", "utf-8"):
        done = shell("addendum routes openai-chat --json", tmp_path, PYTHONIOENCODING=encoding)
        assert json.loads(done.stdout) == told("routes", "openai-chat")


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom the system does not know, as in many a container."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


@pytest.mark.usefixtures("no_home")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sessions", "--store", "sqlite:///~/x.db"], 2),
        (["show", "s", "--store", "sqlite:///~/x.db"], 2),
        (["chat", "--lab", "--store", "sqlite:///~/x.db"], 2),
        (["routes", "openai-chat"], 0),
        (["run", "g2", "--route", ROUTE], 0),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else str(each),
)
def test_without_a_home_directory(arguments: list[str], code: int) -> None:
    if code:
        assert "there is no home directory" in complaint(*arguments)
    else:
        call(*arguments)


@POSIX
async def test_an_interrupt_ends_every_command_without_a_story(tmp_path: Path, url: str) -> None:
    """Each waits for something that never comes: an answer, a server, a person, a command."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    base = ["--base-url", f"http://127.0.0.1:{port}/v1"]
    code = f"import socket; a = socket.create_connection(('127.0.0.1', {port})); a.recv(1)"
    hangs = tmp_path / "mcp.json"
    server = {"command": sys.executable, "args": ["-c", code], "on": True}
    hangs.write_text(json.dumps({"mcpServers": {"hangs": server}}))
    speaks = {
        "lab": ["lab"],
        "serve": ["serve", "--lab", "--port", "0"],
        "follow": ["show", "s", "--follow"],
        "record": ["record", "--out", str(tmp_path / "o"), "--", "sh", "-c", "echo up; sleep 60"],
    }
    connects = {
        "run": ["run", "g2", "--route", ROUTE, *base],
        "probe": ["routes", "probe", ROUTE, *base, "--max-cost", "1"],
        "chat": ["chat", "--lab", "--mcp", str(hangs)],
        "pin": ["tools", "pin", "--mcp", str(hangs)],
    }
    env = {**os.environ, "ADDENDUM_STORE": url, "OPENAI_API_KEY": "x"}
    ended: dict[str, tuple[int, str]] = {}
    held: list[anyio.abc.SocketStream] = []
    all_there = anyio.Event()

    async def hold(stream: anyio.abc.SocketStream) -> None:
        held.append(stream)
        if len(held) >= len(connects):
            all_there.set()
        await anyio.sleep_forever()

    async def one(name: str, words: list[str]) -> None:
        async with await anyio.open_process(
            [*START, *words], env=env, stdin=subprocess.PIPE, start_new_session=True
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            if name in speaks:
                await process.stdout.receive()
            else:
                await all_there.wait()
            os.killpg(process.pid, signal.SIGINT)
            said = b"".join([part async for part in process.stderr]).decode()
            ended[name] = await process.wait(), said

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hold)
        async with anyio.create_task_group() as programs:
            for name, words in {**speaks, **connects}.items():
                programs.start_soon(one, name, words)
        tasks.cancel_scope.cancel()
    for stream in held:
        await stream.aclose()
    await listener.aclose()
    for name, (code, said) in ended.items():
        # A page that is served, and a prompt, are left so.
        assert code in ((0, 130) if name in ("serve", "chat") else (130,)), (name, code, said)
        assert "Traceback" not in said and "internal error" not in said, (name, said)


def test_an_interrupt_while_the_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "addendum.app.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "addendum.app.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as caught:
        start.main()
    assert caught.value.code == 130


def test_the_program_begins_where_the_interrupt_is_awaited() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert 'addendum = "addendum.app.start:main"' in text
