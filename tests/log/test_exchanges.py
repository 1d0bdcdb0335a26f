"""Whose an answer is and which breaks a request bears, case by case."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pytest

from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CacheKept,
    CompactionFailed,
    CompactionSummary,
    Event,
    EventData,
    RequestSent,
    StepEnd,
    UserMessage,
)
from addendum.log.exchanges import FOLLOWED, Exchange, Exchanges, exchanges
from addendum.log.requests import RequestPurpose
from addendum.log.values import BreakReason, Usage

A, B = "one:a", "two:b"
SOME = Usage(500, 400, 100, 7)
NONE = Usage()


def sent(route: str = A, purpose: RequestPurpose = "turn") -> RequestSent:
    return RequestSent(1, 1, 1, route, 0, purpose=purpose)


def answer(route: str = A) -> AssistantMessage:
    return AssistantMessage(1, 1, route, "w", usage=SOME)


def broken(reason: BreakReason, at: Literal["tools", "messages", "none"] = "tools") -> CacheBreak:
    return CacheBreak(reason, A, at)


def log(*data: EventData) -> list[Event]:
    return [Event(seq, 1_000 * seq, each) for seq, each in enumerate(data)]


CUT = AssistantAttempt(1, 1, A, "cut", usage=SOME)
DOWN = AssistantAttempt(1, 1, A, "down")
SUMMARY = CompactionSummary("so", 1, A, SOME)
OWN_SUMMARY = CompactionSummary("so", 1)
USELESS = CompactionFailed("empty", A, SOME)
REFUSED = CompactionFailed("refused")
KEPT = CacheKept(A, SOME)
COMPACTS, KEEPS = sent(purpose="compaction"), sent(purpose="keep-alive")

End: TypeAlias = tuple[int | None, bool, Usage, bool]
"""Seq of what ends a request, whether it was answered, its usage, whether it counts."""

OPEN: End = (None, False, NONE, False)


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        pytest.param([sent(), answer()], [(1, True, SOME, True)], id="answered"),
        pytest.param([sent(), CUT], [(1, False, SOME, True)], id="cut_off_and_counted"),
        pytest.param([sent(), DOWN], [(1, False, NONE, False)], id="refused"),
        pytest.param([sent()], [OPEN], id="crashed"),
        pytest.param(
            [sent(), UserMessage(1, "x"), StepEnd(1, 1), sent(), answer()],
            [OPEN, (4, True, SOME, True)],
            id="crashed_and_sent_again",
        ),
        pytest.param([COMPACTS, SUMMARY], [(1, True, SOME, True)], id="compaction"),
        pytest.param([COMPACTS, USELESS], [(1, True, SOME, True)], id="useless_summary"),
        pytest.param([COMPACTS, REFUSED], [OPEN], id="refused_compaction"),
        pytest.param([COMPACTS, COMPACTS, SUMMARY], [OPEN, (2, True, SOME, True)], id="softer"),
        pytest.param([KEEPS, KEPT], [(1, True, SOME, True)], id="keep_alive"),
        pytest.param([KEEPS, sent(), answer()], [OPEN, (2, True, SOME, True)], id="kept_not"),
        # What a person gave answers nothing, and no request is answered by another's answer.
        pytest.param([COMPACTS, OWN_SUMMARY], [OPEN], id="own_summary"),
        pytest.param([sent(), SUMMARY, USELESS, KEPT], [OPEN], id="of_another_kind"),
        pytest.param([COMPACTS, answer(), CUT], [OPEN], id="of_a_turn"),
        pytest.param([sent(), answer(), CUT], [(1, True, SOME, True)], id="twice"),
        pytest.param([answer(), CUT, SUMMARY, KEPT], [], id="nothing_sent"),
        # The route may be another one by the time that an answer was stopped.
        pytest.param(
            [sent(B), AssistantAttempt(1, 1, A, "stopped", usage=SOME)],
            [(1, False, SOME, True)],
            id="route_changed_meanwhile",
        ),
    ],
)
def test_whose_an_answer_is(data: list[EventData], ends: list[End]) -> None:
    found = [
        (None if each.end is None else each.end.seq, each.answered, each.usage, each.counted)
        for each in exchanges(log(*data))
    ]
    assert found == ends


ELSEWHERE, REHEAD, EXPIRED = (
    broken("route changed", "messages"),
    broken("head changed"),
    broken("lifetime passed", "none"),
)


@pytest.mark.parametrize(
    ("data", "borne"),
    [
        pytest.param([REHEAD, sent(), answer(), sent()], [["head changed"], []], id="once"),
        pytest.param([REHEAD, sent(), DOWN, sent()], [["head changed"]] * 2, id="carried"),
        pytest.param([REHEAD, sent(), CUT, sent()], [["head changed"]] * 2, id="cut_carries"),
        pytest.param([REHEAD, sent(), sent()], [["head changed"]] * 2, id="crash_carries"),
        pytest.param(
            [REHEAD, sent(B), answer(B), sent()], [[], ["head changed"]], id="of_another_route"
        ),
        pytest.param(
            [ELSEWHERE, EXPIRED, REHEAD, COMPACTS, SUMMARY, sent(), answer(), sent()],
            [["route changed", "lifetime passed", "head changed"], ["head changed"], []],
            id="bytes_break_behind_a_summary_too",
        ),
        pytest.param(
            [EXPIRED, REHEAD, COMPACTS, USELESS, sent()],
            [["lifetime passed", "head changed"], ["head changed"]],
            id="behind_a_useless_one",
        ),
        pytest.param(
            [EXPIRED, COMPACTS, REFUSED, sent()], [["lifetime passed"]] * 2, id="refused_summary"
        ),
        pytest.param(
            [EXPIRED, COMPACTS, OWN_SUMMARY, sent()], [["lifetime passed"]] * 2, id="own_summary"
        ),
        pytest.param(
            [EXPIRED, REHEAD, KEEPS, KEPT, sent()],
            [["lifetime passed", "head changed"], ["head changed"]],
            id="kept_alive",
        ),
    ],
)
def test_which_breaks_a_request_bears(data: list[EventData], borne: list[list[str]]) -> None:
    found = [[each.reason for each in one.breaks] for one in exchanges(log(*data))]
    assert found == borne


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_breaks_for_one_reason_the_one_in_front_counts(turned: bool) -> None:
    first, second = broken("rewind", "messages"), broken("rewind")
    if turned:
        first, second = second, first
    _, again = exchanges(log(first, EXPIRED, sent(), DOWN, second, sent()))
    # The latest is the last.
    assert [(each.reason, each.at) for each in again.breaks] == [
        ("lifetime passed", "none"),
        ("rewind", "tools"),
    ]


def test_a_log_is_followed_as_it_grows() -> None:
    follows, events = Exchanges(), log(REHEAD, sent(), DOWN, sent(), answer())
    found: list[Exchange | None] = []
    ahead: list[int] = []
    for event in events:
        assert type(event.data) in FOLLOWED
        found.append(follows.take(event))
        ahead.append(len(follows.ahead(A)))
    first, second = exchanges(events)
    assert found == [None, first, first, second, second]
    # It begins and ends as one thing.
    assert found[1] is found[2] and found[3] is found[4]
    assert ahead == [1, 1, 1, 1, 0] and follows.ahead(B) == ()
