"""Logs that are not as they were written: each a clear error, or a sensible continuation.

What else a restore may find gone (tools, servers, routes) is in `tests/agent`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.stage import CLAUDE, breaks, stage
from tests.golden.make_logs import LOGS

from addendum.errors import AddendumError, AppendRefused, LogError, StoreError, UnknownEvent
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log import codec
from addendum.log.events import AssistantMessage, StepStart, TurnStart, Unknown
from addendum.log.session_log import SessionLog
from addendum.stores import SqliteStore

pytestmark = pytest.mark.anyio

TWO = (ScriptCall("web", {"q0": "a"}), ScriptCall("web", {"q0": "b"}))
SCRIPT = Script(
    (
        ScriptStep("one", (Entry(calls=TWO[:1]), Entry(text="Done."))),
        ScriptStep("both", (Entry(calls=TWO), Entry(text="Done."))),
        ScriptStep("bye", (Entry(text="Bye."),)),
    )
)

Rows = list[bytes]


async def written(path: Path) -> Rows:
    """A session of three turns in a file: a call, two calls at once, a text."""
    store = await SqliteStore.open(f"sqlite:///{path}")
    async with stage(SCRIPT) as here:
        async with here.agent(CLAUDE).open("s", store=store) as session:
            for text in ("one", "both", "bye"):
                await session.run(text)
    rows = await store.read("s")
    await store.aclose()
    return rows


def changed(raw: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    event = json.loads(raw)
    change(event)
    return json.dumps(event, separators=(",", ":")).encode()


def edited(at: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[Rows], Rows]:
    return lambda rows: [*rows[:at], changed(rows[at], change), *rows[at + 1 :]]


def last_result(rows: Rows) -> int:
    return max(at for at, raw in enumerate(rows) if b'"type":"tool/result"' in raw)


def other_call(rows: Rows) -> Rows:
    at = last_result(rows)
    return edited(at, lambda event: event["data"].update(call_id="other"))(rows)


def items(*given: Any) -> Callable[[Rows], Rows]:
    """Put others in the place of the last answer's own items."""

    def change(rows: Rows) -> Rows:
        at = max(at for at, raw in enumerate(rows) if b'"type":"assistant/message"' in raw)
        return edited(at, lambda event: event["data"].update(native=given))(rows)

    return change


def golden_lines() -> Rows:
    return [
        line
        for log in sorted(LOGS.glob("*.events.jsonl"))
        for line in log.read_bytes().splitlines()
    ]


STRANGE = {
    "an item that is no object": (
        items({"type": "text", "text": "Bye."}, "Bye."),
        LogError,
        r"event 3\d is damaged \(an item of the answer is no JSON object\); restore",
    ),
    "cut in the middle of a row": (lambda rows: [*rows[:-1], rows[-1][:-9]], LogError, "no event"),
    "a gap": (lambda rows: [*rows[:7], *rows[8:]], StoreError, "restore"),
    "the end is lost": (lambda rows: rows[:-3], StoreError, "has lost events"),
    "another call": (other_call, LogError, "no call 'other' waits"),
    "two rows changed places": (
        lambda rows: [*rows[:4], rows[5], rows[4], *rows[6:]],
        LogError,
        "event 4 is missing",
    ),
    "a later format": (
        edited(0, lambda event: event["data"].update(format=9)),
        LogError,
        "open it with a newer addendum",
    ),
    "a foreign event": (
        edited(6, lambda event: event.update(data={"type": "other/thing"})),
        UnknownEvent,
        "open it with a newer addendum",
    ),
    "a foreign event that has our own word for one": (
        edited(6, lambda event: event.update(data={"type": "unknown", "raw": {}})),
        UnknownEvent,
        "'unknown' that this release does not know",
    ),
    "a foreign field": (
        edited(6, lambda event: event["data"].update(later=1)),
        UnknownEvent,
        "open the log with a newer addendum",
    ),
}


