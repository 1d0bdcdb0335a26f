"""Providers that cache without being asked: steps, boundaries, units; figures by hand.

A chat message is its head, `{}` or its other fields, and its parts. The counting rule of these
tests counts an empty head (two bytes) as nothing.
"""

from __future__ import annotations

import msgspec
import pytest
from tests.cache.captures import (
    DEEPSEEK,
    GPT56,
    STEPS,
    Json,
    chat,
    claude,
    count,
    function,
    record,
    text,
    tool,
)

from addendum import encoding
from addendum.cache.figures import Miss, Row, judge
from addendum.cache.record import RequestRecord
from addendum.cache.rules import CacheRules

CHAT = {"wire": "openai_chat"}


def said(role: str, *parts: Json) -> Json:
    return {"role": role, "content": list(parts)}


def explicit(part: Json) -> Json:
    return {**part, "prompt_cache_breakpoint": {"mode": "explicit"}}


def last(records: list[RequestRecord], rules: CacheRules) -> Row:
    return judge(records, rules, count).requests[-1]


# Steps: OpenAI before GPT-5.6 -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1023, 0),  # one short of the minimum
        (1024, 1024),
        (1151, 1024),  # 8 x 128 = 1,024; the ninth step would be 1,152
        (1152, 1152),
        (1300, 1280),  # 10 x 128
    ],
)
def test_steps_of_128_from_the_minimum_on(tokens: int, expected: int) -> None:
    one = chat([said("user", text("hi", tokens))])
    two = chat(
        [
            said("user", text("hi", tokens)),
            said("assistant", text("a", 20)),
            said("user", text("b", 20)),
        ]
    )
    records = [
        record(1, one, tokens, 0, **CHAT),
        record(2, two, tokens + 40, expected, **CHAT),
    ]
    row = last(records, STEPS)
    assert (row.expected, row.miss) == (expected, None)


def test_a_step_too_few_is_a_miss() -> None:
    one = chat([said("user", text("hi", 1300))])
    records = [record(1, one, 1300, 0, **CHAT), record(2, one, 1300, 1152, **CHAT)]
    row = last(records, STEPS)
    assert row.expected == 1280
    assert row.miss is not None and row.miss.reason == "provider"


def test_at_most_the_request_itself_rounded_its_way() -> None:
    # The base has 1,500 (1,408); after a rewind the request has 1,200: 9 x 128 = 1,152.
    one = chat([said("user", text("a", 1100)), said("user", text("b", 400))])
    two = chat([said("user", text("a", 1100)), said("user", text("c", 100))])
    records = [
        record(1, one, 1500, 0, **CHAT),
        record(2, two, 1200, 1024, breaks=[("rewind", "messages")], **CHAT),
    ]
    row = last(records, STEPS)
    # What both begin with is 1,100: 8 x 128 = 1,024.
    assert (row.expected, row.ceiling) == (1152, 1024)
    assert row.miss == Miss(True, "rewind", "messages")


def test_a_new_tool_behind_the_others_leaves_what_is_in_front() -> None:
    one = chat([said("user", text("a", 400))], tools=[function("search", 1100)])
    two = chat(
        [said("user", text("a", 400)), said("assistant", text("b", 40)), said("user", text("c"))],
        tools=[function("search", 1100), function("open", 100)],
    )
    records = [
        record(1, one, 1500, 0, **CHAT),
        record(2, two, 1740, 1024, breaks=[("rebinding", "tools")], **CHAT),
    ]
    row = last(records, STEPS)
    assert (row.expected, row.ceiling) == (1408, 1024)


def test_a_moved_tail_and_all_behind_it_is_expected_within_its_turn_only() -> None:
    front = [said("system", text("static", 900)), said("user", text("u1", 300))]
    tail = {"tail": "moved", "tail_text": "be brief", **CHAT}
    # 900 + 300 + answer 100 + tail 30 + user 270 = 1,600; without what stands behind the
    # history 1,300, that is 10 x 128 = 1,280; within the turn 12 x 128 = 1,536.
    now = [
        *front,
        said("assistant", text("a1", 100)),
        said("user", text("be brief", 30)),
        said("user", text("u2", 270)),
    ]
    loop = [
        *now,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]
    later = [
        *front,
        said("assistant", text("a1", 100)),
        said("user", text("u2", 270)),
        said("assistant", text("a2", 100)),
        said("user", text("be brief", 30)),
        said("user", text("u3", 100)),
    ]
    first = record(1, chat(now), 1600, 0, turn=2, **tail)
    assert last([first, record(2, chat(loop), 1700, 1536, turn=2, **tail)], STEPS).expected == 1536
    assert last([first, record(2, chat(later), 1800, 1280, turn=3, **tail)], STEPS).expected == 1280


