"""Addresses of stores."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest

from addendum import stores
from addendum.errors import ConfigurationError
from addendum.stores import DEFAULT_URL, MemoryStore, SqliteStore, open_store
from addendum.stores.sqlite import path_of

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///kept.db", "{here}/kept.db"),
        ("sqlite:///sub/kept.db", "{here}/sub/kept.db"),
        ("sqlite:////srv/kept.db", "/srv/kept.db"),
        ("sqlite:///~/kept.db", "{here}/home/kept.db"),
        ("sqlite:///odd?mode=ro#%20.db", "{here}/odd?mode=ro#%20.db"),
        ("sqlite:///file:x.db", "{here}/file:x.db"),
    ],
)
async def test_a_path_is_taken_as_it_is_written(url: str, path: str, tmp_path: Path) -> None:
    assert str(path_of(url)) == path.format(here=tmp_path)
    if url.startswith("sqlite:////"):
        return
    store = await open_store(url)
    assert isinstance(store, SqliteStore)
    assert store.url == url
    await store.aclose()
    assert await anyio.Path(path.format(here=tmp_path)).is_file()


async def test_memory_is_a_new_store_each_time() -> None:
    first, second = await open_store("memory://"), await open_store("memory://")
    assert isinstance(first, MemoryStore) and first is not second
    assert await open_store(first) is first


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://user:secret@host/0", "a store of kind 'redis' is not supported"),
        ("kept.db", "a store address without a scheme is not supported"),
        ("", "a store address without a scheme is not supported"),
        ("memory://name", "a store of kind 'memory' is not supported"),
        ("sqlite://kept.db", "'sqlite://kept.db' names no file"),
        ("sqlite:///", "'sqlite:///' names no file"),
        ("sqlite:///:memory:", "'sqlite:///:memory:' names no file"),
    ],
)
async def test_other_addresses_are_one_clear_line(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await open_store(url)
    text = str(caught.value)
    assert says in text and "sqlite:///path.db" in text and "\n" not in text
    assert "secret" not in text
    assert [found async for found in anyio.Path(tmp_path).iterdir()] == []


def test_the_default_is_the_users_data_directory() -> None:
    assert stores._default_url(None) == "sqlite:///~/.local/share/addendum/sessions.db"
    assert stores._default_url("relative") == stores._default_url("") == stores._default_url(None)
    assert stores._default_url("/data") == "sqlite:////data/addendum/sessions.db"
    assert stores._default_url(os.environ.get("XDG_DATA_HOME")) == DEFAULT_URL


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
async def test_what_is_made_belongs_to_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = await open_store(stores._default_url(None))
        await store.acquire("s")
        folder = tmp_path / "home/.local/share/addendum"
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        await store.aclose()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == dict.fromkeys(("sessions.db", "sessions.db-wal", "sessions.db-shm"), 0o600)
