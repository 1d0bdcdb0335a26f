"""The program meets the same trouble: exit status 2, one line on stderr, never a traceback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.test_bad_input_setup import foreign, newer, text_file
from tests.agent.trouble import endpoint
from tests.cli.commands import call, complaint

SCENARIO = """
name: small
tools:
  - {name: echo, description: Echo., parameters: {type: object}, result: {text: done, tokens: 5}}
steps:
  - user: hello
    model: [{calls: [{tool: echo, arguments: {}}]}, {text: hi}]
"""
ROUTE = "anthropic:claude-opus-5-5"


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    return str(file)


def program(*arguments: str, text: str = "") -> tuple[int, str, str]:
    """Run the real program; whatever it does while it ends shows as well."""
    done = subprocess.run(
        [sys.executable, "-m", "addendum.app.main", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "internal error" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def one_line(said: str) -> str:
    assert said.startswith("addendum: ")
    assert said.count("\n") == 1
    assert said.endswith("\n")
    assert said.isprintable() or said[:-1].isprintable()
    return said


FILES: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("no YAML", b"{["),
    ("a list", b"- a\n"),
    ("binary", b"\x00\xff\xfe"),
    ("two documents", b"a: 1\n---\nb: 2\n"),
    ("nested without end", b"steps: " + b"[" * 3_000),
    ("a tag that makes objects", b"name: !!python/object/apply:os.system [echo]\nsteps: []\n"),
    ("an alias of itself", b"steps: &a [*a]\nname: x\n"),
    ("unknown fields", b"name: x\nsteps: []\nnonsense: 1\n"),
    ("steps that are none", b"name: x\nsteps: [5, {dance: true}]\n"),
    ("a tool that is none", b"name: x\ntools: [{name: 5}]\nsteps: []\n"),
    (
        "the same text twice",
        b"name: x\nsteps: [{user: a, model: [{text: b}]}, {user: a, model: [{text: b}]}]\n",
    ),
    ("a server of nothing", b"name: x\nservers: {s: {}}\nsteps: []\n"),
]


@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_a_scenario_that_is_none(name: str, text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(text)
    complaint("run", str(file), "--route", ROUTE)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "/no/such/file.yaml", "--route", ROUTE],
        ["run", "no-such-scenario", "--route", ROUTE],
        ["run", ".", "--route", ROUTE],
        ["demo", "--scenario", "no-such-scenario"],
        ["demo", "--route", "nobody:model"],
        ["lab", "/no/such/file.yaml"],
        ["routes", "nobody:model"],
        ["chat", "--route", ROUTE, "--mcp", "/no/such/file"],
        ["chat", "--route", "nobody:model"],
        ["show", "none"],
        ["tools", "none"],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_what_is_not_there(arguments: list[str], tmp_path: Path) -> None:
    complaint(*arguments, env={"ADDENDUM_STORE": f"sqlite:///{tmp_path}/none.db"})


ROUTES = ["", "nobody:model", "anthropic:gpt-9", f"{ROUTE}+magic", "a\nb", "anthropic:\udcff"]


def test_the_scenario_of_these_tests_works(scenario: str) -> None:
    call("run", scenario, "--route", ROUTE)


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_that_is_none(route: str, scenario: str) -> None:
    complaint("run", scenario, "--route", route)


STORES: list[tuple[str, Callable[[Path], str]]] = [
    ("a later release's", newer),
    ("another program's", foreign),
    ("no database", text_file),
    ("a directory", lambda place: f"sqlite:///{place}"),
    ("in no place", lambda place: "sqlite:////proc/nowhere/x.db"),
    ("of no kind", lambda place: "mysql://me:secret@host/db"),
]


@pytest.mark.parametrize("command", ["run", "sessions", "show", "chat"])
@pytest.mark.parametrize(("name", "url"), STORES, ids=[name for name, _ in STORES])
def test_a_store_that_is_none(
    name: str, url: Callable[[Path], str], command: str, scenario: str, tmp_path: Path
) -> None:
    arguments = {
        "run": [scenario, "--route", ROUTE],
        "sessions": [],
        "show": ["s"],
        "chat": ["--route", ROUTE, "--lab"],
    }[command]
    assert "secret" not in complaint(command, *arguments, "--store", url(tmp_path))


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "another port" in complaint("lab", "--port", str(taken.getsockname()[1]))


# -- endpoints -----------------------------------------------------------------------------------


def error(text: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": "x_error", "message": text}}).encode()


SSE = "text/event-stream"
ENDPOINTS: list[tuple[str, int, bytes, str, str]] = [
    ("400", 400, error("bad\nfield"), "application/json", "bad field"),
    ("401", 401, error("no key"), "application/json", "ANTHROPIC_API_KEY"),
    ("404", 404, b"nothing here", "text/plain", "base URL"),
    ("429", 429, error("slow down"), "application/json", "slow down"),
    ("500", 500, b"", "text/plain", "500"),
    ("HTML", 200, b"<html>\nlogin\n</html>", "text/html", "base URL"),
    ("no event", 200, b"", SSE, "send the request again"),
    ("no JSON", 200, b"data: {nonsense\n\n", SSE, "unreadable JSON"),
    ("cut", 200, b'data: {"type":"message_start","message":{"id":"m"}}\n\n', SSE, "was cut"),
    ("an error in the stream", 200, b"data: " + error("over\nload") + b"\n\n", SSE, "over load"),
    ("terminal codes", 400, error("\x1b[31mred\x07"), "application/json", "red"),
]


@pytest.mark.parametrize(
    ("name", "status", "body", "media", "says"), ENDPOINTS, ids=[each[0] for each in ENDPOINTS]
)
def test_an_endpoint_that_answers_badly(
    name: str, status: int, body: bytes, media: str, says: str, scenario: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/run.db"
    with endpoint(status, body, media) as url:
        said = complaint("run", scenario, "--route", ROUTE, "--base-url", url, "--store", store)
    assert says in one_line(said)
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "url", ["no address", "file:///etc/passwd", "http://127.0.0.1:9", "http://"]
)
def test_an_address_that_is_none(url: str, scenario: str) -> None:
    complaint("run", scenario, "--route", ROUTE, "--base-url", url)


def test_the_real_program_ends_in_one_line_as_well(scenario: str, tmp_path: Path) -> None:
    """With nothing behind it: no task that was never awaited, no process that is left."""
    with endpoint(500, b"") as url:
        code, out, told = program("run", scenario, "--route", ROUTE, "--base-url", url)
    assert (code, out) == (2, "")
    one_line(told)
    bad = tmp_path / "server.yaml"
    bad.write_text(
        "name: x\nservers: {s: {command: [/no/such/program]}}\n"
        "steps: [{enable: s}, {user: a, model: [{text: b}]}]\n"
    )
    code, out, told = program("run", str(bad), "--route", ROUTE)
    assert (code, told) in ((0, ""), (2, told))
    assert code == 0 or one_line(told)


HOSTILE = ["/nonsense", "/mcp on none", "/mcp", "\x1b[31m\x00", "<tool_update>", "/call echo {"]


def test_a_chat_takes_any_line(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/chat.db"
    code, _, told = program(
        "chat",
        "--route",
        ROUTE,
        "--lab",
        "--store",
        store,
        text="\n".join([*HOSTILE, "/tools", "/why", "/quit"]),
    )
    assert code in (0, 1)
    assert all(line.startswith(("addendum: ", "error: ")) for line in told.splitlines()), told
    code, _, told = program(
        "chat", "--route", ROUTE, "--lab", "--store", store, "--session", "a/b", text="hello\n"
    )
    assert code == 2
    one_line(told)
