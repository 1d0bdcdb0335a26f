"""Folds of a session's log: registered once, told of each event once, replayed to any seq."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.agent.stage import CHAT, CLAUDE, DEEPSEEK, fn, stage
from tests.golden.make_logs import paths
from tests.property.folding import check_folds, held

import addendum
from addendum.agent.session import runtime_of
from addendum.agent.state import State
from addendum.log.events import FORMAT, RequestSent
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

ROOMS = [Path(addendum.__path__[0]) / name for name in ("agent", "log")]


def test_the_golden_log_folds_the_same_at_every_seq() -> None:
    log, _ = paths(FORMAT)
    events = SessionLog.load("s", log.read_bytes().splitlines()).events
    check_folds(events, places=len(events))


@pytest.mark.parametrize("route", [CLAUDE, DEEPSEEK, CHAT])
async def test_a_session_that_is_kept_open_has_the_state_of_one_opened_again(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, tools=[fn("web")], tool_dispatch=True, output_references=True)
        async with here.open(agent) as session:
            for number in range(3):
                await session.run(f"/call web {{}} {number}")
                await session.tools.add(fn(f"extra_{number}"))
            await session.tools.remove("extra_1")
            await session.rewind()
            await session.run("again")
            await session.compact("So far so good.")
            await session.run("and on")
            state = runtime_of(session).state
            assert held(state) == held(State(session.log.until(len(session.log))))
            check_folds(session.log.events, places=20)
            sent = [e.seq for e in session.log.events if isinstance(e.data, RequestSent)]
            numbers = [state.at(seq).sent.number for seq in sent]
            assert numbers == list(range(len(sent)))


def test_folds_alone_follow_the_log() -> None:
    """A cursor into the log would be a second way; nothing keeps one."""
    for path in sorted(each for room in ROOMS for each in room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
                continue
            # `events[self._read :]`, `log.rare[self._seen :]`.
            ours = ast.unparse(node.value).endswith(("events", "rare"))
            kept = node.slice.lower is not None and ast.unparse(node.slice.lower)
            assert not (ours and str(kept).startswith("self.")), f"{path}:{node.lineno}"
