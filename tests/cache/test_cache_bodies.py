"""V4 to V7: rules that each body keeps by itself."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.cache.captures import (
    CLAUDE,
    GPT56,
    HOUR,
    MARK,
    Json,
    Message,
    addition,
    chat,
    claude,
    inline,
    marked,
    record,
    removal,
    result,
    text,
    tool,
    use,
)

from addendum.cache.invariants import check
from addendum.cache.record import RequestRecord
from addendum.cache.rules import CacheRules

HI: Message = ("user", [text("hi")])


def broken(rule: str, *records: RequestRecord, rules: CacheRules = CLAUDE) -> list[str]:
    return [f"{each.n} {each.path}: {each.text}" for each in check(records, rules, [rule])]


# V4 ---------------------------------------------------------------------------------------------


def test_v4_at_most_four_marks() -> None:
    four = [marked(text(str(at))) for at in range(4)]
    assert broken("V4", record(1, claude([("user", four)]))) == []
    five = claude([("user", four)], system=[marked(text("static"))])
    assert broken("V4", record(1, five)) == ["1 messages[0].content[3]: 5 marks, but 4 are taken"]
    automatic = claude([("user", [*four, text("end")])], cache_control=MARK)
    assert broken("V4", record(1, automatic)) == [
        "1 messages[0].content[4]: 5 marks, but 4 are taken"
    ]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            ("assistant", [marked({"type": "thinking", "thinking": "", "signature": "s"})]),
            "a mark stands on a thinking block that cannot carry one",
        ),
        (
            ("user", [marked({"type": "text", "text": ""})]),
            "a mark stands on a text block that cannot carry one",
        ),
        (("scoped", [marked(text("be brief"))]), "a mark stands on this turn's instructions"),
        (
            (
                "user",
                [{"type": "tool_result", "tool_use_id": "c", "content": [marked(text("r"))]}],
            ),
            "a mark stands inside a block instead of on it",
        ),
    ],
)
def test_v4_legal_places(message: Message, problem: str) -> None:
    found = broken("V4", record(1, claude([HI, message])))
    assert found == [f"1 messages[1].content[0]: {problem}"]


def test_v4_a_deferred_tool_and_a_moved_tail_carry_none() -> None:
    deferred = claude([HI], tools=[tool("a"), marked(tool("b", defer_loading=True))])
    assert broken("V4", record(1, deferred)) == [
        "1 tools[1]: a mark stands outside the cached prefix"
    ]
    tail = claude([("user", [marked(text("TAIL")), text("hi")])])
    assert broken("V4", record(1, tail, tail="moved", tail_text="TAIL")) == [
        "1 messages[0].content[0]: a mark stands on this turn's instructions"
    ]


def test_v4_changes_of_tools_may_carry_a_mark() -> None:
    change = ("system", [marked(inline(tool("a"))), marked(removal("a"))])
    assert broken("V4", record(1, claude([HI, change]))) == []


def test_v4_longer_lifetimes_first() -> None:
    right = claude([("user", [marked(text("a"), HOUR), marked(text("b"))])])
    wrong = claude([("user", [marked(text("a")), marked(text("b"), HOUR)])])
    assert broken("V4", record(1, right)) == []
    assert broken("V4", record(1, wrong)) == [
        "1 messages[0].content[1]: a mark of an hour stands behind one of five minutes"
    ]


def test_v4_on_chat_the_implicit_boundary_is_one_of_four() -> None:
    def sent(number: int, **more: object) -> RequestRecord:
        part = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
        message = {"role": "user", "content": [part] * number}
        return record(1, chat([message], **more), wire="openai_chat")

    assert broken("V4", sent(3), rules=GPT56) == []
    assert broken("V4", sent(4), rules=GPT56) == [
        "1 messages[0].content[3]: 4 marks, but 3 are taken"
    ]
    explicit = {"prompt_cache_options": {"mode": "explicit"}}
    assert broken("V4", sent(4, **explicit), rules=GPT56) == []


# V5 ---------------------------------------------------------------------------------------------

ROUND: list[Message] = [
    ("assistant", [use("c1", "deploy")]),
    ("user", [result("c1")]),
]


def test_v5_a_called_name_is_declared_now() -> None:
    problem = (
        "1 messages[1].content[0]: tool 'deploy' is named, but neither declared nor defined here"
    )
    assert broken("V5", record(1, claude([HI, *ROUND], tools=[tool("search")]))) == [problem]
    assert broken("V5", record(1, claude([HI, *ROUND], tools=[tool("deploy")]))) == []
    deferred = [tool("search"), tool("deploy", defer_loading=True)]
    assert broken("V5", record(1, claude([HI, *ROUND], tools=deferred))) == []


def test_v5_a_definition_counts_from_its_place_on() -> None:
    defined: Message = ("system", [inline(tool("deploy"))])
    before = claude([HI, defined, *ROUND], tools=[tool("search")])
    behind = claude([HI, *ROUND, defined], tools=[tool("search")])
    assert broken("V5", record(1, before)) == []
    assert broken("V5", record(1, behind))[0].startswith("1 messages[1].content[0]")


@pytest.mark.parametrize("change", [addition, removal])
def test_v5_references_count_too(change: object) -> None:
    sent = claude([HI, ("system", [change("deploy")])], tools=[tool("search")])  # type: ignore[operator]
    assert broken("V5", record(1, sent))[0].startswith("1 messages[1].content[0]: tool 'deploy'")


@pytest.mark.parametrize(
    ("strategy", "number"),
    [("in-history", 1), ("dispatch", 1), ("addition-only", 0), ("rebind", 0)],
)
def test_v5_an_earlier_declaration_counts_where_lists_may_shrink(
    strategy: str, number: int
) -> None:
    with_it = record(1, claude([HI], tools=[tool("deploy")]), strategy=strategy)
    without = record(2, claude([HI, *ROUND], tools=[tool("search")]), strategy=strategy)
    assert len(broken("V5", with_it, without)) == number
    other = record(2, claude([HI, *ROUND], tools=[tool("search")]), strategy=strategy, session="t")
    assert len(broken("V5", with_it, other)) == 1


def test_v5_a_fork_may_name_what_its_parent_declared() -> None:
    parent = record(1, claude([HI, *ROUND], tools=[tool("deploy")]), strategy="rebind")
    sent = record(2, claude([HI, *ROUND, HI], tools=[tool("search")]), strategy="rebind")
    child = structs.replace(sent, session="child")
    assert len(broken("V5", parent, child)) == 1
    child = structs.replace(child, parent=parent.session)
    assert broken("V5", parent, child, structs.replace(child, n=3, parent=None)) == []


def test_v5_turns_kept_over_a_compaction_may_name_what_was_declared() -> None:
    before = record(1, claude([HI, *ROUND], tools=[tool("deploy")]))
    kept = claude([("user", [text("summary")]), *ROUND], tools=[tool("search")])
    after = record(2, kept, breaks=[("compaction", "tools")])
    later = record(3, claude([("user", [text("summary")]), *ROUND, HI], tools=[tool("search")]))
    assert broken("V5", before, after, later) == []
    fresh: list[Message] = [
        ("assistant", [use("c2", "deploy")]),
        ("user", [result("c2")]),
    ]
    new = record(3, claude([("user", [text("summary")]), *ROUND, *fresh], tools=[tool("search")]))
    assert broken("V5", before, after, new)[0].startswith("3 messages[3].content[0]")


@pytest.mark.parametrize(
    ("breaks", "number"),
    [([("head changed", "tools")], 0), ([("lifetime passed", "none")], 1), ([], 1)],
)
def test_v5_a_call_may_come_back_when_its_tool_went_with_the_old_head(
    breaks: list[tuple[str, str]], number: int
) -> None:
    before = record(1, claude([HI], tools=[tool("deploy")]))
    after = record(2, claude([HI, *ROUND], tools=[tool("search")]), breaks=breaks)
    assert len(broken("V5", before, after)) == number
    assert len(broken("V5", after)) == 1


def test_v5_on_chat() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "deploy", "arguments": "{}"}}
    sent = chat(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ]
    )
    found = broken("V5", record(1, sent, wire="openai_chat", strategy="dispatch"))
    assert found[0].startswith("1 messages[1].tool_calls[0]: tool 'deploy'")


def test_v5_what_is_called_unseen_is_defined_behind_the_next_message() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "deploy", "arguments": "{}"}}
    run = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    more = [*run, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
    defined = {"role": "system", "tools": [{"type": "function", "function": {"name": "deploy"}}]}
    told: Json = {"wire": "openai_chat", "strategy": "addition-only", "definitions": "by-value"}
    first = record(1, chat(run), **told)
    assert broken("V5", first, record(2, chat([*more, defined]), **told)) == []
    assert broken("V5", first, record(2, chat(more), **told)) != []


def called(name: str, arguments: str = "{}") -> list[Json]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
    ]


@pytest.mark.parametrize("name", ["deploy", "call_tool"])
@pytest.mark.parametrize("definitions", ["by-reference", "by-value"])
def test_v5_a_call_is_accounted_for_on_the_route_that_made_it(name: str, definitions: str) -> None:
    """It may be sent to another one after a compaction, or after a head without its tool."""
    there = chat(
        called(name, '{"name":"deploy","arguments":{}}'),
        tools=[{"type": "function", "function": {"name": name}}],
    )
    first = record(1, there, wire="openai_chat", route="a", strategy="dispatch")
    here = claude([HI, *ROUND, HI], tools=[tool("search")])
    second = record(2, here, definitions=definitions)
    assert broken("V5", first, second) == []
    assert len(broken("V5", second)) == 1
    # What nobody was told of there is not known here either.
    undeclared = chat(called(name), tools=[{"type": "function", "function": {"name": "other"}}])
    first = record(1, undeclared, wire="openai_chat", route="a", strategy="dispatch")
    assert len(broken("V5", first, second)) == 2


# V6 ---------------------------------------------------------------------------------------------


def rounds(*messages: Message) -> list[str]:
    return broken("V6", record(1, claude([HI, *messages])))


def test_v6_each_call_has_its_result() -> None:
    two = [use("c1", "a"), use("c2", "a")]
    assert rounds(("assistant", two), ("user", [result("c2"), result("c1"), text("x")])) == []
    assert rounds(("assistant", two), ("user", [result("c1")])) == [
        "1 messages[1].content[1]: call 'c2' has no result directly behind its round"
    ]
    assert rounds(("assistant", [use("c1", "a")])) == [
        "1 messages[1].content[0]: call 'c1' has no result directly behind its round"
    ]


@pytest.mark.parametrize("between", [("user", [text("x")]), ("scoped", [text("x")])])
def test_v6_nothing_stands_between_a_call_and_its_result(between: Message) -> None:
    found = rounds(("assistant", [use("c1", "a")]), between, ("user", [result("c1")]))
    assert found == [
        "1 messages[1].content[0]: call 'c1' has no result directly behind its round",
        "1 messages[3].content[0]: a result answers 'c1', which no call of its round made",
    ]


def test_v6_exactly_one_result() -> None:
    call: Message = ("assistant", [use("c1", "a")])
    assert rounds(call, ("user", [result("c1"), result("c1")])) == [
        "1 messages[2].content[1]: a result answers 'c1', which no call of its round made"
    ]
    assert rounds(("user", [result("c9")])) == [
        "1 messages[1].content[0]: a result answers 'c9', which no call of its round made"
    ]
    twice: Message = ("assistant", [use("c1", "a"), use("c1", "a")])
    assert rounds(twice, ("user", [result("c1")])) == [
        "1 messages[1].content[1]: call id 'c1' is used twice in one round"
    ]


def chat_rounds(*messages: Json) -> list[str]:
    return broken("V6", record(1, chat(messages), wire="openai_chat"))


def test_v6_on_chat() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    other = {**call, "id": "c2"}
    asked = {"role": "assistant", "content": None, "tool_calls": [call, other]}
    one = {"role": "tool", "tool_call_id": "c1", "content": [text("r"), text("s")]}
    two = {"role": "tool", "tool_call_id": "c2", "content": "r"}
    user = {"role": "user", "content": "x"}
    assert chat_rounds(user, asked, one, two, user) == []
    assert chat_rounds(user, asked, one, user, two) == [
        "1 messages[1].tool_calls[1]: call 'c2' has no result directly behind its round",
        "1 messages[4]: a result answers 'c2', which no call of its round made",
    ]


# V7 ---------------------------------------------------------------------------------------------

ANSWER: Message = ("assistant", [text("ok")])
LOOP: list[Message] = [("assistant", [use("c1", "a")]), ("user", [result("c1")])]
TAIL = text("<t>be brief</t>")
SCOPED: Message = ("scoped", [text("be brief")])


def stands(mode: str, *messages: Message, **more: object) -> list[str]:
    fields = {"tail": mode, "tail_text": "be brief", **more}
    return broken("V7", record(1, claude(list(messages)), **fields))


def test_v7_a_moved_tail_stands_in_front_of_the_newest_human_message() -> None:
    news = text("<tool_update>...</tool_update>")
    human = text("go on")
    assert stands("moved", HI, ANSWER, ("user", [TAIL, human, news]), *LOOP) == []
    assert stands("moved", HI, ANSWER, ("user", [TAIL, human, news]), human="go on") == []
    missing = "no moved instructions stand beside the newest human message"
    assert stands("moved", HI, ANSWER, ("user", [human])) == [
        f"1 messages[2].content[0]: {missing}"
    ]
    behind = stands("moved", HI, ANSWER, ("user", [human, TAIL]))
    assert behind == [f"1 messages[2].content[0]: {missing}"]
    # In front of the announcement it is not in front of the message, if that is known.
    astray = stands("moved", HI, ANSWER, ("user", [human, TAIL, news]), human="go on")
    assert astray == [f"1 messages[2].content[0]: {missing}"]
    old = stands("moved", ("user", [TAIL, text("hi")]), ANSWER, ("user", [human]))
    assert old == [f"1 messages[2].content[0]: {missing}"]


def test_v7_a_moved_tail_stands_once() -> None:
    found = stands("moved", ("user", [TAIL, text("hi")]), ANSWER, ("user", [TAIL, text("go")]))
    assert found == ["1 messages[0].content[0]: moved instructions stand in a second place"]


def test_v7_behind_results_of_an_interrupted_turn() -> None:
    joined: Message = ("user", [result("c1"), TAIL, text("go on")])
    assert stands("moved", HI, LOOP[0], joined, human="go on") == []


def test_v7_openrouter_puts_the_first_tail_behind() -> None:
    behind: Message = ("user", [text("hi"), TAIL])
    assert stands("moved", behind, route="openrouter:claude") == []
    assert stands("moved", behind, route="anthropic:claude") != []
    assert stands("moved", HI, ANSWER, behind, route="openrouter:claude") != []


def test_v7_a_kept_tail_stands_beside_each_turns_message() -> None:
    first: Message = ("user", [TAIL, text("hi")])
    second: Message = ("user", [TAIL, text("go on")])
    assert stands("kept", first, ANSWER, second) == []
    assert stands("kept", HI, ("system", [text("be brief")]), human="hi") == []
    assert stands("kept", first, ANSWER, ("user", [text("go on")])) == [
        "1 messages[2].content[0]: no kept instructions stand beside the newest human message"
    ]


def test_v7_a_scoped_tail_stands_behind_each_user_message_of_the_turn() -> None:
    change: Message = ("system", [inline(tool("b"))])
    assert stands("scoped", HI, ANSWER, HI, SCOPED, change) == []
    assert stands("scoped", HI, SCOPED, *LOOP, SCOPED) == []
    problem = "no turn-scoped instructions stand behind this user message"
    assert stands("scoped", HI, SCOPED, *LOOP) == [f"1 messages[3].content[0]: {problem}"]
    assert stands("scoped", SCOPED, HI) == [f"1 messages[1].content[0]: {problem}"]
    plain = stands("scoped", HI, ("system", [text("be brief")]))
    assert plain == [f"1 messages[0].content[0]: {problem}"]


def test_v7_leaves_alone_what_has_no_instructions() -> None:
    assert stands("moved", HI, tail_text=None) == []
    assert stands("scoped", HI, purpose="compaction") == []
    assert stands("moved", ANSWER) == ["1 : there is no human message for the instructions"]


def test_v7_on_chat() -> None:
    def sent(*messages: Json) -> list[str]:
        return broken(
            "V7",
            record(1, chat(messages), wire="openai_chat", tail="moved", tail_text="be brief"),
        )

    user = {"role": "user", "content": "hi"}
    tail = {"role": "user", "content": "be brief"}
    answer = {"role": "assistant", "content": "ok"}
    assert sent(user, answer, tail, user) == []
    assert sent(user, answer, user) == [
        "1 messages[2].content[0]: no moved instructions stand beside the newest human message"
    ]
