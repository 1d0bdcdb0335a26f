"""The tables of the SQLite store, how a file is opened, and how it is brought up to date.

`user_version` counts the migrations a file has seen; `application_id` says that it is ours, so
that another program's database is refused instead of filled.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
import time
from collections.abc import Generator
from pathlib import Path

from addendum.errors import ConfigurationError, StoreError, StoreTooNew
from addendum.paths import FOREIGN as PATHS
from addendum.paths import reason, shown

_WHY = 120
"""Characters of what is wrong that are told."""

APPLICATION_ID = 0x6164646D
"""`addm`, in the file's header."""

OLDEST_SQLITE = (3, 37, 0)
"""The first SQLite with STRICT tables."""

BUSY_SECONDS = 10.0
"""How long a write waits for another process's write."""

# FULL: a commit returns when it is on the disk. macOS needs its own flush for that.
PRAGMAS: tuple[str, ...] = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
)

# Events stand in a rowid table: with bodies of about a kilobyte it is a third smaller and reads
# three times faster than one WITHOUT ROWID. `value` is last so that a scan skips its pages.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY NOT NULL,
            created INTEGER NOT NULL,
            updated INTEGER NOT NULL,
            events INTEGER NOT NULL,
            parent TEXT,
            tenant TEXT,
            user TEXT
        ) STRICT""",
        """CREATE TABLE events (
            session TEXT NOT NULL,
            seq INTEGER NOT NULL,
            data BLOB NOT NULL,
            PRIMARY KEY (session, seq)
        ) STRICT""",
        """CREATE TABLE leases (
            session TEXT PRIMARY KEY NOT NULL,
            token INTEGER NOT NULL,
            host TEXT NOT NULL,
            machine TEXT NOT NULL,
            pid INTEGER NOT NULL,
            started INTEGER NOT NULL,
            nonce TEXT,
            expires INTEGER NOT NULL
        ) STRICT""",
        """CREATE TABLE records (
            kind TEXT NOT NULL,
            key TEXT NOT NULL,
            expires INTEGER,
            value BLOB NOT NULL,
            PRIMARY KEY (kind, key)
        ) STRICT""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    # What tells that a row is not what was appended (`addendum.log.seal`): for each event the
    # checksum of all up to it. Events from before there were any have none.
    (
        """CREATE TABLE seals (
            session TEXT NOT NULL,
            seq INTEGER NOT NULL,
            seal INTEGER NOT NULL,
            PRIMARY KEY (session, seq)
        ) STRICT, WITHOUT ROWID""",
    ),
)

COLUMNS = {
    "sessions": ("id", "created", "updated", "events", "parent", "tenant", "user"),
    "events": ("session", "seq", "data"),
    "leases": ("session", "token", "host", "machine", "pid", "started", "nonce", "expires"),
    "records": ("kind", "key", "expires", "value"),
    "seals": ("session", "seq", "seal"),
}
"""The tables that a file of today has, and their columns, in order."""

# Closing any descriptor of a file drops all of this process's locks on it (POSIX), so the one
# that makes the file must be closed before anybody here can have opened it.
_opening = threading.Lock()


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, make it if there is none, and bring its tables up to date.

    Args:
        path: Absolute path. A missing directory is made for this user alone, and so is the file.

    Raises:
        ConfigurationError: Python's SQLite is too old.
        StoreTooNew: A later release wrote the file.
        StoreError: It is not a store, or the place cannot be written to.
        sqlite3.Error: Anything else that SQLite reports.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ConfigurationError(
            f"this Python comes with SQLite {sqlite3.sqlite_version}; use one with SQLite "
            f"{'.'.join(map(str, OLDEST_SQLITE))} or newer, or a memory:// store"
        )
    with _opening:
        _make(path)
        db = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    # Text that is damaged is shown damaged: with an error in its place nothing else could be read.
    db.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
    try:
        _check(db, path)
        for pragma in PRAGMAS:
            db.execute(pragma)
        _set_wal(db, path)
        _migrate(db, path)
        _whole(db, path)
    except BaseException:
        db.close()
        raise
    return db


def files(path: Path) -> tuple[tuple[int, int], ...]:
    """Return what tells a store's files from others of the same names: the file's, its log's.

    SQLite goes on writing to a file that was deleted or replaced under it, and what it then
    acknowledges is nowhere.

    Raises:
        StoreError: One is not there.
    """
    try:
        # SQLite keeps its log beside the file itself, not beside a link to it.
        real = path.resolve() if path.is_symlink() else path
        found = (real.stat(), real.with_name(f"{real.name}-wal").stat())
    except OSError:
        raise replaced(path) from None
    return tuple((each.st_dev, each.st_ino) for each in found)


