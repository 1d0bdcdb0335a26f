from __future__ import annotations

from typing import Any

import pytest

from addendum import encoding
from addendum.errors import ContentError
from addendum.wire.openai_chat.segments import segments, settings
from addendum.wire.segment import Segment

Json = dict[str, Any]


def sent(*messages: Json, **more: Any) -> tuple[Segment, ...]:
    return segments(encoding.encode({"model": "m", **more, "messages": list(messages)}))


def text(value: str, **more: Any) -> Json:
    return {"type": "text", "text": value, **more}


def function(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def call(id_: str, name: str, arguments: str = "{}") -> Json:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def keys(found: tuple[Segment, ...]) -> list[str]:
    return [each.key for each in found]


def test_cache_order_and_paths() -> None:
    found = sent(
        {"role": "developer", "content": [text("static"), text("conversation")]},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("c1", "search")]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "developer", "content": "note"},
        tools=[function("search")],
    )
    assert [(each.kind, each.role, each.type, each.path) for each in found] == [
        ("tool", "tools", "tool", "tools[0]"),
        ("system", "developer", "message", "messages[0]"),
        ("system", "developer", "text", "messages[0].content[0]"),
        ("system", "developer", "text", "messages[0].content[1]"),
        ("message", "user", "message", "messages[1]"),
        ("message", "user", "text", "messages[1].content[0]"),
        ("message", "assistant", "message", "messages[2]"),
        ("message", "assistant", "tool_call", "messages[2].tool_calls[0]"),
        ("message", "tool", "message", "messages[3]"),
        ("message", "tool", "text", "messages[3].content[0]"),
        ("message", "developer", "message", "messages[4]"),
        ("message", "developer", "text", "messages[4].content[0]"),
    ]
    assert [each.message for each in found[4:6]] == ["messages[1]"] * 2


def test_a_string_is_a_list_with_one_text_part() -> None:
    assert keys(sent({"role": "user", "content": "hi"})) == keys(
        sent({"role": "user", "content": [text("hi")]})
    )


def test_a_part_added_to_a_message_is_not_a_new_message() -> None:
    apart = sent({"role": "user", "content": "a"}, {"role": "user", "content": "b"})
    within = sent({"role": "user", "content": [text("a"), text("b")]})
    assert keys(apart)[:2] == keys(within)[:2]
    assert keys(apart)[2] != keys(within)[2]


def test_other_fields_of_a_message_count() -> None:
    one = sent({"role": "user", "name": "ann", "content": "hi"})
    two = sent({"role": "user", "name": "bob", "content": "hi"})
    assert keys(one)[0] != keys(two)[0] and keys(one)[1] == keys(two)[1]


def test_arguments_count_byte_for_byte() -> None:
    def asked(arguments: str) -> str:
        calls = [call("c", "search", arguments)]
        return sent({"role": "assistant", "content": None, "tool_calls": calls})[1].key

    assert asked('{"a":1}') != asked('{"a": 1}')


def test_calls_and_results_are_named() -> None:
    found = sent(
        {"role": "assistant", "content": "", "tool_calls": [call("c1", "search")]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        tools=[function("search")],
    )
    assert [each.defines for each in found if each.defines] == ["search"]
    assert [(each.opens, each.uses) for each in found if each.opens] == [("c1", ("search",))]
    assert [(each.path, each.answers) for each in found if each.answers] == [("messages[1]", "c1")]


def test_explicit_breakpoints() -> None:
    marker = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    found = sent(
        {"role": "developer", "content": [text("static", **marker), text("rest")]},
        {"role": "assistant", "content": [text("a", **marker)]},
    )
    assert [each.mark for each in found if each.type == "text"] == ["explicit", None, "explicit"]
    assert [each.markable for each in found if each.type == "text"] == [True, True, False]
    plain = sent(
        {"role": "developer", "content": [text("static"), text("rest")]},
        {"role": "assistant", "content": "a"},
    )
    assert keys(found) == keys(plain)


def test_marks_of_openrouter_have_lifetimes_and_stand_on_tools_too() -> None:
    found = sent(
        {"role": "user", "content": [text("a", cache_control={"type": "ephemeral", "ttl": "1h"})]},
        {"role": "tool", "content": [text("r", cache_control={"type": "ephemeral"})]},
        tools=[{**function("search"), "cache_control": {"type": "ephemeral"}}],
    )
    marked = [each for each in found if each.mark]
    assert [(each.kind, each.role, each.mark, each.markable) for each in marked] == [
        ("tool", "tools", "5m", True),
        ("message", "user", "1h", True),
        ("message", "tool", "5m", True),
    ]
    answer = {"role": "assistant", "content": [text("a", cache_control={"type": "ephemeral"})]}
    assert [each.markable for each in sent(answer) if each.mark] == [False]


def test_reasoning_stands_apart() -> None:
    found = sent({"role": "assistant", "reasoning_content": "hm", "content": "a"})
    assert [(each.type, each.transparent) for each in found] == [
        ("message", False),
        ("reasoning", True),
        ("text", False),
    ]
    bare = sent({"role": "assistant", "content": "a"})
    assert [each.key for each in found if not each.transparent] == keys(bare)


def test_tools_declared_in_a_message() -> None:
    found = sent(
        {"role": "user", "content": "hi"},
        {"role": "system", "tools": [function("deploy")]},
    )
    declared = found[-1]
    assert (declared.type, declared.defines) == ("declaration", "deploy")
    assert declared.path == "messages[1].tools[0]"


def test_the_moved_tail_is_a_message_of_its_own_or_a_part() -> None:
    def tails(*messages: Json) -> list[str]:
        body = encoding.encode({"messages": list(messages)})
        return [each.path for each in segments(body, "be brief") if each.tail]

    answer = {"role": "assistant", "content": "ok, I will be brief"}
    tail = {"role": "user", "content": "<t>be brief</t>"}
    human = {"role": "user", "content": "go"}
    whole = ["messages[2]", "messages[2].content[0]"]
    assert tails(human, answer, tail, human) == whole
    developer = {"role": "developer", "content": "be brief"}
    assert tails(human, answer, developer, human) == whole
    within = {"role": "user", "content": [text("be brief"), text("go")]}
    assert tails(human, answer, within) == ["messages[2].content[0]"]
    # In a tool loop it stays where it was.
    loop = [
        {"role": "assistant", "content": None, "tool_calls": [call("c", "s")]},
        {"role": "tool", "tool_call_id": "c", "content": "be brief"},
    ]
    assert tails(human, answer, tail, human, *loop) == whole


def test_settings_that_count() -> None:
    def of(**more: Any) -> dict[str, str]:
        return settings(encoding.encode({"model": "m", "messages": [], **more}))

    plain = of()
    assert set(plain) == {"model"}
    # What narrows the tools, or has nothing to do with the prompt, leaves the prefix alone.
    choice = {"type": "function", "function": {"name": "a"}}
    assert of(tool_choice=choice, stream=True, temperature=0.5) == plain
    for name, value in (
        ("parallel_tool_calls", False),
        ("response_format", {"type": "json_object"}),
        ("reasoning_effort", "low"),
        ("verbosity", "low"),
        ("service_tier", "flex"),
        ("prompt_cache_key", "k"),
        ("prompt_cache_options", {"mode": "explicit"}),
    ):
        assert set(of(**{name: value})) == {"model", name}


def test_odd_bodies_give_what_can_be_read() -> None:
    assert segments(b"{}") == ()
    assert [each.path for each in segments(b'{"messages":[7,{"role":"user"}]}')] == ["messages[0]"]
    with pytest.raises(ContentError):
        segments(b"[]")
