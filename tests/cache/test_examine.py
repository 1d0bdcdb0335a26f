"""Captured requests of anybody: which continue each other, and what breaks with which cause."""

from __future__ import annotations

from typing import Any

import pytest

from addendum import encoding
from addendum.cache.capture import Capture, model_of, route_of, wire_of
from addendum.cache.examine import Examined, Finding, examine
from addendum.cache.rules import CacheRules
from addendum.errors import ConfigurationError, ContentError
from addendum.lab.checking import check_requests, rules_by_name

Json = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}


def checked(*bodies: Json, allow: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    return check_requests(bodies, allow).findings


def claude(*texts: str, system: str = "S", tools: tuple[Any, ...] = (), **more: Any) -> Json:
    """A request whose last block is marked, as a client should."""
    messages: list[Json] = []
    for at, text in enumerate(texts):
        block = {"type": "text", "text": text, **(MARK if at == len(texts) - 1 else {})}
        messages.append({"role": "assistant" if at % 2 else "user", "content": [block]})
    return {
        "model": "claude-opus-5-5",
        "system": [{"type": "text", "text": system}],
        "tools": [
            each if isinstance(each, dict) else {"name": each, "input_schema": {}} for each in tools
        ],
        "messages": messages,
        **more,
    }


def chat(*texts: str, **more: Any) -> Json:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "gpt-4.1", "messages": messages, **more}


# -- what holds ---------------------------------------------------------------------------------


def test_a_conversation_that_grows_at_its_end_holds() -> None:
    assert checked(claude("a"), claude("a", "b", "c"), claude("a", "b", "c", "d", "e")) == ()
    assert checked(chat("a"), chat("a", "b", "c")) == ()


def test_a_deferred_tool_and_its_addition_break_nothing() -> None:
    first = claude("a", tools=("x", {"name": "y", "input_schema": {}, "defer_loading": True}))
    later = claude("a", "b", "c", tools=tuple(first["tools"]))
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "y"}, **MARK}
    later["messages"].append({"role": "system", "content": [addition]})
    assert checked(first, later) == ()


# -- what breaks, and why -----------------------------------------------------------------------

TWO = ("a", "b", "c")
TEXT = "messages[0].content[0].text"


def tool(description: str) -> Json:
    return {"name": "x", "description": description, "input_schema": {}}


def function(name: str) -> Json:
    return {"type": "function", "function": {"name": name}}


BREAKS: list[tuple[Json, Json, str, str, str, str]] = [
    (claude("a"), claude(*TWO, tools=("x",)), "V1", "tools", "tools[0]", "(+x)"),
    (
        claude("a", tools=("x", "y")),
        claude(*TWO, tools=("y",)),
        *("V1", "tools", "tools[0]", "(-x)"),
    ),
    (
        claude("a", tools=("x", "y")),
        claude(*TWO, tools=("y", "x")),
        *("V1", "tools", "tools[0]", "moved"),
    ),
    (
        claude("a", tools=(tool("1"),)),
        claude(*TWO, tools=(tool("2"),)),
        *("V1", "tools", "tools[0].description", "(~x)"),
    ),
    (
        claude("a", system="At 9:01"),
        claude(*TWO, system="At 9:02"),
        *("V2", "system", "system[0].text", "'At 9:01' became 'At 9:02'"),
    ),
    (claude("1 a"), claude("2 a", "b", "c"), "V3", "messages", TEXT, "an earlier message changed"),
    (
        claude("a", "b", "c", "d", "e"),
        claude("a", "d", "e"),
        *("V3", "messages", "messages[1].content[0]", "5 messages became 3"),
    ),
    (
        claude("a"),
        claude(*TWO, thinking={"type": "adaptive"}),
        *("V3", "settings", "thinking", "from nothing to"),
    ),
    (
        claude("a"),
        claude(*TWO, model="claude-opus-4-8"),
        *("V3", "model", "model", "from claude-opus-5-5 to claude-opus-4-8"),
    ),
    (chat("a"), chat(*TWO, tools=[function("f")]), "V1", "tools", "tools[0]", "(+f)"),
    (
        chat("a", reasoning_effort="low"),
        chat(*TWO, reasoning_effort="high"),
        *("V3", "settings", "reasoning_effort", "'low' to 'high'"),
    ),
]


@pytest.mark.parametrize(("before", "after", "rule", "cause", "path", "words"), BREAKS)
def test_a_break_is_told_with_its_cause_and_can_be_allowed(
    before: Json, after: Json, rule: str, cause: str, path: str, words: str
) -> None:
    (found,) = checked(before, after)
    assert (found.rule, found.cause, found.n, found.path) == (rule, cause, 2, path)
    assert words in found.text
    assert found.text.endswith("it followed request 1")
    assert checked(before, after, allow=(cause,)) == ()
    assert checked(before, after, allow=(rule,)) == ()


