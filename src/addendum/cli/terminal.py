"""What the commands share: output for people and programs, options, the way into async code."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import click
import msgspec

from addendum import encoding
from addendum.cli.flags import STORE
from addendum.errors import AddendumError
from addendum.masking import masked, masked_json

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

WIDTH = 80
"""Columns that output fits where the terminal does not say more."""

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")

LAB_ROUTE = "anthropic:claude-opus-5-5"
"""Where a talk with the lab goes if nothing else is said."""


def json_option(command: F) -> F:
    """Add `--json` to a command."""
    return click.option("as_json", "--json", is_flag=True, help="Print JSON.")(command)


def store_option(command: F) -> F:
    """Add `--store` to a command."""
    return click.option(
        "--store",
        type=STORE,
        envvar="ADDENDUM_STORE",
        metavar="URL",
        help="Where sessions are kept: sqlite:///FILE. Else $ADDENDUM_STORE, else a file in your "
        "own data folder.",
    )(command)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text without credentials; everything that a command prints goes through here."""
    click.echo(masked(text), err=err, nl=nl)


def print_json(value: Any) -> None:
    """Print a value as indented JSON, without credentials."""
    shown = masked_json(encoding.encode(value))
    text = msgspec.json.format(shown, indent=2).decode()
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        # As JSON has it, nothing is lost where the terminal cannot show a sign.
        text = _BEYOND_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], text)
    click.echo(text)


def run_async(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Run async code and return its result.

    Raises:
        AddendumError: As it was raised, also where a task group wrapped it.
    """
    try:
        return anyio.run(function, *arguments)
    except BaseExceptionGroup as group:
        told = group.subgroup((AddendumError, KeyboardInterrupt))
        while isinstance(told, BaseExceptionGroup):
            told = told.exceptions[0]
        if told is None:
            raise
        raise told from None


def style(text: str, **how: Any) -> str:
    """Return text with terminal codes, where a terminal takes them and nobody objects."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, **how)


def width() -> int:
    """Return the columns that output may take: the terminal's, at least 40, or 80 without one."""
    if not sys.stdout.isatty():
        return WIDTH
    try:
        return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    except OSError:
        return WIDTH


def wrapped(text: str, indent: int = 0) -> str:
    """Return text broken into lines of less than 80 columns, all but the first indented."""
    return textwrap.fill(text, WIDTH - 1, subsequent_indent=" " * indent, break_on_hyphens=False)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return rows as columns, as narrow as they can be.

    Args:
        heads: Titles of the columns.
        rows: Their cells.
        right: Columns that are aligned to the right.
    """
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]

    def cells(row: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(widths[at]) if at in right else cell.ljust(widths[at])
            for at, cell in enumerate(row)
        ).rstrip()

    return "\n".join([style(cells(heads), bold=True), *(cells(row) for row in rows)])
