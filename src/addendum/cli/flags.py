"""What flags and variables may hold, one type for each kind of value.

A wrong one is told before anything is read, sent or paid: one line that names it.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from addendum.checked import nearest
from addendum.errors import AddendumError, ConfigurationError

VARIABLES = (
    "ADDENDUM_LLAMA_SERVER",
    "ADDENDUM_OFF",
    "ADDENDUM_PROBES",
    "ADDENDUM_ROUTES",
    "ADDENDUM_STORE",
    "ADDENDUM_TOKEN",
)
"""Variables of the environment that addendum reads."""

MIN_TOKEN = 16
"""Characters that a token for visitors has at least."""

_SLIP = 0.9
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


class Given(click.ParamType[Any]):
    """A value that a function reads, or says in one line why it cannot.

    Args:
        name: What it is called in help texts.
        read: Returns the value of a text.
    """

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text stands for."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except AddendumError as error:
            self.fail(str(error), param, ctx)


def _name(text: str) -> str:
    if not text.strip():
        raise ConfigurationError(f"{text!r} is empty; name something, or leave it out")
    return text


def _path(text: str) -> Path:
    path = Path(_name(text))
    try:
        path.exists()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no path"
        raise ConfigurationError(
            f"{text[:60]!r} cannot be looked up: {why}; name another"
        ) from None
    return path


def _file(text: str) -> str:
    _path(text)
    return text


def _new_file(text: str) -> Path:
    path = _path(text)
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file")
    return path


def _store(text: str) -> str:
    from addendum.stores import MEMORY, check_url
    from addendum.stores.sqlite import path_of

    check_url(_name(text))
    if text != MEMORY:
        path = _path(str(path_of(text)))
        above = next(each for each in path.parents if each.exists())
        if not above.is_dir() or path.is_dir():
            raise ConfigurationError(f"no store can be at {path}: name a file in a folder")
    return text


def _base_url(text: str) -> str:
    from addendum.routes.resolve import checked_base_url

    checked_base_url(text)
    return text


def _dollars(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount) or amount <= 0:
        raise ConfigurationError(f"{text!r} is no number of US dollars above 0")
    return amount


def _host(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        labels = text.rstrip(".").split(".")
        if not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
            raise ConfigurationError(
                f"{text[:60]!r} is neither the name of a host nor its address; correct it"
            ) from None
    return text


def _token(text: str) -> str:
    if len(text) < MIN_TOKEN:
        raise ConfigurationError(f"the token is too short; take at least {MIN_TOKEN} characters")
    return text


NAME = Given("text", _name)
"""A text that says something."""
PATH = Given("path", _path)
"""A path; whoever uses it says what is wrong with the file."""
FILE = Given("file", _file)
"""The same, or a name that stands for a file, as it is written."""
NEW_FILE = Given("file", _new_file)
"""A file that can be written: its folder is there."""
STORE = Given("url", _store)
BASE_URL = Given("url", _base_url)
DOLLARS = Given("number", _dollars)
HOST = Given("host", _host)
TOKEN = Given("text", _token)


def check_folder(folder: Path) -> None:
    """Make sure that a file can be written to a folder, which is made if need be.

    Raises:
        ConfigurationError: It cannot; afterwards would be too late to say so.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error.strerror) from None
    if not os.access(folder, os.W_OK):
        raise unwritable(folder, "it is read-only")


def unwritable(folder: Path, why: str | None) -> ConfigurationError:
    """Return the error that nothing can be kept in a folder."""
    return ConfigurationError(f"nothing can be kept in {folder} ({why}); name another folder")


def check_variables(environ: Mapping[str, str]) -> None:
    """Refuse a variable that nothing reads and that is spelled almost as one of ours.

    Raises:
        ConfigurationError: There is one.
    """
    for name in environ:
        if name.startswith("ADDENDUM") and name not in VARIABLES:
            if near := nearest(name, VARIABLES, _SLIP):
                raise ConfigurationError(f"nothing reads the variable {name}{near}")
