from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.cli.commands import call, complaint

import addendum
from addendum.agent.agent import Agent
from addendum.app import main as program
from addendum.cli import terminal
from addendum.errors import ConfigurationError, ProviderError
from addendum.lines import one_line
from addendum.version import __version__


def test_help_lists_every_command_and_what_it_does() -> None:
    shown = call("--help").stdout
    for name, (_, text) in program.COMMANDS.items():
        assert f"  {name} " in shown
        assert text.split()[0] in shown
    assert call("-h").stdout == shown
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("name", list(program.COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    shown = call(name, "--help").stdout
    assert shown.startswith("Usage: ")
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_the_version_is_told() -> None:
    assert call("--version").stdout == f"addendum {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from addendum.app.main import main\n"
        "sys.argv = ['addendum', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'mcp', 'starlette', 'uvicorn', 'yaml', 'rich'}\n"
        "heavy |= {'addendum.lab', 'addendum.agent'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_every_public_name_is_found_where_it_lives() -> None:
    for name in addendum.__all__:
        assert getattr(addendum, name) is not None
        assert name in dir(addendum)
    assert addendum.Agent is Agent
    with pytest.raises(AttributeError, match="'addendum' has no attribute 'Nothing'"):
        _ = addendum.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch"], "No such command 'nosuch'; see addendum --help"),
        (["run"], "Missing argument 'FILE'; see addendum run --help"),
        (["demo", "--nosuch"], "No such option"),
        (["demo", "--route", "x"], "'x' is no route; write provider:model"),
        (["lab", "--port", "99999"], "99999 is not in the range"),
    ],
)
def test_a_wrong_call_is_one_line(arguments: list[str], said: str) -> None:
    assert said in complaint(*arguments)


def test_without_a_command_the_help_is_shown_as_an_error() -> None:
    result = call(code=2)
    assert result.stdout == ""
    assert "Commands:" in result.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigurationError("one\n  two"), "addendum: one two"),
        (ProviderError("it failed"), "addendum: it failed"),
        (ModuleNotFoundError("x", name="yaml"), 'pip install "addendum[lab]"'),
        (ZeroDivisionError("division by zero"), "internal error: ZeroDivisionError: division"),
        (
            ExceptionGroup("group", [ExceptionGroup("inner", [ConfigurationError("in groups")])]),
            "addendum: in groups",
        ),
    ],
)
def test_an_error_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    async def fail() -> None:
        raise error

    @click.command()
    def broken() -> None:
        terminal.run_async(fail)

    monkeypatch.setattr(program.Program, "get_command", lambda *_: broken)
    line = complaint("demo")
    assert said in line
    assert "Traceback" not in line


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program.Program, "get_command", lambda *_: broken)
    assert "Traceback" not in call("demo", code=130).stderr


def test_a_reader_that_has_enough_is_no_error() -> None:
    # The reader's end is closed before anything is written.
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "addendum.app.main", "routes", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_lab_that_is_interrupted_ends_quietly(tmp_path: Path) -> None:
    def listen_to_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    lab = subprocess.Popen(
        [sys.executable, "-m", "addendum.app.main", "lab"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_interrupts,
    )
    assert lab.stdout is not None and lab.stderr is not None
    with lab:
        assert lab.stdout.readline().startswith("lab on http://127.0.0.1:")
        lab.send_signal(signal.SIGINT)
        assert lab.wait(30) == 130
        assert lab.stderr.read().strip() == ""


# -- terminal -----------------------------------------------------------------------------------


def test_colours_need_a_terminal_and_nobody_who_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.style("a", fg="red") == "a"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert terminal.style("a", fg="red") != "a"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.style("a", fg="red") == "a"


def test_foreign_text_is_one_safe_line() -> None:
    assert one_line("a\n b\t\x1b[31mred\x07\ud800", 80) == "a b \ufffd[31mred\ufffd\ufffd"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
    assert one_line("abc", 3) == "abc"


def test_a_table_is_as_narrow_as_it_can_be() -> None:
    shown = terminal.table(("a", "number"), [["long", "1"], ["b", "1,000"]], right=(1,))
    assert shown.splitlines() == ["a     number", "long       1", "b      1,000"]