def test_text_for_one_turn_is_told_apart_from_a_changed_history() -> None:
    def turn(*texts: str) -> Json:
        body = claude(*texts)
        body["messages"][-1]["content"].insert(0, {"type": "text", "text": "Today is Monday."})
        return body

    (found,) = checked(turn("a"), turn("a", "b", "c"))
    assert (found.rule, found.cause, found.path) == ("V3", "tail", "messages[0].content[0]")
    assert "'Today is Monday.'" in found.text
    assert checked(turn("a"), turn("a", "b", "c"), allow=("tail",)) == ()
    # With the message itself it is no tail.
    (found,) = checked(turn("a"), turn("z", "b", "c"))
    assert found.cause == "messages"


def test_deepseek_has_no_hidden_text_in_front_of_deferred_tools() -> None:
    later = {"name": "y", "input_schema": {}, "defer_loading": True}
    for model, count in (("claude-opus-5-5", 1), ("deepseek-flash", 0)):
        found = checked(
            claude("a", model=model, tools=("x",)),
            claude(*TWO, model=model, tools=("x", later)),
        )
        assert [each.path for each in found] == ["deferral"] * count


def test_reasoning_that_is_left_out_is_named() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    first, later = claude("a", "b", "c"), claude("a", "b", "c", "d", "e")
    first["messages"][1]["content"].insert(0, thinking)
    (found,) = checked(first, later)
    assert found.rule == "V3" and "reasoning of an earlier answer is no longer sent" in found.text


def test_beta_flags_count_as_settings() -> None:
    def sent(flags: str) -> Capture:
        body = encoding.encode(claude("a"))
        return Capture(
            "x", body, "https://api.anthropic.com/v1/messages", {"anthropic-beta": flags}
        )

    def found(*flags: str) -> list[str]:
        return [each.text for each in examine([list(map(sent, flags))], rules_by_name).findings]

    assert found("a,b", "b, a") == []
    assert found("a", "a,b") == ["beta flags came or went: b; it followed x"]


def test_a_cause_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing is called 'tool' here; allow any of"):
        checked(claude("a"), allow=("tool",))


# -- rules that bodies keep by themselves -------------------------------------------------------


def rules(done: Examined) -> list[tuple[str, int, str]]:
    return [(each.rule, each.n, each.path) for each in done.findings]


def test_v4_v5_v6_hold_for_anybodys_bodies() -> None:
    body = claude("a", "b", "c", tools=("x",))
    body["system"] = [{"type": "text", "text": name, **MARK} for name in "1234"]
    assert rules(check_requests([body])) == [("V4", 1, "messages[2].content[0]")]
    call = {"type": "tool_use", "id": "c1", "name": "gone", "input": {}}
    body = claude("a", "b", "c", tools=("x",))
    body["messages"][1]["content"].append(call)
    assert rules(check_requests([body])) == [
        ("V5", 1, "messages[1].content[1]"),
        ("V6", 1, "messages[1].content[1]"),
    ]


def test_v10_a_conversation_without_marks_is_told_once() -> None:
    bodies = [claude("a"), claude("a", "b", "c")]
    for body in bodies:
        for message in body["messages"]:
            for block in message["content"]:
                block.pop("cache_control", None)
    (found,) = check_requests(bodies).findings
    assert (found.rule, found.n) == ("V10", 1)
    assert "no request of this conversation sets a cache mark" in found.text
    assert check_requests(bodies, allow=("V10",)).findings == ()


def test_v10_a_stored_prefix_out_of_reach_is_found() -> None:
    first = claude("a")
    later = claude("a", *(str(at) for at in range(22)))
    found = check_requests([first, later]).findings
    assert [each.rule for each in found] == ["V10"]
    assert "23 positions back" in found[0].text


# -- conversations ------------------------------------------------------------------------------


def test_conversations_in_one_capture_are_told_apart() -> None:
    one, other = ("a", "b", "c", "d", "e"), ("x", "y", "z")
    done = check_requests(
        [
            claude(*one[:1]),
            claude(*other[:1], system="Another agent", tools=("t",)),
            claude(*one[:3]),
            claude(*other, system="Another agent", tools=("t",)),
            claude(*one),
        ]
    )
    assert done.findings == () and done.conversations == 2


def test_conversations_that_begin_alike_are_told_apart_by_their_answers() -> None:
    done = check_requests(
        [claude("hi"), claude("hi"), claude("hi", "A", "c"), claude("hi", "A", "c", "d", "e")]
    )
    assert done.findings == () and done.conversations == 1
    done = check_requests(
        [
            claude("hi", "A", "c"),
            claude("hi", "B", "c"),
            claude("hi", "A", "c", "d", "e"),
        ]
    )
    # The second may be an edit of the first or another talk; whichever it is, A was not kept.
    assert {each.cause for each in done.findings} == {"messages"}


def test_a_first_message_that_changes_each_time_does_not_hide_as_a_new_conversation() -> None:
    found = checked(*(claude(f"now: {at}", *("b", "c")[: 2 * at]) for at in range(2)))
    assert [each.path for each in found] == ["messages[0].content[0].text"]


