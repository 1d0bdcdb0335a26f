"""What an index, the bars, the charts and the timeline make of a log."""

from __future__ import annotations

import pytest
from tests.viewer.staged import OPUS, long_log

from addendum.agent.replay import known_route
from addendum.cache.spent import Spent, billed, totals
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CompactionFailed,
    Event,
    RequestHeader,
    RequestSent,
    Rewind,
    StepEnd,
    StepStart,
    ToolCall,
    ToolPolicy,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.exchanges import Exchange
from addendum.log.session_log import SessionLog
from addendum.log.values import Config, Header, Usage
from addendum.tell.figures import money
from addendum.viewer.charts import COLUMNS, chart
from addendum.viewer.figures import bar
from addendum.viewer.index import Index
from addendum.viewer.timeline import Stretch, timeline


def indexed(log: SessionLog) -> Index:
    index = Index()
    index.read(log.events)
    return index


def request(number: int, usage: Usage, left: int | None = None, *, broken: bool = False) -> Spent:
    breaks = (CacheBreak("rebinding", OPUS, "tools"),) if broken else ()
    sent = Event(number, 0, RequestSent(1, 1, number, OPUS, 0))
    request = Exchange(sent, sent.data, breaks, end=sent, answered=True, usage=usage)
    return Spent(request, left=left)


def test_an_index_says_the_same_however_it_was_read() -> None:
    log = long_log(5)
    whole, steps = indexed(log), Index()
    for end in range(1, len(log) + 1, 3):
        steps.read(log.events[:end])
    steps.read(log.events)
    for index in (whole, steps):
        assert index.turns == 5 and index.title.startswith("Question 1")
        assert [each.request.number for each in index.requests] == list(range(1, 11))
        assert [each.request.number for each in index.of_turn(3)] == [5, 6]
        assert log.events[index.span(3).start].data == TurnStart(3)
        assert log.events[index.span(3).stop - 1].data == TurnEnd(3)
        assert index.span(5).stop == len(log)
        assert index.request(4) is index.request_at(index.requests[3].request.seq)
        assert index.request(99) is None and index.request_at(0) is None
        assert index.header_before(len(log)) == index.headers[0]
        assert index.header_before(index.headers[0]) is None


def test_what_was_left_in_the_cache_and_not_read_is_seen() -> None:
    log = long_log(1)
    index = indexed(log)
    first, second = index.requests
    assert (first.left, second.left, second.short) == (None, first.request.usage.prompt, 0)
    log.append(CacheBreak("lifetime passed", OPUS, "none"))
    for data in (TurnStart(2), StepStart(2, 1), UserMessage(2, "late")):
        log.append(data)
    log.append(RequestSent(2, 1, 3, OPUS, second.request.seq))
    usage = Usage(1200, 0, 1200, 5)
    log.append(AssistantMessage(2, 1, OPUS, "anthropic_messages", text="x", usage=usage))
    index.read(log.events)
    late = index.requests[2]
    assert late.short == second.request.usage.prompt
    assert late.request.breaks[0].reason == "lifetime passed"
    made = bar([late])
    assert made is not None and made.short == late.short and made.declared


def test_what_was_cut_off_and_counted_is_added_up_as_elsewhere() -> None:
    log = long_log(1)
    context = epoch(log)
    log.append(TurnStart(2))
    for number, usage in ((3, Usage(2000, 1080, 920, 7)), (4, Usage())):
        log.append(StepStart(2, number))
        log.append(RequestSent(2, number, number, OPUS, context))
        log.append(AssistantAttempt(2, number, OPUS, "stopped", "CANCELLED", usage=usage))
        log.append(StepEnd(2, number))
    index = indexed(log)
    *_, cut, silent = index.requests
    assert (cut.request.answer, cut.request.usage.prompt, cut.short) == (None, 2000, 0)
    assert cut.cost is not None
    assert (silent.request.answer, silent.request.usage, silent.cost) == (None, Usage(), None)
    own, whole = bar(index.of_turn(2)), bar(index.requests)
    assert own is not None and (own.requests, own.prompt, own.output) == (1, 2000, 7)
    sums = totals(billed(log.events, known_route).requests)
    assert whole is not None and sums.cost is not None and sums.uncounted == 1
    assert (whole.requests, whole.prompt, whole.read) == (3, sums.prompt, sums.cache_read)
    assert (whole.cost, whole.saved) == (money(sums.cost.amount), money(sums.cost.saved))
    drawn = chart(index.requests)
    assert drawn is not None and drawn.money == whole.cost
    assert bar([silent]) is None


