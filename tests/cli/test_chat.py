"""`addendum chat` without a terminal: its lines, its commands, its errors."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner
from tests.cli.commands import complaint

from addendum.app.main import main
from addendum.cli.chat_console import is_command
from addendum.cli.chat_room import Wanted
from addendum.errors import ConfigurationError
from addendum.host.opening import MAX_INSTRUCTIONS, instructions_of
from addendum.stores import open_store

ROUTE = "anthropic:claude-opus-5-5"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADDENDUM_STORE", f"sqlite:///{tmp_path}/chat.db")


def chat(lines: str, *arguments: str, code: int = 0) -> str:
    """Hold a chat in the lab whose person writes these lines; return all that was shown."""
    result = CliRunner().invoke(main, ["chat", "--lab", *arguments], input=lines)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    assert result.stderr == ""
    return result.stdout


def servers(place: Path, **entries: object) -> str:
    file = place / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    return str(file)


CHANGING = {"command": sys.executable, "args": ["-m", "addendum.lab.mcp_servers", "--changing"]}


# -- a conversation -------------------------------------------------------------------------


def test_lines_from_a_pipe_are_answered_without_a_prompt() -> None:
    shown = chat("hello\n\nand more\n", "--route", ROUTE)
    assert "I heard: 'hello'\n" in shown and "I heard: 'and more'\n" in shown
    assert "simulated by published rules" in shown
    assert "> " not in shown and "\x1b" not in shown
    assert len(re.findall(r"^in \d+ · read 0 \(0 %\) · new \d+ · out", shown, re.M)) == 2
    assert re.search(r"^2 requests: in \d+ · ", shown, re.M)


def test_figures_fit_eighty_columns_where_there_is_no_terminal(tmp_path: Path) -> None:
    shown = chat(
        "hello\n/mcp on changing\n/call changing__grow {}\n/mcp off changing\n",
        *("--route", "openai-chat:gpt-4.1", "--instructions", "Remember it. " * 9_999),
        *("--mcp", servers(tmp_path, changing=CHANGING)),
    )
    told = [each for each in shown.splitlines() if not each.startswith("go on with: ")]
    assert max(map(len, told)) <= 80
    assert re.search(r"rebinding would have cost \$\S+\n  \(.*tokens\)\n", shown)


def test_a_server_is_switched_and_its_tool_called(tmp_path: Path) -> None:
    shown = chat(
        "hello\n/mcp\n/mcp on changing\n/mcp\n/mcp on changing\n/call changing__grow {}\n"
        "/tools\n/mcp off changing\n/mcp off changing\n/mcp\n",
        *("--route", ROUTE, "--mcp", servers(tmp_path, changing=CHANGING)),
    )
    told = [
        "changing: off",
        "changing is on; asking for its tools",
        "changing: 2 tools, about ",
        "tokens read again; rebinding would have cost $0",
        "changing: on, ready; 2 tools, about ",
        "(nothing changed)",
        "→ changing__grow {}",
        "← changing__grow: 3 tools",
        "own: 1 tool, about ",
        "  tool_search ~",
        "  changing__shrink ~",
        "changing is off; its tools are refused from now on",
        "changing is off already",
        "changing: off",
    ]
    at = 0
    for each in told:
        assert each in shown[at:], f"{each!r} not behind\n{shown[at:]}"
        at = shown.index(each, at) + len(each)


def test_a_prompt_of_a_server_is_sent_as_a_message(tmp_path: Path) -> None:
    rich = {"command": sys.executable, "args": ["-m", "tests.tools.rich_server"]}
    shown = chat(
        "/prompt\n/mcp on rich\n/prompt\n/prompt rich write topic='heavy rain' tone=calm\n"
        "/prompt rich\n/prompt rich write topic\n/prompt rich 'write\n/prompt rich write\n",
        *("--route", ROUTE, "--mcp", servers(tmp_path, rich=rich)),
        code=1,
    )
    told = [
        "no server that is on offers prompts",
        "rich is on",
        "rich empty\n",
        "rich write topic [tone]: Write of it.\n",
        "> Write of heavy rain, calm. <turn_instructions>\n",
        "I heard: 'Write of heavy rain, calm.",
        "write /prompt, or /prompt SERVER NAME ARGUMENT=TEXT ...",
        "write /prompt, or /prompt SERVER NAME ARGUMENT=TEXT ...",
        "a quotation mark has no end",
        "error: prompt 'write' needs the argument 'topic'; give it",
    ]
    at = 0
    for each in told:
        assert each in shown[at:], f"{each!r} not behind\n{shown[at:]}"
        at = shown.index(each, at) + len(each)


def test_resources_are_read_where_that_is_asked_for(tmp_path: Path) -> None:
    rich = {"command": sys.executable, "args": ["-m", "tests.tools.rich_server"], "on": True}
    shown = chat(
        '/call read_resource {"server": "rich", "uri": "mem://notes"}\n',
        *("--route", ROUTE, "--resources", "--mcp", servers(tmp_path, rich=rich)),
    )
    assert "← read_resource: [resource mem://notes] my note" in shown


def test_a_server_that_is_down_is_one_line_and_the_chat_goes_on(tmp_path: Path) -> None:
    file = servers(tmp_path, gone={"command": str(tmp_path / "no-such-program")})
    shown = chat("/mcp on gone\nhello\n/mcp\n", "--route", ROUTE, "--mcp", file)
    (line,) = [row for row in shown.splitlines() if row.startswith("gone cannot be reached: ")]
    assert "/mcp off gone" in line
    assert "I heard: 'hello'" in shown
    assert "gone: on, cannot be reached" in shown


def test_a_name_that_is_no_server_is_one_line(tmp_path: Path) -> None:
    file = servers(tmp_path, changing=CHANGING)
    shown = chat("/mcp on nobody\n/mcp up\nhello\n", "--route", ROUTE, "--mcp", file, code=1)
    assert "error: no MCP server named 'nobody' is configured; there are: changing" in shown
    assert "write /mcp, /mcp on NAME or /mcp off NAME" in shown
    assert "I heard: 'hello'" in shown
    assert "no MCP servers here; start with --mcp FILE" in chat("/mcp\n", "--route", ROUTE)


def test_an_unknown_command_is_not_sent() -> None:
    shown = chat("/nope now\n//nope now\n/help\n", "--route", ROUTE)
    assert "no command /nope; there are /mcp /tools /prompt /route /why /help /quit" in shown
    assert "I heard: '/nope now'" in shown
    assert "/mcp on NAME" in shown


def test_quit_leaves() -> None:
    shown = chat("/quit\nhello\n", "--route", ROUTE)
    assert "I heard" not in shown and "go on with" not in shown


@pytest.mark.parametrize(
    ("text", "obeys", "command"),
    [
        ("hello", True, False),
        ("/mcp", True, True),
        ("/call x {}", True, False),
        ("/call x {}", False, True),
        ("/caller", True, True),
        ("//x", False, False),
    ],
)
def test_what_is_for_the_chat_itself(text: str, obeys: bool, command: bool) -> None:
    assert is_command(text, obeys) is command


def test_a_line_ends_where_no_backslash_stands() -> None:
    assert r"I heard: 'one\ntwo'" in chat("one\\\ntwo\n", "--route", ROUTE)
    assert "I heard: 'one'" in chat("one\\\n", "--route", ROUTE)


# -- routes ---------------------------------------------------------------------------------


def test_the_route_can_change_in_mid_conversation(tmp_path: Path) -> None:
    file = servers(tmp_path, changing=CHANGING)
    shown = chat(
        "hello\n/route openai-chat:gpt-4.1\nagain\n/route\n/why\n/route nobody:x\n",
        *("--route", ROUTE, "--mcp", file),
        code=1,
    )
    assert "on openai-chat:gpt-4.1; tool changes: dispatch" in shown
    assert "! the cache prefix breaks: route changed" in shown
    assert "turn 2, request 2: route changed, from messages on" in shown
    assert "error: the lab has no provider 'nobody'" in shown
    # Each request is priced on the route that answered it.
    assert re.search(r"^2 requests: .* · \$0\.\d+ · saved", shown, re.M)


def test_a_route_without_a_price_says_so() -> None:
    shown = chat("hello\n", "--route", "compatible:anything")
    assert "cost unknown · saved unknown" in shown
    assert "$" not in shown


def test_breaks_are_told_with_their_reasons(tmp_path: Path) -> None:
    file = servers(tmp_path, changing=CHANGING)
    (tmp_path / "prompt.txt").write_text("Answer in few words. " * 100)
    shown = chat(
        "/mcp on changing\nhello\nand more\n/mcp off changing\nthanks\n/why\n",
        *("--route", "anthropic:claude-opus-5-5+addition-only", "--mcp", file),
        *("--instructions", f"@{tmp_path}/prompt.txt"),
    )
    cost = re.search(r"[\d,]+ of [\d,]+ tokens read again for .*(\(removal.*\)); reb", shown)
    assert cost is not None and cost[1] == "(removal)", shown
    assert "! the cache prefix breaks: removal" in shown
    assert "turn 3, request 3: removal, from messages on" in shown


# -- sessions -------------------------------------------------------------------------------


def test_a_session_goes_on_by_the_line_that_was_printed(tmp_path: Path) -> None:
    file = servers(tmp_path, changing=CHANGING)
    first = chat(
        "hello\n/mcp on changing\n/tools\nand more\n",
        *("--route", ROUTE, "--mcp", file, "--instructions", "Answer in few words."),
    )
    line = next(row for row in first.splitlines() if row.startswith("go on with: "))
    program, command, *rest = shlex.split(line.removeprefix("go on with: "))
    assert (program, command) == ("addendum", "chat") and "--lab" in rest
    rest.remove("--lab")
    second = chat("thanks\n/why\n/tools\n", *rest)
    assert f"on {ROUTE}" in second and "2 turns so far" in second
    assert "> and more" in second and "  I heard: 'and more'" in second
    assert "MCP servers: changing on" in second
    # The prompt, the head and the server's tools are what they were.
    assert "no break so far" in second and "changing__grow ~" in second
    assert re.search(r"^3 requests: in ", second, re.M)


def test_the_beginning_of_an_id_is_enough_and_a_new_name_needs_a_route() -> None:
    assert "a new session needs --route" in complaint("chat", "--session", "x")  # no store yet
    chat("hello\n", "--route", ROUTE, "--session", "first-of-all")
    assert "1 turn so far" in chat("", "--session", "first")
    assert "1 turn so far" in chat("", "--session", "first-of-all", "--route", ROUTE)
    # A new session may have a name that begins an older one's.
    assert "so far" not in chat("", "--session", "first", "--route", ROUTE)
    said = complaint("chat", "--lab", "--session", "second")
    assert "no session begins with 'second'" in said and "a new session needs --route" in said


def test_instructions_stay_unless_others_are_given() -> None:
    chat("hello\n", "--route", ROUTE, "--session", "s", "--instructions", "Be brief.")
    assert "no break" in chat("more\n/why\n", "--session", "s")
    # This route takes a changed prompt in the history; without one the old prompt is replaced.
    assert "no break" in chat("more\n/why\n", "--session", "s", "--instructions", "Be long.")
    other = ("--session", "t", "--route", "openai-chat:gpt-4.1")
    chat("hello\n", *other, "--instructions", "Be brief.")
    assert "no break" in chat("more\n/why\n", *other)
    assert "prompt rewritten" in chat("more\n/why\n", *other, "--instructions", "Be long.")


def test_the_line_that_goes_on_repeats_what_the_session_does_not_know() -> None:
    wanted = Wanted(ROUTE, "my servers.json", None, False, "http://127.0.0.1:1", "x", "memory://")
    assert wanted.again("s-1") == (
        "addendum chat --session s-1 --mcp 'my servers.json' --base-url http://127.0.0.1:1 "
        "--store memory://"
    )
    assert Wanted(lab=True).again("s-1") == "addendum chat --session s-1 --lab"
    shown = Wanted(lab=True, resources=True).again("s-1")
    assert shown == "addendum chat --session s-1 --lab --resources"


# -- what cannot be -------------------------------------------------------------------------


def test_a_session_that_another_chat_holds_is_left_alone(tmp_path: Path) -> None:
    with start_blocking_portal("asyncio") as portal:
        store = portal.call(open_store, f"sqlite:///{tmp_path}/chat.db")
        portal.call(store.acquire, "s")
        said = complaint("chat", "--lab", "--route", ROUTE, "--session", "s")
        portal.call(store.aclose)
    assert "held by" in said or "in use" in said


def test_what_cannot_begin_is_one_line(tmp_path: Path) -> None:
    assert "give --route" in complaint("chat")
    assert "set ANTHROPIC_API_KEY" in complaint("chat", "--route", ROUTE)
    assert "no provider 'nobody'" in complaint("chat", "--route", "nobody:x")
    assert "exclude each other" in complaint(
        "chat", "--lab", "--base-url", "http://127.0.0.1:1", "--route", ROUTE
    )
    assert "cannot read" in complaint("chat", "--lab", "--route", ROUTE, "--mcp", "no-such.json")
    assert "cannot read" in complaint(
        "chat", "--lab", "--route", ROUTE, "--instructions", f"@{tmp_path}/none"
    )
    assert "not supported" in complaint("chat", "--lab", "--route", ROUTE, "--store", "x://y")


def test_a_turn_that_fails_is_one_line_and_the_chat_goes_on() -> None:
    # Nobody listens there.
    result = CliRunner().invoke(
        main,
        ["chat", "--route", ROUTE, "--base-url", "http://127.0.0.1:1"],
        input="hello\n/why\n",
    )
    assert result.exit_code == 1 and result.exception.__class__ is SystemExit
    errors = [row for row in result.stdout.splitlines() if row.startswith("error: ")]
    assert len(errors) == 1
    assert "no break so far" in result.stdout


def test_instructions_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Sei kurz, bitte: grün.\n", "utf-8")
    assert instructions_of(f"@{file}") == "Sei kurz, bitte: grün.\n"
    assert instructions_of("as it is") == "as it is"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="no text in UTF-8"):
        instructions_of(f"@{file}")
    file.write_bytes(b"x" * (MAX_INSTRUCTIONS + 1))
    with pytest.raises(ConfigurationError, match="name a text file"):
        instructions_of(f"@{file}")


def test_the_lab_needs_no_route(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["chat", "--lab", "--store", f"sqlite:///{tmp_path / 'a.db'}"], input="/quit\n"
    )
    assert done.exit_code == 0, done.output
    assert "on anthropic:claude-opus-5-5" in done.output
