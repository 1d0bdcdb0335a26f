"""The command line: one module a group of commands, imported when the command is used.

Exit codes: 0 what was asked holds, 1 it does not (an undeclared miss, a broken invariant), 2 it
cannot be used so. An error is one line on stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from addendum.cli.flags import check_variables
from addendum.errors import AddendumError, install_hint
from addendum.host.faults import fault
from addendum.masking import masked
from addendum.paths import reason, shown
from addendum.version import __version__

COMMANDS = {
    "demo": ("addendum.cli.demo", "Show what tool changes cost on each route; no key, no network."),
    "run": ("addendum.cli.run", "Run one scenario on one route."),
    "lab": ("addendum.cli.lab", "Serve the lab's providers on this machine."),
    "routes": ("addendum.cli.routes", "List what is known of routes, with its source."),
    "chat": ("addendum.cli.chat", "Chat in the terminal; switch MCP servers on and off."),
    "serve": ("addendum.app.serve", "Serve the web page: Chat and Trajectory."),
    "sessions": ("addendum.cli.sessions", "List the sessions of a store."),
    "show": ("addendum.cli.show", "Show a session's log."),
    "tools": ("addendum.cli.tools", "Say which tools a session could call; pin server tools."),
    "why": ("addendum.cli.why", "Say why requests read less from the cache than expected."),
    "diff": ("addendum.cli.diff", "Compare two requests of a session, segment by segment."),
    "check": ("addendum.cli.check", "Check captured requests, addendum's or anybody's."),
    "record": ("addendum.cli.record", "Run a program and write down its requests to models."),
    "export": ("addendum.app.export", "Write a session's requests as JSON lines, JSON or HAR."),
}
"""Module and short help of each command. The short help stands here so that `--help` imports no
command."""

_EXTRAS = {
    "jinja2": "viewer",
    "markupsafe": "viewer",
    "markdown_it": "viewer",
    "nh3": "viewer",
    "yaml": "lab",
    "starlette": "lab",
    "uvicorn": "lab",
    "mcp": "lab",
    "mcp_types": "lab",
}
_LONGEST = 1_000
"""Characters of an error, whatever was named in it; what to do stands at its end."""

_BROKEN_PIPE = 141
_INTERRUPTED = 130


class Program(click.Group):
    """The commands by name, and the one place where errors become a line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in COMMANDS])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what is left in stdout is written here, where a broken pipe is seen."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Whoever read us has enough.
            _say_no_more()
            raise click.exceptions.Exit(_BROKEN_PIPE) from None

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the program and leave with its exit code."""
        _open_streams()
        try:
            check_variables(os.environ)
            code: int | None = super().main(*args, **{**extra, "standalone_mode": False})
        except (click.Abort, KeyboardInterrupt):
            code = _INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            code = 2
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "addendum"
            code = _fail(f"{error.format_message().rstrip('.')}; see {command} --help")
        except click.ClickException as error:
            code = _fail(error.format_message())
        except AddendumError as error:
            code = _fail(str(error))
        except ModuleNotFoundError as error:
            extra_name = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra_name is None:
                raise
            code = _fail(f"this needs {error.name}; {install_hint(extra_name)}")
        except OSError as error:
            # What no command has foreseen: a full disk, a limit of the system, a lost terminal.
            _say_no_more()
            where = f" {shown(error.filename)}" if isinstance(error.filename, str) else ""
            code = _fail(f"the system refused it: {reason(error)}{where}; mend that and try again")
        except Exception as error:
            code = _fail(fault(error))
        sys.exit(code or 0)


def _open_streams() -> None:
    """Have all three streams, also where they were closed, whatever characters these can take."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Descriptors that are free would be taken by the first file that is opened.
            setattr(sys, name, Path(os.devnull).open(mode))
    given: tuple[Any, ...] = (sys.stdin, sys.stdout)
    for stream in given:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _say_no_more() -> None:
    """Give up stdout; Python would complain of it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    text = " ".join(masked(message).split())
    text = "".join(each if each.isprintable() else "\ufffd" for each in text)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        click.echo(f"addendum: {text}", err=True)
    return 2


@click.group("addendum", cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="addendum", message="%(prog)s %(version)s")
def main() -> None:
    """Change an agent's tools in mid-conversation and keep the prompt cache."""


if __name__ == "__main__":
    main()
