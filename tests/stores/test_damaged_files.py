"""A store's file in every bad state: one line that says what to do, and nothing else suffers.

The damage is generated: each column of each table holds each kind of nonsense, each table and each
column goes missing, and the file itself is cut, emptied, replaced by what is none.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.stage import CLAUDE, server, stage

from addendum.errors import AddendumError, ConfigurationError, SessionMissing, StoreError
from addendum.log.reading import read
from addendum.log.session_log import SessionLog
from addendum.stores import SqliteStore, open_store, schema

pytestmark = pytest.mark.anyio

VALUES: dict[str, Any] = {
    "no UTF-8": b"\xff\xfe\x80",
    "NULL": None,
    "a text": "x",
    "no text": "",
    "a NUL": "a\0b",
    "a number": 7,
    "a negative one": -1,
    "the largest": 2**63 - 1,
    "the smallest": -(2**63),
    "a fraction": 1.5,
    "half an object": b'{"seq":1,"time":',
    "no object": b"[]",
    "deep": b"[" * 5_000,
}
COLUMNS = [(table, column) for table, columns in schema.COLUMNS.items() for column in columns]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PRAGMAS", ("PRAGMA synchronous = OFF",))
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)


async def filled(path: Path) -> None:
    """A store with two sessions, leases, and records."""
    async with stage() as here:
        store = await SqliteStore.open(f"sqlite:///{path}")
        async with here.agent(CLAUDE, mcp_servers=[server()]).open("s", store=store) as session:
            await session.run("hello")
        async with here.agent(CLAUDE).open("other", store=store) as session:
            await session.run("hello")
        await store.put("downgrade", f"{CLAUDE} http://x", b"tools")
        await store.put("catalogue", "k", b"{}", expires=2**52)
        await store.aclose()


def loose(path: Path) -> None:
    """Have the tables take anything, as a damaged page or another program may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for table, columns in schema.COLUMNS.items():
            kept = db.execute(f"SELECT * FROM {table}").fetchall()
            keys = [each[1] for each in db.execute(f"PRAGMA table_info({table})") if each[5]]
            db.execute(f"DROP TABLE {table}")
            db.execute(
                f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({', '.join(keys)}))"
            )
            marks = ", ".join("?" * len(columns))
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", kept)


async def everything(url: str) -> list[str]:
    """Do all that a store can do; return the lines that it was refused with."""
    said: list[str] = []

    async def attempt(work: Awaitable[Any]) -> Any:
        try:
            return await work
        except AddendumError as error:
            said.append(one_line(error))
        return None

    store = await attempt(open_store(url))
    if store is None:
        return said
    rows = await attempt(store.sessions())
    for row in rows or ():
        log = SessionLog(row.id)
        await attempt(read(log, store))
        lease = await attempt(store.acquire(row.id))
        if lease is not None:
            note = b'{"seq":%d,"time":7,"ignorable":true,"data":{"type":"other/note"}}' % len(log)
            await attempt(store.append(lease, len(log), [note]))
            await attempt(store.renew(lease))
            await attempt(store.release(lease))
    for name in ("s", "other"):
        await attempt(store.seal(name, 3))
        await attempt(store.seals(name, limit=99))
    for kind, key in (("downgrade", f"{CLAUDE} http://x"), ("catalogue", "k")):
        await attempt(store.get(kind, key))
        await attempt(store.put(kind, key, b"x", keep=True))
    lease = await attempt(store.acquire("new", events=[b"x"]))
    if lease is not None:
        await attempt(store.delete(lease))
    await attempt(store.aclose())
    return said


def one_line(error: AddendumError) -> str:
    text = str(error)
    assert text and "\n" not in text and text.isprintable() and len(text) < 600, text
    assert "Traceback" not in text
    return text


async def test_every_column_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    await filled(path)
    loose(path)
    whole = path.read_bytes()
    assert await everything(f"sqlite:///{path}") == []
    refused = 0
    for table, column in COLUMNS:
        for what, value in VALUES.items():
            path.write_bytes(whole)
            with closing(sqlite3.connect(path)) as db, db:
                cast = "CAST(? AS TEXT)" if what == "no UTF-8" else "?"
                db.execute(
                    f"UPDATE OR REPLACE {table} SET {column} = {cast} WHERE rowid = 1", (value,)
                )
            said = await everything(f"sqlite:///{path}")
            refused += bool(said)
            # The other session is there, whatever became of this one.
            store = await open_store(f"sqlite:///{path}")
            name = "s" if await holds(store, "s", table) else "other"
            log = SessionLog(name)
            await read(log, store)
            assert log.turns == 1, (table, column, what)
            await store.aclose()
    assert refused > 60


async def holds(store: Any, name: str, table: str) -> bool:
    """Say whether a session can still be read; the damage is in the first row of a table."""
    with contextlib.suppress(AddendumError):
        log = SessionLog(name)
        await read(log, store)
        return log.turns == 1
    return False


