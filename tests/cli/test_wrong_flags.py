"""A walk over every flag and argument of every command, and every variable, with wrong values.

Most rows follow from a parameter's type; what only a name says stands in `ROWS`. A parameter of
which nothing is known fails the walk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.commands import complaint
from tests.cli.histories import CHAT, CLAUDE, play

from addendum.app.main import main
from addendum.cli import flags

LONG = "x" * 300

FINE: dict[str, list[str]] = {
    "demo": ["--scenario", "small.yaml", "--route", CHAT],
    "run": ["small.yaml", "--route", CHAT],
    "lab": [],
    "routes list": [],
    "routes probe": [CLAUDE],
    "chat": ["--lab"],
    "serve": ["--lab", "--port", "0"],
    "sessions": [],
    "sessions delete": ["small"],
    "show": ["small"],
    "tools of": ["small"],
    "tools pin": ["--mcp", "mcp.json"],
    "why": ["small"],
    "diff": ["small", "1", "2"],
    "check": ["captures.jsonl"],
    "record": ["--out", "new.jsonl", "--", "true"],
    "export": ["small"],
}
"""What each command takes without complaint: one value is put in the place of a right one."""

LIVE = ["--live", "--route", CLAUDE, "--max-cost", "1", "--yes"]
BESIDE = {
    ("demo", "max_cost"): LIVE,
    ("demo", "base_url"): LIVE,
    ("demo", "keep"): LIVE,
    ("why", "base_url"): ["small", "--ask"],
    ("chat", "base_url"): ["--route", CLAUDE],
    ("tools of", "route"): ["small", "--what-if", "enable:files"],
    ("tools of", "mcp"): ["small", "--what-if", "enable:other"],
}
"""What a parameter goes with, where that is something else."""

Row = str | tuple[str, str]
"""A wrong value; and what of it is named, where that is not the whole."""

URLS: list[Row] = [
    "",
    "ftp://x",
    "no address",
    "localhost:1",
    ("http://", "http://"),
    ("http://me:secret@host/", "host"),
]
ROUTES: list[Row] = [
    "",
    "anthropic",
    (":x", "provider ''"),
    ("nobody:x", "nobody"),
    ("anthropic:nosuch", "nosuch"),
    (f"{CLAUDE}+magic", "+magic"),
    ("a b:c", "a b"),
]
SESSIONS: list[Row] = ["", " ", "nosuch"]
FILES: list[Row] = ["", "nosuch", "/no/such/file", ".", (LONG, "xxx")]
WORDS: dict[str, list[Row]] = {
    "store": [
        "",
        ("nosuch://me:secret@host/x", "nosuch"),
        ("sessions.db", "without a scheme"),
        "sqlite:",
        "sqlite:///",
        ("sqlite:///mcp.json/x.db", "mcp.json"),
        (f"sqlite:///{LONG}{LONG}.db", "xxx"),
    ],
    "route": ROUTES,
    "routes": ROUTES,
    "mcp": FILES,
    "base_url": URLS,
    "instructions": [("@", "."), ("@/no/such", "/no/such"), ("@.", "."), (f"@{LONG}", "xxx")],
    "session_id": ["", "a/b", (LONG, "session"), ("\x07", "\\x07")],
    "session": SESSIONS,
    "values": ["", "x", "=1", ("nosuch=1", "nosuch")],
    "host": ["", "no host", "256.1.1.1", "999", "a_b..c", "0.0.0.0"],
    "token": ["", "short"],
    "what_if": ["", "drop:files", "enable:", ("enable:nosuch", "nosuch"), "files"],
    "file": FILES,
    "captures": FILES,
    "name": ROUTES,
    "command": ["", "/no/such/program"],
    "scenario": FILES,
    "max_cost": ["", "x", "0", "-1", "nan", "inf", "1,5"],
    "keep": ["", ("mcp.json/x", "mcp.json"), "/proc/x"],
    "report": ["", ("/no/such/x.html", "/no/such"), ".", ("mcp.json/x", "mcp.json")],
    "out": ["", ("/no/such/x", "/no/such"), ("mcp.json/x", "mcp.json"), "mcp.json"],
}
"""Wrong values of parameters that take a text, by the parameter's name."""

RIGHT = {
    ("lab", "file", "nosuch"),
    ("tools pin", "file", "nosuch"),  # a new file
    ("tools pin", "file", "/no/such/file"),
    ("routes list", "name", "anthropic"),
    ("routes probe", "out", "/no/such/x"),
}


def walked() -> Iterator[tuple[str, click.Command, click.Parameter]]:
    """Yield every parameter of every command."""

    def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
        context = click.Context(group)
        for name in (*group.list_commands(context), *group.commands):
            command = group.get_command(context, name)
            assert command is not None
            yield f"{path}{name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path}{name} ")

    seen: set[str] = set()
    for path, command in commands(main, ""):
        if path not in seen:
            seen.add(path)
            for parameter in command.params:
                yield path, command, parameter


