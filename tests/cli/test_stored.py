from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.agent.stage import CHAT, stage
from tests.cli.commands import call, complaint, told

from addendum.agent.replay import known_route, replay
from addendum.cli.chat_commands import Commands
from addendum.cli.stored import read_log
from addendum.errors import ProviderRefused
from addendum.log import codec
from addendum.log.events import AssistantAttempt, RequestSent
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.stores import open_store
from addendum.viewer.index import Index

CLAUDE = "anthropic:claude-opus-5-5"
TEXT = """
name: kept
instructions: {text: Be brief., tokens: 600}
tools:
  - {name: look, parameters: {properties: {q: {type: string}}}, result: "seen \\e[31mred"}
  - {name: barred, disabled: true}
servers:
  files: {instructions: Paths are relative., tools: [{name: read, result: text}, {name: write}]}
steps:
  - user: One.
    model: [{thinking: hm, calls: [{tool: look, arguments: {q: a}}]}, {text: First.}]
  - enable: files
  - user: Two.
    model: [{calls: [{tool: read}, {tool: read}]}, {text: Second.}]
  - redefine: {name: files__write, description: Writes.}
  - disable: files
  - set: {turn_instructions: Now.}
  - user: Three.
    model: [{calls: [{tool: barred}]}, {text: Third.}]
  - compact: {summary: They counted.}
  - user: Four.
    model: [{text: Fourth.}]
  - rewind: {turns: 1}
  - fork: true
  - user: Five.
    model: [{text: Fifth.}]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "kept.yaml").write_text(TEXT, "utf-8")
    url = f"sqlite:///{folder / 'kept.db'}"
    found = told("run", str(folder / "kept.yaml"), "--route", CLAUDE, "--store", url)
    assert found["holds"]
    return url


# -- sessions -----------------------------------------------------------------------------------


def test_the_sessions_of_a_store_are_listed(store: str) -> None:
    rows = told("sessions", "--store", store)["sessions"]
    child, parent = sorted(rows, key=lambda row: -len(row["id"]))
    assert child["id"] == f"{parent['id']}-fork"
    assert (child["parent"], parent["parent"]) == (parent["id"], None)
    assert child["events"] > parent["events"]
    lines = call("sessions", "--store", store).stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith("session") and len(lines) == 4 and lines[-1].startswith("* an est")
    # What a fork inherited was paid for by its parent.
    assert (parent["totals"]["requests"], child["totals"]["requests"]) == (8, 1)
    for row in rows:
        assert row["totals"]["prompt_tokens"] > 0 and row["totals"]["cost"] > 0
        assert row["totals"]["estimated"] == ["rebinding_cost"]
    assert told("sessions", env={"ADDENDUM_STORE": store})["sessions"] == rows


def test_a_session_that_is_damaged_hides_no_other(store: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(store.removeprefix("sqlite:///"), copy)
    child, parent = told("sessions", "--store", store)["sessions"]
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute("DELETE FROM events WHERE session = ? AND seq > 9", (parent["id"],))
        db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (2**62, child["id"]))
    url = f"sqlite:///{copy}"
    strange = [child | {"updated": 2**62}, parent | {"totals": None}]
    assert told("sessions", "--store", url)["sessions"] == strange
    assert call("sessions", "--store", url).stdout.count("\n") == 4
    assert "has lost events" in complaint("show", parent["id"], "--store", url)


def test_looking_for_sessions_makes_no_store(tmp_path: Path) -> None:
    place = tmp_path / "none.db"
    assert "there is no store at" in complaint("sessions", "--store", f"sqlite:///{place}")
    assert "there is no store at" in complaint("show", "x", "--store", f"sqlite:///{place}")
    assert not place.exists()
    assert "names no file" in complaint("sessions", "--store", "sqlite:///")


def test_a_store_without_sessions_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"

    async def make() -> None:
        await (await open_store(url)).aclose()

    anyio.run(make)
    assert call("sessions", "--store", url).stdout == "no sessions yet\n"
    for command in ("show", "why", "tools"):
        said = complaint(command, "x", "--store", url)
        assert f"no session begins with 'x' in {tmp_path / 'empty.db'}" in said
        assert "--store names another" in said


# -- show ---------------------------------------------------------------------------------------


def test_a_session_is_told_in_lines_with_figures_and_changes_in_their_place(store: str) -> None:
    (child,) = [
        row["id"] for row in told("sessions", "--store", store)["sessions"] if row["parent"]
    ]
    shown = call("show", child, "--store", store).stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "\x1b" not in shown
    assert lines[0] == f"session {child}: 5 turns"
    turns = {line: at for at, line in enumerate(lines) if line.startswith("turn ")}
    kinds = [line[8:16].strip() for line in lines if not line.startswith(("turn ", "session "))]
    for kind in ("prompt", "refuse", "you", "head", "route", "request", "call", "result", "model"):
        assert kind in kinds[: turns["turn 2"]]

    def said(kind: str) -> list[tuple[int, str]]:
        return [(at, line[18:]) for at, line in enumerate(lines) if line[8:16].strip() == kind]

    (on, off) = said("switch")
    assert on[1] == "server files on, by user" and turns["turn 1"] < on[0] < turns["turn 2"]
    assert off[1] == "server files off, by user"
    added, removed = said("tools")
    assert added[1] == "Added: files__read, files__write"
    assert turns["turn 2"] < added[0] < turns["turn 3"]
    assert removed[1] == "Removed: files__read, files__write"
    assert said("head")[0][1].startswith("Added: look, barred")
    assert said("tail")[0][1] == "Now."
    assert said("summary")[0][1] == "They counted."
    assert said("rewind")[0][1] == "to before turn 4"
    assert said("fork")[0][1].startswith("of kept-")
    assert [text for _, text in said("break")][:1] == ["compaction · from the messages on"]
    assert said("server")[0][1] == "files says: Paths are relative."
    assert any("barred failed (E5)" in text for _, text in said("result"))
    first = said("request")[0][1]
    assert first.startswith("1: prompt ") and ", read 0, written " in first
    assert said("cost")[0][1].startswith("$")
    assert any("rebinding about $" in text for _, text in said("cost"))
    # The tools of `files` were told, and are gone.
    assert any("dead weight about " in text for _, text in said("cost"))
    assert lines[-2].startswith("1 requests: prompt ")
    assert "saved against no cache " in lines[-1] and "against rebinding about $" in lines[-1]


def test_names_of_routes_are_whole_however_long(tmp_path: Path) -> None:
    name = "bedrock-claude:anthropic.claude-haiku-4-5"
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    told("run", "g2", "--route", name, "--store", url)
    (session,) = told("sessions", "--store", url)["sessions"]
    lines = call("show", session["id"], "--store", url).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    requests = [at for at, line in enumerate(lines) if line[8:16].strip() == "request"]
    assert requests
    for at in requests:
        assert name in (lines[at].split() + lines[at + 1].split())


def test_a_session_as_json_has_its_events_and_requests(store: str) -> None:
    (parent,) = [
        row["id"] for row in told("sessions", "--store", store)["sessions"] if not row["parent"]
    ]
    shown = told("show", parent, "--store", store)
    assert [event["seq"] for event in shown["events"]] == list(range(len(shown["events"])))
    assert shown["events"][0]["data"]["type"] == "session/start"
    assert [request["n"] for request in shown["requests"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [request["purpose"] for request in shown["requests"]][-2:] == ["compaction", "turn"]
    assert all(request["answered"] for request in shown["requests"])
    assert shown["requests"][1]["cache_read"] == shown["requests"][0]["prompt_tokens"]
    assert [each["reason"] for each in shown["requests"][-1]["breaks"]] == ["compaction"]
    sums = shown["totals"]
    for field in ("prompt_tokens", "cache_read", "cache_write", "output"):
        assert sums[field] == sum(request[field] for request in shown["requests"])
    for field in ("cost", "saved", "rebinding_cost"):
        assert sums[field] == pytest.approx(sum(request[field] for request in shown["requests"]))
    dead = [request["dead_weight"] for request in shown["requests"]]
    # `files` went off in the third turn; the compaction dropped its definitions.
    assert [weight > 0 for weight in dead] == [False] * 4 + [True] * 3 + [False]
    lost = [request["rebinding_tokens"] for request in shown["requests"]]
    assert [tokens > 0 for tokens in lost] == [False, False, True, False, True] + [False] * 3
    assert lost[2] == shown["requests"][2]["cache_read"]


def test_what_was_cut_off_is_told_with_what_was_counted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"

    async def make() -> None:
        async with stage() as here:
            async with here.open(here.agent(CLAUDE)) as session:
                await session.run("one")
            log = SessionLog.load("s", (await here.store.read("s"))[:8])
        usage = Usage(1_500, 0, 1_500, 1)
        log.append(AssistantAttempt(1, 1, CLAUDE, "stopped", "CANCELLED", usage=usage))
        log.append(RequestSent(1, 1, 2, CLAUDE, 6))
        log.append(AssistantAttempt(1, 1, CLAUDE, "no answer"))
        log.close_open()
        store = await open_store(url)
        lease = await store.acquire("s")
        await store.append(lease, 0, [codec.encode_event(event) for event in log.events])
        await store.release(lease)
        await store.aclose()

    anyio.run(make)
    shown = told("show", "s", "--store", url)
    cut, silent = shown["requests"]
    assert (cut["answered"], cut["prompt_tokens"], cut["output"]) == (False, 1_500, 1)
    assert (silent["answered"], silent["prompt_tokens"], silent["cost"]) == (False, None, None)
    sums = shown["totals"]
    assert (sums["requests"], sums["uncounted"], sums["cost"]) == (1, 1, cut["cost"])
    said = call("show", "s", "--store", url).stdout
    assert "request   1: prompt 1,500, read 0, written 1,500, out 1" in said
    assert said.endswith("1 more got no answer, and no count of tokens\n")


def test_a_break_of_a_request_in_vain_is_told_of_the_next_one_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"

    async def never(_: object) -> None:
        raise AssertionError

    async def make() -> None:
        async with stage() as here:
            agent = here.agent(CHAT, instructions="One.")
            async with agent.open("s", store=url) as session:
                await session.run("one")
                session.instructions = "Two."
                here.lab.fail_next("openai-chat", status=400)
                with pytest.raises(ProviderRefused):
                    await session.run("two")
                await session.run("three")
                await session.run("four")
                await Commands(session, known_route, never).run("/why")

    anyio.run(make)
    told_of = [f"turn {n}, request {n}: prompt rewritten, from system on" for n in (2, 3)]
    lines = capsys.readouterr().out.splitlines()
    assert [row for row in lines if "prompt rewritten" in row] == told_of
    requests = told("show", "s", "--store", url)["requests"]
    shown = [[each["reason"] for each in request["breaks"]] for request in requests]
    assert [each.count("prompt rewritten") for each in shown] == [0, 1, 1, 0]
    log = anyio.run(read_log, url, "s")[1]
    assert shown == [[each.reason for each in one.record.declared] for one in replay(log)]
    index = Index()
    index.read(log.events)
    assert shown == [[each.reason for each in one.request.breaks] for one in index.requests]


def test_an_id_may_be_shortened_as_long_as_it_fits_one(store: str) -> None:
    ids = [row["id"] for row in told("sessions", "--store", store)["sessions"]]
    parent, child = sorted(ids, key=len)
    assert told("show", child[:-1], "--store", store)["session"] == child
    # The whole id counts, although another one begins with it.
    assert told("show", parent, "--store", store)["session"] == parent
    message = complaint("show", "kept", "--store", store)
    assert "begins 2 sessions" in message and child in message
    assert "no session begins with 'x'" in complaint("tools", "x", "--store", store)


def test_reading_needs_no_lease(store: str) -> None:
    (parent,) = [
        row["id"] for row in told("sessions", "--store", store)["sessions"] if not row["parent"]
    ]

    async def hold() -> None:
        kept = await open_store(store)
        try:
            lease = await kept.acquire(parent)
            await anyio.to_thread.run_sync(lambda: call("show", parent, "--store", store))
            await anyio.to_thread.run_sync(lambda: call("tools", parent, "--store", store))
            await kept.release(lease)
        finally:
            await kept.aclose()

    anyio.run(hold)


# -- tools --------------------------------------------------------------------------------------


def test_d8_the_tools_of_every_moment_are_told(store: str) -> None:
    (parent,) = [
        row["id"] for row in told("sessions", "--store", store)["sessions"] if not row["parent"]
    ]
    events = told("show", parent, "--store", store)["events"]

    def at(seq: int) -> dict[str, tuple[str, int, int]]:
        found = told("tools", parent, "--at", str(seq), "--store", store)
        assert found["at"] == seq
        return {
            tool["name"]: (tool["state"], tool["since_turn"], tool["calls"])
            for tool in found["tools"]
        }

    headers = [e["seq"] for e in events if e["data"]["type"] == "request/header"]
    results = [e["seq"] for e in events if e["data"]["type"] == "tool/result"]
    assert at(0) == {}
    assert at(headers[0]) == {"look": ("active", 1, 0), "barred": ("disabled", 1, 0)}
    assert at(headers[1])["files__read"] == ("active", 2, 0)
    assert at(results[2])["files__read"] == ("active", 2, 2)
    last = told("tools", parent, "--store", store)
    assert last["at"] == len(events) - 1
    now = {tool["name"]: tool for tool in last["tools"]}
    assert {name: tool["state"] for name, tool in now.items()} == {
        "look": "active",
        "barred": "disabled",
        "files__read": "removed",
        "files__write": "removed",
    }
    assert now["files__read"]["since_seq"] == headers[2]
    assert [tool["server"] for tool in last["tools"]] == [None, None, "files", "files"]
    # A call of a disabled tool never starts.
    assert now["barred"]["calls"] == 0
    lines = call("tools", parent, "--store", store).stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].split() == ["tool", "state", "server", "since", "(event)", "calls", "weight"]
    assert "the log ends at" in complaint("tools", parent, "--at", "99999", "--store", store)


SERVERS = """{"mcpServers": {"changing": {"command": "%s",
  "args": ["-m", "addendum.lab.mcp_servers", "--changing"]}}}"""


def test_d11_pins_are_taken_from_the_servers_as_they_are(tmp_path: Path) -> None:
    import sys

    from addendum.tools.catalogue import KIND, read_catalogue
    from addendum.tools.mcp.file import read_mcp_file

    servers = tmp_path / "servers.json"
    servers.write_text(SERVERS % sys.executable, "utf-8")
    catalogue = tmp_path / "catalogue.json"
    found = told("tools", "pin", str(catalogue), "--mcp", str(servers))
    taken = [{"server": "changing", "tools": 2}]
    assert found == {"file": str(catalogue), "pinned": taken, "failed": []}
    assert [tool.name for tool in read_catalogue(catalogue)["changing"].tools] == ["grow", "shrink"]
    url = f"sqlite:///{tmp_path / 'pins.db'}"
    shown = call("tools", "pin", "--mcp", str(servers), "--store", url).stdout
    assert shown == "changing: 2 tools\npinned for new sessions\n"

    async def pinned() -> bytes | None:
        store = await open_store(url)
        try:
            return await store.get(KIND, read_mcp_file(servers)[0].key())
        finally:
            await store.aclose()

    assert b"grow" in (anyio.run(pinned) or b"")


def test_a_server_that_cannot_be_pinned_stops_no_other(tmp_path: Path) -> None:
    import sys

    from addendum.tools.catalogue import read_catalogue

    assert "cannot read" in complaint("tools", "pin", "--mcp", str(tmp_path / "none.json"))
    good, bad, catalogue = (tmp_path / name for name in ("good.json", "bad.json", "pins.json"))
    known = json.loads(SERVERS % sys.executable)["mcpServers"]
    good.write_text(json.dumps({"mcpServers": {**known, "gone": known["changing"]}}), "utf-8")
    gone = {"command": "/no/such/program"}
    bad.write_text(json.dumps({"mcpServers": {"gone": gone, **known}}), "utf-8")
    url = f"sqlite:///{tmp_path / 'pins.db'}"
    shown = call("tools", "pin", "--mcp", str(bad), "--store", url, code=1).stdout
    assert shown.startswith("changing: 2 tools\ngone: not pinned: ")
    assert "\npinned for new sessions\n" in shown and "then pin again" in shown
    told("tools", "pin", str(catalogue), "--mcp", str(good))
    before = read_catalogue(catalogue)
    found = told("tools", "pin", str(catalogue), "--mcp", str(bad), code=1)
    assert [each["server"] for each in found["failed"]] == ["gone"]
    # What could not be asked keeps the pin that it had.
    assert read_catalogue(catalogue) == before and set(before) == {"changing", "gone"}
    only = tmp_path / "only.json"
    only.write_text(json.dumps({"mcpServers": {"gone": gone}}), "utf-8")
    shown = call("tools", "pin", str(catalogue), "--mcp", str(only), code=1).stdout
    assert "written" not in shown and read_catalogue(catalogue) == before
