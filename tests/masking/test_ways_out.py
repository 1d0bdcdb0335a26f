"""One session that holds every key, through every way out: none can be read in any of them.

Each command and each address of the page has a row here; one without a row fails.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import click
import httpx2
import pytest
from click.testing import CliRunner, Result
from tests.cli.commands import told
from tests.masking.samples import all_of_them, blob, keys, left, nested
from tests.viewer.staged import OPUS, canned, spec, stage

from addendum import Agent, encoding, tool
from addendum.agent.calls.approval import Pending
from addendum.agent.replay import replay
from addendum.app import main as cli
from addendum.app.main import COMMANDS, main
from addendum.cache.recording import RecordingTransport
from addendum.cli.chat_approval import as_run
from addendum.cli.show import _follow
from addendum.errors import AddendumError, ProviderRefused
from addendum.lab.report_page import page
from addendum.lab.server import open_lab
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CompactionFailed,
    ServerInstructions,
    SessionStart,
    StepEnd,
    StepStart,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Call, Media
from addendum.pytest_plugin import assert_stable_prefix
from addendum.stores import MemoryStore, open_store
from addendum.tell.words import words
from addendum.tools.mcp.values import ServerSpec
from addendum.viewer import feed
from addendum.viewer.actions import ACTIONS
from addendum.viewer.app import _PAGES
from addendum.viewer.room import Live
from addendum.wire.refusal import http_error

pytestmark = pytest.mark.anyio

CHAT = "openai-chat:gpt-4.1"
KEY = next(own.text for own in keys() if own.form == "Anthropic")
EACH = "\n".join(f"is {own.text} of" for own in keys())
"""Each key once."""

FIRST = f"rev 1: {KEY}\n{EACH}"
SECOND = FIRST.replace("rev 1", "rev 2")


@tool
def leak(text: str) -> str:
    """Say everything."""
    return "\n".join([all_of_them(0), all_of_them(1), all_of_them(2), blob(300, 1)])


async def filled(folder: Path) -> None:
    """Make a store with a session that has every key in all that it holds, and files beside it."""
    url = f"sqlite:///{folder / 'sessions.db'}"
    async with open_lab(None) as lab:
        url_of = lab.base_url(CHAT.partition(":")[0])
        agent = Agent(CHAT, base_url=url_of, tools=[leak], instructions=FIRST)
        async with agent.open("s", store=url) as session:
            await session.run(f"/call leak {json.dumps({'text': nested(EACH, 2)})}")
            session.instructions = SECOND
            await session.run(EACH)
    store = await open_store(url)
    try:
        lease = await store.acquire("s")
        log = SessionLog.load("s", await store.read("s"))
        turn = log.turns + 1
        for data in (
            TurnStart(turn),
            StepStart(turn, 1),
            UserMessage(turn, EACH, tail=EACH),
            ServerInstructions(turn, 1, "docs", EACH),
            AssistantAttempt(turn, 1, OPUS, EACH, text=EACH),
            StepEnd(turn, 1),
            TurnEnd(turn, "failed", EACH),
            CompactionFailed(EACH),
        ):
            log.append(data)
        await log.flush(store, lease)
        await store.release(lease)
    finally:
        await store.aclose()
    code = f"import sys; sys.exit({EACH!r})"
    broken = {
        "command": sys.executable,
        "args": ["-c", code, "--api-key", "hunter-22"],
        "env": {"API_KEY": "hunter-2_Zq!"},
    }
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"broken": broken}}))
    bodies = [
        {
            "model": "claude-opus-5-5",
            "system": f"{KEY} {number}\n{EACH}",
            "messages": [{"role": "user", "content": f"{EACH} {number // 2}"}],
        }
        for number in range(4)
    ]
    (folder / "captured.jsonl").write_bytes(b"\n".join(map(encoding.encode, bodies)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ways")
    anyio.run(filled, made)
    return made


def store(folder: Path) -> str:
    return f"sqlite:///{folder / 'sessions.db'}"


@functools.cache
def ran(arguments: tuple[str, ...], lines: str = "") -> Result:
    """Run the program; the same arguments once."""
    return CliRunner().invoke(main, list(arguments), input=lines)


def shown(folder: Path, *arguments: str, code: int = 0) -> str:
    """Return what the program says of the session."""
    command, *more = arguments
    result = ran((command, "s", "--store", store(folder), *more))
    assert result.exit_code == code, result.output[-1000:]
    return result.stdout


# -- commands -------------------------------------------------------------------------------------

SAYS_NOTHING = {
    "demo": "plays what is built in; its page is looked at below",
    "run": "tells figures of a scenario",
    "lab": "tells addresses of its own",
    "serve": "tells its address; its pages are looked at below",
    "routes probe": "asks an endpoint with texts of its own",
}
"""Commands that tell nothing of a session, a capture or a server, and why."""


def _rows(folder: Path) -> dict[str, list[tuple[list[str], int]]]:
    """Return arguments and exit code of each command; `--json` and forms come by themselves."""
    kept = ["--store", store(folder)]
    servers, captured = folder / "servers.json", folder / "captured.jsonl"
    return {
        "routes list": [([f"nobody:{KEY}"], 2)],
        "chat": [(["--lab", "--store", "memory://"], 0)],
        "sessions": [(kept, 0)],
        "sessions delete": [([KEY, *kept], 2)],
        "show": [(["s", *kept], 0), ([KEY, *kept], 2)],
        "tools of": [(["s", *kept], 0), (["s", "--what-if", f"enable:{KEY}", *kept], 2)],
        "tools pin": [(["--mcp", str(servers), *kept], 1)],
        "why": [(["s", *kept], 0), (["s", "--request", "3", *kept], 0)],
        "diff": [(["s", "1", "3", *kept], 0)],
        "check": [
            *[([str(captured), "--format", form], 1) for form in ("text", "junit", "github")],
            ([str(folder / KEY)], 2),
        ],
        "record": [(["--out", str(folder / KEY / "x"), "--", "true"], 2)],
        "export": [(["s", *kept], 0)],
    }


def _commands() -> Iterator[tuple[str, click.Command]]:
    with click.Context(main) as context:
        for name in COMMANDS:
            command = main.get_command(context, name)
            assert command is not None
            own = command.commands if isinstance(command, click.Group) else {}
            if not isinstance(command, click.Group) or command.invoke_without_command:
                yield name, command
            for inner, sub in own.items():
                yield f"{name} {inner}", sub


def _forms(command: click.Command) -> list[list[str]]:
    """Return the options of a command by which it writes in another form."""
    flags = [option for option in command.params if isinstance(option, click.Option)]
    return [[]] + [
        [option.opts[0]]
        for option in flags
        if "--json" in option.opts or (option.is_flag and option.name == "form")
    ]


def test_every_command_has_a_row(folder: Path) -> None:
    assert {name for name, _ in _commands()} == {*_rows(folder), *SAYS_NOTHING}


@pytest.mark.parametrize("name", _rows(Path()))
def test_no_command_tells_a_key(name: str, folder: Path) -> None:
    command = dict(_commands())[name]
    lines = "\n".join([f"keys: {EACH}".replace("\n", " "), "/nothing " + KEY, "/mcp on " + KEY])
    for arguments, code in _rows(folder)[name]:
        for form in _forms(command):
            # Some groups have a command that needs no name.
            path = [part for part in name.split() if part not in ("of", "list")]
            result = ran((*path, *arguments, *form), lines)
            assert result.exit_code == code, (form, result.output[-2000:], result.exception)
            assert left(result.stdout) == left(result.stderr) == [], form
            assert "hunter-2" not in result.output
            if "--json" in form and name != "export" and code != 2:
                json.loads(result.stdout)


def test_what_is_told_is_told_with_placeholders(folder: Path) -> None:
    # A row that has nothing to hide would prove nothing.
    assert shown(folder, "show", "--json").count("[redacted ") > 30 * len(keys())
    for command in (("show",), ("why",), ("diff", "1", "3")):
        assert "[redacted " in shown(folder, *command)
    for form in ("--json", "--jsonl", "--har", "--html"):
        assert shown(folder, "export", form).count("[redacted ") > 10 * len(keys())
        assert len(left(shown(folder, "export", form, "--unredacted"))) > len(keys()) - 5


async def test_what_is_followed_tells_no_key(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for as_json in (False, True):
        with anyio.move_on_after(1.0):
            await _follow(store(folder), "s", as_json)
        shown = capsys.readouterr().out
        assert "[redacted " in shown and left(shown) == []


def test_only_one_place_prints() -> None:
    """A new command cannot print past the mask: what prints by itself is listed here."""
    allowed = {
        "terminal.py": 2,  # `echo` and `print_json`, which mask
        "main.py": 2,  # errors, masked, and click's own help
        "export.py": 2,  # what it writes was masked, or is asked for as it is
        "chat_approval.py": 1,  # a person has to see what they approve
    }
    found: dict[str, int] = {}
    package = Path(cli.__file__).parents[1]
    for file in (file for room in ("app", "cli") for file in (package / room).glob("*.py")):
        source = file.read_text("utf-8")
        count = len(re.findall(r"\b(?:click\.s?echo|print|sys\.std(?:out|err)\.write)\(", source))
        if count:
            found[file.name] = count
    assert found == allowed


# -- captures -------------------------------------------------------------------------------------


async def test_what_is_recorded_holds_no_key_and_is_judged_alike(folder: Path) -> None:
    """The same requests, recorded and as they are: the same findings at the same places."""
    recorded, plain = folder / "recorded.jsonl", folder / "plain.jsonl"
    answer = {"usage": {"input_tokens": 9, "output_tokens": 1}}

    async def stream() -> AsyncGenerator[bytes]:
        yield encoding.encode(answer)

    respond = httpx2.MockTransport(lambda _: httpx2.Response(200, content=stream()))
    mark = {"cache_control": {"type": "ephemeral"}}
    talk: list[dict[str, Any]] = []
    lines: list[bytes] = []
    async with httpx2.AsyncClient(transport=RecordingTransport(respond, recorded)) as client:
        for number in range(6):
            said = nested(EACH, number % 3)
            talk.append({"role": "user", "content": [{"type": "text", "text": said}]})
            # The system text changes once, within a key: that has to be seen in both.
            secret = f"sk-ant-api03-{'Q9' * 20}{'A' if number < 4 else 'B'}"
            body = {
                "model": "claude-opus-5-5",
                "system": [{"type": "text", "text": f"key {secret} " + "be brief " * 900, **mark}],
                "messages": talk,
            }
            text = encoding.encode(body)
            url = f"https://ann:{KEY}@h.example/{KEY}/v1/messages?key={KEY}"
            answered = await client.post(url, content=text, headers={"x-api-key": KEY})
            assert answered.status_code == 200
            lines.append(b'{"url":"https://h.example/x/v1/messages","body":' + text + b"}")
            thinking = {"type": "thinking", "thinking": said, "signature": f"Eq{blob(300, number)}"}
            talk.append({"role": "assistant", "content": [thinking, {"type": "text", "text": "k"}]})
    plain.write_bytes(b"\n".join(lines))
    data = recorded.read_bytes()
    assert left(data) == [] and data.count(b"[redacted ") > 6 * len(keys())
    assert all(blob(300, number).encode() in data for number in range(5))
    found = [told("check", str(each), code=1) for each in (plain, recorded)]
    rules = [
        [(each["rule"], each["path"], each["n"], each["cause"]) for each in one["findings"]]
        for one in found
    ]
    assert rules[0] == rules[1] and rules[0]
    assert [one["conversations"] for one in found] == [1, 1]
    with pytest.raises(AssertionError) as caught:
        assert_stable_prefix(plain)
    assert left(str(caught.value)) == [] and "[redacted " in str(caught.value)


def test_an_export_is_judged_as_the_session_is(folder: Path) -> None:
    for form in ("--jsonl", "--json", "--har"):
        said: list[Any] = []
        for more in ((), ("--unredacted",)):
            file = folder / f"exported{len(more)}{form}"
            file.write_text(shown(folder, "export", form, *more))
            found = told("check", str(file))
            said.append((found["holds"], found["findings"], found["conversations"]))
        assert said[0] == said[1]


# -- pages ----------------------------------------------------------------------------------------

SECTIONS = {
    "/": [{}],
    "/sessions": [{}, {"q": "keys"}],
    "/s/{session}": [{}],
    "/s/{session}/turns": [{"before": "2"}],
    "/s/{session}/events": [],  # streams, heard below
    "/s/{session}/trajectory": [{}, {"at": "3"}, {"request": "3"}, {"q": "say"}],
    "/s/{session}/rows": [{}],
    "/s/{session}/event/{seq}": [{}],
    "/s/{session}/event/{seq}/media/{place}": [],  # below
    "/s/{session}/event/{seq}/{part:path}": [{}],
    "/s/{session}/requests/{number}": [{}],
    "/s/{session}/requests/{number}/body": [{}],
    "/s/{session}/requests/{number}/segment": [{"path": "messages[0]"}, {"path": "system"}],
    "/s/{session}/requests/{number}/run/{at}/{count}": [{}],
    "/s/{session}/diff/{a}/{b}": [{}],
    "/s/{session}/tools": [{}],
    "/s/{session}/usage": [{}],
    "/s/{session}/export": [{}],
}
"""Queries that each address of the page is asked with."""

WRONG: dict[str, dict[str, Any]] = {
    "/new": {"text": "hello", "route": f"nobody:{KEY}"},
    "/s/{session}/send": {"text": "", KEY: KEY},
    "/s/{session}/stop": {"why": KEY},
    "/s/{session}/again": {"turn": 1_000, "text": KEY},
    "/s/{session}/fork": {"turn": KEY},
    "/s/{session}/decide": {"decisions": {KEY: {"kind": "approve"}}},
    "/s/{session}/switch": {"server": KEY, "on": True},
    "/s/{session}/route": {"route": f"nobody:{KEY}"},
}
"""What each action is asked for that cannot be done."""


def test_every_page_and_action_has_a_row() -> None:
    assert {*_PAGES} == {*SECTIONS} and {*ACTIONS} == {*WRONG}


def _addresses(log: SessionLog) -> Iterator[tuple[str, str]]:
    """Yield every address that has a page, with a page of each kind of event."""
    kinds = {event.type: event.seq for event in log.events}
    numbers = {"number": ["3"], "a": ["1"], "b": ["3"], "at": ["0"], "count": ["4"]}
    values = {"session": ["s"], "seq": [str(seq) for seq in kinds.values()], **numbers}
    for path, queries in SECTIONS.items():
        names = re.findall(r"\{(\w+)", path)
        for query in queries:
            for seq in values["seq"] if "seq" in names else [""]:
                for part in ("raw", "text", "call/0") if "part" in names else ("",):
                    made = path.replace("{part:path}", part).replace("{seq}", seq)
                    for name in names:
                        made = made.replace(f"{{{name}}}", values.get(name, [""])[0])
                    yield path, made + str(httpx2.URL("", params=query))


async def test_no_page_shows_a_key(folder: Path) -> None:
    kept = await open_store(store(folder))
    try:
        log = SessionLog.load("s", await kept.read("s"))
        async with stage(store=kept) as staged:
            hidden = 0
            for path, address in _addresses(log):
                answer = await staged.client.get(address)
                part = address.rpartition("/")[2]
                assert answer.status_code == 200 or part in ("text", "0"), address
                assert left(answer.text) == [], address
                hidden += answer.text.count("[redacted ")
                if path.endswith("/body"):
                    sent = next(each.record for each in replay(log) if each.record.n == 3)
                    longer = len(answer.content) - len(sent.body)
                    # A placeholder has at least 19 characters.
                    assert 0 <= longer < 19 * answer.text.count("[redacted ")
            assert hidden > 100 * len(keys())
            # A search tells nothing of what is hidden either.
            for word, found in (("say", True), (KEY[-12:], False), (KEY, False)):
                seen = await staged.get(f"/s/s/trajectory?q={word}")
                assert ("0 events found" not in seen) == found, word
            for path, body in WRONG.items():
                address = path.replace("{session}", "s")
                answer = await staged.client.post(
                    address, json=body, headers={"x-addendum-token": staged.guard.token}
                )
                assert answer.status_code in (200, 409) and left(answer.text) == [], path
            missing = await staged.client.get(f"/s/{KEY}")
            assert missing.status_code == 404 and left(missing.text) == []
    finally:
        await kept.aclose()


async def _heard(events: AsyncGenerator[bytes], until: Callable[[bytes], bool]) -> bytes:
    found = b""
    with anyio.fail_after(20):
        async with aclosing(events):
            async for part in events:
                found += part
                if until(found):
                    break
    return found


async def test_no_stream_tells_a_key(folder: Path) -> None:
    docs = spec("docs", [canned("find", EACH)])
    async with stage(docs) as staged:
        url = await staged.begin(f"say {EACH}")
        await staged.post(f"{url}/switch", {"server": "docs", "on": True})
        watched = await staged.house.watch.open(url.removeprefix("/s/"))
        room = await staged.house.room(url.removeprefix("/s/"))
        room.error, room.notices = EACH, [EACH]
        room.live = Live(len(room.session.log))
        chat = feed.chat(staged.house, watched, -1, words("en"))
        said = await _heard(
            chat, lambda found: b"event: panel" in found and b"event: live" in found
        )
        rows = feed.ledger(staged.house, watched, -1, words("en"))
        said += await _heard(rows, lambda found: b"event: rows" in found)
        assert left(said) == [] and said.count(b"[redacted ") > len(keys())
        assert b"event: turn" in said


async def test_an_answer_that_comes_in_never_shows_a_part_of_a_key() -> None:
    async with stage() as staged:
        url = await staged.begin("hello")
        watched = await staged.house.watch.open(url.removeprefix("/s/"))
        room = await staged.house.room(url.removeprefix("/s/"))
        teller = feed._Chat(staged.house, watched, words("en"))
        for own in keys()[:12]:
            text = f"it is {own.text} now"
            for size in range(len(text)):
                room.live = live = Live(len(room.session.log))
                live.text = live.reasoning = text[:size]
                room.error = "so that it is shown"
                shown = teller._live_html(room)
                assert own.parts[0][:10] not in shown, (own.form, text[:size])


async def test_a_file_of_a_result_is_handed_out_without_keys() -> None:
    log = SessionLog("media")
    for data in (SessionStart("media"), TurnStart(1), StepStart(1, 1), UserMessage(1, "draw")):
        log.append(data)
    call_ = Call("c", "draw", "{}")
    log.append(AssistantMessage(1, 1, OPUS, "anthropic_messages", calls=(call_,)))
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    files = [("text/plain", EACH.encode()), ("image/png", image), ("application/x", image[4:])]
    media = tuple(Media(kind, b64encode(data).decode()) for kind, data in files)
    seq = log.append(ToolResult(1, 1, "c", "draw", "drawn", media=media)).seq
    kept = MemoryStore()
    await log.flush(kept, await kept.acquire("media"))
    async with stage(store=kept) as staged:
        answers = [
            await staged.client.get(f"/s/media/event/{seq}/media/{place}") for place in range(3)
        ]
        assert left(answers[0].text) == [] and "[redacted " in answers[0].text
        assert [each.content for each in answers[1:]] == [image, image[4:]]


async def test_who_decides_sees_the_arguments_and_nobody_afterwards() -> None:
    key, odd = KEY, "\u202e\u200b\x00"
    said = json.dumps({"q": f"{key} {odd}"}).replace('{"q"', '{"q": "first", "q"')
    async with stage(spec("docs", [canned("find", "found it")])) as staged:
        url = await staged.begin("hello")
        await staged.post(f"{url}/switch", {"server": "docs", "on": True})
        await staged.post(f"{url}/send", {"text": f"/call docs__find {said}"})
        await staged.quiet(url)
        room = await staged.house.room(url.removeprefix("/s/"))
        (pending,) = room.session.pending()
        page = await staged.get(url)
        form = page.split('class="ask"')[1].split("</form>")[0]
        # As the tool gets them: the key that counts, each character to be seen, and all of it.
        assert key in form and "first" not in form and r"\u202e\u200b\u0000" in form
        assert f"{form}".count(key) == 2  # to read, and to edit
        assert pending.reason in form
        assert key not in page.replace(form, "")
        for path in ("/trajectory", f"/event/{len(room.session.log) - 1}/raw"):
            assert key not in await staged.get(url + path)
        await staged.post(f"{url}/decide", {"decisions": {pending.call_id: {"kind": "approve"}}})
        await staged.quiet(url)
        assert key not in await staged.get(url)


# -- errors, servers, reports ---------------------------------------------------------------------


def test_no_error_of_ours_holds_a_key() -> None:
    assert left(str(AddendumError(EACH))) == left(repr(AddendumError(EACH))) == []
    assert left(str(ProviderRefused(EACH, status=400))) == []
    body = json.dumps({"error": {"message": f"bad key {EACH}"}}).encode()
    for data in (body, EACH.encode(), body[:-30]):
        error = http_error(400, data, host="h.example")
        assert left(str(error)) == left(repr(vars(error))) == []
    error = http_error(400, json.dumps({"error": {"code": KEY}}).encode(), host="h.example")
    assert left(repr(vars(error))) == []
    # What is cut off was masked before: no half of a key is left.
    for own in keys():
        for cut in (480, 490, 497):
            text = "x" * (cut - 12) + " " + own.text
            told = str(http_error(400, json.dumps({"error": text}).encode(), host="h"))
            assert own.parts[0][:11] not in told, own.form


def test_what_is_told_of_a_server_holds_none_of_its_credentials() -> None:
    child = ServerSpec(
        name="x",
        command=("serve", "--api-key", "opt-hunter2", "--name", "docs"),
        env=(("A", "env-hunter2"), ("B", "1")),
    )
    remote = ServerSpec(
        name="x",
        url="https://ann:url-hunter2@h.example/mcp?token=query-hunter2",
        headers=(("authorization", "Bearer header-hunter2"), ("x", "plain-hunter2")),
    )
    said = "opt-hunter2 env-hunter2 docs 1"
    assert child.redact(said) == "*** *** docs 1"
    said = "url-hunter2 query-hunter2 header-hunter2 plain-hunter2 docs 1"
    assert remote.redact(said) == "*** *** *** *** docs 1"
    for server in (child, remote):
        assert left(server.redact(EACH)) == []
        assert "hunter" not in repr(server)


async def test_the_log_holds_no_credential_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, headers and environments, of a session whose server and provider fail."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-hunter2-of-the-route")
    servers = {
        "gone": {
            "url": "http://ann:url-hunter2@127.0.0.1:9/mcp?token=query-hunter2",
            "headers": {"Authorization": "Bearer header-hunter2"},
        },
        "broken": {
            "command": [sys.executable, "-c", "import os,sys; sys.exit(str(dict(os.environ)))"],
            "env": {"SECRET": "env-hunter2"},
        },
    }
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    agent = Agent(OPUS, base_url="http://127.0.0.1:9", mcp_servers=servers)
    async with agent.open("s", store=url) as session:
        for name in servers:
            await session.tools.enable(name)
        await session.registry.settle(10)
        errors = [session.registry.state(name).error or "" for name in servers]
        with pytest.raises(AddendumError) as caught:
            await session.run("hello")
    assert all(errors) and "hunter" not in f"{errors} {caught.value}"
    async for file in anyio.Path(tmp_path).iterdir():
        assert b"hunter" not in await file.read_bytes(), file.name


def test_the_page_of_a_comparison_holds_no_key() -> None:
    assert left(page([], EACH)) == []


def test_pending_calls_are_told_whole_to_whoever_decides() -> None:
    waiting = Pending("c", "t", json.dumps({"text": EACH}), "because", "d")
    assert [own for own in keys() if own.parts[0] not in as_run(waiting.arguments)] == []
