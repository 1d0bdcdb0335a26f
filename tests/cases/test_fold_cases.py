"""Cases 30 to 41: the fold of headers and developer messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.cases.helpers import BY_VALUE, CONFIG, Story, open_log, talking, tools, words

from addendum.errors import LogError
from addendum.log.events import (
    DeveloperMessage,
    Event,
    RequestHeader,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)
from addendum.log.values import Header, ToolAddition
from addendum.tools.history import HistoryFold, ToolHistory


def folded(history: ToolHistory) -> tuple[str, list[str]]:
    """Write a snapshot: initial declarations, and what each update added."""
    return words(history.tools), [words(update.additions) for update in history.updates]


class Counted(Sequence[Event]):
    """A log's events that count how many of them were looked at."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.looked = 0

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, place: Any) -> Any:
        found = self.events[place]
        self.looked += len(found) if isinstance(place, slice) else 1
        return found

    def spent(self) -> int:
        """Return how many were looked at since the last call."""
        looked, self.looked = self.looked, 0
        return looked


def test_case_30_one_header() -> None:
    story = Story("a")
    assert folded(story.history) == ("a", [])
    assert folded(HistoryFold().read([])) == ("", [])


def test_case_31_addition() -> None:
    story = Story("a")
    first = story.history
    story.request("a b")
    assert folded(story.history) == ("a", ["b"])
    assert [u.message_id for u in story.history.updates] == [story.messages[0].seq]
    assert folded(first) == ("a", [])
    with pytest.raises(AttributeError, match="immutable"):
        first.updates = ()  # type: ignore[misc]


def test_case_32_second_read_without_events() -> None:
    story = Story("a", "a b")
    fold, events = HistoryFold(), Counted(story.log.events)
    first = fold.read(events)
    assert events.spent() == len(events)
    assert fold.read(events) is first
    assert events.spent() == 0
    # Events of no relevance change nothing either.
    story.answer()
    assert fold.read(events) is first
    assert events.spent() == 3


def test_case_33_added_and_removed() -> None:
    story = Story("a", "a b", "a")
    assert folded(story.history) == ("a", ["b", ""])
    assert [u.message_id for u in story.history.updates] == [m.seq for m in story.messages]


def test_case_34_removed_and_restored() -> None:
    story = Story("a b", "a", "a b")
    assert folded(story.history) == ("a b", ["", "b"])


def test_case_35_restored_otherwise() -> None:
    story = Story("a b", "a", "a b'")
    assert folded(story.history) == ("a b'", ["b'"])
    assert [u.message_id for u in story.history.updates] == [story.messages[1].seq]


def test_case_36_log_without_messages() -> None:
    story = Story("a")
    story.request("a b", message=False)
    assert folded(story.history) == ("a b", [])
    story.request("b", message=False)
    assert folded(story.history) == ("b", [])


@pytest.mark.parametrize(("later", "expected"), [("a b", ("a b", [])), ("a b c", ("a b c", ["c"]))])
def test_case_37_resumed_after_a_missing_message(
    later: str, expected: tuple[str, list[str]]
) -> None:
    story = Story("a")
    story.request("a b", message=False)
    story.restart()
    story.request(later)
    assert folded(story.history) == expected
    # The baseline is new: later changes are updates again.
    story.request("a b d")
    assert folded(story.history)[1][-1] == "d"


def test_case_38_definition_of_the_header_named() -> None:
    log = open_log()
    fold = HistoryFold()
    log.append(RequestHeader(Header(CONFIG, tools("a")), "initial"))
    old = log.append(RequestHeader(Header(CONFIG, tools("a b")), "change")).seq
    log.append(RequestHeader(Header(CONFIG, tools("a b'")), "change"))
    log.append(DeveloperMessage(1, 1, (ToolAddition("b"),), old))
    history = fold.read(log.events)
    assert [words(update.additions) for update in history.updates] == ["b"]


def test_case_39_missing_definition() -> None:
    log = open_log()
    log.append(RequestHeader(Header(CONFIG, tools("a")), "initial"))
    event = Event(len(log), 7, DeveloperMessage(1, 1, (ToolAddition("lost"),), 3), "append")
    with pytest.raises(LogError, match="'lost'") as caught:
        HistoryFold().read([*log.events, event])
    assert caught.value.seq == event.seq


def test_case_40_many_inherited_events() -> None:
    story = Story("a", "a b")
    story.answer()
    log = story.log
    while len(log) < 10_000:
        turn = log.turns + 1
        log.append(TurnStart(turn))
        for step in range(1, 100):
            log.append(StepStart(turn, step))
            log.append(StepEnd(turn, step))
        log.append(TurnEnd(turn))
    child = log.fork("s2")
    assert child.inherited >= 10_000
    fold, events = HistoryFold(), Counted(child.events)
    assert folded(fold.read(events)) == ("a", ["b"])
    assert events.spent() == len(child)
    turn = child.turns + 1
    child.append(TurnStart(turn))
    child.append(StepStart(turn, 1))
    child.append(RequestHeader(Header(CONFIG, tools("a b")), "resume"))
    assert folded(fold.read(events)) == ("a", ["b"])
    assert events.spent() == 3


@pytest.mark.anyio
async def test_case_41_rewound_update() -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        await talk.session.rewind(1)
        assert folded(talk.session.tool_history()) == ("a", ["b"])
        assert all(not isinstance(n.data, DeveloperMessage) for n in talk.session.log.surface.nodes)
        events = await talk.say("three")
        header = next(event.data for event in events if isinstance(event.data, RequestHeader))
        assert header.new_series
        assert folded(talk.session.tool_history()) == ("a b", [])