@pytest.mark.parametrize("what", [each for each in STRANGE if each.startswith("a foreign")])
async def test_what_no_later_release_wrote_is_told_as_damage(what: str, tmp_path: Path) -> None:
    """The very rows, put in by hand: the store knows what was appended there."""
    path = tmp_path / "kept.db"
    strange = STRANGE[what][0](await written(path))
    with sqlite3.connect(path) as db:
        db.executemany(
            "UPDATE events SET data = ? WHERE seq = ?",
            [(raw, seq) for seq, raw in enumerate(strange)],
        )
    async with stage() as here:
        with pytest.raises(LogError, match="event 6 is damaged: it is not as it was") as caught:
            await here.agent(CLAUDE).open("s", store=f"sqlite:///{path}")
    assert not isinstance(caught.value, UnknownEvent) and "newer" not in str(caught.value)


def flips(name: str) -> list[str]:
    """A name with one sign damaged, lost or doubled."""
    return [
        other
        for at in range(len(name))
        for other in (
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + "\ufffd" + name[at + 1 :],
            *(name[:at] + chr(ord(name[at]) ^ bit) + name[at + 1 :] for bit in (1, 4, 32)),
        )
        if other != name and all(each not in other for each in '"\\') and other.isprintable()
    ]


EVERY = sorted({codec.decode_event(raw).type: raw for raw in golden_lines()}.items())


@pytest.mark.parametrize(("kind", "raw"), EVERY, ids=[kind for kind, _ in EVERY])
def test_a_damaged_name_is_damage_and_no_later_release(kind: str, raw: bytes) -> None:
    event = json.loads(raw)
    damaged: list[dict[str, Any]] = []
    for name in event["data"]:
        for other in flips(name):
            renamed = {other if key == name else key: v for key, v in event["data"].items()}
            damaged.append({**event, "data": renamed, "ignorable": False})
    for other in flips(kind):
        damaged.append({**event, "data": {**event["data"], "type": other}, "ignorable": False})
    assert damaged
    for each in damaged:
        try:
            read = codec.decode_event(json.dumps(each).encode())
        except UnknownEvent as error:
            pytest.fail(f"{each['data']} is told as {error}")
        except LogError as error:
            assert "\n" not in str(error) and "newer" not in str(error)
        else:
            # Another event in its own right, or one whose damaged field may be left out.
            assert codec.encode_event(read) != raw


@pytest.mark.parametrize("name", ["other/thing", "tool/approval", "x", "unknown", "note"])
def test_a_name_of_its_own_is_a_later_releases(name: str) -> None:
    with pytest.raises(UnknownEvent, match="open it with a newer addendum"):
        codec.decode_event(json.dumps({"seq": 0, "time": 7, "data": {"type": name}}).encode())


@pytest.mark.parametrize("what", STRANGE)
async def test_a_strange_log_is_one_clear_line_and_stays_as_it_is(
    what: str, tmp_path: Path
) -> None:
    change, kind, says = STRANGE[what]
    path = tmp_path / "kept.db"
    strange = change(await written(path))
    if what.startswith("a foreign"):  # as a later release would have written it
        path = tmp_path / "later.db"
        store = await SqliteStore.open(f"sqlite:///{path}")
        await store.release(await store.acquire("s", events=strange))
        await store.aclose()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM events")
        seqs = [at if what != "a gap" else json.loads(raw)["seq"] for at, raw in enumerate(strange)]
        db.executemany(
            "INSERT INTO events VALUES ('s', ?, ?)", list(zip(seqs, strange, strict=True))
        )
    async with stage() as here:
        store = await SqliteStore.open(f"sqlite:///{path}")
        with pytest.raises(kind, match=says) as caught:
            async with here.agent(CLAUDE).open("s", store=store):
                pass
        assert isinstance(caught.value, AddendumError) and "\n" not in str(caught.value)
        await store.aclose()
    with sqlite3.connect(path) as db:
        kept = [data for (data,) in db.execute("SELECT data FROM events ORDER BY seq")]
    assert kept == strange