def wrong(path: str, parameter: click.Parameter) -> list[Row]:
    """The wrong values of a parameter; fails where nobody knows any."""
    kind = parameter.type
    if isinstance(kind, click.IntRange):
        least = 0 if kind.min is None else kind.min
        most = [] if kind.max is None else [str(kind.max + 1)]
        return ["", "x", "1.5", "true", str(least - 1), "9" * 30, *most]
    if isinstance(kind, click.Choice):
        one = str(next(iter(kind.choices)))
        return ["", "nosuch", one.upper() if one.islower() else one.lower(), f"{one} ", one[:-1]]
    assert parameter.name in WORDS, f"{path}: no wrong values are known of {parameter.name}"
    return WORDS[str(parameter.name)]


def rows() -> Iterator[Any]:
    for path, _, parameter in walked():
        if isinstance(parameter, click.Option) and parameter.is_flag:
            yield pytest.param(
                path, parameter, "=no", parameter.opts[0], id=f"{path} {parameter.opts[0]}"
            )
            continue
        for row in wrong(path, parameter):
            value, named = row if isinstance(row, tuple) else (row, row)
            yield pytest.param(
                path, parameter, value, named, id=f"{path} {parameter.name} {value[:20]!r}"
            )


def with_value(path: str, parameter: click.Parameter, value: str) -> list[str]:
    """The command line that is right but for one value."""
    args = list(BESIDE.get((path, str(parameter.name)), FINE[path]))
    words = path.removesuffix(" of").split()
    if isinstance(parameter, click.Argument):
        place = {"b": 2, "a": 1, "command": 3}.get(str(parameter.name), 0)
        args[place : place + 1] = [value]
        if parameter.name == "file" and path == "tools pin":
            args = [value, *FINE[path]]
        return [*words, *args]
    flag = parameter.opts[-1]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [*words, f"{flag}{value}", *args]
    if flag in args:
        args[args.index(flag) + 1] = value
        return [*words, *args]
    return (
        [*words, *args[:1], flag, value, *args[1:]]
        if path == "tools of"
        else [*words, flag, value, *args]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("walk")
    play(made, "small", CHAT)
    (made / "mcp.json").write_text('{"mcpServers": {}}')
    (made / "captures.jsonl").write_text('{"model": "m", "messages": [{"role": "user"}]}\n')
    return made


@pytest.mark.parametrize(("path", "parameter", "value", "named"), list(rows()))
def test_a_wrong_value_is_named_in_one_line(
    path: str,
    parameter: click.Parameter,
    value: str,
    named: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (path, parameter.name, value) in RIGHT:
        return
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    monkeypatch.setenv("ADDENDUM_STORE", f"sqlite:///{folder}/sessions.db")
    said = complaint(*with_value(path, parameter, value))
    assert "secret" not in said
    assert "internal error" not in said
    if value.strip():
        assert named in said
    else:
        assert repr(value) in said or any(flag in said for flag in parameter.opts)


# -- variables ------------------------------------------------------------------------------

VARIABLES: dict[str, list[tuple[str, list[str], str]]] = {
    "ADDENDUM_LLAMA_SERVER": [("/no/such/program", ["demo"], "/no/such/program")],
    # Anything but 0 lets all requests pass: no value of it is wrong.
    "ADDENDUM_OFF": [],
    "ADDENDUM_PROBES": [
        ("mcp.json", ["routes", "probe", CLAUDE], "mcp.json"),
        ("mcp.json", ["chat", "--route", CLAUDE], "mcp.json"),
    ],
    "ADDENDUM_ROUTES": [
        ("/no/such/file", ["routes"], "/no/such/file"),
        (".", ["routes"], "ADDENDUM_ROUTES"),
        ("mcp.json", ["routes"], "mcp.json"),
        ("/no/such/file", ["run", "small.yaml", "--route", CHAT], "/no/such/file"),
    ],
    "ADDENDUM_STORE": [
        ("nosuch://me:secret@host/x", ["sessions"], "nosuch"),
        ("sqlite:", ["show", "small"], "sqlite:"),
        ("drop", ["chat", "--lab"], "scheme"),
        ("sqlite:///mcp.json/x.db", ["serve", "--lab"], "mcp.json"),
    ],
    "ADDENDUM_TOKEN": [("short", ["serve", "--lab"], "token")],
}
SLIPS = ["ADDENDUM_STROE", "ADDENDUM_STORES", "ADDENDUMSTORE", "ADDENDUM_TOKNE", "ADDENDUM_ROUTE"]


@pytest.mark.parametrize(
    ("name", "value", "command", "named"),
    [(name, *row) for name, known in VARIABLES.items() for row in known],
)
def test_a_wrong_variable_is_named_in_one_line(
    name: str,
    value: str,
    command: list[str],
    named: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    said = complaint(*command, env={name: value})
    assert named in said and "secret" not in said


@pytest.mark.parametrize("name", SLIPS)
def test_a_variable_that_is_misspelled_is_told(name: str) -> None:
    said = complaint("routes", env={name: "x"})
    assert name in said and "did you mean 'ADDENDUM_" in said


def test_every_variable_has_its_rows() -> None:
    read: set[str] = set()
    for file in (Path(__file__).parents[2] / "src" / "addendum").rglob("*.py"):
        read |= set(re.findall(r"ADDENDUM_[A-Z_]+", file.read_text("utf-8")))
    assert read == set(flags.VARIABLES) == set(VARIABLES)
