"""`addendum chat --ask`: a person decides what runs, or leaves and decides later."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner
from tests.cli.terminal_process import in_terminal

from addendum.agent.calls.approval import KINDS, Pending
from addendum.app.main import main
from addendum.cli.chat_approval import as_run, ask_about
from addendum.cli.chat_room import default_mode
from addendum.log.events import ToolCall, ToolResult
from addendum.log.session_log import SessionLog
from addendum.routes import resolve
from addendum.stores import open_store

ROUTE = "anthropic:claude-opus-5-5"
CHANGING = {"command": sys.executable, "args": ["-m", "addendum.lab.mcp_servers", "--changing"]}
CALL = "/call changing__grow {}"


def servers(place: Path) -> str:
    file = place / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"changing": CHANGING}}))
    return str(file)


def chat(place: Path, lines: str, *arguments: str) -> str:
    base = ("chat", "--lab", "--mcp", servers(place), "--store", f"sqlite:///{place}/chat.db")
    result = CliRunner().invoke(main, [*base, *arguments], input=lines)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        ("y\n", "← changing__grow: 3 tools"),
        ("what\nyes\n", "answer y, n, e or a"),
        ("n\n", "Blocked: the user did not approve this call"),
        ("n not today\n", "Blocked: not today"),
        ("e\n{}\n", "← changing__grow: 3 tools"),
        ('e\n{"x": 1}\n', "← changing__grow failed: "),
        ("e\n[1]\nn\n", "arguments are a JSON object"),
        ("e\nnope\nn\n", "not valid JSON"),
    ],
)
def test_an_answer_is_what_happens(answers: str, shown: str, tmp_path: Path) -> None:
    told = chat(
        tmp_path,
        f"/mcp on changing\n{CALL}\n{answers}hello\n",
        *("--route", ROUTE, "--ask", "always"),
    )
    assert told.index("? changing__grow {}") < told.index(shown)
    assert "I heard: 'hello'" in told
    assert "wait for your decision" not in told and "waits for your decision" not in told


def test_always_asks_no_more_about_the_tool(tmp_path: Path) -> None:
    told = chat(
        tmp_path,
        f"/mcp on changing\n{CALL}\na\n{CALL}\nhello\n",
        *("--route", ROUTE, "--ask", "always"),
    )
    assert told.count("? changing__grow") == 1 and told.count("→ changing__grow") == 2
    assert "I heard: 'hello'" in told


def test_whoever_leaves_at_the_question_is_asked_again(tmp_path: Path) -> None:
    left = chat(tmp_path, f"/mcp on changing\n{CALL}\n", *("--route", ROUTE, "--ask", "always"))
    assert "1 call waits for your decision" in left and "→" not in left
    again = re.search(r"go on with: addendum chat --session (\S+) .*--ask always", left)
    assert again is not None
    told = chat(tmp_path, "y\nhello\n", "--session", again[1])
    assert "← changing__grow: 3 tools" in told and "I heard: 'hello'" in told


def test_without_a_terminal_nobody_is_asked_unless_wanted(tmp_path: Path) -> None:
    told = chat(tmp_path, f"/mcp on changing\n{CALL}\nhello\n", "--route", ROUTE)
    assert "→ changing__grow" in told and "?" not in told


@pytest.mark.parametrize(
    ("route", "terminal", "asks"),
    [
        ("anthropic:claude-opus-5-5", True, "changes"),
        ("anthropic:claude-opus-5-5", False, "never"),
        ("compatible:llama", True, "changes"),
        ("openai-chat:gpt-4.1", True, "never"),
    ],
)
def test_what_is_asked_where_nobody_said(
    route: str, terminal: bool, asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = None if route.startswith("anthropic") else "http://127.0.0.1:9/v1"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal, raising=False)
    assert default_mode(resolve(route, base_url=here, environ={})) == asks


def test_ctrl_c_at_the_question_leaves_a_session_that_goes_on(tmp_path: Path) -> None:
    arguments = ("chat", "--lab", "--mcp", servers(tmp_path), "--session", "s1")
    more = ("--route", ROUTE, "--ask", "changes", "--store", f"sqlite:///{tmp_path}/chat.db")
    with in_terminal([*arguments, *more], home=tmp_path) as first:
        first.prompt()
        first.say("/mcp on changing")
        first.type(CALL)
        first.expect("in this session: ")
        first.press("c")
        assert first.end() == 0
        assert "1 call waits for your decision" in first.seen
    with in_terminal([*arguments, *more], home=tmp_path) as second:
        second.expect("in this session: ")
        second.type("y")
        assert "changing__grow has answered." in second.prompt()
        second.press("d")
        assert second.end() == 0


DISPATCHED = '/call call_tool {"name": "changing__grow", "arguments": {}}'
QUESTION = "in this session: "


def _in_chat(place: Path, session: str) -> list[str]:
    return [
        *("chat", "--lab", "--mcp", servers(place), "--session", session, "--ask", "always"),
        *("--route", "openai-chat:gpt-4.1", "--store", f"sqlite:///{place}/chat.db"),
    ]


def test_the_keyboard_denies_edits_and_approves_what_came_through_the_dispatcher(
    tmp_path: Path,
) -> None:
    with in_terminal(_in_chat(tmp_path, "keys"), home=tmp_path) as terminal:
        terminal.prompt()
        terminal.say("/mcp on changing")

        def asked() -> None:
            terminal.type(DISPATCHED)
            # The real tool and its own arguments: nothing of the dispatcher.
            question = terminal.expect(QUESTION)
            assert "? changing__grow {}" in question and "? call_tool" not in question

        asked()
        terminal.type("n not while I look")
        assert "Blocked: not while I look" in terminal.prompt()
        asked()
        terminal.type("e")
        terminal.expect("arguments, as a JSON object: ")
        terminal.type('{"x": ')
        terminal.expect(QUESTION)
        terminal.type("e")
        terminal.expect("arguments, as a JSON object: ")
        terminal.type("{}")
        assert "← changing__grow: 3 tools" in terminal.prompt()
        asked()
        terminal.type("y")
        assert "← changing__grow: 4 tools" in terminal.prompt()
        terminal.press("d")
        assert terminal.end() == 0


def test_a_terminal_that_is_closed_at_the_question_leaves_the_call_waiting(tmp_path: Path) -> None:
    arguments = _in_chat(tmp_path, "closed")
    with in_terminal(arguments, home=tmp_path) as first:
        first.prompt()
        first.say("/mcp on changing")
        first.type(DISPATCHED)
        first.expect(QUESTION)
        first.hang_up()
        assert first.process.wait(30) == 128 + signal.SIGHUP

    async def log() -> SessionLog:
        store = await open_store(f"sqlite:///{tmp_path}/chat.db")
        try:
            return SessionLog.load("closed", await store.read("closed"))
        finally:
            await store.aclose()

    waits = anyio.run(log)
    assert waits.asked is not None and len(waits.unanswered) == 1
    with in_terminal(arguments, home=tmp_path) as second:
        assert "? changing__grow {}" in second.expect(QUESTION)
        second.type("y")
        assert "← changing__grow: 3 tools" in second.prompt()
        second.press("d")
        assert second.end() == 0
    data = [event.data for event in anyio.run(log).events]
    assert len([each for each in data if isinstance(each, ToolCall)]) == 1
    assert [each.is_error for each in data if isinstance(each, ToolResult)] == [False]


def test_arguments_are_shown_in_full_and_safely(capsys: pytest.CaptureFixture[str]) -> None:
    long = json.dumps({"text": "x" * 3_000 + "end"})
    waiting = [
        Pending("a", "t\x1b[2J", long, "because", "d", KINDS),
        Pending("b", "t", '{"a":"' + "y" * 5_000 + '"}', "because", "d", KINDS),
    ]
    assert set(ask_about(waiting, lambda _: "n")) == {"a", "b"}
    shown = capsys.readouterr()
    assert "xend" in shown.out and "\x1b" not in shown.out
    assert "(1 of 2)" in shown.out and "5,008 characters" in shown.out


def test_arguments_are_asked_about_as_the_tool_gets_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    key = "ghp_" + "aB3" * 12
    said = (
        '{"path": "safe.txt", "path": "\\u002e\\u002e/secret", "n": 1e2, "two": "a  b",'
        f' "key": "{key}", "odd": "\\u0000\\u001b[2J\\u202e\\u200b\\u00a0\\n"}}'
    )
    reason = f"the rule `ask tool=write` fits, {key}"
    ask_about([Pending("a", "write", said, reason, "d", KINDS)], lambda _: "n")
    shown = capsys.readouterr().out
    # The last of two is the one that counts, and escapes are what they stand for.
    assert '"path": "../secret"' in shown and "safe.txt" not in shown
    # What has no look of its own is to be seen, spaces stay, and a key is what it is.
    assert r'"odd": "\u0000\u001b[2J\u202e\u200b\u00a0\n"' in shown and '"a  b"' in shown
    assert f'"key": "{key}"' in shown
    # Which rule asks is told, and quotes nothing.
    assert "the rule `ask tool=write` fits, [redacted " in shown
    assert as_run(as_run(said)) == as_run(said)
    assert json.loads(as_run(said)) == json.loads(said)
    assert as_run("no \x1b JSON\n") == "no \\u001b JSON\n" and as_run("") == "{}"
