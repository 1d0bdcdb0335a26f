"""Opening a file: migrations, files that are not ours, and every way a disk can refuse."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from addendum.errors import ConfigurationError, StoreError, StoreTooNew
from addendum.stores import SqliteStore, schema

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept.db"


async def opened(path: Path) -> SqliteStore:
    return await SqliteStore.open(f"sqlite:///{path}")


async def refused(path: Path, kind: type[StoreError] = StoreError) -> str:
    """Return the one line with which opening is refused."""
    with pytest.raises(StoreError) as caught:
        await opened(path)
    return line(caught, kind)


def line(caught: pytest.ExceptionInfo[StoreError], kind: type[StoreError] = StoreError) -> str:
    error = caught.value
    assert type(error) is kind
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    text = str(error)
    assert "\n" not in text and "kept.db" in text and ": " in text
    return text


def fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def content(path: Path) -> bytes:
    return path.read_bytes()


def set_aside(path: Path, *, copied: bool) -> Path:
    """Move a file away, with a copy left in its place or nothing; return where it is."""
    aside = path.with_name("aside")
    path.rename(aside)
    if copied:
        shutil.copy(aside, path)
    return aside


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    try:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
    finally:
        db.close()


async def test_a_new_file_gets_every_migration(path: Path) -> None:
    await (await opened(path)).aclose()
    assert version(path) == len(schema.MIGRATIONS) >= 1


async def test_an_older_file_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(path)
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x"])
    await store.aclose()
    more = (*schema.MIGRATIONS, ("CREATE TABLE extra (n INTEGER)", "INSERT INTO extra VALUES (1)"))
    monkeypatch.setattr(schema, "MIGRATIONS", more)
    for _ in range(2):  # the second time there is nothing to do
        store = await opened(path)
        assert store._db
        assert store._db.execute("SELECT count(*) FROM extra").fetchone() == (1,)
        assert await store.read("s") == [b"x"]
        await store.aclose()
    assert version(path) == len(more)
    monkeypatch.undo()
    text = await refused(path, StoreTooNew)
    assert f"version {len(more)}, this one knows {len(more) - 1}): upgrade addendum" in text


async def test_a_migration_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await opened(path)).aclose()
    with monkeypatch.context() as patch:
        broken = (*schema.MIGRATIONS, ("CREATE TABLE extra (n INTEGER)", "no statement"))
        patch.setattr(schema, "MIGRATIONS", broken)
        await refused(path)
    assert version(path) == len(schema.MIGRATIONS)
    store = await opened(path)
    assert store._db
    assert not store._db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'extra'").fetchone()
    await store.aclose()


async def test_a_later_store_is_left_alone(path: Path) -> None:
    await (await opened(path)).aclose()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    db.close()
    before = content(path)
    assert "written by a later addendum" in await refused(path, StoreTooNew)
    assert content(path) == before


@pytest.mark.parametrize("user_version", [0, 1, 77])
async def test_another_programs_database_is_left_alone(path: Path, user_version: int) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.execute(f"PRAGMA user_version = {user_version}")
    db.commit()
    db.close()
    before = content(path)
    assert "a database of another program" in await refused(path)
    assert content(path) == before
    assert [found.name for found in path.parent.iterdir()] == ["kept.db"]


@pytest.mark.parametrize("bytes_", [b"hello", b"{}\n" * 5000, b"SQLite format 3\x00" * 400])
async def test_a_file_that_is_no_database(path: Path, bytes_: bytes) -> None:
    fill(path, bytes_)
    assert "is no addendum store: name another file" in await refused(path)
    assert content(path) == bytes_


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    fill(path, b"")
    store = await opened(path)
    assert await store.sessions() == []
    await store.aclose()


async def test_a_directory_in_place_of_the_file(path: Path) -> None:
    await anyio.Path(path).mkdir()
    assert "check that it is a file" in await refused(path)


async def test_a_file_in_place_of_the_directory(path: Path) -> None:
    fill(path, b"")
    assert "cannot be made (" in await refused(path / "sub" / "x.db")
    assert "cannot be made (" in await refused(path / "x.db")


async def test_a_damaged_file(path: Path) -> None:
    store = await opened(path)
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x" * 500] * 200)
    await store.aclose()
    whole = content(path)
    fill(path, whole[:4096] + b"\xff" * (len(whole) - 4096))
    store = await opened(path)
    with pytest.raises(StoreError) as caught:
        await store.read("s")
    assert "is damaged: put a copy back" in line(caught)
    await store.aclose()


async def test_a_full_disk_loses_nothing_that_was_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PRAGMAS", (*schema.PRAGMAS, "PRAGMA max_page_count = 40"))
    store = await opened(path)
    lease = await store.acquire("s")
    sent: list[bytes] = []
    with pytest.raises(StoreError) as caught:
        for number in range(1000):
            batch = [b"%d" % number, b"x" * 3000]
            await store.append(lease, len(sent), batch)
            sent += batch
    text = line(caught)
    assert "no room for the store" in text and "free disk space" in text
    assert len(sent) > 10
    assert await store.read("s") == sent, "the failed batch left nothing, not even its first event"
    assert (await store.sessions())[0].events == len(sent)
    assert store._db
    store._db.execute("PRAGMA max_page_count = 1000000")  # somebody has made room
    await store.append(lease, len(sent), [b"more"])
    assert await store.read("s", len(sent)) == [b"more"]
    await store.aclose()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be moved there")
@pytest.mark.parametrize("what", ["moved", "replaced", "its log"])
async def test_what_would_be_written_to_a_file_that_is_gone_is_not_acknowledged(
    path: Path, what: str
) -> None:
    store = await opened(path)
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x"])
    there = path.with_name("kept.db-wal") if what == "its log" else path
    aside = set_aside(there, copied=what == "replaced")
    calls = (store.append(lease, 1, [b"y"]), store.read("s"), store.sessions(), store.acquire("t"))
    for call in calls:
        with pytest.raises(StoreError) as caught:
            await call
        assert "was moved, replaced or deleted while it was open" in line(caught)
    aside.replace(there)  # what was open is back
    await store.append(lease, 1, [b"y"])
    await store.aclose()
    store = await opened(path)
    assert await store.read("s") == [b"x", b"y"]
    await store.aclose()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
async def test_a_link_to_a_store_is_that_store(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    for number, name in enumerate((path, link, link, path)):
        store = await opened(name)
        lease = await store.acquire("s")
        await store.append(lease, number, [b"%d" % number])
        assert len(await store.read("s")) == number + 1
        await store.aclose()


async def test_a_store_that_may_not_be_written_to(path: Path) -> None:
    store = await opened(path)
    lease = await store.acquire("s")
    await store.append(lease, 0, [b"x"])
    assert store._db
    store._db.execute("PRAGMA query_only = ON")
    calls = (
        store.append(lease, 1, [b"y"]),
        store.renew(lease),
        store.acquire("t"),
        store.put("k", "k", b""),
        store.release(lease),
    )
    for call in calls:
        with pytest.raises(StoreError) as caught:
            await call
        assert "is read-only: make the file and its directory writable" in line(caught)
    assert await store.read("s") == [b"x"]
    store._db.execute("PRAGMA query_only = OFF")
    await store.aclose()


AS_NOBODY = """
import os, sys, anyio
from addendum.errors import StoreError
from addendum.stores import open_store

