"""Why a server's program could not be started, in words that say what to write instead."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path

from addendum.errors import ConfigurationError
from addendum.lines import one_line
from addendum.tools.mcp.values import ServerSpec


def start_error(spec: ServerSpec, number: int, what: str = "") -> ConfigurationError:
    """Return the error for a program that could not be started.

    Args:
        spec: The server.
        number: The operating system's number for it.
        what: What failed, `folder` or `command`; found out where it is not known.
    """
    if not what:
        what = "command" if spec.cwd is None or Path(spec.cwd).is_dir() else "folder"
    command = spec.command[0]
    folder = Path(spec.cwd or ".").absolute()
    reason = os.strerror(number)
    if what == "folder":
        return ConfigurationError(
            f"{reason}: the folder {_shown(str(spec.cwd))} to start {_shown(command)} in; "
            f'{_tilde(str(spec.cwd)) or "correct"} its "cwd"'
        )
    return ConfigurationError(
        f"{reason}: the command {_shown(command)} (started in the folder {_shown(str(folder))}); "
        f"{_advice(command, folder, number)}"
    )


def _advice(command: str, folder: Path, number: int) -> str:
    path = folder / command
    missing = number in (errno.ENOENT, errno.ENOTDIR)
    if missing and any(character.isspace() for character in command.strip()):
        program, *rest = _words(command)
        return f'write "command": {json.dumps(program)}, "args": {json.dumps(rest)}'
    if missing and (hint := _tilde(command)):
        return f"{hint} it"
    if missing and "/" in command and path.exists():
        return "it is there, but the interpreter that its first line names is not"
    if missing:
        return "install it, or write its whole path"
    if path.is_dir():
        return "it is a folder; name a program"
    if number in (errno.EACCES, errno.EPERM):
        return "make it executable, or name the program that runs it"
    if number == errno.ENOEXEC:
        return "name the program that runs it, or begin it with #!"
    return "correct it"


def _tilde(text: str) -> str:
    """Return what to do with a path that only a shell would understand; empty for any other."""
    if text.startswith("~"):
        return "write the home folder out, nobody expands ~ here, in"
    return "write out the variable, nobody expands it here, in" if "$" in text else ""


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command) or [command]
    except ValueError:
        return command.split()


def _shown(text: str) -> str:
    return repr(one_line(text, 120))
