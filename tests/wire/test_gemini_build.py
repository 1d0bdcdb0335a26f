from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.wire.prompts import CONFIG, human, prompt, tool

from addendum.errors import UnsupportedContent
from addendum.log.values import Config
from addendum.prompt.blocks import Block, Change, Native, Result, Text, Use
from addendum.wire.gemini import WIRE
from addendum.wire.gemini.build import Renderer, body, kind, rewrite

STAND_IN = "skip_thought_signature_validator"
CALL = Raw(
    b'{"functionCall":{"id":"f1","name":"call_tool","args":{"q":  1}},"thoughtSignature":"+/A="}'
)
ROUND: tuple[Block, ...] = (
    human(1, "hi"),
    Native(2, 0, CALL, kind(CALL)),
    Result(3, 0, "f1", "real__name", "seen"),
)


def built(
    *blocks: Block, config: Config = CONFIG, stand_in: str = "", **more: Any
) -> dict[str, Any]:
    return json.loads(body(prompt(WIRE, *blocks, **more), config, stand_in=stand_in))


def test_the_whole_body_of_a_round() -> None:
    system = ("Static.", "Conversation.")
    found = body(prompt(WIRE, *ROUND, settled=2, tools=(tool("a"),), system=system), CONFIG)
    assert found == (
        b'{"tools":[{"functionDeclarations":[{"name":"a","description":"D.","parametersJsonSchema":'
        b'{"type":"object","properties":{"q":{"type":"string"}}}}]}],'
        b'"systemInstruction":{"parts":[{"text":"Static."},{"text":"Conversation."}]},'
        b'"contents":[{"role":"user","parts":[{"text":"hi"}]},'
        b'{"role":"model","parts":[' + bytes(CALL) + b"]},"
        b'{"role":"user","parts":[{"functionResponse":{"id":"f1","name":"call_tool",'
        b'"response":{"output":"seen"}}}]}]}'
    )


def test_the_same_bytes_whatever_is_settled_and_each_block_once() -> None:
    renderer = Renderer()
    tools = (tool("kept"),)
    for settled in range(len(ROUND) + 1):
        asked = prompt(WIRE, *ROUND, settled=settled, tools=tools)
        assert renderer.body(asked, CONFIG) == body(asked, CONFIG)
    first = renderer.encoded
    renderer.body(prompt(WIRE, *ROUND, settled=3, tools=tools), CONFIG)
    assert renderer.encoded == first


def test_a_moved_tail_joins_the_content_it_stands_in_front_of() -> None:
    for settled in (0, 1):
        found = built(human(1, "hi"), settled=settled, tail="Be brief.")
        assert found["contents"] == [
            {"role": "user", "parts": [{"text": "Be brief."}, {"text": "hi"}]}
        ]
    late = built(*ROUND, human(4, "more"), tail="Be brief.", tail_at=3)
    assert late["contents"][-1]["parts"][1:] == [{"text": "Be brief."}, {"text": "more"}]
    behind = built(human(1, "hi"), tail="Be brief.", tail_at=1)
    assert behind["contents"][0]["parts"] == [{"text": "hi"}, {"text": "Be brief."}]


def test_the_stand_in_is_on_the_first_call_of_a_step_that_others_made() -> None:
    blocks = (
        human(1, "hi"),
        Text(2, 0, "assistant", "Looking.", "answer"),
        Use(2, 1, "c1", "a", '{"q":1}'),
        Use(2, 2, "c2", "a", "not json"),
        Result(3, 0, "c1", "a", "no", is_error=True),
        Result(4, 0, "c2", "a", "fine"),
    )
    parts = built(*blocks, stand_in=STAND_IN)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, STAND_IN, None]
    assert parts[2]["functionCall"]["args"] == {"unreadable_arguments": "not json"}
    plain = built(*blocks)["contents"]
    assert not any("thoughtSignature" in part for part in plain[1]["parts"])
    assert [part["functionResponse"]["response"] for part in plain[2]["parts"]] == [
        {"error": "no"},
        {"output": "fine"},
    ]
    # Never over a real one.
    assert STAND_IN not in json.dumps(built(*ROUND, stand_in=STAND_IN))


def test_a_function_without_parameters_declares_none() -> None:
    for schema in (
        {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": False},
        {"type": "object"},
    ):
        entry = built(human(1, "hi"), tools=(tool("a", schema, ""),))["tools"][0]
        assert entry["functionDeclarations"] == [{"name": "a", "description": "a"}]


def test_settings() -> None:
    config = Config("x", "m", max_tokens=9, temperature=0.5, stop=("x",), effort="low")
    assert built(human(1, "hi"), config=config)["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "stopSequences": ["x"],
        "thinkingConfig": {"thinkingLevel": "low"},
    }
    assert list(built(human(1, "hi"))) == ["contents"]


def test_what_the_wire_cannot_say_is_refused() -> None:
    for block in (Change(4, 0, "a", True), Text(4, 0, "system", "New.", "prompt")):
        with pytest.raises(UnsupportedContent) as caught:
            built(human(1, "hi"), block)
        assert "\n" not in str(caught.value)


def test_t41_a_direct_call_is_rewritten_and_keeps_its_signature() -> None:
    envelope = '{"name":"a","arguments":"{\\"q\\":  1}"}'
    text = Raw(b'{"text":"x"}')
    found = rewrite((text, CALL), {"f1": envelope}, "call_tool")
    assert found[0] == text
    assert bytes(found[1]).decode() == (
        f'{{"functionCall":{{"id":"f1","name":"call_tool","args":{envelope}}},'
        '"thoughtSignature":"+/A="}'
    )
    assert rewrite(found, {"f1": envelope}, "call_tool") == found
    assert rewrite(found, {"f2": envelope}, "call_tool") == found


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (CALL, "tool_use"),
        (Raw(b'{"text":"x","thought":true}'), "reasoning"),
        (Raw(b'{"text":"","thoughtSignature":"s"}'), "text"),
        (Raw(b'{"inlineData":{}}'), "inlineData"),
    ],
)
def test_kinds(raw: Raw, found: str) -> None:
    assert kind(raw) == found
