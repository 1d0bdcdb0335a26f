from __future__ import annotations

from typing import Any

import pytest

from addendum import encoding
from addendum.cache.compare import EXCERPT, Comparison, compare, inside
from addendum.cache.record import RequestRecord, readings
from addendum.log.values import Usage

CHAT = "openai_chat"
CLAUDE = "anthropic_messages"


def seen(before: Any, after: Any, wire: str = CHAT, prompt: int | None = None) -> Comparison:
    records = [
        RequestRecord(n, 0, "s", "r:m", wire, encoding.encode(body), Usage(prompt=prompt))
        for n, body in enumerate((before, after), 1)
    ]
    old, new = readings(records)
    return compare(old, new)


def chat(*texts: str, tools: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": name}} for name in tools],
        "messages": [
            {"role": "system", "content": "S"},
            *({"role": roles[at % 2], "content": text} for at, text in enumerate(texts)),
        ],
        **more,
    }


def test_a_request_that_grows_at_its_end_extends_the_one_before() -> None:
    found = seen(chat("a", tools=("x",)), chat("a", "b", "c", tools=("x",)))
    assert found.first is None and found.settings == ()
    assert {each.state for each in found.changes} == {"same", "added"}
    assert found.kept == sum(each.size for each in found.changes if each.state == "same")


def test_the_first_difference_has_its_path_and_both_sides() -> None:
    text = "x" * 200 + "one" + "y" * 300
    found = seen(chat(text, "b", "c"), chat(text.replace("one", "two"), "b", "c"))
    first = found.first
    assert first is not None
    assert (first.area, first.state) == ("messages", "changed")
    assert first.path == "messages[1].content[0].text"
    assert first.before is not None and first.after is not None
    assert "xone" in first.before and "xtwo" in first.after
    assert len(first.before) == EXCERPT + 2  # cut on both sides
    # What follows is shown as the same, although nothing of it can be read again.
    assert [each.state for each in found.changes].count("changed") == 1
    assert found.kept < sum(each.size for each in found.changes if each.state == "same")


@pytest.mark.parametrize(
    ("before", "after", "area", "state", "path"),
    [
        (chat("a", tools=("x", "y")), chat("a", tools=("x",)), "tools", "removed", "tools[1]"),
        (chat("a", tools=("x",)), chat("a", tools=("x", "y")), "tools", "added", "tools[1]"),
        (chat("a", tools=("x", "y")), chat("a", tools=("y", "x")), "tools", "added", "tools[0]"),
        (chat("a", "b", "c"), chat("a", "c"), "messages", "changed", "messages[2].content[0].text"),
        (chat("a", "b"), chat("b"), "messages", "changed", "messages[1].content[0].text"),
    ],
)
def test_what_came_or_went_is_told(
    before: Any, after: Any, area: str, state: str, path: str
) -> None:
    first = seen(before, after).first
    assert first is not None
    assert (first.area, first.state, first.path) == (area, state, path)


def test_settings_are_told_beside_the_content() -> None:
    found = seen(chat("a", reasoning_effort="low"), chat("a", reasoning_effort="high"))
    assert found.first is None
    (setting,) = found.settings
    assert (setting.name, setting.before, setting.after) == ("reasoning_effort", "low", "high")


def test_key_order_counts_and_marks_do_not() -> None:
    def claude(block: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
        tools = [{"name": "t", "input_schema": schema}]
        return {"model": "m", "tools": tools, "messages": [{"role": "user", "content": [block]}]}

    plain = {"type": "text", "text": "hi"}
    marked = {**plain, "cache_control": {"type": "ephemeral"}}
    one, other = {"type": "object", "title": "T"}, {"title": "T", "type": "object"}
    assert seen(claude(plain, one), claude(marked, one), CLAUDE).first is None
    first = seen(claude(plain, one), claude(plain, other), CLAUDE).first
    assert first is not None and first.path == "tools[0].input_schema.title"
    assert (first.before, first.after) == ("key 'type' stands here", "key 'title' stands here")


def test_deferred_tools_lie_outside_and_are_shown() -> None:
    def claude(*names: str) -> dict[str, Any]:
        tools = [{"name": name, "input_schema": {}, "defer_loading": True} for name in names]
        return {"tools": tools, "messages": [{"role": "user", "content": "hi"}]}

    found = seen(claude("a"), claude("a", "b"), CLAUDE)
    assert found.first is None
    assert [(each.name, each.state, each.in_prefix) for each in found.changes][:2] == [
        ("a", "same", False),
        ("b", "added", False),
    ]


def test_a_definition_that_a_block_brings_in_may_be_what_changed() -> None:
    def claude(description: str) -> dict[str, Any]:
        tool = {
            "name": "a",
            "description": description,
            "input_schema": {},
            "defer_loading": True,
        }
        addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "a"}}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "system", "content": [addition]},
            {"role": "assistant", "content": "ho"},
        ]
        return {"tools": [tool], "messages": messages}

    first = seen(claude("one"), claude("two"), CLAUDE).first
    assert first is not None
    assert first.path == "messages[1].content[0]" and first.before is first.after is None


def test_tokens_are_estimated_by_the_prompt_or_else_by_bytes() -> None:
    known = seen(chat("a" * 400), chat("a" * 400), prompt=1000).changes
    assert sum(each.tokens for each in known) == pytest.approx(1000, abs=len(known))
    unknown = seen(chat("a" * 400), chat("a" * 400)).changes
    assert all(each.tokens == -(-each.size // 4) for each in unknown)


def test_long_histories_without_anything_in_common_are_paired_in_time() -> None:
    def talk(word: str) -> dict[str, Any]:
        return chat(*(f"{word}{at}" for at in range(2100)))

    found = seen(talk("a"), talk("b"))
    assert [each.state for each in found.changes].count("changed") == 2100


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, (".a[1]", "2", "3")),
        ({"a": [1, 2]}, {"a": [1]}, (".a[1]", "2", None)),
        ({"a": 1}, {"a": 1, "b": 2}, (".b", None, "2")),
        ({"a": 1, "b": 2}, {"a": 1}, (".b", "2", None)),
        ({"b": 2}, {"a": 1}, (".b", "2", None)),
        ({"a": 1}, {"a": True}, (".a", "1", "true")),
        ({"a": 1}, {"a": 1.0}, (".a", "1", "1.0")),
        ("text", "text and more", ("", "text", "text and more")),
        ([], {}, ("", "[]", "{}")),
        (None, "x", ("", "null", "x")),
    ],
)
def test_the_place_inside_a_value_is_found(before: Any, after: Any, expected: Any) -> None:
    assert inside(before, after) == expected
    assert inside(before, before) is None
