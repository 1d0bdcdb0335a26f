"""V1 to V3, V9 and V10: rules between the requests of a conversation."""

from __future__ import annotations

import pytest
from tests.cache.captures import (
    CLAUDE,
    DEEPSEEK,
    GPT56,
    Json,
    Message,
    addition,
    chat,
    claude,
    inline,
    marked,
    record,
    result,
    text,
    tool,
    use,
)

from addendum.cache.invariants import RULES, check
from addendum.cache.record import RequestRecord

SEARCH = tool("search")
DEPLOY = tool("deploy")
STATIC = [marked(text("static"))]


def body(*messages: Message, tools: list[Json] | None = None, system: list[Json] | None = None,
         **more: object) -> bytes:  # fmt: skip
    """A body with a mark on its last block."""
    role, blocks = messages[-1]
    ended: list[Message] = [*messages[:-1], (role, [*blocks[:-1], marked(blocks[-1])])]
    declared = tools or [SEARCH]
    return claude(
        ended,
        tools=[*declared[:-1], marked(declared[-1])],
        system=STATIC if system is None else system,
        **more,
    )


HI: Message = ("user", [text("hi")])
HELLO: Message = ("assistant", [text("hello")])
MORE: Message = ("user", [text("more")])
YES: Message = ("assistant", [text("yes")])
LAST: Message = ("user", [text("last")])

ONE = body(HI)
TWO = body(HI, HELLO, MORE)
THREE = body(HI, HELLO, MORE, YES, LAST)


def broken(records: list[RequestRecord], rule: str, rules: object = CLAUDE) -> list[str]:
    """`n path: text` of each violation of one rule."""
    found = check(records, rules, [rule])  # type: ignore[arg-type]
    assert all(each.rule == rule for each in found)
    return [f"{each.n} {each.path}: {each.text}" for each in found]


def test_a_conversation_that_grows_breaks_nothing() -> None:
    records = [record(1, ONE), record(2, TWO), record(3, THREE)]
    assert check(records, CLAUDE) == ()
    assert set(RULES) == {"V1", "V2", "V3", "V4", "V5", "V6", "V7", "V9", "V10"}


def test_violations_come_by_request() -> None:
    other = body(HI, tools=[DEPLOY], system=[text("else")])
    found = check([record(1, ONE), record(2, other), record(3, ONE)], CLAUDE)
    assert [(each.n, each.rule) for each in found] == [
        (2, "V1"),
        (2, "V2"),
        (2, "V3"),
        (3, "V1"),
        (3, "V2"),
        (3, "V3"),
    ]


# V1 ---------------------------------------------------------------------------------------------


def test_v1_tools_stay_within_an_epoch() -> None:
    new = body(HI, HELLO, MORE, tools=[SEARCH, DEPLOY])
    problem = "2 tools[1]: the declared tools differ from the request before"
    assert broken([record(1, ONE), record(2, new)], "V1") == [problem]
    gone = [record(1, new), record(2, ONE)]
    assert broken(gone, "V1") == ["2 tools: the declared tools differ from the request before"]
    declared = record(2, new, breaks=[("rebinding", "tools")], strategy="rebind")
    assert broken([record(1, ONE, strategy="rebind"), declared], "V1") == []
    # Declared further behind it is no excuse.
    behind = record(2, new, breaks=[("compaction", "messages")])
    assert broken([record(1, ONE), behind], "V1") == [problem]


def test_v1_deferred_entries_may_come_and_marks_may_move() -> None:
    later = [SEARCH, tool("later", defer_loading=True)]
    new = claude([HI, HELLO, MORE], tools=later, system=STATIC)
    assert broken([record(1, ONE), record(2, new)], "V1") == []


