"""The log of every released format is opened, and continued by the very bytes."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec import Struct
from tests.golden.make_logs import LOGS, continued, paths

from addendum.agent.replay import replay
from addendum.log import codec
from addendum.log.events import FORMAT, EventData, SessionStart
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

NUMBERS = sorted(int(path.name.split(".")[0]) for path in LOGS.glob("*.events.jsonl"))


def test_every_format_has_a_log() -> None:
    assert list(range(1, FORMAT + 1)) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
async def test_d15_a_log_is_opened_and_continued_byte_for_byte(number: int) -> None:
    log, following = paths(number)
    stored = log.read_bytes().splitlines()
    loaded = SessionLog.load("s", stored)
    start = loaded.events[0].data
    assert isinstance(start, SessionStart) and start.format == number
    # What is read is written as it was.
    assert [codec.encode_event(event) for event in loaded.events] == stored
    again = list(replay(loaded))
    assert all(each.record.body for each in again)
    assert await continued(stored) == following.read_bytes()


def test_the_log_has_every_type_of_event() -> None:
    log, _ = paths(FORMAT)
    found = {codec.decode_event(line).type for line in log.read_bytes().splitlines()}
    kinds = cast("tuple[type[Struct], ...]", EventData.__args__)
    every = {str(kind.__struct_config__.tag) for kind in kinds}
    # Written by what cannot happen here: refusals, hooks, agents behind tools, servers that are
    # away, tools left out. And one that came since: a log of before has none, and goes on without.
    elsewhere = ("route/downgrade", "hook/", "subagent/", "server/away", "tool/known", "tool/left")
    assert not [each for each in every - found if not each.startswith(elsewhere)]
