"""Claude's rules: what is expected at marks, with figures worked out by hand."""

from __future__ import annotations

import pytest
from tests.cache.captures import (
    CLAUDE,
    HOUR,
    Json,
    Message,
    addition,
    claude,
    count,
    inline,
    marked,
    record,
    result,
    text,
    tool,
    use,
)

from addendum import encoding
from addendum.cache.figures import Miss, judge
from addendum.cache.rules import CacheRules

TOOLS = [marked(tool("search", 300))]
STATIC = [marked(text("static", 300))]
# The head is 300 + 300 = 600 tokens, and both of its ends carry a mark.


def request(messages: list[Message], **more: object) -> bytes:
    return claude(messages, tools=TOOLS, system=STATIC, **more)


def first() -> bytes:
    # 600 + 100 = 700 tokens, marked at the end.
    return request([("user", [marked(text("hi"))])])


def test_the_next_request_reads_all_of_the_one_before() -> None:
    # The end mark moved on: the old one is one block back from nothing but two new blocks.
    second = request(
        [
            ("user", [text("hi")]),
            ("assistant", [text("hello", 50)]),
            ("user", [marked(text("more", 80))]),
        ]
    )
    report = judge([record(1, first(), 700, 0), record(2, second, 830, 700)], CLAUDE, count)
    one, two = report.requests
    assert (one.expected, one.ceiling, one.miss, one.base) == (0, 0, None, None)
    assert (two.expected, two.ceiling, two.miss, two.base) == (700, 700, None, 1)
    assert not two.estimated
    assert report.totals.expected_share == report.totals.ceiling_share == 1.0
    assert report.totals.share == 700 / 1530


@pytest.mark.parametrize(("more", "read", "missed"), [(19, 700, False), (20, 600, True)])
def test_lookback_is_exactly_reached_or_exceeded_by_one(more: int, read: int, missed: bool) -> None:
    # `more` blocks of 10 tokens behind the old end mark, the last of them marked. The old mark is
    # then more + 1 positions back, both counted: 20 is within the lookback, 21 is not, and the
    # mark at the end of the static block (600) is the next one found.
    blocks = [text(f"{at}", 10) for at in range(more)]
    blocks[-1] = marked(blocks[-1])
    second = request(
        [
            ("user", [text("hi")]),
            ("assistant", blocks[:1]),
            ("user", blocks[1:]),
        ]
    )
    prompt = 700 + 10 * more
    report = judge([record(1, first(), 700, 0), record(2, second, prompt, read)], CLAUDE, count)
    row = report.requests[1]
    assert row.expected == 700
    if missed:
        assert row.miss == Miss(
            False,
            "the stored prefix is 21 positions back, the lookback is 20",
            "messages[0].content[0]",
        )
    else:
        assert row.miss is None
    assert report.totals.undeclared_misses == int(missed)


def test_a_second_mark_at_the_old_end_keeps_it_in_reach() -> None:
    blocks = [text(f"{at}", 10) for at in range(40)]
    blocks[-1] = marked(blocks[-1])
    second = request(
        [
            ("user", [marked(text("hi"))]),
            ("assistant", blocks[:1]),
            ("user", blocks[1:]),
        ]
    )
    # 700 + 400: nothing was read although a mark stands right at the stored prefix.
    report = judge([record(1, first(), 700, 0), record(2, second, 1100, 0)], CLAUDE, count)
    miss = report.requests[1].miss
    assert miss is not None and miss.reason == "provider"


def test_a_run_of_calls_and_a_run_of_results_are_one_position_each() -> None:
    calls = [use(f"c{at}", "search") for at in range(25)]
    results = [result(f"c{at}") for at in range(25)]
    results[-1] = marked(results[-1])
    second = request([("user", [text("hi")]), ("assistant", calls), ("user", results)])
    # 700 + 25 x 40 + 25 x 40 = 2,700; three positions back, so the loss is the provider's.
    report = judge([record(1, first(), 700, 0), record(2, second, 2700, 0)], CLAUDE, count)
    miss = report.requests[1].miss
    assert miss is not None and miss.reason == "provider"


