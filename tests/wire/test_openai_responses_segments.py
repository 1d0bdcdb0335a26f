from __future__ import annotations

from typing import Any

import pytest

from addendum import encoding
from addendum.errors import ContentError
from addendum.wire.openai_responses.segments import segments, settings
from addendum.wire.segment import Segment

Json = dict[str, Any]
MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def sent(*items: Json, **more: Any) -> tuple[Segment, ...]:
    return segments(encoding.encode({"model": "m", **more, "input": list(items)}))


def text(value: str, **more: Any) -> Json:
    return {"type": "input_text", "text": value, **more}


def message(role: str, *parts: Json | str) -> Json:
    content = [text(part) if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": role, "content": content}


def tools(*names: str) -> Json:
    listed = [{"type": "function", "name": name, "parameters": {}} for name in names]
    return {"type": "additional_tools", "role": "developer", "tools": listed}


def call(call_id: str, name: str, **more: Any) -> Json:
    about = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}
    return {**about, **more}


def output(call_id: str, *parts: Json | str) -> Json:
    content = [text(part) if isinstance(part, str) else part for part in parts]
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def keys(found: tuple[Segment, ...]) -> list[str]:
    return [each.key for each in found]


def test_cache_order_and_paths() -> None:
    found = sent(
        tools("search"),
        message("developer", "static", "conversation"),
        message("user", "hi"),
        tools("deploy"),
        message("developer", "note"),
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
        call("c1", "search"),
        output("c1", "found"),
    )
    assert [(each.kind, each.role, each.type, each.path) for each in found] == [
        ("tool", "developer", "message", "input[0]"),
        ("tool", "developer", "definition", "input[0].tools[0]"),
        ("system", "developer", "message", "input[1]"),
        ("system", "developer", "input_text", "input[1].content[0]"),
        ("system", "developer", "input_text", "input[1].content[1]"),
        ("message", "user", "message", "input[2]"),
        ("message", "user", "input_text", "input[2].content[0]"),
        ("message", "developer", "message", "input[3]"),
        ("message", "developer", "definition", "input[3].tools[0]"),
        ("message", "developer", "message", "input[4]"),
        ("message", "developer", "input_text", "input[4].content[0]"),
        ("message", "assistant", "reasoning", "input[5]"),
        ("message", "assistant", "function_call", "input[6]"),
        ("message", "tool", "message", "input[7]"),
        ("message", "tool", "input_text", "input[7].output[0]"),
    ]
    assert [each.defines for each in found if each.defines] == ["search", "deploy"]
    assert [(each.opens, each.uses) for each in found if each.opens] == [("c1", ("search",))]
    assert [(each.path, each.answers) for each in found if each.answers] == [("input[7]", "c1")]
    assert [each.path for each in found if each.transparent] == ["input[5]"]


def test_tools_and_instructions_at_the_top_stand_in_front() -> None:
    entry = {"type": "function", "name": "a", "parameters": {}}
    found = sent(message("user", "hi"), tools=[entry], instructions="be brief")
    assert [(each.kind, each.path) for each in found[:2]] == [
        ("tool", "tools[0]"),
        ("system", "instructions"),
    ]
    assert not found[1].markable


def test_a_string_is_a_list_with_one_text_part() -> None:
    short = {"role": "user", "content": "hi"}
    assert keys(sent(short)) == keys(sent(message("user", "hi")))
    assert keys(segments(b'{"input":"hi"}')) == keys(sent(message("user", "hi")))
    said = {"type": "function_call_output", "call_id": "c", "output": "r"}
    assert keys(sent(said)) == keys(sent(output("c", "r")))


def test_ids_and_status_are_no_text_and_arguments_are() -> None:
    plain = sent(call("c1", "a"))
    assert keys(sent(call("c1", "a", id="fc_1", status="completed"))) == keys(plain)
    assert keys(sent(call("c1", "a", arguments='{ "q":1}'))) != keys(plain)
    assert keys(sent(call("c2", "a"))) != keys(plain)


def test_explicit_breakpoints() -> None:
    answer = {"type": "message", "role": "assistant", "content": [{**text("a"), **MARK}]}
    found = sent(
        message("developer", text("static", **MARK), "rest"),
        message("user", text("u", **MARK)),
        output("c", text("r", **MARK)),
        answer,
        {**tools("t"), "tools": [{**tools("t")["tools"][0], **MARK}]},
    )
    marked = [each for each in found if each.mark]
    assert [(each.role, each.mark, each.markable) for each in marked] == [
        ("developer", "explicit", True),
        ("user", "explicit", True),
        ("tool", "explicit", True),
        ("assistant", "explicit", False),
        ("developer", "explicit", False),
    ]
    plain = sent(message("developer", "static", "rest"))
    assert keys(found)[:3] == keys(plain)


def test_the_moved_tail_is_a_message_of_its_own() -> None:
    items = [
        message("user", "first"),
        {"role": "assistant", "content": "I will be brief"},
        message("user", "<t>be brief</t>"),
        message("user", "go"),
        call("c", "a"),
        output("c", "be brief"),
    ]
    found = segments(encoding.encode({"input": items}), "be brief")
    assert [each.path for each in found if each.tail] == ["input[2]", "input[2].content[0]"]


def test_settings_that_count() -> None:
    def of(**more: Any) -> set[str]:
        return set(settings(encoding.encode({"model": "m", "input": [], **more})))

    def digest(**options: str) -> str | None:
        body = {"model": "m", "input": [], "prompt_cache_options": options}
        return settings(encoding.encode(body)).get("prompt_cache_options")

    # Diagnostics are asked of another response each time.
    assert digest(comparison_response_id="r") is None
    assert digest(ttl="12h", comparison_response_id="r") == digest(ttl="12h") != digest(ttl="30m")

    for more in ({"tool_choice": "none"}, {"stream": True}, {"store": False}, {"include": ["x"]}):
        assert of(**more) == {"model"}
    assert of(reasoning={"summary": "auto"}) == {"model"}
    for name, value in (
        ("reasoning", {"effort": "low"}),
        ("text", {"verbosity": "low"}),
        ("parallel_tool_calls", False),
        ("prompt_cache_key", "k"),
    ):
        assert of(**{name: value}) == {"model", name}


def test_odd_bodies_give_what_can_be_read() -> None:
    assert segments(b"{}") == ()
    assert [each.path for each in segments(b'{"input":[7,{"type":"compaction"}]}')] == ["input[0]"]
    with pytest.raises(ContentError):
        segments(b"[]")
