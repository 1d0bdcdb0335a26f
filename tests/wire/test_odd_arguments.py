"""Arguments as servers really send them: as objects, `null`, encoded twice, or not at all.

Reports: ggml-org/llama.cpp#20198, huggingface/text-generation-inference#2136 (an object);
1jehuang/jcode#225, vllm-project/vllm#19419, tailcallhq/forgecode#2764, huggingface/smolagents#1003
(texts of which it is clear what is meant).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.wire.odd_streams import ONE, WANTED, Json, by_wire, calls, changed
from tests.wire.wires import (
    CHAT,
    CONVERSE,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Speaker,
    called,
    read,
    said,
)

from addendum.wire.answer import Answer

# -- arguments ----------------------------------------------------------------------------------

MEANT = {
    "": {},
    " \n": {},
    "null": {},
    " null ": {},
    '""': {},
    '"{}"': {},
    '"null"': {},
    '"{\\"a\\": 1}"': {"a": 1},
    '"\\"{\\\\\\"a\\\\\\": 1}\\""': {"a": 1},
    '{"a": 1}\n': {"a": 1},
    '{}{"a": 1}': {"a": 1},
    '{} {"a": "{}"}': {"a": "{}"},
}


@by_wire
@pytest.mark.parametrize("text", MEANT)
def test_what_argument_texts_mean(speaker: Speaker, text: str) -> None:
    if speaker is GEMINI:
        events = speaker.stream([called("f", "{}")], "STOP")
        events = changed(events, lambda value: value.update(args=text) if "args" in value else None)
        found = read(speaker, events)[0]
    else:
        found = speaker.answer(called("f", text))
    assert calls(found) == [("f", MEANT[text])]
    # What goes back is an object, too.
    assert json.loads(_sent_back(speaker, found)) == MEANT[text]


def _sent_back(speaker: Speaker, found: Answer) -> str:
    item = json.loads(bytes(found.native[-1]))
    match speaker.wire:
        case "openai_chat":
            return item["tool_calls"][0]["function"]["arguments"]
        case "openai_responses":
            return item["arguments"] or "{}"
        case "anthropic_messages":
            return json.dumps(item["input"])
        case "gemini":
            return json.dumps(item["functionCall"].get("args", {}))
        case _:
            return json.dumps(item["toolUse"]["input"])


@pytest.mark.parametrize(
    "text", ['"x"', "[1]", "7", '"[1]"', '{"a": ', '{}{"a": ', "{}[]", '"{\\"a\\"', "{}x"]
)
def test_what_means_no_object_stays_as_it_came(text: str) -> None:
    for speaker in (MESSAGES, CHAT, RESPONSES, CONVERSE):
        assert speaker.answer(called("f", text)).calls[0].arguments == text


@pytest.mark.parametrize(
    "speaker", [MESSAGES, CONVERSE, RESPONSES, GEMINI], ids=lambda each: each.wire
)
@pytest.mark.parametrize("given", [{"a": 1}, '{"a": 1}', '"{\\"a\\": 1}"'])
def test_arguments_of_another_kind_than_the_wires(speaker: Speaker, given: Any) -> None:
    key = {MESSAGES: "partial_json", CONVERSE: "input", RESPONSES: "arguments", GEMINI: "args"}[
        speaker
    ]

    def each(value: Json) -> None:
        if value.get(key) and (speaker is not CONVERSE or "name" not in value):
            value[key] = given
        if "function_call_arguments" in str(value.get("type")):
            value.pop("delta", None)

    found = read(
        speaker, changed(speaker.stream([called("f", '{"x": 0}')], speaker.whole[0]), each)
    )[0]
    assert calls(found) == [("f", {"a": 1})]
    assert json.loads(_sent_back(speaker, found)) == {"a": 1}


@by_wire
def test_a_call_without_a_name_costs_only_itself(speaker: Speaker) -> None:
    for name in ("", None, 7, []):

        def each(value: Json, name: Any = name) -> None:
            if value.get("name") == "lost":
                value["name"] = name

        parts = [said("I "), called("lost", '{"a": 1}', id="c1"), called("add", ONE, id="c2")]
        found = read(speaker, changed(speaker.stream(parts, speaker.whole[0]), each))[0]
        assert calls(found) == [("", {"a": 1}), WANTED[0]]
        assert found.text == "I "