def test_an_entry_lives_five_minutes() -> None:
    one = chat([said("user", text("hi", 1300))])
    for sent, expected in ((299.0, 1280), (300.0, 0)):
        records = [
            record(1, one, 1300, 0, time_sent=0.0, **CHAT),
            record(2, one, 1300, expected, time_sent=sent, **CHAT),
        ]
        assert last(records, STEPS).expected == expected


# Boundaries: GPT-5.6 and later ------------------------------------------------------------------

DEVELOPER = said("developer", explicit(text("static", 1100)), text("conversation", 100))


def test_the_end_of_the_latest_user_message_is_exact() -> None:
    one = chat([DEVELOPER, said("user", text("hi", 101))])
    two = chat(
        [
            DEVELOPER,
            said("user", text("hi", 101)),
            said("assistant", text("a", 50)),
            said("user", text("b", 50)),
        ]
    )
    records = [record(1, one, 1301, 0, **CHAT), record(2, two, 1401, 1301, **CHAT)]
    assert last(records, GPT56).expected == 1301


def test_a_developer_message_in_the_middle_is_no_boundary() -> None:
    one = chat([DEVELOPER, said("user", text("hi", 101)), said("developer", text("note", 60))])
    # 1,100 + 100 + 101, and 60 behind the boundary.
    records = [record(1, one, 1361, 0, **CHAT), record(2, one, 1361, 1301, **CHAT)]
    row = last(records, GPT56)
    assert (row.expected, row.miss) == (1301, None)


def test_extending_the_last_message_loses_its_boundary() -> None:
    one = chat([DEVELOPER, said("user", text("hi", 101))])
    two = chat([DEVELOPER, said("user", text("hi", 101), text("more", 50))])
    records = [record(1, one, 1301, 0, **CHAT), record(2, two, 1351, 1100, **CHAT)]
    row = last(records, GPT56)
    assert row.expected == 1301
    assert row.miss == Miss(False, NO_BOUNDARY, "messages[1].content[0]")


def test_of_a_run_of_tool_messages_the_last_is_a_boundary() -> None:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "search"}} for at in range(2)
    ]
    round_ = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c0", "content": [text("r0", 60)]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("r1", 60)]},
    ]
    one = chat([DEVELOPER, said("user", text("hi", 101)), *round_])
    two = chat(
        [
            DEVELOPER,
            said("user", text("hi", 101)),
            *round_,
            said("assistant", text("done", 40)),
            said("user", text("b", 60)),
        ]
    )
    # Whatever heads and calls count, the boundary is the end of the first request.
    records = [record(1, one, 1500, 0, **CHAT), record(2, two, 1600, 1500, **CHAT)]
    assert last(records, GPT56).expected == 1500


NO_BOUNDARY = "no boundary of this request stands where the prefix was stored"