def test_a_request_bears_the_breaks_that_the_judge_counts() -> None:
    log = long_log(1)
    context = epoch(log)
    broken = CacheBreak("head changed", OPUS, "tools")
    log.append(CacheBreak("lifetime passed", OPUS, "none"))
    log.append(broken)
    log.append(RequestSent(1, 0, 3, OPUS, context, purpose="compaction"))
    log.append(CompactionFailed("no summary", OPUS, Usage(900, 0, 900, 1)))
    log.append(TurnStart(2))
    for number in (4, 5):
        log.append(StepStart(2, number))
        log.append(broken)
        log.append(RequestSent(2, number, number, OPUS, context))
        log.append(AssistantAttempt(2, number, OPUS, "down"))
        log.append(StepEnd(2, number))
    reasons = [[each.reason for each in one.request.breaks] for one in indexed(log).requests[2:]]
    # What breaks the bytes does so behind a summary as well; one for a reason is enough.
    assert reasons == [["lifetime passed", "head changed"], ["head changed"], ["head changed"]]


def epoch(log: SessionLog) -> int:
    return next(e.data.context_seq for e in log.events if isinstance(e.data, RequestSent))


def test_a_rewind_cuts_turns() -> None:
    log = long_log(3)
    nodes = log.surface.nodes
    start = next(n.seq for n in nodes if isinstance(n.data, UserMessage) and n.data.turn == 2)
    log.append(Rewind(2), replace=(start, nodes[-1].seq))
    log.append(TurnStart(4))
    index = indexed(log)
    assert index.cut == {2, 3} and index.turns == 4


@pytest.mark.parametrize(
    ("usage", "parts", "share"),
    [
        (Usage(1000, 750, 250, 9), (("read", 0, 750), ("write", 750, 250)), 75),
        (Usage(1000, 999, 0, 9), (("read", 0, 999), ("new", 999, 1)), 99),
        (Usage(1000, 0, None, 9), (("new", 0, 1000),), 0),
        (Usage(1000, None, None, 9), (), None),
        (Usage(), (), None),
        (Usage(0, 0, 0, 0), (), None),
    ],
    ids=["both", "nearly", "nothing", "unreported", "silent", "empty"],
)
def test_a_bar_shows_what_is_known_and_no_more(
    usage: Usage, parts: tuple[tuple[str, int, int], ...], share: int | None
) -> None:
    made = bar([request(1, usage)])
    assert made is not None and (made.parts, made.share) == (parts, share)


def test_a_bar_of_several_requests_is_their_sum() -> None:
    made = bar([request(1, Usage(100, 0, 100, 1)), request(2, Usage(300, 100, 200, 1), 200)])
    assert made is not None
    assert (made.prompt, made.read, made.written, made.share, made.short) == (
        400,
        100,
        300,
        25,
        100,
    )
    assert not made.declared
    assert bar([]) is None


def test_a_chart_has_few_columns_and_every_request() -> None:
    few = chart([request(n, Usage(100 * n, 50, 0, 1)) for n in range(1, 4)])
    assert few is not None and [each.last for each in few.columns] == [1, 2, 3] and few.top == 300
    many = chart([request(n, Usage(1000, 500, 0, 1)) for n in range(1, 5_001)])
    assert many is not None and len(many.columns) <= COLUMNS
    assert (many.columns[0].first, many.columns[-1].last) == (1, 5_000)
    assert many.columns[0].prompt == 1000 and many.columns[0].read == 500
    assert chart([request(1, Usage())]) is None


def test_a_timeline_tells_each_state_by_its_turns() -> None:
    log = long_log(2)
    header = next(e.data for e in log.events if isinstance(e.data, RequestHeader))
    (look,) = header.header.tools
    config = Config("anthropic", "claude-opus-5-5")
    other = type(look)("late", "Comes late.", look.parameters)
    for turn, tools in ((3, (look, other)), (4, (look,)), (5, (look, other))):
        log.append(TurnStart(turn))
        log.append(StepStart(turn, 1))
        log.append(RequestHeader(Header(config, tools), "change"))
        if turn == 5:
            log.append(ToolCall(5, 1, "c", "late", "{}"))
            log.append(ToolPolicy(("look",)))
        log.append(StepEnd(turn, 1))
        log.append(TurnEnd(turn))
    found = timeline(log.events)
    strips = {each.name: each for each in found.strips}
    assert found.turns == 5
    assert strips["look"].stretches == (Stretch("active", 1, 4), Stretch("disabled", 5, 5))
    assert strips["late"].stretches == (Stretch("deferred", 3, 3), Stretch("deferred", 5, 5))
    assert strips["look"].calls == {1: 1, 2: 1} and strips["late"].total == 1
