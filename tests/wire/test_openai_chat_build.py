"""From a prompt to a Chat Completions body, by what a route's data says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.wire.prompts import CONFIG, human, prompt, tool

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.prompt.blocks import Block, Change, Marks, Native, Result, Text, Use
from addendum.wire.openai_chat import WIRE
from addendum.wire.openai_chat.build import Renderer
from addendum.wire.openai_chat.reasoning import without_reasoning

MARK = {"type": "ephemeral"}
HUMAN = human(1, "hi")
LATE = Change(2, 0, "late", True, tool("late"))
MORE = Change(2, 1, "more", True, tool("more"))
NOTICE = Text(2, 2, "system", "notice", "announcement")
ANSWER = Native(3, 0, Raw(b'{"role":"assistant","content":"yo"}'), "")


def said(*blocks: Block, renderer: Renderer | None = None, **more: Any) -> dict[str, Any]:
    renderer = renderer or Renderer()
    return msgspec.json.decode(renderer.body(prompt(WIRE, *blocks, **more), CONFIG))


def text(value: str, mark: bool = False) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "text", "text": value}
    return {**part, "cache_control": MARK} if mark else part


def test_additions_of_one_update_are_one_system_message_without_content() -> None:
    messages = said(HUMAN, LATE, MORE, NOTICE)["messages"]
    assert list(messages[1]) == ["role", "tools"]
    assert messages[1]["role"] == "system"
    assert [each["function"]["name"] for each in messages[1]["tools"]] == ["late", "more"]
    assert messages[2] == {"role": "system", "content": "notice"}


def test_another_definition_in_the_midst_of_an_update_is_seen() -> None:
    """What is kept of open blocks goes by all of them, not by the first."""
    renderer = Renderer()
    said(HUMAN, LATE, MORE, renderer=renderer)
    other = Change(5, 10_000, "more", True, tool("more", description="Other."))
    messages = said(HUMAN, LATE, other, renderer=renderer)["messages"]
    assert messages[1]["tools"][1]["function"]["description"] == "Other."


@pytest.mark.parametrize("change", [Change(2, 0, "a", False), Change(2, 0, "a", True)])
def test_what_no_message_can_say_raises(change: Change) -> None:
    with pytest.raises(UnsupportedContent, match="takes a tool away or names it only"):
        said(HUMAN, change)


def test_marks_stand_on_parts_and_on_the_last_tool() -> None:
    blocks = (HUMAN, ANSWER, human(4, "more"), Result(5, 0, "c1", "a", "ok"))
    marks = Marks(tools=True, system=(0,), blocks=(0, 3))
    found = said(
        *blocks,
        renderer=Renderer(parts=True),
        system=("static", "own"),
        tools=(tool("a"), tool("b")),
        marks=marks,
    )
    assert [each.get("cache_control") for each in found["tools"]] == [None, MARK]
    system, first, answer, second, result = found["messages"]
    assert system["content"] == [text("static", True), text("own")]
    assert first["content"] == [text("hi", True)]
    assert answer == {"role": "assistant", "content": "yo"}
    assert second["content"] == [text("more")]
    assert result["content"] == [text("ok", True)]


def test_a_mark_changes_nothing_but_itself_settled_or_open() -> None:
    blocks = (HUMAN, ANSWER, human(4, "more"))
    marks = Marks(system=(0,), blocks=(0, 2))
    for settled in range(4):
        plain, found = (
            Renderer(parts=True).body(
                prompt(WIRE, *blocks, settled=settled, system=("s",), marks=each), CONFIG
            )
            for each in (Marks(), marks)
        )
        mark = b',"cache_control":{"type":"ephemeral"}'
        assert found.count(mark) == 3
        assert found.replace(mark, b"") == plain


def test_an_hour_is_said_where_it_is_asked_for() -> None:
    renderer = Renderer(parts=True)
    found = said(HUMAN, renderer=renderer, marks=Marks(blocks=(0,)), ttl="1h")
    assert found["messages"][0]["content"][0]["cache_control"] == {**MARK, "ttl": "1h"}


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("settled", [0, 1, 2])
def test_the_tail_stands_in_front_of_its_block_marked_or_not(at: int, settled: int) -> None:
    blocks = (HUMAN, ANSWER, human(4, "more"))
    marks = Marks(blocks=(0, 2))
    renderer = Renderer(parts=True)
    more: dict[str, Any] = {"settled": settled, "tail": "T", "tail_at": at, "marks": marks}
    roles = [
        message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
        for message in said(*blocks, renderer=renderer, **more)["messages"]
    ]
    expected = ["hi", "yo", "more"]
    expected.insert(at, "T")
    assert roles == expected


def test_a_renderer_that_follows_gives_the_bytes_of_one_that_does_not() -> None:
    blocks: list[Block] = [HUMAN, LATE, MORE, NOTICE, ANSWER, human(4, "more")]
    blocks += [Use(6, 1, "c1", "late", "{}"), Result(7, 0, "c1", "late", "ok")]
    follows = Renderer(parts=True, reasoning_stand_in="-")
    for count in range(1, len(blocks) + 1):
        # Additions of one update are settled together.
        for settled in {0, *(n for n in (1, 4, 5) if n <= count)}:
            given = prompt(WIRE, *blocks[:count], settled=settled, marks=Marks(blocks=(0,)))
            fresh = Renderer(parts=True, reasoning_stand_in="-").body(given, CONFIG)
            assert follows.body(given, CONFIG) == fresh


def test_a_key_goes_out_under_the_name_that_the_route_has_for_it() -> None:
    assert said(HUMAN, renderer=Renderer(cache_key="session_id"))["session_id"] == "key"
    assert "key" not in said(HUMAN, renderer=Renderer()).values()
    off = said(HUMAN, renderer=Renderer(cache_key="prompt_cache_key"), caching=False)
    assert "prompt_cache_key" not in off


def test_calls_without_reasoning_get_a_stand_in_where_it_is_asked_for() -> None:
    """Whatever made them: another route, or a model that did not think."""
    call = b'"tool_calls":[{"id":"c2","type":"function","function":{"name":"a","arguments":"{}"}}]'
    bare = Native(3, 0, Raw(b'{"role":"assistant","content":null,' + call + b"}"), "")
    thought = Native(
        4, 0, Raw(b'{"role":"assistant","content":null,"reasoning_content":"",' + call + b"}"), ""
    )
    renderer = Renderer(reasoning_stand_in="-")
    messages = said(Use(2, 1, "c1", "a", "{}"), bare, thought, ANSWER, renderer=renderer)
    reasoning = [each.get("reasoning_content") for each in messages["messages"]]
    assert reasoning == ["-", "-", "", None]
    assert not any("reasoning_content" in each for each in said(bare, ANSWER)["messages"])


def test_reasoning_is_taken_out_of_a_message_and_nothing_else() -> None:
    raw = Raw(b'{"role":"assistant","content":"a \\u00e9","reasoning_details":[{"x": 1}]}')
    assert bytes(without_reasoning(raw)) == b'{"role":"assistant","content":"a \\u00e9"}'
    for kept in (b'{"role":"assistant","content":"x"}', b'{"content":"\\"reasoning\\""}'):
        raw = Raw(kept)
        assert without_reasoning(raw) is raw


def test_a_prompt_that_grows_only_grows_at_the_end() -> None:
    blocks: list[Block] = [HUMAN, LATE, NOTICE, ANSWER, human(4, "more")]
    renderer = Renderer(parts=True)
    bodies = [
        renderer.body(prompt(WIRE, *blocks[:count], settled=0), CONFIG)
        for count in range(1, len(blocks) + 1)
    ]
    for before, after in pairwise(bodies):
        assert after.startswith(before[:-2])
        assert encoding.decode(after)


@pytest.mark.parametrize("empty", ["", " \n"])
def test_a_result_without_a_text_is_never_an_empty_part(empty: str) -> None:
    blocks = (HUMAN, Use(3, 0, "c1", "a", "{}"), Result(4, 0, "c1", "a", empty))
    assert said(*blocks)["messages"][-1]["content"] == empty
    found = said(*blocks, renderer=Renderer(parts=True), marks=Marks(blocks=(2,)))
    assert found["messages"][-1]["content"] == [text("(empty)", True)]