async def test_an_item_that_is_none_of_its_wire_is_one_clear_line(tmp_path: Path) -> None:
    async with stage() as here:
        store = await SqliteStore.open(f"sqlite:///{tmp_path}/kept.db")
        lease = await store.acquire("s", events=items({"type": 7})(await written(tmp_path / "a")))
        await store.release(lease)
        async with here.agent(CLAUDE).open("s", store=store) as session:
            with pytest.raises(LogError, match=r"event 3\d holds no item of anthropic"):
                await session.run("and now?")
        await store.aclose()


def test_what_nobody_could_read_again_is_not_written() -> None:
    log = SessionLog("s")
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    said = AssistantMessage(1, 1, CLAUDE, "anthropic_messages", native=(Raw(b'"text"'),))
    with pytest.raises(AppendRefused, match="no JSON object"):
        log.append(said)
    assert len(log) == 2


async def test_a_foreign_event_that_may_be_ignored_is_kept_and_nothing_breaks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "kept.db"
    rows = await written(path)
    foreign = b'{"seq":%d,"time":7,"ignorable":true,"data":{"type":"other/note"}}' % len(rows)
    async with stage() as here:
        store = await SqliteStore.open(f"sqlite:///{path}")
        lease = await store.acquire("s")
        await store.append(lease, len(rows), [foreign])
        await store.release(lease)
        async with here.agent(CLAUDE).open("s", store=store) as session:
            assert isinstance(session.log.events[len(rows)].data, Unknown)
            await session.run("and now?")
            assert [reason for reason, _ in breaks(session)] == []
        assert (await store.read("s"))[len(rows)] == foreign
        await store.aclose()


def one_by_one(rows: Rows) -> SessionLog | str:
    """Read as events are appended: each by all of its checks."""
    log = SessionLog("s")
    for raw in rows:
        try:
            log._admit(codec.decode_event(raw))  # pyright: ignore[reportPrivateUsage]
        except LogError as error:
            return str(error)
    return log


def at_once(rows: Rows) -> SessionLog | str:
    try:
        return SessionLog.load("s", rows)
    except LogError as error:
        return str(error)


def state(log: SessionLog) -> object:
    return (
        list(log.events),
        log.surface.nodes,
        log.surface.generation,
        log.rare,
        (log.turn, log.step, log.turns, log.unanswered, log.asked, log.disabled, log.header_seq),
    )


async def test_what_is_read_quickly_is_checked_as_when_it_was_appended(tmp_path: Path) -> None:
    rows = await written(tmp_path / "kept.db")
    one: dict[str, Any] = {"turn": 7, "step": 7, "call_id": "x", "calls": []}
    strange: list[Rows] = [rows[:end] for end in range(len(rows) + 1)]
    for at in range(len(rows)):
        strange.append([*rows[:at], *rows[at + 1 :]])  # left out
        strange.append([*rows[:at], rows[at], *rows[at:]])  # doubled
        strange.append([*rows[:at], *reversed(rows[at : at + 2]), *rows[at + 2 :]])
        for field, value in one.items():
            if field in json.loads(rows[at])["data"]:
                strange.append(
                    edited(at, lambda event, f=field, v=value: event["data"].update({f: v}))(rows)
                )
        strange.append(edited(at, lambda event: event.pop("surface_op", None))(rows))
        strange.append(edited(at, lambda event: event.update(surface_op="append"))(rows))
    refused = 0
    for each in strange:
        numbered = [
            changed(raw, lambda event, s=seq: event.update(seq=s)) for seq, raw in enumerate(each)
        ]
        slow, quick = one_by_one(numbered), at_once(numbered)
        if isinstance(slow, SessionLog) and isinstance(quick, SessionLog):
            assert state(slow) == state(quick)
            for end in range(len(numbered)):
                assert state(quick.until(end)) == state(at_once(numbered[:end]))  # type: ignore[arg-type]
        else:
            assert isinstance(slow, str) and isinstance(quick, str) and slow in quick
            refused += 1
    assert len(strange) > refused > 100
