"""One session of a store is damaged: lists and pages show the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.cli.commands import call, complaint
from tests.stores.test_damaged_files import filled, loose
from tests.viewer.staged import stage

from addendum.stores import open_store, schema

DAMAGE = {
    "a row that is text": "UPDATE events SET data = 'x' WHERE seq = 5 AND session = 's'",
    "a row that is nothing": "UPDATE events SET data = NULL WHERE seq = 5 AND session = 's'",
    "a row that is no JSON": "UPDATE events SET data = X'ff' WHERE seq = 5 AND session = 's'",
    "its first row": "UPDATE events SET data = X'7b7d' WHERE seq = 0 AND session = 's'",
    "a time that is text": "UPDATE sessions SET created = 'x' WHERE id = 's'",
    "a time beyond all": "UPDATE sessions SET updated = 9223372036854775807 WHERE id = 's'",
    "a time before all": "UPDATE sessions SET created = -9223372036854775808 WHERE id = 's'",
    "events that are lost": "UPDATE sessions SET events = 99 WHERE id = 's'",
    "events that nobody counts": "UPDATE sessions SET events = 1 WHERE id = 's'",
    "an id that is no UTF-8": "UPDATE sessions SET id = CAST(X'ff41' AS TEXT) WHERE id = 's'",
    "no id": "UPDATE sessions SET id = NULL WHERE id = 's'",
    "an id that a terminal obeys": "UPDATE sessions SET id = char(10, 27) || 'x' WHERE id = 's'",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("store") / "kept.db"
    anyio.run(filled, path)
    loose(path)
    return path.read_bytes()


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_session_hides_no_other(
    what: str, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PRAGMAS", ("PRAGMA synchronous = OFF",))
    path = tmp_path / "kept.db"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(DAMAGE[what])
    url = f"sqlite:///{path}"
    for command in (["sessions"], ["sessions", "--json"], ["show", "other"]):
        shown = call(*command, "--store", url).stdout
        assert "other" in shown and "\x1b" not in shown
    if "time" not in what:
        assert "internal error" not in complaint("show", "s", "--store", url)

    async def pages() -> None:
        store = await open_store(url)
        async with stage(store=store) as here:
            for page in ("/", "/sessions", "/s/other", "/s/other/trajectory"):
                assert "hello" in await here.get(page), page
            refused = await here.client.get("/s/s")
            assert refused.status_code in (200, 404, 500)
        await store.aclose()

    anyio.run(pages)
