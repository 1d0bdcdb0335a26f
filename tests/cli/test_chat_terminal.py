"""`addendum chat` in a real terminal, against a lab and real MCP servers."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.cli.terminal_process import Terminal, in_terminal

from addendum.lab.server import Lab, open_lab
from addendum.log.events import AssistantAttempt, TurnEnd
from addendum.log.session_log import SessionLog
from addendum.stores import open_store

ROUTE = "anthropic:claude-opus-5-5"
PROVIDER = "anthropic"
SENTENCE = "Answer in few words, and call a tool only when you are asked to. "

pytestmark = pytest.mark.timeout(120)


class Place:
    """A lab in this process, and files for chats that are others."""

    def __init__(self, lab: Lab, portal: BlockingPortal, home: Path) -> None:
        self.lab = lab
        self.portal = portal
        self.home = home
        self.store = f"sqlite:///{home}/chat.db"
        (home / "prompt.txt").write_text(SENTENCE * 60)
        servers = {
            "time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]},
            "changing": {
                "command": sys.executable,
                "args": ["-m", "addendum.lab.mcp_servers", "--changing"],
            },
        }
        (home / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    @property
    def arguments(self) -> list[str]:
        return [
            *("chat", "--route", ROUTE, "--base-url", self.lab.base_url(PROVIDER)),
            *("--mcp", str(self.home / ".mcp.json"), "--store", self.store),
            *("--instructions", f"@{self.home}/prompt.txt"),
        ]

    def stall(self) -> None:
        """Have the next answer stop in the middle of its text."""
        self.lab.stall_next(PROVIDER, after_events=4)

    def until_stalled(self) -> None:
        self.portal.call(self.lab.until_stalled)

    def log(self) -> SessionLog:
        """Return the store's one session; loading checks every rule of the log."""

        async def read() -> SessionLog:
            store = await open_store(self.store)
            try:
                (row,) = await store.sessions()
                return SessionLog.load(row.id, await store.read(row.id))
            finally:
                await store.aclose()

        return anyio.run(read)


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(open_lab()) as lab,
    ):
        yield Place(lab, portal, tmp_path)