def test_within_a_run_of_tool_messages_there_is_no_boundary() -> None:
    front = [DEVELOPER, said("user", text("hi", 101))]
    calls = [{"id": "c0", "type": "function", "function": {"name": "search"}}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    found = {"role": "tool", "tool_call_id": "c0", "content": [text("r0", 60)]}
    late = {"role": "tool", "tool_call_id": "c1", "content": [text("r1", 60)]}
    records = [
        record(1, chat([*front, asked, found]), 1400, 0, **CHAT),
        record(2, chat([*front, asked, found, late]), 1470, 1301, **CHAT),
    ]
    assert last(records, GPT56).miss == Miss(False, NO_BOUNDARY, "messages[3].content[0]")


@pytest.mark.parametrize(("between", "reached"), [(19, True), (20, False)])
def test_twenty_earlier_ends_are_looked_up(between: int, reached: bool) -> None:
    # Behind the old end come `between` user messages and the newest one: the old end is the
    # 20th or the 21st in front of the newest.
    more = [said("user", text(str(at), 10)) for at in range(between)]
    one = chat([DEVELOPER, said("user", text("hi", 101))])
    two = chat([DEVELOPER, said("user", text("hi", 101)), *more, said("user", text("end", 10))])
    prompt = 1301 + 10 * between + 10
    records = [
        record(1, one, 1301, 0, **CHAT),
        record(2, two, prompt, 1301 if reached else 1100, **CHAT),
    ]
    miss = None if reached else Miss(False, NO_BOUNDARY, "messages[1].content[0]")
    assert last(records, GPT56).miss == miss
    if reached:
        lost = [records[0], record(2, two, prompt, 0, **CHAT)]
        found = last(lost, GPT56).miss
        assert found is not None and found.reason == "provider"


def test_another_conversation_reads_up_to_the_explicit_mark_of_the_static_text() -> None:
    def opening(word: str) -> bytes:
        developer = said("developer", explicit(text("static", 1100)), text(f"for {word}", 100))
        return chat([developer, said("user", text(word, 100))])

    records = [
        record(1, opening("anna"), 1300, 0, session="a", **CHAT),
        record(2, opening("bert"), 1300, 1100, session="b", **CHAT),
    ]
    row = last(records, GPT56)
    assert (row.expected, row.miss) == (1100, None)


def test_explicit_mode_stores_at_marks_alone_and_is_another_setting() -> None:
    options = {"prompt_cache_options": {"mode": "explicit"}}
    one = chat([DEVELOPER, said("user", text("hi", 100))], **options)
    records = [record(1, one, 1300, 0, **CHAT), record(2, one, 1300, 1100, **CHAT)]
    assert last(records, GPT56).expected == 1100
    implicit = chat([DEVELOPER, said("user", text("hi", 100))])
    mixed = [record(1, implicit, 1300, 0, **CHAT), record(2, one, 1300, 0, **CHAT)]
    assert last(mixed, GPT56).miss == Miss(
        False, "settings changed: prompt_cache_options", "settings"
    )


def test_boundaries_with_a_moved_tail() -> None:
    # The last user block in front of the tail carries a mark: 1,100 + 100 + 100 = 1,300.
    one = chat(
        [
            DEVELOPER,
            said("user", explicit(text("u1"))),
            said("assistant", text("a1", 50)),
            said("user", text("be brief", 20)),
            said("user", text("u2", 80)),
        ]
    )
    two = chat(
        [
            DEVELOPER,
            said("user", explicit(text("u1"))),
            said("assistant", text("a1", 50)),
            said("user", explicit(text("u2", 80))),
            said("assistant", text("a2", 50)),
            said("user", text("be brief", 20)),
            said("user", text("u3", 80)),
        ]
    )
    tail = {"tail": "moved", "tail_text": "be brief", **CHAT}
    records = [
        record(1, one, 1450, 0, turn=2, **tail),
        record(2, two, 1580, 1300, turn=3, **tail),
    ]
    row = last(records, GPT56)
    assert (row.expected, row.miss) == (1300, None)


# Units: DeepSeek --------------------------------------------------------------------------------


def surface(*messages: tuple[str, list[Json]]) -> bytes:
    return claude(list(messages), tools=[tool("search", 500)])


def test_input_and_output_end_a_unit() -> None:
    # Input 500 + 400 = 900, answer 50; both are read again: 950.
    one = surface(("user", [text("hi", 400)]))
    two = surface(
        ("user", [text("hi", 400)]),
        ("assistant", [text("hello", 50)]),
        ("user", [text("more", 60)]),
    )
    records = [record(1, one, 900, 0, output=50), record(2, two, 1010, 950)]
    row = last(records, DEEPSEEK)
    assert (row.expected, row.miss) == (950, None)

    # The unit of the input is proven by the bytes. Where only that is read, the answer was not
    # sent back as it was made, and where not even that is, the provider lost it.
    partly = last([records[0], record(2, two, 1010, 900)], DEEPSEEK).miss
    assert partly == Miss(
        False, "the answer was not read again as it was sent back", "messages[1].content[0]"
    )
    lost = last([records[0], record(2, two, 1010, 0)], DEEPSEEK).miss
    assert lost == Miss(False, "provider", "messages[0].content[0]")


def test_a_declared_break_behind_the_base_leaves_its_output() -> None:
    one = surface(("user", [text("hi", 400)]))
    two = surface(
        ("user", [text("hi", 400)]),
        ("assistant", [text("hello", 50)]),
        ("user", [text("more", 60)]),
    )
    records = [
        record(1, one, 900, 0, output=50),
        record(2, two, 1010, 950, breaks=[("attempt failed", "messages")]),
    ]
    row = last(records, DEEPSEEK)
    assert (row.expected, row.ceiling, row.miss) == (950, 950, None)


def test_an_answer_sent_back_in_part_is_not_the_unit() -> None:
    # The answer was 80 tokens, of which 30 were reasoning that is not sent back.
    one = surface(("user", [text("hi", 400)]))
    two = surface(
        ("user", [text("hi", 400)]),
        ("assistant", [text("hello", 50)]),
        ("user", [text("more", 60)]),
    )
    records = [record(1, one, 900, 0, output=80), record(2, two, 1010, 900)]
    row = last(records, DEEPSEEK)
    assert (row.expected, row.miss) == (900, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"q": "<other>"}, 940),
        ({}, 900),
        ({"unreadable_arguments": "{"}, 900),
        ({"q": "<_tool_update>"}, 900),
    ],
)
def test_a_call_that_may_have_been_written_otherwise_is_not_surely_in_the_unit(
    given: Json, expected: int
) -> None:
    # Empty arguments go back as an empty object: here as many tokens, and another unit.
    call: Json = {"type": "tool_use", "id": "c", "name": "search", "input": given}
    call["id"] += "." * (160 - len(encoding.encode(call)))
    found: Json = {"type": "tool_result", "tool_use_id": call["id"], "content": ""}
    found["content"] += "." * (240 - len(encoding.encode(found)))
    one = surface(("user", [text("hi", 400)]))
    two = surface(("user", [text("hi", 400)]), ("assistant", [call]), ("user", [found]))
    records = [record(1, one, 900, 0, output=40), record(2, two, 1000, 900)]
    row = last(records, DEEPSEEK)
    assert (row.expected, row.miss is None) == (expected, expected == 900)


