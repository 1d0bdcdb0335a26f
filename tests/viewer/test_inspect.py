"""A request taken apart: what is new, what was read, what changed first, and what is wrong."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.viewer.staged import long_log

from addendum.errors import ConfigurationError
from addendum.log import codec
from addendum.log.events import (
    AssistantMessage,
    RequestSent,
    StepStart,
    SystemMessage,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.viewer import inspect
from addendum.viewer.index import Index


def indexed(log: SessionLog) -> Index:
    index = Index()
    index.read(log.events)
    return index


def unread(log: SessionLog, number: int) -> SessionLog:
    """Have the provider read nothing for one answer."""
    events, seen = [], 0
    for event in log.events:
        data = event.data
        if isinstance(data, AssistantMessage):
            seen += 1
            if seen == number:
                usage = Usage(data.usage.prompt, 0, data.usage.prompt, data.usage.output)
                event = structs.replace(event, data=structs.replace(data, usage=usage))
        events.append(codec.encode_event(event))
    return SessionLog.load(log.session, events)


def test_a_request_shows_what_is_new_and_folds_the_rest() -> None:
    log = long_log(20)
    found = inspect.look(log, indexed(log), 30)
    assert (found.before, found.cause) == (29, None)
    states = [row.state for row in found.rows]
    assert "added" in states and "same" in states and "removed" not in states
    assert [row.run for row in found.rows if row.run > 1]
    assert sum(row.run for row in found.rows if row.state != "removed") == found.count
    fills = [row.fill for row in found.rows]
    assert fills == sorted(fills, key=["read", "write", "new", "none"].index)
    whole = inspect.look(log, indexed(log), 30, folded=False)
    assert len(whole.rows) == found.count
    assert all(row.run == 1 for row in whole.rows)


def test_the_first_request_is_new_altogether() -> None:
    log = long_log(2)
    found = inspect.look(log, indexed(log), 1)
    assert found.before is None and found.comparison is None
    assert {row.state for row in found.rows} == {"added"}


def test_a_cause_is_told_only_when_something_is_wrong() -> None:
    log = unread(long_log(4), 6)
    index = indexed(log)
    wrong = inspect.look(log, index, 6)
    assert wrong.cause is not None and wrong.cause.verdict == "provider"
    assert wrong.cause.lost == index.requests[5].short > 0
    for number in (5, 7):
        assert inspect.look(log, index, number).cause is None


def test_requests_that_were_rendered_already_give_the_same() -> None:
    log = long_log(6)
    index = indexed(log)
    replayed = inspect.requests_of(log, index.requests)
    assert len(replayed) == 12
    for number in (1, 7, 12):
        assert inspect.look(log, index, number, replayed=replayed) == inspect.look(
            log, index, number
        )


def test_a_difference_begins_where_the_two_differ_first() -> None:
    log = long_log(3)
    head = log.surface.nodes[0].seq
    context = next(e.data.context_seq for e in log.events if isinstance(e.data, RequestSent))
    log.append(TurnStart(4))
    log.append(StepStart(4, 1))
    log.append(SystemMessage("Be long. " * 300), replace=(head, head))
    log.append(UserMessage(4, "now"))
    log.append(RequestSent(4, 1, 7, "anthropic:claude-opus-5-5", context))
    index = indexed(log)
    found = inspect.difference(log, index, 6, 7)
    assert found.comparison.first is not None and found.comparison.first.area == "system"
    first = [pair for pair in found.pairs if pair.first]
    assert len(first) == 1 and first[0].change.kind == "system"
    kinds = {line.kind for line in first[0].lines}
    assert {"old", "new"} <= kinds
    same = inspect.difference(log, index, 5, 6)
    assert same.comparison.first is None and not any(pair.first for pair in same.pairs)


@pytest.mark.parametrize("number", [0, 9, 10_000])
def test_a_request_that_is_not_there_is_named(number: int) -> None:
    log = long_log(4)
    with pytest.raises(ConfigurationError, match=f"up to 8, not {number}"):
        inspect.look(log, indexed(log), number)