def replaced(path: Path) -> StoreError:
    """Return the error for a store whose files are other ones than those that were opened."""
    return StoreError(
        f"the store {shown(path)} was moved, replaced or deleted while it was open: put its files "
        "back, or open the session again"
    )


@contextlib.contextmanager
def writing(db: sqlite3.Connection) -> Generator[None]:
    """Run the block as one write: it is on the disk when the block is left, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself has rolled back after some errors
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


FOREIGN = (sqlite3.Error, OSError, ValueError, OverflowError)
"""What a file can raise that is damaged, gone, or at a path that cannot be used: with text that is
no UTF-8 in it even what SQLite reports cannot be read."""


def damaged(path: Path, why: object = "", *, session: str | None = None) -> StoreError:
    """Return the error for a file that holds what no release of addendum writes.

    Args:
        path: The file.
        why: What is wrong, as far as it is known; of any length and from anywhere.
        session: The only session that is damaged, if that is known.
    """
    text = _plain(why)
    return StoreError(
        f"the store {shown(path)} is damaged{f' ({text})' if text else ''}: put a copy back, or "
        "save what is left with the `.recover` command of the sqlite3 program",
        session=session,
    )


def _plain(why: object) -> str:
    text = " ".join(str(why).split())[:_WHY]
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def explain(error: Exception, path: Path) -> StoreError:
    """Return one of `FOREIGN` as one line that says what to do."""
    where = shown(path)
    if isinstance(error, OSError):
        return _unmade(path, error)
    if isinstance(error, UnicodeEncodeError):
        return StoreError(f"the store {where} takes no text with a lone surrogate; clean it")
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return damaged(path, error)
    name: str = getattr(error, "sqlite_errorname", type(error).__name__)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            text = (
                f"there is no room for the store {where}: free disk space there and try again; "
                "nothing of this write was kept"
            )
        case sqlite3.SQLITE_READONLY:
            text = (
                f"the store {where} is read-only: make the file and its directory writable, "
                "or name another store"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            text = (
                f"the store {where} cannot be opened: check that it is a file, and that you may "
                "write to it and to its directory"
            )
        case sqlite3.SQLITE_NOTADB:
            text = f"{where} is no addendum store: name another file"
        case sqlite3.SQLITE_CORRUPT:
            return damaged(path)
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_MISMATCH | sqlite3.SQLITE_CONSTRAINT:
            # Our statements are right, so the tables are not ours any more.
            return damaged(path, error)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            text = (
                f"another program has kept the store {where} locked for {BUSY_SECONDS:g} s: "
                "let it finish or end it, then try again"
            )
        case _:
            text = (
                f"the store {where} cannot be read or written ({name}: {_plain(error)}): check the "
                "disk and the file, then open the session again"
            )
    return StoreError(text)


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        elif not path.is_file() and not path.is_dir():
            # SQLite would wait for a pipe, and read a device without end.
            raise StoreError(f"{shown(path)} is no file: name another one for the store")
    except PATHS as error:
        raise _unmade(path, error) from None


def _unmade(path: Path, error: BaseException) -> StoreError:
    return StoreError(
        f"the store {shown(path)} cannot be made ({reason(error)}): name another place, "
        "or make its directory writable"
    )


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _whole(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that lacks a table or a column, or has one that is not ours.

    Raises:
        StoreError: It does.
    """
    for table, columns in COLUMNS.items():
        there = [each[1] for each in db.execute(f"PRAGMA table_info({table})")]
        if missing := [each for each in columns if each not in there]:
            raise damaged(path, f"{table} has no {missing[0]}" if there else f"no table {table}")


def _check(db: sqlite3.Connection, path: Path) -> int:
    """Return the file's version, 0 if it is empty; refuse what is not ours to write to."""
    version = _pragma(db, "user_version")
    if _pragma(db, "application_id") != APPLICATION_ID:
        if version or db.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise StoreError(
                f"{shown(path)} is a database of another program, no addendum store: "
                "name another file"
            )
    elif version > len(MIGRATIONS):
        raise StoreTooNew(
            f"the store {shown(path)} was written by a later addendum (version {version}, this one "
            f"knows {len(MIGRATIONS)}): upgrade addendum, or name another store"
        )
    return version


def _set_wal(db: sqlite3.Connection, path: Path) -> None:
    """Switch to the write-ahead log; SQLite itself does not wait here for other openers."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise StoreError(
            f"the store {shown(path)} cannot have a write-ahead log (journal mode {mode}): "
            "put it on a local disk"
        )


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Run the migrations that the file has not seen, all or none."""
    if _check(db, path) == len(MIGRATIONS):
        return
    with writing(db):
        # Asked again under the lock: another process may have been first.
        for statements in MIGRATIONS[_check(db, path) :]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