def broken(path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every way in which a whole file can be wrong."""

    def sql(*statements: str) -> Callable[[], None]:
        def work() -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                for statement in statements:
                    db.execute(statement)

        return work

    def cut(keep: float) -> Callable[[], None]:
        return lambda: os.truncate(path, int(path.stat().st_size * keep))

    def flipped(old: bytes, new: bytes) -> Callable[[], None]:
        def work() -> None:
            data = path.read_bytes()
            assert old in data
            path.write_bytes(data.replace(old, new))

        return work

    for table, columns in schema.COLUMNS.items():
        yield f"no {table}", sql(f"DROP TABLE {table}")
        for column in columns:
            yield (
                f"{table}.{column} is named otherwise",
                sql(f"ALTER TABLE {table} RENAME COLUMN {column} TO other"),
            )
    for keep in (0.1, 0.5, 0.9):
        yield f"cut at {keep}", cut(keep)
    for version in (-1, 0):
        yield f"version {version}", sql(f"PRAGMA user_version = {version}")
    yield "a schema that is no UTF-8", flipped(b"token INTEGER", b"token\xa0INTEGER"[:13])
    yield "a schema that is no SQL", flipped(b"CREATE TABLE sessions", b"CREATE TABLX sessions")
    yield "two schemas", sql("CREATE TABLE theirs (x)")
    yield "a page of zeros", lambda: path.write_bytes(path.read_bytes()[:4096] + b"\0" * 40_960)
    yield "a page of ones", lambda: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40_960)
    yield "a header of zeros", lambda: path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    yield "another program's", sql("PRAGMA application_id = 7")
    yield "a view", sql("ALTER TABLE events RENAME TO e", "CREATE VIEW events AS SELECT * FROM e")


async def test_a_whole_file_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    await filled(path)
    whole = path.read_bytes()
    for what, work in broken(path):
        for beside in path.parent.glob("kept.db-*"):
            beside.unlink()
        path.write_bytes(whole)
        work()
        said = await everything(f"sqlite:///{path}")
        assert said or what == "two schemas", what
        assert all("sqlite_master" not in each for each in said), what


async def test_a_store_whose_log_is_gone(tmp_path: Path) -> None:
    """What stood in it only is lost, and nothing more; what is left is whole."""
    path = tmp_path / "kept.db"
    await filled(path)
    store = await open_store(f"sqlite:///{path}")
    lease = await store.acquire("s")
    left = path.read_bytes()  # without what waits in the write-ahead log
    await store.release(lease)
    await store.aclose()
    for what in ("nothing", "a folder", "rubbish"):
        for beside in path.parent.glob("kept.db-*"):
            beside.rmdir() if beside.is_dir() else beside.unlink()
        path.write_bytes(left)
        wal = path.with_name("kept.db-wal")
        if what == "a folder":
            wal.mkdir()
        elif what == "rubbish":
            wal.write_bytes(b"\x37\x7f\x06\x82" + b"x" * 9_000)
        said = await everything(f"sqlite:///{path}")
        assert bool(said) is (what == "a folder"), (what, said)


Made = Callable[[Path], Path | str]
PATHS: dict[str, Made] = {
    "a NUL": lambda folder: f"{folder}/a\0b.db",
    "a lone surrogate": lambda folder: f"{folder}/a\ud800b.db",
    "a name too long": lambda folder: f"{folder}/{'x' * 300}.db",
    "a path too long": lambda folder: f"{folder}/{'x/' * 3_000}x.db",
    "a line end": lambda folder: made(folder / "a\nb", "mkdir"),
    "a folder": lambda folder: made(folder / "kept.db", "mkdir"),
    "a folder with a slash": lambda folder: f"{folder}/",
    "a pipe": lambda folder: made(folder / "kept.db", "mkfifo"),
    "a device that is empty": lambda folder: "/dev/null",
    "a device that never ends": lambda folder: "/dev/zero",
    "a link to itself": lambda folder: made(folder / "kept.db", "loop"),
    "a link to nothing": lambda folder: made(folder / "kept.db", "dangling"),
    "below a file": lambda folder: f"{made(folder / 'kept.db', 'touch')}/x.db",
    "a picture": lambda folder: made(folder / "kept.db", "picture"),
    "text": lambda folder: made(folder / "kept.db", "text"),
    "a user that is none": lambda folder: "~nobody-of-this-name/kept.db",
    "a socket": lambda folder: made(folder / "kept.db", "socket"),
}


def made(path: Path, how: str) -> Path:
    match how:
        case "mkdir":
            path.mkdir()
        case "mkfifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to(path.parent / "no" / "such" / "file")
        case "touch":
            path.touch()
        case "picture":
            path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40)
        case "text":
            path.write_text("hello\n" * 2_000)
        case "socket":
            import socket

            with closing(socket.socket(socket.AF_UNIX)) as made_socket:
                made_socket.bind(str(path))
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links")
@pytest.mark.parametrize("what", PATHS)
async def test_a_path_that_cannot_be_a_store(what: str, tmp_path: Path) -> None:
    url = f"sqlite:///{PATHS[what](tmp_path)}"
    with anyio.fail_after(5):
        with pytest.raises((StoreError, ConfigurationError)) as caught:
            store = await open_store(url)
            await store.aclose()
    text = one_line(caught.value)
    assert any(word in text for word in ("name another", "writable", "write ", "check that"))


@pytest.mark.parametrize("name", ["", "a/b", "\0", "x" * 201, "\ud800", "a\nb", " \t", "\x1b[31m"])
async def test_a_session_name_that_is_none(name: str, tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/kept.db"):
        store = await open_store(url)
        for work in (store.acquire(name), store.read(name)):
            with pytest.raises((ConfigurationError, SessionMissing)) as caught:
                await work
            one_line(caught.value)
        await store.aclose()


async def test_labels_that_no_store_can_hold(tmp_path: Path) -> None:
    store = await SqliteStore.open(f"sqlite:///{tmp_path}/kept.db")
    for label in ({"tenant": "\ud800"}, {"user": "a\udfffb"}, {"parent": "\udc80"}):
        with pytest.raises(StoreError, match="lone surrogate"):
            await store.acquire("s", **label)
    for key in ("\ud800", "ok\udfff"):
        for work in (store.get("k", key), store.put("k", key, b"x")):
            with pytest.raises(StoreError, match="lone surrogate"):
                await work
    await store.acquire("s")
    await store.aclose()