def test_a_unit_that_has_not_ended_gives_nothing() -> None:
    # Both requests begin with 500 + 400 = 900, but no unit ends there: a shared beginning alone
    # is no hit. Expected is the base's output end, at most the request itself: 1,000.
    one = surface(("user", [text("hi", 400), text("first try", 100)]))
    two = surface(("user", [text("hi", 400), text("second try", 100)]))
    records = [
        record(1, one, 1000, 0, output=50),
        record(2, two, 1000, 0, breaks=[("rewind", "messages")]),
    ]
    row = last(records, DEEPSEEK)
    assert (row.expected, row.ceiling) == (1000, 0)
    assert row.miss == Miss(True, "rewind", "messages")

    # With a unit every 256 tokens the longest within 900 is 3 x 256 = 768.
    spaced = msgspec.structs.replace(DEEPSEEK, interval=256)
    assert last(records, spaced).ceiling == 768
    silent = [records[0], record(2, two, 1000, 768)]
    assert last(silent, spaced).miss == Miss(False, "the bytes differ", "messages[0].content[1]")


def test_a_kept_tail_is_part_of_the_unit() -> None:
    one = surface(("user", [text("be brief", 20), text("hi", 380)]))
    two = surface(
        ("user", [text("be brief", 20), text("hi", 380)]),
        ("assistant", [text("hello", 50)]),
        ("user", [text("be brief", 20), text("more", 60)]),
    )
    tail = {"tail": "kept", "tail_text": "be brief"}
    records = [record(1, one, 900, 0, output=50, **tail), record(2, two, 1030, 950, **tail)]
    assert last(records, DEEPSEEK).expected == 950


def test_a_moved_tail_leaves_the_fixed_units_in_front_of_it() -> None:
    one = surface(("user", [text("u1", 400)]), ("assistant", [text("a1", 100)]),
                  ("user", [text("be brief", 20), text("u2", 80)]))  # fmt: skip
    two = surface(
        ("user", [text("u1", 400)]),
        ("assistant", [text("a1", 100)]),
        ("user", [text("u2", 80)]),
        ("assistant", [text("a2", 100)]),
        ("user", [text("be brief", 20), text("u3", 80)]),
    )
    tail = {"tail": "moved", "tail_text": "be brief"}
    records = [
        record(1, one, 1100, 0, output=100, turn=2, **tail),
        record(2, two, 1280, 768, turn=3, **tail),
    ]
    # The history in front of the tail is 1,000 tokens: nothing, or 3 x 256.
    assert last(records, DEEPSEEK).expected == 0
    assert last(records, msgspec.structs.replace(DEEPSEEK, interval=256)).expected == 768


def test_on_an_endpoint_that_reads_deferred_entries_an_appended_one_breaks_the_prefix() -> None:
    def sent(*tools: Json) -> bytes:
        return claude([("user", [text("hi", 400)])], tools=tools)

    later = tool("later", 50, defer_loading=True)
    placeholder = tool("none", 50, defer_loading=True)
    one = sent(tool("search", 500), placeholder)
    two = sent(tool("search", 500), placeholder, later)
    records = [record(1, one, 950, 0, output=10), record(2, two, 1000, 0)]
    inside = msgspec.structs.replace(DEEPSEEK, deferred_outside=False)
    assert last(records, inside).miss == Miss(False, "the bytes differ", "tools[2]")
    outside = last(records, DEEPSEEK).miss
    assert outside is not None and outside.reason == "provider"