@pytest.mark.parametrize(
    "more", [{"strategy": "dispatch"}, {"strategy": "in-history", "definitions": "by-value"}]
)
def test_v1_on_dispatch_and_by_value_tools_stay_until_a_new_head(more: dict[str, str]) -> None:
    new = body(HI, HELLO, MORE, tools=[SEARCH, DEPLOY])
    first = record(1, ONE, **more)
    defined_anew = 1 if more["strategy"] == "dispatch" else 0
    for reason, number in (
        ("redefinition", defined_anew),
        ("explicit series", 1),
        ("head changed", 0),
    ):
        second = record(2, new, breaks=[(reason, "tools")], **more)
        assert len(broken([first, second], "V1")) == number, reason


def test_v1_another_way_of_telling_is_another_epoch() -> None:
    new = body(HI, HELLO, MORE, tools=[SEARCH, DEPLOY])
    downgraded = record(2, new, strategy="dispatch", breaks=[("downgrade", "tools")])
    assert broken([record(1, ONE), downgraded], "V1") == []


# V2 ---------------------------------------------------------------------------------------------


def test_v2_the_prompt_stays_within_an_epoch() -> None:
    longer = [*STATIC, text("conversation")]
    new = body(HI, HELLO, MORE, system=longer)
    problem = "2 system[1]: the prompt text differs from the request before"
    assert broken([record(1, ONE), record(2, new)], "V2") == [problem]
    rewritten = record(2, new, breaks=[("prompt rewritten", "system")])
    assert broken([record(1, ONE), rewritten], "V2") == []
    compacted = record(2, new, breaks=[("compaction", "messages")])
    assert broken([record(1, ONE), compacted], "V2") == [problem]


def test_v2_on_chat_the_prompt_is_the_messages_in_front() -> None:
    def sent(static: str) -> bytes:
        return chat([{"role": "developer", "content": static}, {"role": "user", "content": "hi"}])

    records = [
        record(1, sent("a"), wire="openai_chat"),
        record(2, sent("b"), wire="openai_chat"),
    ]
    assert broken(records, "V2") == [
        "2 messages[0].content[0]: the prompt text differs from the request before"
    ]


# V3 ---------------------------------------------------------------------------------------------


def test_v3_blocks_of_a_request_begin_the_next_one() -> None:
    edited = body(HI, ("assistant", [text("hello!")]), MORE, YES, LAST)
    records = [record(1, ONE), record(2, TWO), record(3, edited)]
    assert broken(records, "V3") == [
        "3 messages[1].content[0]: messages[1].content[0] of request 2 is not sent again as it was"
    ]


def test_v3_a_block_that_vanishes_at_the_end() -> None:
    records = [record(1, TWO), record(2, body(HI, HELLO))]
    assert broken(records, "V3") == [
        "2 end: messages[2].content[0] of request 1 is not sent again as it was"
    ]


def test_v3_a_declared_break_excuses_what_lies_behind_it_and_nothing_in_front() -> None:
    rewound = body(HI, HELLO, LAST)
    records = [record(1, TWO), record(2, rewound, breaks=[("rewind", "messages")])]
    assert broken(records, "V3") == []
    from_message = [record(1, TWO), record(2, rewound, breaks=[("rewind", "messages[2]")])]
    assert broken(from_message, "V3") == []
    too_late = [record(1, THREE), record(2, rewound, breaks=[("rewind", "messages[4]")])]
    assert broken(too_late, "V3")[0].startswith("2 messages[2].content[0]")
    front = body(HI, HELLO, LAST, tools=[DEPLOY])
    records = [record(1, TWO), record(2, front, breaks=[("rewind", "messages")])]
    assert broken(records, "V3")[0].startswith("2 tools[0]")
    # Where the bytes are said to stand, they stand.
    stands = [record(1, TWO), record(2, rewound, breaks=[("lifetime passed", "none")])]
    assert broken(stands, "V3")[0].startswith("2 messages[2].content[0]")