@pytest.mark.parametrize(("tokens", "expected"), [(511, 0), (512, 512)])
def test_the_minimum(tokens: int, expected: int) -> None:
    one = claude([("user", [marked(text("hi", tokens))])])
    two = claude(
        [
            ("user", [text("hi", tokens)]),
            ("assistant", [text("a", 20)]),
            ("user", [marked(text("b", 20))]),
        ]
    )
    records = [record(1, one, tokens, 0), record(2, two, tokens + 40, 0)]
    row = judge(records, CLAUDE, count).requests[1]
    assert row.expected == expected
    assert (row.miss is None) == (expected == 0)


def test_only_what_is_marked_is_stored() -> None:
    # The mark stands on the first of two blocks: 600 + 60, not the 700 of the whole prompt.
    one = request([("user", [marked(text("a", 60)), text("b", 40)])])
    two = request(
        [
            ("user", [text("a", 60), text("b", 40)]),
            ("assistant", [text("c", 40)]),
            ("user", [marked(text("d", 40))]),
        ]
    )
    row = judge([record(1, one, 700, 0), record(2, two, 780, 660)], CLAUDE, count).requests[1]
    assert (row.expected, row.miss) == (660, None)


@pytest.mark.parametrize(
    ("age", "mark", "expected"),
    [(299, None, 700), (300, None, 0), (3599, HOUR, 700), (3600, HOUR, 0)],
)
def test_lifetime(age: int, mark: Json | None, expected: int) -> None:
    kind = mark or {"type": "ephemeral"}
    tools = [marked(tool("search", 300), kind)]
    static = [marked(text("static", 300), kind)]
    one = claude([("user", [marked(text("hi"), kind)])], tools=tools, system=static)
    two = claude(
        [
            ("user", [text("hi")]),
            ("assistant", [text("a", 50)]),
            ("user", [marked(text("b", 50), kind)]),
        ],
        tools=tools,
        system=static,
    )
    records = [
        record(1, one, 700, 0, time_sent=1000.0, time_answered=1010.0),
        record(2, two, 800, 0, time_sent=1000.0 + age),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    # The lifetime counts from the start of the request. What still lives and is not read is the
    # provider's loss; what has ended is expected of nobody.
    assert row.expected == expected
    assert row.base == (1 if expected else None)
    assert (row.miss.reason if row.miss else None) == ("provider" if expected else None)


def test_a_longer_mark_in_front_outlives_the_one_at_the_end() -> None:
    tools = [marked(tool("search", 300), HOUR)]
    static = [marked(text("static", 300), HOUR)]
    messages: list[Message] = [("user", [marked(text("hi"))])]
    one = claude(messages, tools=tools, system=static)
    records = [record(1, one, 700, 0, time_sent=0.0), record(2, one, 700, 600, time_sent=400.0)]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.expected, row.miss) == (600, None)


@pytest.mark.parametrize(
    ("marks", "miss"),
    [
        # Stored by the first request, and renewed by the second.
        (True, Miss(False, "provider", "tools[0]")),
        # The second request read beyond its tools mark: there it stored nothing.
        (False, Miss(True, "prompt rewritten", "system")),
    ],
)
def test_a_mark_within_what_was_read_stores_nothing_anew(marks: bool, miss: Miss) -> None:
    search = tool("search", 600)
    hi: Message = ("user", [text("hi")])
    more: list[Message] = [hi, ("assistant", [text("a")]), ("user", [marked(text("b"))])]
    one = claude(
        [("user", [marked(text("hi"))])],
        tools=[marked(search) if marks else search],
        system=STATIC,
    )
    two = claude(more, tools=[marked(search)], system=STATIC)
    three = claude(more, tools=[marked(search)], system=[marked(text("other", 300))])
    records = [record(1, one, 1000, 0), record(2, two, 1200, 1000)]
    last = record(3, three, 1200, 0, breaks=[("prompt rewritten", "system")])
    row = judge([*records, last], CLAUDE, count).requests[2]
    assert (row.expected, row.ceiling, row.miss) == (1200, 600 if marks else 0, miss)
    # Of what went before a request nothing may be known: then its marks stored what they say.
    row = judge([records[1], last], CLAUDE, count).requests[1]
    assert (row.expected, row.ceiling) == (1200, 600)


