"""Runs the program in this process, as its tests need it."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from addendum.app.main import main


def call(*arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Result:
    """Run the program and check its exit code; with 0 and 1 nothing may stand on stderr."""
    result = CliRunner().invoke(main, list(arguments), env=env)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    if code in (0, 1):
        assert result.stderr == ""
    return result


def told(*arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Any:
    """Run the program with `--json` and return what it printed."""
    return json.loads(call(*arguments, "--json", code=code, env=env).stdout)


def complaint(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Run the program where it cannot be used so, and return its one line."""
    result = call(*arguments, code=2, env=env)
    assert result.stdout == ""
    assert result.stderr.startswith("addendum: ")
    assert result.stderr.count("\n") == 1 and result.stderr.endswith("\n"), result.stderr
    return result.stderr
