"""Breaks, declared and not, and the sums over a conversation; figures worked out by hand."""

from __future__ import annotations

import msgspec
import pytest
from tests.cache.captures import (
    CLAUDE,
    Json,
    Message,
    claude,
    count,
    marked,
    record,
    text,
    tool,
)

from addendum import encoding
from addendum.cache.figures import Miss, judge, totals
from addendum.cache.record import RequestRecord
from addendum.errors import ConfigurationError, ContentError
from addendum.log.events import Usage

SEARCH = tool("search", 300)
STATIC = [marked(text("static", 300))]


def turns(number: int, *, tools: list[Json] | None = None, **more: object) -> bytes:
    """A request of turn `number`: head 600, then 100 a user message and 100 an answer."""
    messages: list[Message] = []
    for turn in range(1, number + 1):
        messages.append(("user", [text(f"user {turn}")]))
        messages.append(("assistant", [text(f"answer {turn}")]))
    messages[-1:] = []
    messages[-1] = ("user", [marked(text(f"user {number}"))])
    listed = tools or [SEARCH]
    declared = [*listed[:-1], marked(listed[-1])]
    return claude(messages, tools=declared, system=STATIC, **more)


def test_compaction_and_two_more_requests_are_one_declared_miss() -> None:
    # 1: 600 + 100 = 700. 2: 900. 3, the compaction request: the prefix and an instruction of
    # 100: 1,100. 4: head 600, summary 150, user 50 = 800. 5: 4 + 100 + 100. 6: 5 + 100 + 100.
    ask = claude(
        [
            ("user", [text("user 1")]),
            ("assistant", [text("answer 1")]),
            ("user", [text("user 2")]),
            ("assistant", [text("answer 2")]),
            ("user", [marked(text("summarise"))]),
        ],
        tools=[marked(SEARCH)],
        system=STATIC,
    )
    carried: list[Message] = [("user", [text("summary", 150)]), ("user", [text("go on", 50)])]

    def after(more: int) -> bytes:
        messages = [*carried]
        for turn in range(more):
            messages.append(("assistant", [text(f"later answer {turn}")]))
            messages.append(("user", [text(f"later user {turn}")]))
        role, blocks = messages[-1]
        messages[-1] = (role, [marked(blocks[0])])
        return claude(messages, tools=[marked(SEARCH)], system=STATIC)

    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), 900, 700),
        record(3, ask, 1100, 900, turn=2, purpose="compaction"),
        record(4, after(0), 800, 600, turn=3, breaks=[("compaction", "messages")]),
        record(5, after(1), 1000, 800),
        record(6, after(2), 1200, 1000),
    ]
    report = judge(records, CLAUDE, count)
    # 4 could have read its base's 1,100, at most its own 800; the break leaves the head, 600.
    assert [row.expected for row in report.requests] == [0, 700, 900, 800, 800, 1000]
    assert [row.ceiling for row in report.requests] == [0, 700, 900, 600, 800, 1000]
    assert [row.miss for row in report.requests if row.miss] == [
        Miss(True, "compaction", "messages")
    ]
    assert report.totals.misses == 1 and report.totals.undeclared_misses == 0
    assert report.totals.broken_tokens == 200
    assert report.totals.ceiling_share == 1.0
    # Expected 0 + 700 + 900 + 800 + 800 + 1,000 = 4,200, of which 200 were not read.
    assert report.totals.expected_share == 4000 / 4200


def test_the_same_bytes_without_the_declaration_are_an_undeclared_miss() -> None:
    other = claude(
        [("user", [text("summary", 150)]), ("user", [marked(text("go on", 50))])],
        tools=[marked(SEARCH)],
        system=STATIC,
    )
    report = judge([record(1, turns(1), 700, 0), record(2, other, 800, 600)], CLAUDE, count)
    assert report.requests[1].miss == Miss(False, "the bytes differ", "messages[0].content[0]")
    assert report.totals.undeclared_misses == 1
    assert report.totals.ceiling_share == 600 / 700


def test_a_declared_break_does_not_excuse_what_lies_in_front_of_it() -> None:
    # Declared is a rewind in the messages, but the static block changed as well.
    changed = claude(
        [("user", [marked(text("another"))])],
        tools=[marked(SEARCH)],
        system=[marked(text("static, with the date", 300))],
    )
    records = [
        record(1, turns(2), 900, 0),
        record(2, changed, 700, 0, breaks=[("rewind", "messages")]),
    ]
    report = judge(records, CLAUDE, count)
    row = report.requests[1]
    assert (row.expected, row.ceiling) == (700, 600)
    assert row.miss == Miss(False, "the bytes differ", "system[0]")