async def main():
    url = "sqlite:///" + sys.argv[1]
    try:
        store = await open_store(url)
        lease = await store.acquire("s")
        await store.append(lease, 0, [b"x"])
        await store.aclose()
        print("written")
    except StoreError as error:
        print(type(error).__name__, error)

if os.geteuid() == 0:  # what is imported late is imported while everything can still be read
    anyio.run(open_store, "memory://")
    anyio.run(anyio.to_thread.run_sync, int)
    os.setgid(65534)
    os.setuid(65534)
anyio.run(main)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
@pytest.mark.parametrize("what", ["new", "file", "directory"])
def test_a_place_without_permission(what: str) -> None:
    """Root may write everywhere, so a process started by root gives its rights up first."""
    base = Path(tempfile.mkdtemp(prefix="addendum-"))  # pytest's own folders are closed to others
    path = base / "folder" / "kept.db"
    try:
        base.chmod(0o755)
        path.parent.mkdir()
        if what != "new":
            schema.connect(path).close()
            path.chmod(0o444 if what == "file" else 0o666)
        path.parent.chmod(0o777 if what == "file" else 0o555)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(path)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    finally:
        path.parent.chmod(0o755)
        shutil.rmtree(base)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StoreError "), done.stdout
    assert done.stdout.count("\n") == 1 and str(path) in done.stdout
    assert "writable" in done.stdout or "may write" in done.stdout


async def test_a_lock_that_is_not_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    store = await opened(path)
    lease = await store.acquire("s")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as caught:
        await store.append(lease, 0, [b"x"])
    assert "has kept the store" in line(caught) and "locked for 0.05 s" in line(caught)
    other.execute("ROLLBACK")
    await store.append(lease, 0, [b"x"])
    other.execute("BEGIN EXCLUSIVE")
    await store.read("s")  # readers never wait
    other.close()
    await store.aclose()


async def test_opening_waits_for_another_opener(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives up at once when two switch a new file to the write-ahead log."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE IF NOT EXISTS gone (x)")
    other.execute("DROP TABLE gone")
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.execute("ROLLBACK")

    monkeypatch.setattr(schema, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    store = await opened(path)
    assert len(waits) == 3
    assert store._db
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.aclose()
    other.close()


async def test_opening_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "locked for 0.05 s" in await refused(path)
    other.close()


async def test_a_place_without_a_write_ahead_log_is_named(path: Path) -> None:
    """A database in memory can have none, nor can some network disks."""
    db = sqlite3.connect(":memory:")
    with pytest.raises(StoreError, match=r"journal mode memory\): put it on a local disk"):
        schema._set_wal(db, path)
    db.close()


async def test_an_old_sqlite_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(ConfigurationError, match=r"SQLite 3\.37\.0 or newer"):
        await opened(path)


def test_what_nobody_foresaw_keeps_its_name() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    assert str(schema.explain(error, Path("/kept.db"))) == (
        "the store /kept.db cannot be read or written (SQLITE_IOERR_FSYNC: disk I/O error): "
        "check the disk and the file, then open the session again"
    )
