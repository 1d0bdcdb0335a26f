"""Files and folders that a person names: what the system refuses of them is one line of ours.

There may be nothing at a path, or a folder, or a pipe that nobody ever writes to; it may be too
large, or closed to this user; its name may be too long, hold a NUL, or be none that this system can
write; and there may be no home directory for `~`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from addendum.errors import ConfigurationError

FOREIGN = (OSError, ValueError, RuntimeError)
"""What Python raises for a path that cannot be used: `ValueError` for a name with a NUL or one that
cannot be encoded, `RuntimeError` where there is no home directory."""

_SHOWN = 200


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as a person may read it: one line, nothing in it that a terminal obeys."""
    text = os.fspath(path)
    text = "".join(each if each.isprintable() else "\ufffd" for each in text)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"


def reason(error: BaseException) -> str:
    """Return, in a few words, why a path cannot be used.

    Args:
        error: One of `FOREIGN`.
    """
    if isinstance(error, OSError):
        return error.strerror or "no reason given"
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "its name cannot be written here"
    if isinstance(error, ValueError):
        return "its name holds a NUL character"
    return "there is no home directory"


def home(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` replaced by the home directory.

    Raises:
        ConfigurationError: There is none.
    """
    try:
        return Path(path).expanduser()
    except FOREIGN as error:
        raise ConfigurationError(
            f"cannot use {shown(path)}: {reason(error)}; write the whole path"
        ) from None


def there(path: str | os.PathLike[str]) -> bool:
    """Say whether something is at a path; nothing is at one that cannot be used."""
    try:
        return Path(path).exists()
    except FOREIGN:
        return False


@contextlib.contextmanager
def told(doing: str, path: str | os.PathLike[str], advice: str) -> Generator[None]:
    """Tell what the system refuses in the block as an error of ours.

    Args:
        doing: What was to be done, such as `read`.
        path: The file or folder.
        advice: What to do.

    Raises:
        ConfigurationError: The system refused it.
    """
    try:
        yield
    except FOREIGN as error:
        raise ConfigurationError(
            f"cannot {doing} {shown(path)}: {reason(error)}; {advice}"
        ) from None


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a path to which no file can be written, before anything is done for it.

    Raises:
        ConfigurationError: It is a folder, or in none, or closed to this user.
    """
    with told("write", path, "name another file"):
        place = Path(path).absolute()
        if not place.parent.is_dir():
            raise ConfigurationError(f"there is no folder {shown(place.parent)}; make it first")
        if place.is_dir():
            raise ConfigurationError(f"cannot write {shown(path)}: it is a folder; name a file")
        if not os.access(place if place.exists() else place.parent, os.W_OK):
            raise ConfigurationError(
                f"cannot write {shown(path)}: it is closed to you; name another file"
            )


def read_bytes(path: str | os.PathLike[str], *, limit: int, advice: str) -> bytes:
    """Return what a regular file holds.

    Args:
        path: The file.
        limit: Bytes that it may have.
        advice: What to do if it cannot be read, such as `name a text file`.

    Raises:
        ConfigurationError: It cannot be read, is no regular file, or is too long.
    """
    with told("read", path, advice):
        kind = Path(path).stat().st_mode
        if not stat.S_ISREG(kind):
            # A pipe may never be written to, and a device never end.
            what = "it is a folder" if stat.S_ISDIR(kind) else "it is no regular file"
            raise ConfigurationError(f"cannot read {shown(path)}: {what}; {advice}")
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    if len(data) > limit:
        raise ConfigurationError(f"{shown(path)} has more than {limit:,} bytes; {advice}")
    return data


def read_text(path: str | os.PathLike[str], *, limit: int, advice: str) -> str:
    """Return the text of a regular file in UTF-8; as `read_bytes`.

    Raises:
        ConfigurationError: As `read_bytes`, or it is no text.
    """
    data = read_bytes(path, limit=limit, advice=advice)
    with told("read", path, advice):
        return data.decode()