def test_the_provider_may_lose_what_a_declared_break_left() -> None:
    rewound = claude([("user", [marked(text("another"))])], tools=[marked(SEARCH)], system=STATIC)
    records = [
        record(1, turns(2), 900, 0),
        record(2, rewound, 700, 0, breaks=[("rewind", "messages")]),
    ]
    report = judge(records, CLAUDE, count)
    assert report.requests[1].miss == Miss(False, "provider", "system[0]")
    # Expected 700, ceiling 600: 100 are the break's, 600 the provider's.
    assert (report.totals.broken_tokens, report.totals.provider_tokens) == (100, 600)
    assert report.totals.undeclared_misses == 0


def test_a_rewind_may_say_from_which_message_on_it_breaks() -> None:
    # Three turns are 600 + 300 + 200 = 1,100, marked at the end only; the rewind keeps turn 1.
    # Told from messages[2] on, the base still has no mark between the head and its end: 600.
    kept = claude(
        [
            ("user", [text("user 1")]),
            ("assistant", [text("answer 1")]),
            ("user", [marked(text("another"))]),
        ],
        tools=[marked(SEARCH)],
        system=STATIC,
    )
    records = [
        record(1, turns(3), 1100, 0),
        record(2, kept, 900, 600, breaks=[("rewind", "messages[2]")]),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.expected, row.ceiling) == (900, 600)
    assert row.miss == Miss(True, "rewind", "messages[2]")


def test_what_the_provider_loses_is_left_out_of_the_shares() -> None:
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), 900, 0),
        record(3, turns(3), 1100, 900),
    ]
    report = judge(records, CLAUDE, count)
    assert report.requests[1].miss == Miss(False, "provider", "messages[0].content[0]")
    assert report.totals.expected == 1600 and report.totals.provider_tokens == 700
    assert report.totals.expected_share == report.totals.ceiling_share == 1.0
    assert (report.totals.misses, report.totals.provider_misses) == (1, 1)
    assert report.totals.undeclared_misses == 0
    assert report.totals.share == 900 / 2700


def test_a_break_that_is_not_in_the_bytes_can_be_declared() -> None:
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), 900, 0, breaks=[("reasoning stripped", "none")]),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.ceiling, row.miss) == (0, Miss(True, "reasoning stripped", "none"))


def test_a_changed_setting_is_named() -> None:
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2, thinking={"type": "adaptive"}), 900, 600),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert row.miss == Miss(False, "settings changed: thinking", "settings")


def test_of_several_declared_breaks_the_first_in_cache_order_counts() -> None:
    changed = turns(2, tools=[SEARCH, tool("more", 50)])
    records = [
        record(1, turns(1), 700, 0),
        record(2, changed, 950, 0, breaks=[("rewind", "messages"), ("rebinding", "tools")]),
    ]
    assert judge(records, CLAUDE, count).requests[1].miss == Miss(True, "rebinding", "tools")


def test_a_break_that_the_bytes_do_not_show_leaves_the_ceiling_where_it_was() -> None:
    # Declared from the tools on, but the list came out the same: nothing is excused.
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), 900, 0, breaks=[("rebinding", "tools")]),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.expected, row.ceiling) == (700, 700)
    assert row.miss is not None and row.miss.reason == "provider"


@pytest.mark.parametrize(("added", "read", "ceiling"), [(19, 700, 700), (20, 600, 600)])
def test_what_agrees_behind_a_declared_break_counts_as_far_as_it_is_found(
    added: int, read: int, ceiling: int
) -> None:
    # The same text is said again after a rewind; its end is added + 1 positions from the mark.
    told = [text(f"tool {at}") for at in range(added)]
    messages: list[Message] = [
        ("user", [text("user 1")]),
        ("system", [*told[:-1], marked(told[-1])]),
    ]
    again = claude(messages, tools=[marked(SEARCH)], system=STATIC)
    prompt = 700 + 100 * added
    records = [
        record(1, turns(1), 700, 0),
        record(2, again, prompt, read, breaks=[("rewind", "messages[0]")]),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.expected, row.ceiling) == (700, ceiling)
    assert row.miss == (None if read == 700 else Miss(True, "rewind", "messages[0]"))
    # What is found and not read is no matter of the break.
    records[1] = record(2, again, prompt, 0, breaks=[("rewind", "messages[0]")])
    row = judge(records, CLAUDE, count).requests[1]
    assert row.miss is not None and (row.miss.declared, row.miss.reason) == (False, "provider")