def test_v3_the_moved_tail_is_taken_out_and_a_kept_one_is_not() -> None:
    one = body(("user", [text("TAIL1"), text("hi")]))
    two = body(HI, HELLO, ("user", [text("TAIL2"), text("more")]))

    def told(mode: str) -> list[RequestRecord]:
        return [
            record(1, one, tail=mode, tail_text="TAIL1"),
            record(2, two, tail=mode, tail_text="TAIL2"),
        ]

    assert broken(told("moved"), "V3") == []
    assert broken(told("kept"), "V3")[0].startswith("2 messages[0].content[0]")


def test_v3_scoped_copies_are_sent_for_ever() -> None:
    scoped: Message = ("scoped", [text("be brief")])
    one = body(HI, scoped)
    kept = body(HI, scoped, HELLO, MORE, scoped)
    dropped = body(HI, HELLO, MORE, scoped)
    mode = {"tail": "scoped", "tail_text": "be brief"}
    assert broken([record(1, one, **mode), record(2, kept, **mode)], "V3") == []
    assert broken([record(1, one, **mode), record(2, dropped, **mode)], "V3") == [
        "2 messages[1].content[0]: messages[1].content[0] of request 1 is not sent again as it was"
    ]


def test_v3_with_a_moved_tail_reasoning_leaves_with_its_turn() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": "x"}
    asked: Message = ("user", [text("TAIL"), text("hi")])
    with_reasoning: Message = ("assistant", [thinking, use("c1", "search")])
    found: Message = ("user", [result("c1")])
    loop = body(asked, with_reasoning, found)
    left_out = body(
        HI, ("assistant", [use("c1", "search")]), found, HELLO, ("user", [text("TAIL"), text("b")])
    )
    first = record(1, loop, turn=1, tail="moved", tail_text="TAIL")
    later = record(2, left_out, turn=2, tail="moved", tail_text="TAIL")
    assert broken([first, later], "V3") == []
    same_turn = record(2, left_out, turn=1, tail="moved", tail_text="TAIL")
    assert broken([first, same_turn], "V3")
    kept = [
        record(1, loop, turn=1, tail="kept"),
        record(2, left_out, turn=2, tail="kept"),
    ]
    assert broken(kept, "V3")


def test_v3_a_definition_counts_where_it_is_added() -> None:
    def sent(*messages: Message, description: str) -> bytes:
        entry = {"name": "later", "description": description, "defer_loading": True}
        return body(*messages, tools=[entry, SEARCH])

    change: Message = ("system", [addition("later")])
    one = sent(HI, change, description="one")
    same = sent(HI, change, HELLO, MORE, description="one")
    other = sent(HI, change, HELLO, MORE, description="two")
    assert broken([record(1, one), record(2, same)], "V3") == []
    assert broken([record(1, one), record(2, other)], "V3")[0].startswith(
        "2 messages[1].content[0]"
    )


def test_v3_what_a_compaction_asks_is_no_part_of_what_follows() -> None:
    ask = body(HI, HELLO, ("user", [text("summarise")]))
    records = [record(1, ONE), record(2, ask, purpose="compaction"), record(3, TWO)]
    assert broken(records, "V3") == []
    astray = body(LAST, ("user", [text("summarise")]))
    records = [record(1, ONE), record(2, astray, purpose="compaction")]
    assert broken(records, "V3")[0].startswith("2 messages[0].content[0]")


def test_v3_conversations_and_routes_are_apart() -> None:
    other = body(LAST)
    records = [
        record(1, ONE),
        record(2, other, session="t"),
        record(3, other, route="q"),
        record(4, TWO),
    ]
    assert broken(records, "V3") == []


# V9 ---------------------------------------------------------------------------------------------

SUMMARY: Message = ("user", [text("summary")])