def parts(body: bytes) -> list[Any]:
    """Return a body's prompt in cache order, without marks and deferred declarations."""
    read = json.loads(body)
    tools = [("tool", tool) for tool in read["tools"] if not tool.get("defer_loading")]
    system = [("system", block) for block in read.get("system", ())]
    said: list[Any] = []
    for message in read["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said += [(message["role"], block) for block in blocks]
    return [
        (role, {key: value for key, value in block.items() if key != "cache_control"})
        for role, block in (*tools, *system, *said)
    ]


def assert_grows(bodies: list[bytes]) -> None:
    for before, after in itertools.pairwise(bodies):
        ours, theirs = parts(before), parts(after)
        assert theirs[: len(ours)] == ours


def ready_for(terminal: Terminal) -> None:
    terminal.expect("/help lists the commands")
    terminal.prompt()


def test_servers_switched_in_mid_conversation_and_a_stopped_turn_resumed(place: Place) -> None:
    with in_terminal(place.arguments, home=place.home) as first:
        ready_for(first)
        assert "MCP servers: time off, changing off" in first.seen
        assert re.search(r"in [\d,]+ · read .* · out \d+ · \$0\.\d+ · saved", first.say("hello"))

        switched = first.say("/mcp on time")
        assert "time: 2 tools" in switched
        cost = re.search(
            r"0 of ([\d,]+) tokens read again; rebinding would\s+have cost \$0\.\d+ \(\1 tokens\)",
            switched,
        )
        assert cost is not None, switched
        called = first.say('/call time__get_current_time {"timezone": "UTC"}')
        assert '→ time__get_current_time {"timezone":"UTC"}' in called
        assert "← time__get_current_time: " in called
        assert "time__get_current_time has answered." in called

        assert "0 of " in first.say("/mcp on changing")
        assert "changing__grow has answered." in first.say("/call changing__grow {}")
        assert "0 of " in first.say("/mcp off time")
        # The server says by itself that its list has grown; the next turn tells the model.
        while "changing__extra_1" not in (tools := first.say("/tools")):
            pass
        assert "changing: 3 tools" in tools
        assert "time__get_current_time" not in tools
        assert "I heard: 'thanks'" in first.say("thanks")

        place.stall()
        first.type("tell me more")
        place.until_stalled()
        first.press("c")
        first.expect("stopped")
        first.prompt()
        first.press("c")
        first.expect("go on with: addendum ")
        command = first.expect("\r\n").strip()
        assert first.end() == 0
        assert "Traceback" not in first.seen

    log = place.log()
    ends = [event.data for event in log.events if isinstance(event.data, TurnEnd)]
    assert [end.reason for end in ends] == ["done"] * 4 + ["interrupted"]
    assert any(isinstance(event.data, AssistantAttempt) for event in log.events)

    with in_terminal(shlex.split(command), home=place.home) as second:
        ready_for(second)
        assert "5 turns so far" in second.seen
        assert "MCP servers: time off, changing on" in second.seen
        answered = second.say("are you still there?")
        assert "I heard: 'are you still there?'" in answered
        assert "no break so far" in second.say("/why")
        second.press("d")
        assert second.end() == 0

    captures = place.lab.captures
    assert all(capture.status == 200 for capture in captures)
    assert_grows([capture.body for capture in captures])
    # What the stopped request wrote is read by the one that goes on.
    before, after = captures[-2].usage, captures[-1].usage
    cached = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
    assert after["cache_read_input_tokens"] >= cached > 512


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_stream_leaves_a_valid_log(place: Place, how: signal.Signals) -> None:
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        place.stall()
        terminal.type("hello")
        place.until_stalled()
        terminal.process.send_signal(how)
        terminal.expect("go on with: ")
        assert terminal.end() == 128 + how
    ends = [event.data for event in place.log().events if isinstance(event.data, TurnEnd)]
    assert [end.reason for end in ends] == ["interrupted"]


def test_a_terminal_that_goes_away_leaves_a_valid_log(place: Place) -> None:
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        place.stall()
        terminal.type("hello")
        place.until_stalled()
        terminal.hang_up()
        assert terminal.process.wait(30) == 128 + signal.SIGHUP
    ends = [event.data for event in place.log().events if isinstance(event.data, TurnEnd)]
    assert [end.reason for end in ends] == ["interrupted"]


def test_interrupts_at_the_prompt_leave_at_the_second(place: Place) -> None:
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        terminal.press("c")
        terminal.expect("Ctrl-C once more")
        terminal.prompt()
        assert "I heard: 'still here'" in terminal.say("still here")
        terminal.press("c")
        terminal.expect("Ctrl-C once more")
        terminal.press("c")
        terminal.expect("go on with: ")
        assert terminal.end() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_leaves(place: Place, how: signal.Signals) -> None:
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        terminal.say("hello")
        terminal.process.send_signal(how)
        terminal.expect("go on with: ")
        assert terminal.end() == 128 + how


def test_waiting_for_a_silent_server_can_be_stopped(place: Place) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    place.home.joinpath(".mcp.json").write_text(json.dumps({"mcpServers": {"silent": silent}}))
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        terminal.type("/mcp on silent")
        terminal.expect("asking for its tools")
        terminal.press("c")
        terminal.expect("stopped")
        terminal.prompt()
        assert "silent: on, connecting; no tools" in terminal.say("/mcp")
        assert "I heard: 'hello'" in terminal.say("hello")
        assert "silent is off" in terminal.say("/mcp off silent")
        terminal.press("d")
        assert terminal.end() == 0


def test_a_line_goes_on_behind_a_backslash(place: Place) -> None:
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        terminal.type("one \\")
        terminal.expect(r"\. ")
        assert r"I heard: 'one \ntwo'" in terminal.say("two")


def test_forty_columns_are_enough(place: Place) -> None:
    place.home.joinpath("prompt.txt").write_text(SENTENCE * 60)
    with in_terminal(place.arguments, home=place.home, columns=40, term="dumb") as terminal:
        ready_for(terminal)
        shown = terminal.seen
        shown += terminal.say("hello to you and to everybody else who is reading this here")
        shown += terminal.say("/mcp on time")
        shown += terminal.say("/tools")
        shown += terminal.say("/help")
        terminal.press("d")
        terminal.expect("go on with: ")
    ours = [row for row in shown.split("\r\n") if not row.startswith("> ")]
    assert max(map(len, ours)) <= 40
    assert "rebinding would" in " ".join(ours)


def test_a_dumb_terminal_gets_no_codes(place: Place) -> None:
    with in_terminal(place.arguments, home=place.home, term="dumb") as terminal:
        ready_for(terminal)
        terminal.say("hello")
        assert "\x1b" not in terminal.seen
    with in_terminal(place.arguments, home=place.home, NO_COLOR="1") as terminal:
        ready_for(terminal)
        terminal.say("hello")
        assert "\x1b" not in terminal.seen
    with in_terminal(place.arguments, home=place.home) as terminal:
        ready_for(terminal)
        terminal.say("hello")
        assert "\x1b[1m" in terminal.seen
