"""What the judge knows beyond one request: names from other routes, breaks of failed requests,
settings in front of everything, and reasoning that a provider strips."""

from __future__ import annotations

import pytest
from tests.cache.captures import (
    CLAUDE,
    Json,
    Message,
    chat,
    claude,
    count,
    function,
    marked,
    record,
    result,
    text,
    tool,
    use,
)

from addendum.cache.figures import Miss, judge
from addendum.cache.invariants import check
from addendum.cache.record import RequestRecord

HI: Message = ("user", [text("hi")])


def broken(
    rule: str, *records: RequestRecord, among: list[RequestRecord] | None = None
) -> list[str]:
    return [each.text for each in check(records, CLAUDE, [rule], among=among or ())]


def calling(name: str, said: str) -> bytes:
    answer = {"type": "tool_result", "tool_use_id": "c", "content": [text(said)]}
    rounds: list[Message] = [("assistant", [use("c", name)]), ("user", [answer])]
    return claude([HI, *rounds], tools=[tool("search")])


@pytest.mark.parametrize("name", ["call_tool", "tool_search"])
def test_v5_our_own_tools_stay_known_on_another_route(name: str) -> None:
    before = record(1, chat([], tools=[function(name)]), wire="openai_chat", route="other")
    after = record(2, calling(name, "said"))
    assert len(broken("V5", after)) == 1
    assert broken("V5", after, among=[before, after]) == []
    # In front of the request, and in this session.
    late = record(3, chat([], tools=[function(name)]), wire="openai_chat", route="other")
    assert len(broken("V5", after, among=[after, late])) == 1
    elsewhere = record(1, before.body, wire="openai_chat", route="other", session="t")
    assert len(broken("V5", after, among=[elsewhere, after])) == 1


def test_v5_no_other_name_is_excused_by_another_route() -> None:
    before = record(1, chat([], tools=[function("deploy")]), wire="openai_chat", route="other")
    after = record(2, calling("deploy", "said"))
    assert len(broken("V5", after, among=[before, after])) == 1


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ('unknown tool "gone"', 0),
        ('there is no tool "gone" in this conversation. tool_search finds the exact name.', 0),
        ('unknown tool "other"', 1),
        ('the page says: unknown tool "gone"', 1),
        ("it went well", 1),
    ],
)
def test_v5_a_name_that_was_answered_as_unknown_may_stand(said: str, number: int) -> None:
    assert len(broken("V5", record(1, calling("gone", said)))) == number


def test_v5_a_name_that_was_answered_as_unknown_may_be_called_again() -> None:
    said = 'unknown tool "gone"', "Stop: this same call of gone has failed 3 times in this turn."
    blocks = [result(f"c{at}") | {"content": [text(each)]} for at, each in enumerate(said)]
    calls = [use(f"c{at}", "gone") for at in range(2)]
    rounds: list[Message] = []
    for call, block in zip(calls, blocks, strict=True):
        rounds += [("assistant", [call]), ("user", [block])]
    assert broken("V5", record(1, claude([HI, *rounds], tools=[tool("search")]))) == []
    assert len(broken("V5", record(1, claude([HI, *rounds[2:]], tools=[tool("search")])))) == 1


def test_v5_of_one_route_only_is_told() -> None:
    other = record(1, calling("gone", "said"), route="other")
    own = record(2, claude([HI], tools=[tool("search")]))
    assert broken("V5", own, among=[other, own]) == []


def turns(*messages: Message) -> bytes:
    return claude(messages, tools=[tool("search")], system=[marked(text("static"))])


SUMMARY: Message = ("user", [text("summary"), text("go on")])


def test_v9_a_break_that_nobody_answered_counts_once() -> None:
    start = record(1, turns(HI))
    failed = record(2, turns(SUMMARY), breaks=[("compaction", "messages")], status="failed")
    again = record(3, turns(SUMMARY), breaks=[("compaction", "messages")])
    assert broken("V9", start, failed, again) == []
    answered = record(2, turns(SUMMARY), breaks=[("compaction", "messages")])
    assert len(broken("V9", start, answered, again)) == 1


@pytest.mark.parametrize(("at", "number"), [("settings", 0), ("messages", 1)])
def test_v3_settings_stand_in_front_of_everything(at: str, number: int) -> None:
    before = record(1, claude([HI], tools=[tool("search")], system=[text("static")]))
    after = record(
        2,
        claude([HI], tools=[tool("search")], system=[text("other")]),
        breaks=[("downgrade", at)],
    )
    assert len(broken("V3", before, after)) == number
    assert len(broken("V2", before, after)) == number


def test_reasoning_that_the_provider_strips_is_a_declared_miss() -> None:
    # 1: tools 300, static 300, user 100, thinking, call 40, result 40: the thinking shares what
    # is left of the prompt, 60. 2: the same bytes; the provider reads up to the user message.
    thought: Json = {"type": "thinking", "thinking": "", "signature": "s" * 40}
    rounds: list[Message] = [
        ("user", [marked(text("question"))]),
        ("assistant", [thought, use("c", "search")]),
        ("user", [marked(result("c"))]),
    ]
    head: Json = {"tools": [tool("search", 300)], "system": [text("static", 300)]}
    first = record(1, claude(rounds, **head), 840, 0)
    later: list[Message] = [
        *rounds,
        ("assistant", [text("answer")]),
        ("user", [marked(text("next"))]),
    ]
    stripped = [("reasoning stripped", "messages")]
    for breaks, miss in (
        (stripped, Miss(True, "reasoning stripped", "messages")),
        ([], Miss(False, "provider", "messages[2].content[0]")),
    ):
        second = record(2, claude(later, **head), 980, 700, breaks=breaks)
        row = judge([first, second], CLAUDE, count).requests[1]
        assert (row.expected, row.cache_read, row.miss) == (840, 700, miss)
    assert judge(
        [first, record(2, claude(later, **head), 980, 600, breaks=stripped)], CLAUDE, count
    )