def test_with_the_last_deferred_tool_the_hidden_text_in_front_goes_too() -> None:
    with_it = turns(1, tools=[tool("later", 60, defer_loading=True), SEARCH])
    records = [
        record(1, with_it, 900, 0),
        record(2, turns(2), 900, 0, breaks=[("removal", "tools")]),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.ceiling, row.miss) == (0, Miss(True, "removal", "tools"))


def toggles(*, declared: bool) -> list[RequestRecord]:
    """Six turns; a server of 500 tokens is bound in turns 3 and 4, by a new tool list.

    Prompts: 700, 900, 900 + 200 + 500 = 1,600, 1,800, 1,800 + 200 - 500 = 1,500, 1,700. With a
    new list nothing can be read, not even the head: its first mark is at the end of the tools.
    """
    server = tool("server", 500)
    found: list[RequestRecord] = []
    prompts = [700, 900, 1600, 1800, 1500, 1700]
    reads = [0, 700, 0, 1600, 0, 1500]
    for turn in range(1, 7):
        bound = [SEARCH, server] if turn in (3, 4) else [SEARCH]
        found.append(
            record(
                turn,
                turns(turn, tools=bound),
                prompts[turn - 1],
                reads[turn - 1],
                strategy="rebind",
                breaks=[("rebinding", "tools")] if declared and turn in (3, 5) else (),
            )
        )
    return found


def test_rebinding_reads_far_less_than_expected_and_says_so() -> None:
    report = judge(toggles(declared=True), CLAUDE, count)
    # Expected 0 + 700 + 900 + 1,600 + 1,500 (its own prompt) + 1,500 = 6,200; read 3,800.
    assert [row.expected for row in report.requests] == [0, 700, 900, 1600, 1500, 1500]
    assert [row.ceiling for row in report.requests] == [0, 700, 0, 1600, 0, 1500]
    assert report.totals.expected_share == 3800 / 6200 < 0.95
    assert report.totals.ceiling_share == 1.0
    assert report.totals.broken_tokens == 2400
    assert (report.totals.misses, report.totals.undeclared_misses) == (2, 0)
    assert report.totals.share == 3800 / 8200


def test_rebinding_in_silence_is_undeclared() -> None:
    report = judge(toggles(declared=False), CLAUDE, count)
    assert (report.totals.misses, report.totals.undeclared_misses) == (2, 2)
    assert report.totals.ceiling_share == 3800 / 6200
    # The list got longer behind `search`, then shorter again.
    assert [row.miss.at for row in report.requests if row.miss] == ["tools[1]", "system[0]"]


def test_unknown_usage_stays_unknown() -> None:
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), 900, None),
        record(3, turns(3), None, None),
        record(4, turns(4), 1300, 1100),
        record(5, turns(5), 1500, 1300),
    ]
    report = judge(records, CLAUDE, count)
    two, three, four, five = report.requests[1:]
    assert (two.cache_read, two.expected, two.miss) == (None, 700, None)
    assert (three.prompt_tokens, three.expected, three.ceiling) == (None, None, None)
    # The base of 4 has no known tokens, so nothing is known to be expected of 4.
    assert (four.expected, four.miss) == (None, None)
    assert (five.expected, five.miss) == (1300, None)
    assert report.totals.unknown == 3 and report.totals.requests == 5
    # Sums are those of requests 1 and 5.
    assert (report.totals.prompt_tokens, report.totals.cache_read) == (2200, 1300)


def test_where_nothing_is_known_no_share_is_made_up() -> None:
    found = judge([record(1, turns(1), 700, None)], CLAUDE, count).totals
    assert found.share is None
    assert found.expected_share is None and found.ceiling_share is None
    assert found.unknown == 1


def test_a_failed_request_has_no_row_and_is_no_base() -> None:
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), status="failed"),
        record(3, turns(2), 900, 700),
    ]
    report = judge(records, CLAUDE, count)
    assert [row.n for row in report.requests] == [1, 3]
    assert report.requests[1].base == 1 and report.totals.unknown == 0


def test_other_routes_are_no_base() -> None:
    records = [
        record(1, turns(1), 700, 0),
        record(2, turns(2), 900, 0, route="other"),
        record(3, turns(3), 1100, 700),
    ]
    assert [row.base for row in judge(records, CLAUDE, count).requests] == [None, None, 1]


