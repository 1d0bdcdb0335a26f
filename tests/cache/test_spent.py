"""What a session's requests cost, by figures worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import pytest
from msgspec import Raw

from addendum.agent.replay import known_route
from addendum.cache.spent import billed, totals
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CompactionFailed,
    EndSeed,
    Event,
    EventData,
    RequestContext,
    RequestHeader,
    RequestSent,
)
from addendum.log.values import Config, Header, ToolSchema, Usage

# Dollars per million: input 4, output 20, read 0.2, write 5 (five minutes).
CLAUDE = "anthropic:claude-opus-5-5"


def tools(names: str) -> RequestHeader:
    made = tuple(ToolSchema(name, "Does it.", Raw(b"{}")) for name in names)
    return RequestHeader(Header(Config("anthropic", "claude-opus-5-5"), made), "change")


def answered(read: int, written: int, prompt: int | None = None) -> AssistantMessage:
    whole = read + written + 1000 if prompt is None else prompt
    return AssistantMessage(1, 1, CLAUDE, "w", usage=Usage(whole, read, written, 100))


def log(*data: tuple[EventData, int], route: str = CLAUDE) -> list[Event]:
    """Events at these seconds; a header, request or answer each, requests numbered."""
    found: list[Event] = []
    number = 0
    for each, second in data:
        if isinstance(each, AssistantMessage | AssistantAttempt | CompactionFailed):
            number += 1
            purpose = "compaction" if isinstance(each, CompactionFailed) else "turn"
            sent = RequestSent(1, 1, number, route, 0, 0, purpose)
            found.append(Event(len(found), second * 1000, sent))
        found.append(Event(len(found), second * 1000 + 1, each))
    return found


def test_money_is_what_the_provider_counted_at_list_prices() -> None:
    (one,) = billed(log((tools("a"), 0), (answered(0, 10_000), 1)), known_route).requests
    assert one.cost is not None
    # 1,000 plain, 10,000 written, 100 out; without a cache 11,000 plain.
    assert one.cost.amount == (1_000 * 4 + 10_000 * 5 + 100 * 20) / Decimal(1_000_000)
    assert one.cost.saved == (11_000 * 4 + 100 * 20) / Decimal(1_000_000) - one.cost.amount
    assert (one.rebinding, one.rebinding_cost) == (0, 0)


def test_other_tools_would_have_had_all_read_again_that_was_read() -> None:
    events = log(
        (tools("a"), 0),
        (answered(0, 10_000), 1),
        (tools("ab"), 10),
        (answered(10_000, 500), 11),
        (answered(10_500, 500), 12),
    )
    first, second, third = billed(events, known_route).requests
    assert (first.rebinding, second.rebinding, third.rebinding) == (0, 10_000, 0)
    # Written at 5 in place of read at 0.2.
    assert second.rebinding_cost == Decimal(48_000) / 1_000_000
    sums = totals([first, second, third])
    assert sums.rebinding == second.rebinding_cost
    assert (sums.requests, sums.cache_read, sums.cache_write) == (3, 20_500, 11_000)


def test_a_tool_that_is_back_behind_the_others_makes_no_other_list() -> None:
    events = log(
        (tools("abc"), 0),
        (answered(0, 10_000), 1),
        (tools("ac"), 10),
        (answered(10_000, 500), 11),
        (tools("acb"), 20),
        (answered(10_500, 500), 21),
    )
    assert [each.rebinding for each in billed(events, known_route).requests] == [0, 10_000, 500]


@pytest.mark.parametrize(("second", "lost"), [(200, 500), (400, 10_500)])
def test_an_earlier_request_with_the_same_tools_counts_while_it_lives(
    second: int, lost: int
) -> None:
    events = log(
        (tools("a"), 0),
        (answered(0, 10_000), 1),
        (tools("ab"), 10),
        (answered(10_000, 500), second - 10),
        (tools("a"), second),
        (answered(10_500, 500), second),
    )
    assert billed(events, known_route).requests[2].rebinding == lost


@pytest.mark.parametrize(("ttl", "write"), [("5m", 5), ("1h", 8)])
def test_rebinding_writes_for_as_long_as_the_session_does(
    ttl: Literal["5m", "1h"], write: int
) -> None:
    epoch = Event(0, 0, RequestContext(CLAUDE, "w", "in-history", ttl=ttl))
    events = log(
        (tools("a"), 0), (answered(0, 10_000), 1), (tools("ab"), 2), (answered(10_000, 500), 3)
    )
    _, second = billed([epoch, *events], known_route).requests
    assert second.rebinding_cost == 10_000 * (write - Decimal("0.2")) / 1_000_000


def test_what_failed_counts_where_it_was_counted() -> None:
    cut = AssistantAttempt(1, 1, CLAUDE, "cut", usage=Usage(500, 0, 0, 7))
    silent = AssistantAttempt(1, 1, CLAUDE, "down")
    none = CompactionFailed("no summary", CLAUDE, Usage(300, 0, 0, 1))
    events = log((tools("a"), 0), (silent, 1), (cut, 2), (answered(0, 10), 3), (none, 4))
    requests = billed(events, known_route).requests
    assert [each.request.answered for each in requests] == [False, False, True, True]
    sums = totals(requests)
    assert (sums.requests, sums.uncounted) == (3, 1)
    assert totals(requests).prompt == 500 + 1_010 + 300


def test_what_a_parent_paid_is_not_paid_again() -> None:
    events = log((tools("a"), 0), (answered(0, 10), 1), (EndSeed("c", "p", 3), 2))
    events += log((answered(10, 10), 9))
    bill = billed(events, known_route)
    assert len(bill.requests) == 2 and bill.own == bill.requests[1:]


def test_what_a_parent_sent_in_vain_is_the_parents() -> None:
    data = (RequestSent(1, 1, 1, CLAUDE, 0), EndSeed("c", "p", 1), RequestSent(2, 1, 2, CLAUDE, 0))
    events = [Event(seq, 1_000, each) for seq, each in enumerate(data)]
    bill = billed(events, known_route)
    assert bill.own == bill.requests[1:]
    assert totals(bill.own).uncounted == 1


def test_a_request_in_vain_had_the_tools_that_it_was_sent_with() -> None:
    events = log((tools("a"), 0), (answered(0, 10_000), 1))
    later = (RequestSent(1, 1, 2, CLAUDE, 0), tools("ab"), RequestSent(1, 1, 3, CLAUDE, 0))
    events += [Event(len(events) + at, 2_000, each) for at, each in enumerate(later)]
    assert [each.rebinding for each in billed(events, known_route).requests] == [0, 0, None]


def test_what_is_not_known_is_never_guessed() -> None:
    quiet = AssistantMessage(1, 1, CLAUDE, "w", usage=Usage(100, None, None, 1))
    events = log((tools("a"), 0), (quiet, 1), (tools("ab"), 2), (quiet, 3))
    requests = billed(events, known_route).requests
    assert [each.cost for each in requests] == [None, None]
    assert [each.rebinding for each in requests] == [0, None]
    assert totals(requests).cost is None and totals(requests).cache_read is None
    unheard = billed(
        log((tools("a"), 0), (answered(0, 10), 1), route="nobody:x"), known_route
    ).requests
    assert unheard[0].cost is None and unheard[0].rebinding is None