def test_v9_a_compaction_breaks_once() -> None:
    ask = body(HI, HELLO, ("user", [text("summarise")]))
    new = body(SUMMARY, LAST)
    newer = body(SUMMARY, LAST, YES, MORE)
    start = [record(1, TWO), record(2, ask, purpose="compaction")]
    once = [*start, record(3, new, breaks=[("compaction", "messages")]), record(4, newer)]
    assert broken(once, "V9") == []
    twice = [*once[:-1], record(4, newer, breaks=[("compaction", "messages")])]
    assert broken(twice, "V9") == ["4 : a compaction breaks the prefix a second time"]
    by_hand = [start[0], *once[2:]]
    assert broken(by_hand, "V9") == []


def test_v9_the_carrier_stays() -> None:
    ask = body(HI, HELLO, ("user", [text("summarise")]))
    restored = body(("user", [text("summary, restored")]), LAST, YES, MORE)
    records = [
        record(1, TWO),
        record(2, ask, purpose="compaction"),
        record(3, body(SUMMARY, LAST), breaks=[("compaction", "messages")]),
        record(4, restored),
    ]
    assert broken(records, "V9") == [
        "4 messages[0].content[0]: the message behind the compaction differs"
    ]
    assert broken([*records[:3], record(4, restored, breaks=[("rewind", "messages")])], "V9") == []


def test_v9_the_carrier_is_what_its_message_says() -> None:
    """On chat wires a message is more than one segment, and the prompt stands in front of it."""

    def said(*texts: str) -> bytes:
        users = [{"role": "user", "content": each} for each in texts]
        return chat([{"role": "system", "content": "static"}, *users])

    def at(n: int, body: bytes, compacts: bool = False) -> RequestRecord:
        breaks = [("compaction", "messages")] if compacts else []
        return record(n, body, wire="openai_chat", breaks=breaks)

    start = [at(1, said("a", "b")), at(2, said("summary", "c"), True)]
    assert broken([*start, at(3, said("summary", "c", "d"))], "V9", GPT56) == []
    other = [*start, at(3, said("another", "c", "d"))]
    assert [each.split(": ")[1] for each in broken(other, "V9", GPT56)] == [
        "the message behind the compaction differs"
    ]
    # Two summaries that were given by hand are two compactions.
    assert broken([*start, at(3, said("later summary", "d"), True)], "V9", GPT56) == []
    assert len(broken([*start, at(3, said("summary", "e"), True)], "V9", GPT56)) == 1


# V10 --------------------------------------------------------------------------------------------


def wide(blocks: int, *, lagging: bool) -> bytes:
    """The first request and `blocks` more, the last one marked."""
    first = marked(text("hi")) if lagging else text("hi")
    rest = [text(str(at)) for at in range(blocks)]
    return body(("user", [first]), ("assistant", rest[:1]), ("user", rest[1:]))


@pytest.mark.parametrize(("blocks", "lost"), [(19, False), (20, True)])
def test_v10_the_lookback(blocks: int, lost: bool) -> None:
    # The stored prefix is blocks + 1 positions back, both ends counted.
    problem = "2 messages[0].content[0]: what request 1 stored ends here, 21 positions back"
    records = [record(1, ONE), record(2, wide(blocks, lagging=False))]
    assert broken(records, "V10") == ([problem] if lost else [])
    with_lagging = [record(1, ONE), record(2, wide(blocks, lagging=True))]
    assert broken(with_lagging, "V10") == []


def test_v10_each_block_of_a_run_of_additions_counts() -> None:
    changes = [inline(tool(f"t{at}")) for at in range(19)]
    sent = claude(
        [HI, ("system", changes), HELLO, ("user", [marked(text("more"))])],
        tools=[SEARCH],
        system=STATIC,
    )
    assert broken([record(1, ONE), record(2, sent)], "V10") == [
        "2 messages[0].content[0]: what request 1 stored ends here, 22 positions back"
    ]


def test_v10_a_request_has_a_mark_at_its_end() -> None:
    unmarked = claude([HI, HELLO, MORE], tools=[SEARCH], system=STATIC)
    assert broken([record(1, unmarked)], "V10") == [
        "1 messages[2].content[0]: no mark stands at the end"
    ]
    # An unmarked change behind it is no end of its own.
    changed = claude(
        [("user", [marked(text("hi"))]), ("system", [inline(DEPLOY)])],
        tools=[SEARCH],
        system=STATIC,
    )
    assert broken([record(1, changed)], "V10") == []
    asked = record(1, unmarked, purpose="compaction")
    assert broken([asked], "V10") == []