def test_without_a_counting_rule_inner_boundaries_are_estimated_and_flagged() -> None:
    # The head is 600 of 1,100 by bytes. What is reported may differ from an estimate by a third
    # of its nearer side (500 / 3 = 166) before it is called a miss.
    rewound = claude([("user", [marked(text("another"))])], tools=[marked(SEARCH)], system=STATIC)

    def rows(read: int) -> Json:
        records = [
            record(1, turns(3), 1100, 0),
            record(2, rewound, 800, read, breaks=[("rewind", "messages")]),
        ]
        return msgspec.to_builtins(judge(records, CLAUDE).requests[1])

    near = rows(580)
    assert (near["ceiling"], near["estimated"]) == (600, True)
    assert near["miss"] == {"declared": True, "reason": "rewind", "at": "messages"}
    assert rows(400)["miss"]["reason"] == "provider"


def test_the_end_of_a_prompt_is_exact_without_a_counting_rule() -> None:
    records = [record(1, turns(1), 707, 0), record(2, turns(2), 909, 706)]
    row = judge(records, CLAUDE).requests[1]
    assert (row.expected, row.estimated) == (707, False)
    assert row.miss is not None


def test_what_was_read_and_written_says_where_the_last_mark_is() -> None:
    # The last mark stands in front of a last block; by bytes it would be at 660 of 700.
    one = claude(
        [("user", [marked(text("a", 60)), text("b", 40)])], tools=[marked(SEARCH)], system=STATIC
    )
    two = claude(
        [
            ("user", [text("a", 60), text("b", 40)]),
            ("assistant", [text("c", 40)]),
            ("user", [marked(text("d", 40))]),
        ],
        tools=[marked(SEARCH)],
        system=STATIC,
    )
    records = [record(1, one, 750, 100, written=571), record(2, two, 830, 671, written=159)]
    row = judge(records, CLAUDE).requests[1]
    assert (row.expected, row.estimated, row.miss) == (671, False, None)


def test_hidden_text_stands_in_front_and_keeps_boundaries_exact() -> None:
    # The provider counts 25 tokens that no segment shows, the same in each request.
    rewound = claude([("user", [marked(text("another"))])], tools=[marked(SEARCH)], system=STATIC)
    records = [
        record(1, turns(2), 925, 0),
        record(2, rewound, 725, 625, breaks=[("rewind", "messages")]),
    ]
    row = judge(records, CLAUDE, count).requests[1]
    assert (row.ceiling, row.estimated) == (625, False)


def test_reasoning_is_uncountable_and_only_what_it_touches_is_estimated() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": "x" * 400}
    one = claude(
        [
            ("user", [text("user 1")]),
            ("assistant", [thinking, text("answer 1")]),
            ("user", [marked(text("user 2"))]),
        ],
        tools=[marked(SEARCH)],
        system=STATIC,
    )
    rewound = claude([("user", [marked(text("another"))])], tools=[marked(SEARCH)], system=STATIC)
    # A first request of 700 says that nothing is hidden, so the 937 - 900 are the reasoning's.
    records = [
        record(1, turns(1), 700, 0),
        record(2, one, 937, 700),
        record(3, rewound, 700, 600, breaks=[("rewind", "messages")]),
    ]
    row = judge(records, CLAUDE, count).requests[2]
    assert (row.expected, row.ceiling, row.estimated) == (700, 600, False)


def test_the_report_is_what_the_command_line_prints() -> None:
    report = judge([record(1, turns(1), 700, 0), record(2, turns(2), 900, 0)], CLAUDE, count)
    printed = encoding.decode(encoding.encode(report))
    assert list(printed) == ["requests", "totals"]
    row = printed["requests"][1]
    assert {
        "n": 2,
        "turn": 2,
        "prompt_tokens": 900,
        "cache_read": 0,
        "cache_write": None,
        "expected": 700,
        "ceiling": 700,
    }.items() <= row.items()
    assert row["miss"] == {
        "declared": False,
        "reason": "provider",
        "at": "messages[0].content[0]",
    }
    wanted = "requests prompt_tokens cache_read expected ceiling share expected_share"
    wanted += " ceiling_share broken_tokens misses undeclared_misses provider_tokens"
    assert set(wanted.split()) <= set(printed["totals"])


def test_totals_of_some_rows() -> None:
    rows = judge(toggles(declared=True), CLAUDE, count).requests
    assert totals(rows[3:4]).expected_share == 1.0
    assert totals(()).share is None


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no segments for wire 'smoke'"):
        judge([record(1, b"{}", 1, 0, wire="smoke")], CLAUDE)
    with pytest.raises(ContentError, match="JSON object"):
        judge([record(1, b"[]", 1, 0)], CLAUDE)
    empty = RequestRecord(1, 1, "s", "r", "anthropic_messages", b"{}", Usage(prompt=0))
    assert judge([empty], CLAUDE).totals.unknown == 1
