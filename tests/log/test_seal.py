"""The checksum over a log's rows."""

from __future__ import annotations

import pytest
from msgspec import structs

from addendum.log import codec
from addendum.log.events import Event, RequestSent, TurnEnd, TurnStart, UserMessage
from addendum.log.seal import Seal
from addendum.log.session_log import SessionLog


def two_requests() -> SessionLog:
    log = SessionLog("s", clock=lambda: 7)
    for turn in (1, 2):
        log.append(TurnStart(turn))
        log.append(UserMessage(turn, f"text {turn}"))
        log.append(RequestSent(turn, 1, turn, "p:m", 0, seal=log.seal.text()))
        log.append(TurnEnd(turn, "failed"))
    return log


def rows(log: SessionLog) -> list[bytes]:
    return [codec.encode_event(event) for event in log.events]


def test_a_log_that_is_read_back_is_what_it_was_in_pages_of_any_size() -> None:
    log = two_requests()
    stored = rows(log)
    for size in range(1, len(stored) + 1):
        again = SessionLog("s")
        for start in range(0, len(stored), size):
            again.extend(stored[start : start + size])
        assert (again.altered, again.seal.text()) == (set(), log.seal.text())


@pytest.mark.parametrize("at", range(8))
def test_a_changed_row_is_noticed_by_every_later_request(at: int) -> None:
    stored = rows(two_requests())
    event = codec.decode_event(stored[at])
    stored[at] = codec.encode_event(structs.replace(event, time=8))
    assert SessionLog.load("s", stored).altered == {seq for seq in (2, 6) if seq > at}


def test_a_child_has_what_its_parent_knows() -> None:
    stored = rows(two_requests())
    stored[1] = stored[1].replace(b"text 1", b"text X")
    log = SessionLog.load("s", stored)
    assert log.fork("child").altered == {2, 6}
    child = log.fork("child", 4)
    assert child.altered == {2}
    assert SessionLog.load("child", rows(child)).seal.text() == child.seal.text()


def test_a_request_without_one_is_not_checked() -> None:
    seal, sent = Seal(), RequestSent(1, 1, 1, "p:m", 0)
    assert seal.broken([b"other", b"rows"], [Event(1, 7, sent)], 0) == set()
    assert seal.broken([b"x"], [Event(2, 7, structs.replace(sent, seal="0" * 8))], 2) == {2}