def test_v10_with_a_moved_tail_the_history_end_is_marked_and_found() -> None:
    def turn(n: int, *messages: Message) -> RequestRecord:
        return record(n, body(*messages), turn=n, tail="moved", tail_text="TAIL")

    marked_answer: Message = ("assistant", [marked(text("hello"))])
    good = turn(2, HI, marked_answer, ("user", [text("TAIL"), text("more")]))
    assert broken([good], "V10") == []
    bad = turn(2, HI, HELLO, ("user", [text("TAIL"), text("more")]))
    assert broken([bad], "V10") == [
        "2 messages[1].content[0]: no mark stands at the end of the history in front of the tail"
    ]
    # More than 20 blocks later neither the history end nor the request's end reaches it.
    loop: Message = ("assistant", [text(str(at)) for at in range(21)])
    last: Message = ("assistant", [marked(text("done"))])
    far = turn(3, HI, HELLO, MORE, loop, ("user", [text("and")]), last,
               ("user", [text("TAIL"), text("bye")]))  # fmt: skip
    assert broken([good, far], "V10") == [
        "3 messages[1].content[0]: what request 2 stored ends here, 25 positions back"
    ]


@pytest.mark.parametrize(("known", "number"), [(True, 0), (False, 1)])
def test_v10_what_an_older_request_stored_may_be_found_instead(known: bool, number: int) -> None:
    """With a moved tail the reasoning of a turn leaves, and what was stored behind it."""
    asked: Message = ("user", [text(str(at)) for at in range(25)])
    calls = [use("c1", "search")]
    found: Message = ("user", [result("c1")])
    thinking = {"type": "thinking", "thinking": "", "signature": "x"}
    bare = [text("static")]
    one = body(asked)
    two = body(asked, ("assistant", [thinking, *calls]), found)
    three = body(asked, ("assistant", calls), found, HELLO, MORE, system=bare)
    told = {"tail": "moved", "bound": True}
    records = [
        record(1, one, 3000, 0, turn=1, **told),
        record(2, two, 3200, 3000, turn=1, **told),
        record(3, three, 3400, 3000, turn=2, **told),
    ]
    # The static text is too far in front; the end of the first request is not.
    assert len(broken(records if known else records[1:], "V10")) == number


def test_v10_a_declared_break_or_an_ended_lifetime_is_no_matter() -> None:
    far = wide(30, lagging=False)
    declared = record(2, far, breaks=[("rewind", "messages")])
    assert broken([record(1, ONE), declared], "V10") == []
    assert broken([record(1, ONE), record(2, far, time_sent=301.0)], "V10") == []
    assert broken([record(1, ONE, status="failed"), record(2, far)], "V10") == []


def test_v10_on_boundaries() -> None:
    def sent(*messages: Json) -> bytes:
        return chat([{"role": "developer", "content": "static"}, *messages])

    hi = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    longer = {"role": "user", "content": [*hi["content"], {"type": "text", "text": "more"}]}
    answer = {"role": "assistant", "content": "ok"}
    one = record(1, sent(hi), wire="openai_chat")
    good = record(2, sent(hi, answer, hi), wire="openai_chat")
    bad = record(2, sent(longer), wire="openai_chat")
    assert broken([one, good], "V10", GPT56) == []
    assert broken([one, bad], "V10", GPT56) == [
        "2 messages[1].content[0]: what request 1 stored ends here, with no mark behind it"
    ]


def test_v10_says_nothing_where_no_mark_counts() -> None:
    assert broken([record(1, claude([HI])), record(2, claude([HI]))], "V10", DEEPSEEK) == []