def test_a_request_that_was_not_answered_yet_is_no_base() -> None:
    records = [
        record(1, first(), 700, 0, time_sent=0.0, time_answered=9.0),
        record(2, first(), 700, 0, time_sent=5.0, time_answered=14.0, session="t"),
        record(3, first(), 700, 0, time_sent=8.0, time_answered=17.0, session="u"),
        record(4, first(), 700, 600, time_sent=9.0, session="v"),
    ]
    rows = judge(records, CLAUDE, count).requests
    assert [row.base for row in rows] == [None, None, None, 1]
    assert [row.expected for row in rows] == [0, 0, 0, 600]


def test_moved_tail() -> None:
    # Turn 1: head 600, tail 20, user 100: 720. In front of the tail only the head is marked.
    one = request([("user", [text("TAIL1", 20), marked(text("hi"))])])
    # Turn 2: head 600, user 100, answer 40 (history end, marked), tail 20, user 60: 820.
    history: list[Message] = [("user", [text("hi")]), ("assistant", [marked(text("yes", 40))])]
    two = request([*history, ("user", [text("TAIL2", 20), marked(text("go", 60))])])
    # The same turn's tool loop: 820 + call 40 + result 40 = 900. The tail stays where it is.
    loop = request(
        [
            *history,
            ("user", [text("TAIL2", 20), text("go", 60)]),
            ("assistant", [use("c1", "search")]),
            ("user", [marked(result("c1"))]),
        ]
    )
    # Turn 3: 600 + 100 + 40 + 60 + 40 + 40 + answer 30 (marked) + tail 20 + user 50 = 980.
    three = request(
        [
            ("user", [text("hi")]),
            ("assistant", [text("yes", 40)]),
            ("user", [text("go", 60)]),
            ("assistant", [use("c1", "search")]),
            ("user", [result("c1")]),
            ("assistant", [marked(text("done", 30))]),
            ("user", [text("TAIL3", 20), marked(text("bye", 50))]),
        ]
    )

    def tail(word: str) -> dict[str, str]:
        return {"tail": "moved", "tail_text": word}

    records = [
        record(1, one, 720, 0, turn=1, **tail("TAIL1")),
        record(2, two, 820, 600, turn=2, **tail("TAIL2")),
        record(3, loop, 900, 820, turn=2, **tail("TAIL2")),
        record(4, three, 980, 740, turn=3, **tail("TAIL3")),
    ]
    report = judge(records, CLAUDE, count)
    # Across turns up to the history end in front of the tail: 600, and of the loop 740
    # (600 + 100 + 40); within turn 2 all of it: 820.
    assert [row.expected for row in report.requests] == [0, 600, 820, 740]
    assert report.totals.misses == 0 and not any(row.estimated for row in report.requests)

    lost = [*records[:2], record(3, loop, 900, 740, turn=2, **tail("TAIL2"))]
    assert judge(lost, CLAUDE, count).totals.misses == 1


def test_scoped_tail_is_behind_the_mark_and_then_in_no_prefix() -> None:
    # 600 + user 100 (marked) + scoped 20 = 720; then the scoped message renders nothing:
    # 600 + 100 + call 40 + result 40 (marked) + its own copy 20 = 800.
    scoped = ("scoped", [text("be brief", 20)])
    one = request([("user", [marked(text("hi"))]), scoped])
    two = request(
        [
            ("user", [text("hi")]),
            scoped,
            ("assistant", [use("c1", "search")]),
            ("user", [marked(result("c1"))]),
            scoped,
        ]
    )
    records = [
        record(1, one, 720, 0, turn=1, tail="scoped", tail_text="be brief"),
        record(2, two, 800, 700, turn=1, tail="scoped", tail_text="be brief"),
    ]
    report = judge(records, CLAUDE, count)
    assert report.requests[1].expected == 700
    assert report.totals.misses == 0


