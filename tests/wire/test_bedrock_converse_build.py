from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.wire.prompts import CONFIG, human, prompt, tool

from addendum.errors import UnsupportedContent
from addendum.log.values import Config
from addendum.prompt.blocks import Block, Change, Marks, Native, Result, Text, Use
from addendum.wire.bedrock_converse import WIRE
from addendum.wire.bedrock_converse.build import Renderer, body, kind, rewrite

POINT = {"cachePoint": {"type": "default"}}
REASONING = Raw(b'{"reasoningContent":{"reasoningText":{"text":"","signature":"s/+="}}}')
CALL = Raw(b'{"toolUse":{"toolUseId":"t1","name":"a","input":{"q":  1}}}')
ROUND: tuple[Block, ...] = (
    human(1, "hi"),
    Native(2, 0, REASONING, kind(REASONING)),
    Native(2, 1, CALL, kind(CALL)),
    Result(3, 0, "t1", "a", "seen"),
    Text(3, 1, "user", "<tool_update>{}</tool_update>", "announcement"),
)


def built(*blocks: Block, config: Config = CONFIG, **more: Any) -> dict[str, Any]:
    return json.loads(body(prompt(WIRE, *blocks, **more), config))


def test_the_whole_body_of_a_round() -> None:
    found = body(
        prompt(
            WIRE,
            *ROUND,
            settled=2,
            tools=(tool("a"),),
            system=("Static.", "Conversation."),
            marks=Marks(True, (0,), (0, 4)),
        ),
        CONFIG,
    )
    point = b'{"cachePoint":{"type":"default"}}'
    assert found == (
        b'{"toolConfig":{"tools":[{"toolSpec":{"name":"a","description":"D.","inputSchema":'
        b'{"json":{"type":"object","properties":{"q":{"type":"string"}}}}}},' + point + b"]},"
        b'"system":[{"text":"Static."},' + point + b',{"text":"Conversation."}],'
        b'"messages":[{"role":"user","content":[{"text":"hi"},' + point + b"]},"
        b'{"role":"assistant","content":[' + bytes(REASONING) + b"," + bytes(CALL) + b"]},"
        b'{"role":"user","content":[{"toolResult":{"toolUseId":"t1","content":[{"text":"seen"}],'
        b'"status":"success"}},{"text":"<tool_update>{}</tool_update>"},' + point + b"]}]}"
    )


def test_the_same_bytes_whatever_is_settled() -> None:
    renderer = Renderer()
    for settled in range(len(ROUND) + 1):
        marks = Marks(False, (), (settled % len(ROUND),))
        asked = prompt(WIRE, *ROUND, settled=settled, tools=(tool("a"),), marks=marks)
        assert renderer.body(asked, CONFIG) == body(asked, CONFIG)


def test_each_block_is_encoded_once() -> None:
    renderer = Renderer()
    tools = (tool("once"),)
    renderer.body(prompt(WIRE, *ROUND, settled=0, tools=tools), CONFIG)
    first = renderer.encoded
    renderer.body(prompt(WIRE, *ROUND, settled=5, tools=tools), CONFIG)
    assert renderer.encoded == first


def test_a_moved_tail_joins_the_message_it_stands_in_front_of() -> None:
    for settled in (0, 1):
        found = built(human(1, "hi"), settled=settled, tail="Be brief.", marks=Marks(blocks=(0,)))
        assert found["messages"] == [
            {"role": "user", "content": [{"text": "Be brief."}, {"text": "hi"}, POINT]}
        ]
    late = built(*ROUND, human(5, "more"), tail="Be brief.", tail_at=5)
    assert [next(iter(each.values())) for each in late["messages"][-1]["content"][1:]] == [
        "<tool_update>{}</tool_update>",
        "Be brief.",
        "more",
    ]
    behind = built(human(1, "hi"), tail="Be brief.", tail_at=1)
    assert behind["messages"][0]["content"] == [{"text": "hi"}, {"text": "Be brief."}]


def test_an_hour_is_stated_and_five_minutes_are_not_t60() -> None:
    marks = Marks(blocks=(0,))
    hour = built(human(1, "hi"), marks=marks, ttl="1h")["messages"][0]["content"][1]
    assert hour == {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert built(human(1, "hi"), marks=marks, ttl="5m")["messages"][0]["content"][1] == POINT


def test_calls_of_other_routes_and_failed_results() -> None:
    found = built(
        human(1, "hi"),
        Text(2, 0, "assistant", "Looking.", "answer"),
        Use(2, 1, "c1", "a", '{"q":1}'),
        Use(2, 2, "c2", "a", "not json"),
        Result(3, 0, "c1", "a", " ", is_error=True),
        Result(4, 0, "c2", "a", "fine"),
    )
    use = found["messages"][1]["content"]
    assert use[1] == {"toolUse": {"toolUseId": "c1", "name": "a", "input": {"q": 1}}}
    assert use[2]["toolUse"]["input"] == {"unreadable_arguments": "not json"}
    results = [each["toolResult"] for each in found["messages"][2]["content"]]
    assert [(each["status"], each["content"]) for each in results] == [
        ("error", [{"text": "(empty)"}]),
        ("success", [{"text": "fine"}]),
    ]


def test_settings() -> None:
    config = Config("x", "m", max_tokens=9, temperature=0.5, stop=("x",), effort="low")
    found = built(human(1, "hi"), config=config)
    assert found["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["x"]}
    assert found["additionalModelRequestFields"] == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
    }
    assert list(built(human(1, "hi"))) == ["messages"]


def test_schemas_and_descriptions_as_this_wire_takes_them() -> None:
    union = {"anyOf": [{"required": ["a"]}], "properties": {"a": {}}}
    found = built(human(1, "hi"), tools=(tool("a", union, ""), tool("b")))
    first, second = (each["toolSpec"] for each in found["toolConfig"]["tools"])
    assert first["description"] == "a"
    assert first["inputSchema"]["json"] == {"properties": {"a": {}}, "type": "object"}
    assert second["inputSchema"]["json"]["properties"] == {"q": {"type": "string"}}


def test_what_the_wire_cannot_say_is_refused() -> None:
    for block in (
        Change(4, 0, "a", True),
        Text(4, 0, "system", "New.", "prompt"),
    ):
        with pytest.raises(UnsupportedContent) as caught:
            built(human(1, "hi"), block)
        assert "\n" not in str(caught.value)


def test_t41_a_direct_call_is_rewritten_and_its_reasoning_is_not() -> None:
    envelope = '{"name":"a","arguments":{"q":  1}}'
    found = rewrite((REASONING, CALL), {"t1": envelope}, "call_tool")
    assert found[0] == REASONING
    assert bytes(found[1]).decode() == (
        f'{{"toolUse":{{"toolUseId":"t1","name":"call_tool","input":{envelope}}}}}'
    )
    # A second pass changes nothing that has another id, and the same call to the same bytes (T42).
    assert rewrite(found, {"t2": "{}"}, "call_tool") == found
    assert rewrite(found, {"t1": envelope}, "call_tool") == found


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (REASONING, "reasoning"),
        (CALL, "tool_use"),
        (Raw(b'{"text":"x"}'), "text"),
        (Raw(b'{"image":{}}'), "image"),
    ],
)
def test_kinds(raw: Raw, found: str) -> None:
    assert kind(raw) == found
