from __future__ import annotations

from typing import Any

import msgspec
import pytest

from addendum import encoding
from addendum.errors import ContentError
from addendum.wire.anthropic_messages.segments import segments, settings
from addendum.wire.segment import Segment, resolve

Json = dict[str, Any]

MARK: Json = {"type": "ephemeral"}
HOUR: Json = {"type": "ephemeral", "ttl": "1h"}


def sent(*messages: Json, **more: Any) -> tuple[Segment, ...]:
    return segments(encoding.encode({"model": "m", **more, "messages": list(messages)}))


def user(*content: Any) -> Json:
    return {"role": "user", "content": list(content)}


def text(value: str, **more: Any) -> Json:
    return {"type": "text", "text": value, **more}


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "description": "d", "input_schema": {"type": "object"}, **more}


def reference(kind: str, name: str) -> Json:
    return {"type": kind, "tool": {"type": "tool_reference", "name": name}}


def keys(found: tuple[Segment, ...]) -> list[str]:
    return [each.key for each in found]


def test_cache_order_is_tools_system_messages() -> None:
    found = segments(
        b'{"messages":[{"role":"user","content":"hi"}],"system":"be kind","tools":[{"name":"a"}]}'
    )
    assert [(each.kind, each.role, each.type, each.path) for each in found] == [
        ("tool", "tools", "tool", "tools[0]"),
        ("system", "system", "text", "system[0]"),
        ("message", "user", "text", "messages[0].content[0]"),
    ]


def test_a_string_is_a_list_with_one_text_block() -> None:
    assert keys(sent({"role": "user", "content": "hi"})) == keys(sent(user(text("hi"))))
    assert keys(sent(system="s")) == keys(sent(system=[text("s")]))


def test_user_messages_in_a_row_are_blocks_with_their_role() -> None:
    assert keys(sent(user(text("a")), user(text("b")))) == keys(sent(user(text("a"), text("b"))))


def test_size_is_that_of_compact_json_without_marks() -> None:
    # {"type":"text","text":"hé"} is 27 characters, one of them two bytes long.
    (found,) = sent(user(text("hé", cache_control=MARK)))
    assert found.size == 28 and found.mark == "5m"
    spaced = segments(
        b'{ "messages" : [ {"role":"user","content":[{ "type":"text", "text":"h\\u00e9"}]}]}'
    )
    assert spaced[0].size == 28 and spaced[0].key == found.key


def test_key_order_and_role_count() -> None:
    (one,) = sent(user({"type": "text", "text": "a"}))
    (two,) = sent(user({"text": "a", "type": "text"}))
    (three,) = sent({"role": "assistant", "content": "a"})
    assert one.key != two.key and one.key != three.key


@pytest.mark.parametrize(("mark", "expected"), [(MARK, "5m"), (HOUR, "1h"), (None, None)])
def test_marks_do_not_change_content(mark: Json | None, expected: str | None) -> None:
    marked = {} if mark is None else {"cache_control": mark}
    for found, plain in (
        (sent(user(text("a", **marked))), sent(user(text("a")))),
        (sent(system=[text("a", **marked)]), sent(system=[text("a")])),
        (sent(tools=[tool("a", **marked)]), sent(tools=[tool("a")])),
    ):
        assert keys(found) == keys(plain)
        assert (found[0].mark, found[0].marks) == (expected, 0 if mark is None else 1)


def test_a_mark_inside_a_result_is_seen_counted_and_out_of_place() -> None:
    def result(**more: Any) -> Json:
        inner = text("r", **more)
        return user({"type": "tool_result", "tool_use_id": "c", "content": [inner]})

    (found,) = sent(result(cache_control=MARK))
    assert (found.mark, found.marks, found.misplaced) == ("5m", 1, True)
    assert found.key == sent(result())[0].key


def test_a_word_that_looks_like_a_mark_in_arguments_is_data() -> None:
    def call(value: Json) -> Json:
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "a", "input": value}],
        }

    (one,) = sent(call({"cache_control": {"type": "ephemeral"}}))
    (two,) = sent(call({}))
    assert one.key != two.key and one.marks == 0


def test_an_inline_definition_may_carry_the_mark_of_its_block() -> None:
    def change(**more: Any) -> Json:
        definition = tool("deploy", **more)
        block = {
            "type": "tool_addition",
            "tool": {"type": "tool_definition", "definition": definition},
        }
        return {"role": "system", "content": [block]}

    (found,) = sent(change(cache_control=HOUR))
    assert (found.mark, found.misplaced, found.defines) == ("1h", False, "deploy")
    assert found.key == sent(change())[0].key


def test_the_automatic_mark_is_on_the_last_block_that_may_carry_one() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": "x"}
    found = sent(
        user(text("a")),
        {"role": "assistant", "content": [text("b"), thinking]},
        cache_control=HOUR,
    )
    assert [each.mark for each in found] == [None, "1h", None]
    again = sent(user(text("a", cache_control=MARK)), cache_control=MARK)
    assert (again[0].mark, again[0].marks) == ("5m", 1)


def test_deferred_entries_lie_outside_and_are_read_where_they_are_first_added() -> None:
    later = tool("later", defer_loading=True)
    change = {"role": "system", "content": [reference("tool_addition", "later")]}
    found = sent(user(text("a")), change, {"role": "assistant", "content": "b"}, tools=[later])
    assert (found[0].deferred, found[0].markable, found[0].defines) == (True, False, "later")
    added = found[2]
    shown = len(encoding.encode(tool("later")))
    assert added.uses == ("later",)
    assert added.size == len(encoding.encode(reference("tool_addition", "later"))) + shown

    # A second addition, after a removal, brings no second definition.
    removed = {"role": "system", "content": [reference("tool_removal", "later")]}
    back = sent(
        user(text("a")),
        change,
        {"role": "assistant", "content": "b"},
        user(text("c")),
        removed,
        {"role": "assistant", "content": "d"},
        user(text("e")),
        change,
        tools=[later],
    )
    assert back[2].size == added.size
    assert back[-1].size == len(encoding.encode(reference("tool_addition", "later")))
    assert back[5].uses == ("later",) and back[5].type == "tool_removal"

    # What the definition says counts at the block, whatever stands at the front.
    other = sent(user(text("a")), change, tools=[tool("later", defer_loading=True, strict=True)])
    assert other[2].key != added.key


