"""Bodies of the Responses API: what stands where, and that each change is told as the route can."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw, structs

from addendum.errors import UnsupportedContent
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Block, Change, Marks, Native, Prompt, Result, Text, Use
from addendum.routes import context, resolve
from addendum.wire.apis import facts
from addendum.wire.openai_responses.build import Renderer, body

Json = dict[str, Any]
ROUTE = resolve("openai:gpt-6.1-sol", environ={})
NATIVE = context(ROUTE, "addition-only")
CONFIG = Config("openai", "gpt-6.1-sol")
HUMAN = Text(1, 0, "user", "hi", "human")


def tool(name: str, parameters: bytes = b'{"type":"object"}') -> ToolSchema:
    return ToolSchema(name, f"does {name}", Raw(parameters))


def declared(name: str) -> Json:
    about = {"type": "function", "name": name, "description": f"does {name}"}
    return {**about, "parameters": {"type": "object"}, "strict": False}


def prompt(*blocks: Block, settled: int = 0, **more: Any) -> Prompt:
    made = Prompt(
        context=NATIVE,
        tools=(tool("look"),),
        system=(Text(-1, 0, "system", "static", "prompt"),),
        settled=list(blocks[:settled]),
        count=settled,
        open=blocks[settled:],
        tail=None,
        tail_at=len(blocks),
        marks=Marks(),
        chain=1,
        cache_key="k",
    )
    return structs.replace(made, **more)


def said(made: Prompt, config: Config = CONFIG, **more: Any) -> Json:
    return json.loads(body(made, config, **more))


def text(role: str, value: str, **more: Any) -> Json:
    part = {"type": "input_text", "text": value, **more}
    return {"type": "message", "role": role, "content": [part]}


def test_nothing_is_stored_and_reasoning_is_asked_for_where_the_model_reasons() -> None:
    plain = said(prompt(HUMAN))
    assert (plain["store"], plain["stream"], plain["prompt_cache_key"]) == (False, True, "k")
    assert "include" not in plain and "instructions" not in plain
    asked = said(prompt(HUMAN), encrypted_reasoning=True)
    assert asked["include"] == ["reasoning.encrypted_content"]


def test_the_head_is_an_item_in_front_of_the_prompt_where_changes_are_native() -> None:
    found = said(prompt(HUMAN))
    assert "tools" not in found
    head = {"type": "additional_tools", "role": "developer", "tools": [declared("look")]}
    assert found["input"] == [head, text("developer", "static"), text("user", "hi")]


@pytest.mark.parametrize("projection", ["dispatch", "rebind"])
def test_elsewhere_tools_stand_at_the_top(projection: Any) -> None:
    found = said(prompt(HUMAN, context=context(ROUTE, projection)))
    assert found["tools"] == [declared("look")]
    assert found["input"] == [text("developer", "static"), text("user", "hi")]


def test_one_update_is_one_item_and_the_next_another() -> None:
    blocks = (
        HUMAN,
        Change(2, 0, "a", True, tool("a")),
        Change(2, 1, "b", True, tool("b")),
        Change(3, 0, "c", True, tool("c")),
        Text(3, 1, "system", "notice", "announcement"),
    )
    items = said(prompt(*blocks))["input"][2:]
    assert [item.get("role") for item in items] == ["user", *["developer"] * 3]
    assert items[1]["tools"] == [declared("a"), declared("b")]
    assert items[2]["tools"] == [declared("c")]
    assert items[3] == text("developer", "notice")
    last = said(prompt(*blocks[:2]))["input"]
    assert last[-1]["tools"] == [declared("a")]


def test_calls_results_and_answers() -> None:
    items = said(
        prompt(
            HUMAN,
            Text(2, 0, "assistant", "well", "answer"),
            Use(2, 1, "c1", "look", '{"q" : 1}'),
            Result(3, 0, "c1", "look", "found"),
        )
    )["input"][3:]
    assert items == [
        {"type": "message", "role": "assistant", "content": "well"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q" : 1}'},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "found"}],
        },
    ]


def test_an_items_own_text_is_kept_and_without_its_reasoning_it_has_no_id() -> None:
    raw = b'{"id":"fc_1","type":"function_call","call_id":"c","name":"t","arguments":"{ }"}'
    paired = Native(2, 1, Raw(raw), "function_call")
    assert raw in body(prompt(HUMAN, paired), CONFIG)
    alone = structs.replace(paired, unpaired=True)
    assert raw.replace(b'"id":"fc_1",', b"") in body(prompt(HUMAN, alone), CONFIG)


def test_marks_stand_on_parts_and_change_nothing_else() -> None:
    blocks = (HUMAN, Result(3, 0, "c", "look", "r"))
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    items = said(prompt(*blocks, marks=Marks(False, (0,), (0, 1))))["input"][1:]
    assert items[0] == text("developer", "static", **mark)
    assert items[1] == text("user", "hi", **mark)
    assert items[2]["output"] == [{"type": "input_text", "text": "r", **mark}]


def test_the_tail_stands_in_front_of_its_message_wherever_that_is() -> None:
    tail = Text(9, 1, "user", "tail", "tail")
    change = Change(1, 1, "a", True, tool("a"))
    second = Text(5, 0, "user", "second", "human")
    for settled in range(4):
        found = said(prompt(HUMAN, change, second, settled=settled, tail=tail, tail_at=2))
        assert found["input"][-2:] == [text("user", "tail"), text("user", "second")]
        assert found["input"][-3]["tools"] == [declared("a")]
    assert said(prompt(HUMAN, change, tail=tail))["input"][-1] == text("user", "tail")


def test_a_renderer_that_follows_gives_the_bytes_of_one_that_does_not() -> None:
    blocks = [
        HUMAN,
        Change(1, 1, "a", True, tool("a")),
        Change(1, 2, "b", True, tool("b")),
        Text(4, 0, "assistant", "x", "answer"),
        Text(5, 0, "user", "second", "human"),
    ]
    renderer = Renderer()
    for count in range(1, 6):
        for settled in (0, count - 1) if count == 1 else (count - 1,):
            made = prompt(*blocks[:count], settled=settled, marks=Marks(False, (0,), (0,)))
            assert renderer.body(made, CONFIG) == body(made, CONFIG)


def test_caching_off_is_explicit_mode_without_a_mark() -> None:
    off = prompt(HUMAN, context=structs.replace(NATIVE, caching=False))
    assert said(off, breakpoints=True)["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_options" not in said(off)
    assert "prompt_cache_key" not in said(off, breakpoints=True)


def test_what_the_wire_cannot_say_raises() -> None:
    with pytest.raises(UnsupportedContent, match="stop sequences"):
        body(prompt(HUMAN), Config("openai", "m", stop=("x",)))
    with pytest.raises(UnsupportedContent, match="tool_changes='auto'"):
        body(prompt(HUMAN, Change(2, 0, "a", False)), CONFIG)


def test_settings() -> None:
    config = Config("openai", "m", effort="low", temperature=0.5, max_tokens=99)
    found = said(prompt(HUMAN), config)
    assert found["reasoning"] == {"effort": "low"}
    assert (found["temperature"], found["max_output_tokens"]) == (0.5, 99)


def test_breakpoints_are_sent_where_they_are_known() -> None:
    def marks(name: str, **more: Any) -> tuple[int, bool]:
        found = facts(resolve(name, environ={}, **more))
        return found.marks, found.implicit

    assert marks("openai:gpt-6.1-sol") == (3, True)
    assert marks("openai:gpt-4.1") == (0, True)
    assert marks("openai:gpt-6.1-sol", base_url="https://gateway.example.com/v1") == (0, True)
    assert marks("openai-chat:gpt-6.1-sol") == (0, False)