def test_a_mark_behind_a_live_scoped_tail_is_expected_of_nobody() -> None:
    # The addition behind the scoped tail is marked, but its prefix holds what is cleared next:
    # of 600 + 100 (marked) + 20 + the addition, 700 can be read again.
    change = inline(tool("deploy", 40))
    one = request(
        [
            ("user", [marked(text("hi"))]),
            ("scoped", [text("be brief", 20)]),
            ("system", [marked(change)]),
        ]
    )
    two = request(
        [
            ("user", [text("hi")]),
            ("scoped", [text("be brief", 20)]),
            ("system", [change]),
            ("assistant", [text("a", 40)]),
            ("user", [marked(text("b", 40))]),
        ]
    )
    added = len(encoding.encode(change)) // 4
    records = [
        record(1, one, 720 + added, 0, turn=1, tail="scoped"),
        record(2, two, 780 + added, 700, turn=1, tail="scoped"),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.expected, row.miss) == (700, None)


def test_a_deferred_entry_lies_outside_and_its_addition_inside() -> None:
    # One request with a deferred placeholder: hidden text of 200 is there from the start.
    placeholder = tool("later", 30, defer_loading=True)
    one = claude([("user", [marked(text("hi"))])], tools=[*TOOLS, placeholder], system=STATIC)
    deploy = tool("deploy", 60, defer_loading=True)
    two = claude(
        [
            ("user", [text("hi")]),
            ("system", [addition("deploy")]),
            ("assistant", [text("a", 40)]),
            ("user", [marked(text("b", 40))]),
        ],
        tools=[*TOOLS, placeholder, deploy],
        system=STATIC,
    )
    first_prompt = 200 + 700
    records = [record(1, one, first_prompt, 0), record(2, two, 1100, first_prompt)]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.expected, row.miss) == (900, None)


def test_the_first_deferred_tool_without_a_placeholder_is_an_undeclared_miss() -> None:
    two = claude(
        [
            ("user", [text("hi")]),
            ("system", [addition("deploy")]),
            ("assistant", [text("a", 40)]),
            ("user", [marked(text("b", 40))]),
        ],
        tools=[*TOOLS, tool("deploy", 60, defer_loading=True)],
        system=STATIC,
    )
    report = judge([record(1, first(), 700, 0), record(2, two, 1000, 0)], CLAUDE, count)
    assert report.requests[1].miss == Miss(False, "settings changed: deferral", "settings")
    assert report.totals.undeclared_misses == 1


def test_a_new_conversation_reads_the_head_of_the_latest_one() -> None:
    def opening(word: str) -> bytes:
        return claude(
            [("user", [marked(text(word))])],
            tools=TOOLS,
            system=[*STATIC, marked(text(f"for {word}", 50))],
        )

    records = [
        record(1, opening("anna"), 750, 0, session="a"),
        record(2, opening("bert"), 750, 600, session="b"),
        record(3, opening("carl"), 750, 0, session="c"),
    ]
    report = judge(records, CLAUDE, count)
    # Cut at the end of the static block: the conversation's own block (50) is not expected.
    assert [row.expected for row in report.requests] == [0, 600, 600]
    assert [row.base for row in report.requests] == [None, 1, 2]
    assert [row.miss.reason if row.miss else None for row in report.requests] == [
        None,
        None,
        "provider",
    ]


def test_a_head_whose_bytes_drift_between_conversations_is_an_undeclared_miss() -> None:
    other = claude(
        [("user", [marked(text("hi"))])],
        tools=[marked(tool("search", 300, strict=True))],
        system=STATIC,
    )
    told_by_log = [
        record(1, first(), 700, 0, session="a", head="h"),
        record(2, other, 700, 0, session="b", head="h"),
    ]
    row = judge(told_by_log, CLAUDE, count).requests[1]
    assert row.expected == 600
    assert row.miss == Miss(False, "the bytes differ", "tools[0]")

    told_by_bytes = [
        record(1, first(), 700, 0, session="a"),
        record(2, other, 700, 0, session="b"),
    ]
    assert judge(told_by_bytes, CLAUDE, count).requests[1].expected == 0


def test_rules_that_cache_nothing_expect_nothing() -> None:
    records = [record(1, first(), 700, 0), record(2, first(), 700, 0)]
    report = judge(records, CacheRules("none"), count)
    assert report.totals.expected == report.totals.misses == 0