def test_a_search_result_brings_the_definitions_it_names() -> None:
    later = tool("later", defer_loading=True)
    block = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "tool_reference", "tool_name": "later"}],
    }
    (_, found) = sent(user(block), tools=[later])
    assert found.uses == ("later",)
    assert found.size > len(encoding.encode(block))


def test_defer_loading_false_is_the_same_as_none() -> None:
    assert keys(sent(tools=[tool("a", defer_loading=False)])) == keys(sent(tools=[tool("a")]))


def test_a_turn_scoped_message_is_read_until_a_later_user_message() -> None:
    scoped = {"role": "system", "clear_at": "next_user_message", "content": "be brief"}
    live = sent(user(text("a")), scoped)
    assert [(each.tail, each.deferred, each.markable) for each in live] == [
        (False, False, True),
        (True, False, False),
    ]
    use = {"type": "tool_use", "id": "c", "name": "s", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "r"}
    later = sent(
        user(text("a")), scoped, {"role": "assistant", "content": [use]}, user(result), scoped
    )
    assert [each.deferred for each in later] == [False, True, False, False, False]
    assert later[1].key == later[4].key == live[1].key


def test_the_moved_tail_is_the_first_carrier_in_the_newest_human_message() -> None:
    def place(*messages: Json) -> list[str]:
        body = encoding.encode({"messages": list(messages)})
        return [each.path for each in segments(body, "be brief") if each.tail]

    answer = {"role": "assistant", "content": "ok"}
    quoting = user(text("you said: be brief"))
    now = user(text("<t>\nbe brief\n</t>"), text("why be brief?"))
    assert place(quoting, answer, now) == ["messages[2].content[0]"]
    # In the tool loop it stays in front of the human message.
    call = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "s", "input": {}}],
    }
    result = user({"type": "tool_result", "tool_use_id": "c", "content": "be brief"})
    assert place(now, call, result) == ["messages[0].content[0]"]
    assert place(user(text("nothing of it"))) == []


def test_reasoning_and_empty_text_carry_no_mark() -> None:
    found = sent(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                text(""),
                text("a"),
            ],
        }
    )
    assert [(each.transparent, each.markable) for each in found] == [
        (True, False),
        (True, False),
        (False, False),
        (False, True),
    ]


def test_calls_and_results_are_named() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "search", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
    one, two = sent({"role": "assistant", "content": [call]}, user(result))
    assert (one.opens, one.uses, one.answers) == ("c1", ("search",), "")
    assert (two.opens, two.uses, two.answers) == ("", (), "c1")


def test_settings_that_count() -> None:
    def of(*messages: Json, **more: Any) -> dict[str, str]:
        return settings(encoding.encode({"model": "m", "messages": list(messages), **more}))

    plain = of(user(text("a")))
    assert set(plain) == {"model"}
    assert of(user(text("b")), max_tokens=9, stream=True, metadata={"user_id": "u"}) == plain
    same = {"tool_choice": {"type": "auto"}, "output_config": {"effort": "high"}}
    assert of(user(text("a")), **same, thinking={"type": "disabled"}) == plain
    for name, value in (
        ("tool_choice", {"type": "none"}),
        ("thinking", {"type": "adaptive"}),
        ("output_config", {"effort": "low"}),
        ("speed", "fast"),
        ("anthropic_beta", ["b"]),
    ):
        assert set(of(user(text("a")), **{name: value})) == {"model", name}
    image = {"type": "image", "source": {}}
    inside = {"type": "tool_result", "tool_use_id": "c", "content": [image]}
    assert of(user(image)).keys() == of(user(inside)).keys() == {"model", "images"}
    inline = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("a")}}
    one = of(user(text("a")), {"role": "system", "content": [inline]})
    two = of(user(text("a")), tools=[tool("a"), tool("b", defer_loading=True)])
    assert one == two and set(one) == {"model", "deferral"}


def test_paths_lead_back_to_the_blocks() -> None:
    body: Json = {
        "system": "s",
        "tools": [tool("a")],
        "messages": [{"role": "user", "content": "hi"}, user(text("a"), text("b"))],
    }
    found = segments(encoding.encode(body))
    assert [resolve(body, each.path) for each in found] == [
        tool("a"),
        text("s"),
        text("hi"),
        text("a"),
        text("b"),
    ]
    assert resolve(body, "messages[7].content[0]") is None


def test_odd_bodies_give_what_can_be_read() -> None:
    assert segments(b"{}") == ()
    assert segments(b'{"tools":null,"system":3,"messages":[1,{"role":"user"}]}') == ()
    (found,) = segments(b'{"messages":[{"content":[{"x":1}]}]}')
    assert (found.role, found.type) == ("", "")
    with pytest.raises(ContentError):
        segments(b"not json")
    with pytest.raises(ContentError):
        settings(b"[1]")


def test_a_segment_is_a_plain_value() -> None:
    (found,) = sent(user(text("a")))
    with pytest.raises(AttributeError):
        found.mark = "1h"  # type: ignore[misc]
    assert msgspec.structs.replace(found, mark="1h").key == found.key
