"""What is known of conversations that others drive: values by digest, written once and for ever.

A value is named by what it is about, so two writers of one name agree: the first one counts, and
whoever comes second reads it back. That needs no lock and no lease, so replicas may share a file.
A store has a key of its own for the digests: of what was said nothing can be guessed from them.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from addendum.allowed import shown
from addendum.errors import ConfigurationError, StoreError
from addendum.stores.sqlite import PREFIX, path_of

KEPT_DAYS = 30
"""Days that a value is kept without being read."""

_DAY = 86_400
_ROOM = 128 * 1024 * 1024
_BATCH = 400
_KEY = "key"
_OF_A_STORE = ("key", "get", "first", "add", "close")


class NodeStore(Protocol):
    """Keeps values by name; safe to be used by several threads."""

    @property
    def key(self) -> bytes:
        """What digests in this store are keyed with."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        ...

    def first(self, names: Sequence[str]) -> tuple[int, bytes] | None:
        """Return the place of the first name that has a value, and the value."""
        ...

    def add(self, name: str, value: bytes) -> bytes:
        """Write a value unless there is one, and return the one that counts."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class MemoryNodes:
    """Keeps values for as long as the process lives; those that were not used longest go first.

    Args:
        room: Bytes of values that are kept.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self.key = secrets.token_bytes(32)
        self._room = room
        self._size = 0
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        with self._lock:
            value = self._values.get(name)
            if value is not None:
                self._values.move_to_end(name)
            return value

    def first(self, names: Sequence[str]) -> tuple[int, bytes] | None:
        """Return the place of the first name that has a value, and the value."""
        for place, name in enumerate(names):
            value = self.get(name)
            if value is not None:
                return place, value
        return None

    def add(self, name: str, value: bytes) -> bytes:
        """Write a value unless there is one, and return the one that counts."""
        with self._lock:
            kept = self._values.get(name)
            if kept is not None:
                return kept
            self._values[name] = value
            self._size += len(name) + len(value)
            while self._size > self._room and len(self._values) > 1:
                old, gone = self._values.popitem(last=False)
                self._size -= len(old) + len(gone)
            return value

    def close(self) -> None:
        """Let go of what is open: nothing."""


class SqliteNodes:
    """Keeps values in a SQLite file that processes may share.

    Args:
        url: `sqlite:///path.db` or `sqlite:////absolute/path.db`.

    Raises:
        ConfigurationError: The address names no file.
        StoreError: It cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self._path = path_of(url)
        self._lock = threading.Lock()
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._path.exists():
                self._path.touch(mode=0o600)
            self._db = _connected(self._path)
            self.key = self.add(_KEY, secrets.token_bytes(32))
            with self._lock:
                old = time.time() - KEPT_DAYS * _DAY
                self._db.execute(
                    "DELETE FROM gateway_nodes WHERE used < ? AND name != ?", (old, _KEY)
                )
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"the store {self._path} cannot be opened ({error}); give another path"
            ) from error

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        found = self.first([name])
        return None if found is None else found[1]

    def first(self, names: Sequence[str]) -> tuple[int, bytes] | None:
        """Return the place of the first name that has a value, and the value."""
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            marks = ",".join("?" * len(batch))
            query = f"SELECT name, value, used FROM gateway_nodes WHERE name IN ({marks})"
            with self._lock:
                rows = {name: (value, used) for name, value, used in self._run(query, batch)}
            for place, name in enumerate(batch, start):
                if name in rows:
                    value, used = rows[name]
                    self._touch(name, used)
                    return place, bytes(value)
        return None

    def add(self, name: str, value: bytes) -> bytes:
        """Write a value unless there is one, and return the one that counts."""
        with self._lock:
            self._run(
                "INSERT OR IGNORE INTO gateway_nodes (name, value, used) VALUES (?, ?, ?)",
                (name, value, int(time.time())),
            )
            rows = self._run("SELECT value FROM gateway_nodes WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else value

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _touch(self, name: str, used: int) -> None:
        now = int(time.time())
        if used < now - _DAY:
            with self._lock:
                self._run("UPDATE gateway_nodes SET used = ? WHERE name = ?", (now, name))

    def _run(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the store {self._path} cannot be used ({error})") from error


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute(
        "CREATE TABLE IF NOT EXISTS gateway_nodes"
        " (name TEXT PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID"
    )
    return db


def open_nodes(url: str | NodeStore | None) -> NodeStore:
    """Open the store that an address names.

    Args:
        url: `sqlite:///path.db`, `sqlite:////absolute/path.db`, `memory://` or None for this
            process alone; a store that is open already is returned as it is.

    Raises:
        ConfigurationError: No kind of store has such an address.
        StoreError: It cannot be opened.
    """
    if url is None or url == "memory://":
        return MemoryNodes()
    if not isinstance(url, str):
        if isinstance(url, type) or not all(hasattr(url, name) for name in _OF_A_STORE):
            raise ConfigurationError(
                f"(store={shown(url)}): must be an address such as sqlite:///path.db, or a store"
            )
        return url
    if not url.startswith(PREFIX):
        raise ConfigurationError(
            f"(store={shown(url)}): a gateway's store is sqlite:///path.db,"
            " sqlite:////absolute/path.db or memory://"
        )
    return SqliteNodes(url)