def test_who_captured_may_say_which_conversation_it_is() -> None:
    def sent(session: str, body: Json) -> Capture:
        return Capture(session, encoding.encode(body), session=session)

    done = examine(
        [
            [
                sent("a", claude("1")),
                sent("b", claude("1", "2", "9")),
                sent("a", claude("1", "2", "3")),
            ]
        ],
        rules_by_name,
    )
    assert done.findings == () and done.conversations == 2
    twice = examine([[sent("a", claude("1"))], [sent("a", claude("5", "6", "7"))]], rules_by_name)
    assert twice.findings == () and twice.conversations == 2


# -- whose request it is ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "body", "wire"),
    [
        ("https://h/v1/messages", {"messages": []}, "anthropic_messages"),
        ("https://h/v1/chat/completions", {"messages": [], "system": "x"}, "openai_chat"),
        ("", {"messages": [], "system": "x"}, "anthropic_messages"),
        ("", {"messages": [], "tools": [{"input_schema": {}}]}, "anthropic_messages"),
        ("", {"messages": [{"role": "tool"}], "model": "claude-x"}, "openai_chat"),
        ("", {"messages": [], "model": "claude-x"}, "anthropic_messages"),
        ("", {"messages": [], "model": "other"}, "openai_chat"),
        ("", {"messages": [], "anthropic_version": "bedrock-2023-05-31"}, "anthropic_messages"),
        ("", {"model": "gpt-6.1-sol", "input": "hi"}, "openai_responses"),
        ("", {"contents": []}, "gemini"),
        ("https://h/model/m/converse-stream", {"messages": []}, "bedrock_converse"),
        ("", {"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "bedrock_converse"),
    ],
)
def test_the_wire_is_told_by_address_or_body(url: str, body: Json, wire: str) -> None:
    assert wire_of(url, {}, body) == wire


def test_a_body_that_asks_no_model_is_refused() -> None:
    with pytest.raises(ContentError, match="request 2: it is no request to a model"):
        check_requests([claude("a"), {"input": "x"}])
    with pytest.raises(ContentError, match="request 1: it is no request; give bodies"):
        check_requests([3])


@pytest.mark.parametrize(
    ("url", "wire", "model", "route"),
    [
        ("", "anthropic_messages", "claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("", "anthropic_messages", "deepseek-flash", "deepseek:deepseek-flash"),
        ("https://gateway.example/v1", "openai_chat", "gpt-4.1", "openai-chat:gpt-4.1"),
        ("", "openai_chat", "some-model", None),
    ],
)
def test_the_route_is_told_by_host_or_model(
    url: str, wire: str, model: str, route: str | None
) -> None:
    found = route_of(url, wire, model)
    assert (None if found is None else found.name) == route


def test_the_model_may_stand_in_the_address() -> None:
    url = "https://h/v1beta/models/gemini-2.5-pro:streamGenerateContent"
    assert model_of(url, {}) == "gemini-2.5-pro"
    assert model_of("https://h/model/anthropic.claude%3A0/converse", {}) == "anthropic.claude:0"
    assert model_of("", {"model": "m"}) == "m"


def test_marks_count_where_nothing_is_known_of_a_model() -> None:
    bodies = [claude("a", model="mystery"), claude("a", "b", "c", model="mystery")]
    assert check_requests(bodies).findings == ()
    for block in bodies[1]["messages"][-1]["content"]:
        del block["cache_control"]
    assert [each.rule for each in check_requests(bodies).findings] == ["V10", "V10"]
    assert rules_by_name("unknown:mystery") is None
    assert isinstance(rules_by_name("anthropic:claude-opus-5-5"), CacheRules)


# -- many requests ------------------------------------------------------------------------------


def test_what_has_no_room_is_counted_and_never_taken_for_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talks = [("one", "a"), ("other", "b"), ("one", "a", "A", "c"), ("other", "b", "B", "d")]
    bodies = [claude(*texts, system=first) for first, *texts in talks]
    assert check_requests(bodies).notes == ()
    monkeypatch.setattr("addendum.cache.examine.ROOM", 1)
    done = check_requests(bodies)
    assert done.findings == () and (done.requests, done.conversations) == (4, 2)
    assert done.notes == (
        "2 requests followed theirs too late to be compared; check fewer at once",
    )


def test_findings_beyond_a_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addendum.cache.examine.MOST", 2)
    bodies = [claude("a", *("A", "b") * at, system=f"It is {at}") for at in range(6)]
    done = check_requests(bodies)
    assert (len(done.findings), done.more) == (2, 3)


def test_each_request_is_told_of_with_its_conversation() -> None:
    told: list[tuple[int, str, str]] = []
    one, other = Capture("f:1", claude("a")), Capture("g:1", claude("x"))
    files = [[one, other], [one]]
    examine(files, rules_by_name, seen=lambda *each: told.append(each))
    assert told == [
        (1, "f:1", "conversation 1"),
        (2, "g:1", "conversation 2"),
        (3, "f:1", "conversation 1 (2)"),
    ]
