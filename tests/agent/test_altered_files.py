"""A store's file that somebody changed by hand: whatever row it is, opening notices it.

Each way of changing a file is tried on each row of a session whose last step waits for a person.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.stage import CLAUDE, Stage, breaks, fn, results, stage, thinking
from tests.cli.commands import call, told

from addendum import Approval, Decision
from addendum.errors import AddendumError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import StepStart
from addendum.log.reading import compare
from addendum.log.reading import read as read_log
from addendum.log.session_log import SessionLog
from addendum.stores import SqliteStore, schema
from addendum.tools.functions import FunctionTool

pytestmark = pytest.mark.anyio

WEB = ScriptCall("web", {"q0": "a"})
SCRIPT = Script(
    (
        ScriptStep("one", (Entry(thinking="hm", calls=(WEB,)), Entry(text="Done."))),
        ScriptStep("two", (Entry(thinking="hm", calls=(WEB, WEB)), Entry(text="Done."))),
        ScriptStep("three", (Entry(calls=(WEB,)), Entry(text="Done."))),
    )
)


@pytest.fixture(autouse=True)
def _no_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PRAGMAS", ("PRAGMA synchronous = OFF",))


class Kept:
    """A store's file with one session in it, to be put back as it was."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kept.db"
        self.url = f"sqlite:///{self.path}"
        self.bytes = b""

    def keep(self) -> None:
        self.bytes = self.path.read_bytes()

    def restore(self) -> None:
        self.path.write_bytes(self.bytes)

    def change(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            for statement, values in statements:
                db.execute(statement, values)

    def rows(self) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as db:
            return [
                json.loads(raw) for (raw,) in db.execute("SELECT data FROM events ORDER BY seq")
            ]

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Put rows in the place of all, numbered and counted as they must be."""
        numbered = [(seq, dumped(row | {"seq": seq})) for seq, row in enumerate(rows)]
        self.change(
            ("DELETE FROM events", ()),
            *(("INSERT INTO events VALUES ('s', ?, ?)", row) for row in numbered),
            ("UPDATE sessions SET events = ?", (len(rows),)),
        )


def dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def agent(here: Stage, ran: list[str]) -> Any:
    async def run(arguments: dict[str, Any]) -> str:
        ran.append(str(arguments))
        return "found"

    web = FunctionTool.from_schema(fn("web").schema, run)
    return here.agent(CLAUDE, tools=[web], approval=Approval())


@asynccontextmanager
async def opened(here: Stage, kept: Kept, ran: list[str]) -> AsyncGenerator[Any]:
    async with agent(here, ran).open("s", store=kept.url) as session:
        yield session


async def approved(session: Any, **how: Any) -> Any:
    return await session.decide(
        {each.call_id: Decision("approve", **how) for each in session.pending()}
    )


async def waiting(folder: Path) -> Kept:
    """A session that has run one call, and whose next two wait for a person."""
    kept = Kept(folder)
    async with stage(SCRIPT) as here, opened(here, kept, []) as session:
        await session.run("one")
        await approved(session)
        assert len((await session.run("two")).waiting) == 2
    kept.keep()
    return kept


async def read(kept: Kept) -> SessionLog:
    store = await SqliteStore.open(kept.url)
    try:
        log = SessionLog("s")
        await read_log(log, store)
        return log
    finally:
        await store.aclose()


Change = Callable[[Kept, list[dict[str, Any]], int], None]


def edited(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.change(("UPDATE events SET data = ? WHERE seq = ?", (dumped(rows[at] | {"time": 1}), at)))


def spaced(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.change(("UPDATE events SET data = CAST(data || X'20' AS BLOB) WHERE seq = ?", (at,)))


def removed(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.write([*rows[:at], *rows[at + 1 :]])


def inserted(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.write([*rows[: at + 1], rows[at], *rows[at + 1 :]])


def swapped(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.write([*rows[:at], *rows[at : at + 2][::-1], *rows[at + 2 :]])


def cut(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.write(rows[:at])


def without_seal(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.change(("DELETE FROM seals WHERE seq = ?", (at,)))
    edited(kept, rows, at)


def other_seal(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    kept.change(("UPDATE seals SET seal = 7 WHERE seq = ?", (at,)))
    edited(kept, rows, at)


def added(kept: Kept, rows: list[dict[str, Any]], at: int) -> None:
    """A row behind all, which nobody counts."""
    new = dumped(rows[at] | {"seq": len(rows)})
    kept.change(("INSERT INTO events VALUES ('s', ?, ?)", (len(rows), new)))


CHANGES: list[Change] = [
    edited,
    spaced,
    removed,
    inserted,
    swapped,
    cut,
    without_seal,
    other_seal,
    added,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_whatever_row_was_changed_opening_notices_it(change: Change, tmp_path: Path) -> None:
    kept = await waiting(tmp_path)
    rows = kept.rows()
    assert (await read(kept)).changed == set() and len(rows) > 20
    unnoticed: list[int] = []
    for at in range(1 if change is cut else 0, len(rows)):
        if change is swapped and at == len(rows) - 1:
            continue
        kept.restore()
        change(kept, rows, at)
        try:
            log = await read(kept)
        except AddendumError as error:
            assert "\n" not in str(error)
            continue
        if not log.changed:
            unnoticed.append(at)
        elif change in (edited, spaced):
            # To the row, and no other.
            assert log.changed == {at}
    assert unnoticed == []


NUMBERS = (0, -1, 10**30)


def renumbered(kept: Kept, rows: list[dict[str, Any]], at: int) -> Iterator[None]:
    """Each whole number of a row's data in turn, as none that can be."""
    for name, was in rows[at]["data"].items():
        for number in NUMBERS if type(was) is int else ():
            if number != was:
                kept.restore()
                data = rows[at]["data"] | {name: number}
                row = dumped(rows[at] | {"data": data})
                kept.change(("UPDATE events SET data = ? WHERE seq = ?", (row, at)))
                yield


def once(change: Change) -> Callable[[Kept, list[dict[str, Any]], int], Iterator[None]]:
    def variants(kept: Kept, rows: list[dict[str, Any]], at: int) -> Iterator[None]:
        kept.restore()
        change(kept, rows, at)
        yield

    return variants


WAYS = {
    **{change.__name__: once(change) for change in (removed, inserted, swapped, cut)},
    "renumbered": renumbered,
}


@pytest.mark.parametrize("way", WAYS)
async def test_going_on_with_what_was_changed_ends_well_or_in_a_line(
    way: str, tmp_path: Path
) -> None:
    kept = await waiting(tmp_path)
    rows = kept.rows()
    async with stage(SCRIPT) as here:
        for at in range(1, len(rows)):
            for _ in WAYS[way](kept, rows, at):
                ran: list[str] = []
                try:
                    async with opened(here, kept, ran) as session:
                        await (approved(session) if session.pending() else session.run("three"))
                except AddendumError as error:
                    assert "\n" not in str(error)


async def test_what_a_changed_step_waits_for_does_not_run(tmp_path: Path) -> None:
    """A question from another step is as it was asked, whatever was changed in front of it."""
    kept = await waiting(tmp_path)
    rows = kept.rows()
    begins = max(at for at, row in enumerate(rows) if row["data"]["type"] == "step/start")
    for at in range(len(rows)):
        kept.restore()
        edited(kept, rows, at)
        ran: list[str] = []
        async with stage(SCRIPT) as here, opened(here, kept, ran) as session:
            result = await approved(session)
            codes = [each.code for each in results(session)[-2:]]
            (notice,) = [each for each in result.notices if "the stored log was changed" in each]
            assert f"event {at} ({rows[at]['data']['type']}) is not as it was written" in notice
        assert (len(ran), codes) == (
            (2, [None, None]) if at < begins else (0, ["PROPOSAL_CHANGED"] * 2)
        ), at


@pytest.mark.parametrize(
    "arguments", ['{"q0":"rm -rf /"}', '{"q0":"a" }', "{}", "null", '{"q0":"a","q0":"b"}']
)
async def test_another_call_in_the_place_of_the_one_that_was_asked(
    arguments: str, tmp_path: Path
) -> None:
    kept = await waiting(tmp_path)
    rows = kept.rows()
    assert rows[-1]["data"]["type"] == "approval/asked"
    rows[-1]["data"]["calls"][0]["arguments"] = arguments
    kept.write(rows)
    ran: list[str] = []
    async with stage(SCRIPT) as here, opened(here, kept, ran) as session:
        await approved(session)
        assert (ran, results(session)[-1].code) == ([], "PROPOSAL_CHANGED")
        assert "is not stored as it was asked" in results(session)[-1].text
        # It goes on, and what is asked from now on is as it stands.
        assert (await session.run("three")).waiting
        await approved(session)
        assert len(ran) == 1


async def test_what_was_decided_does_not_wait_again(tmp_path: Path) -> None:
    """Whoever takes the end of a log out does not run its calls a second time."""
    kept, ran = await waiting(tmp_path), list[str]()
    asked = len(kept.rows())
    async with stage(SCRIPT) as here:
        async with opened(here, kept, ran) as session:
            await approved(session)
        assert len(ran) == 2
        kept.write(kept.rows()[:asked])
        async with opened(here, kept, ran) as session:
            await approved(session)
        assert len(ran) == 2


async def test_consent_that_was_written_in_by_hand_counts_for_nothing(tmp_path: Path) -> None:
    for forged in (True, False):
        kept, ran = await waiting(tmp_path), list[str]()
        async with stage(SCRIPT) as here:
            if forged:
                rows = kept.rows()
                (decided,) = [r["data"] for r in rows if r["data"]["type"] == "approval/decided"]
                decided["decisions"][0]["always"] = True
                kept.write(rows)
            async with opened(here, kept, ran) as session:
                await approved(session, always=not forged)
                assert bool((await session.run("three")).waiting) is forged
        kept.path.unlink()


async def test_a_changed_answer_loses_its_signed_reasoning_and_says_so(tmp_path: Path) -> None:
    def other(event: dict[str, Any]) -> None:
        event["data"]["native"][0]["thinking"] = "about something else"

    kept = Kept(tmp_path)
    for changed in (False, True):
        async with stage(thinking("one", "two", "three", "four")) as here:
            made = here.agent(CLAUDE)
            async with made.open("s", store=kept.url) as session:
                await session.run("one")
                await session.run("two")
            rows = kept.rows()
            last = max(at for at, r in enumerate(rows) if r["data"]["type"] == "assistant/message")
            if changed:
                other(rows[last])
                kept.write(rows)
            async with made.open("s", store=kept.url) as session:
                first = await session.run("three")
                assert await session.run("four")
                assert breaks(session) == ([("rendering changed", "messages")] if changed else [])
            assert here.refused() == []
            assert any("was changed" in each for each in first.notices) is changed
        kept.path.unlink()


async def test_a_changed_result_breaks_nothing_that_was_sent(tmp_path: Path) -> None:
    """It was never sent: the model reads it as it is now, and the person is told."""
    kept = await waiting(tmp_path)
    ran: list[str] = []
    async with stage(SCRIPT) as here:
        async with opened(here, kept, ran) as session:
            here.lab.fail_next("anthropic", status=400)
            with pytest.raises(AddendumError):
                await approved(session)
        rows = kept.rows()
        sent = max(at for at, row in enumerate(rows) if row["data"]["type"] == "request/sent")
        given = [at for at, row in enumerate(rows) if row["data"]["type"] == "tool/result"]
        assert max(given) < sent  # the failed request had it already
        rows[max(given)]["data"]["text"] = "other"
        kept.write(rows)
        async with opened(here, kept, ran) as session:
            assert session.log.changed == {max(given)}
            assert session.log.altered == {sent}


async def test_a_store_from_before_there_were_checksums(tmp_path: Path) -> None:
    kept = await waiting(tmp_path)
    rows = kept.rows()
    kept.change(("DROP TABLE seals", ()), ("PRAGMA user_version = 1", ()))
    assert len(schema.MIGRATIONS) == 2
    kept.keep()
    edited(kept, rows, 3)
    assert (await read(kept)).changed == set(), "nobody can know"
    kept.restore()
    kept.change(("DROP TABLE IF EXISTS seals", ()))
    async with stage(SCRIPT) as here, opened(here, kept, []) as session:
        await approved(session)
    # From the first row on that was appended since, it is noticed, and so is what stood before.
    whole = kept.rows()
    assert (await read(kept)).changed == set() and len(whole) > len(rows)
    kept.keep()
    for at in range(len(whole)):
        kept.restore()
        edited(kept, whole, at)
        assert (await read(kept)).changed == {max(at, len(rows))}


def test_the_commands_name_the_row(tmp_path: Path) -> None:
    kept = anyio.run(waiting, tmp_path)
    rows = kept.rows()
    assert told("show", "s", "--store", kept.url)["changed"] == []
    edited(kept, rows, len(rows) - 1)
    assert told("show", "s", "--store", kept.url)["changed"] == [len(rows) - 1]
    for command in ("show", "why"):
        shown = " ".join(call(command, "s", "--store", kept.url).stdout.split())
        named = f"event {len(rows) - 1} (approval/asked) is not as it was written"
        assert f"the stored log was changed: {named}" in shown


async def test_a_session_that_grows_while_it_is_read_is_not_taken_for_changed(
    tmp_path: Path,
) -> None:
    kept = await waiting(tmp_path)
    store = await SqliteStore.open(kept.url)
    for length in range(1, len(kept.rows()) + 1):
        log = SessionLog.load("s", await store.read("s", limit=length))
        await compare(log, store)
        assert log.changed == set()
    await store.aclose()
    assert [each for each in data_of(log) if isinstance(each, StepStart)]


def data_of(log: SessionLog) -> list[Any]:
    return [event.data for event in log.events]
