"""Which calls of an answer have come whole while it still streams, on every wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from addendum.log.values import Call
from addendum.wire.answer import Parser
from addendum.wire.anthropic_messages.parse import AnthropicParser
from addendum.wire.bedrock_converse.parse import ConverseParser
from addendum.wire.gemini.parse import GeminiParser
from addendum.wire.openai_chat.parse import ChatParser
from addendum.wire.openai_responses.parse import ResponsesParser
from addendum.wire.sse import SseEvent

Json = dict[str, Any]


def _claude(index: int, text: str) -> list[Json]:
    start = {"type": "tool_use", "id": f"c{index}", "name": "look", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": text}
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def _chat(index: int, text: str, **more: Any) -> Json:
    function = {"name": "look", "arguments": text}
    call = {"index": index, "id": f"c{index}", "type": "function", "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, **more}]}


def _responses(kind: str, text: str) -> Json:
    item = {"type": "function_call", "id": "fc", "call_id": "c0", "name": "look"}
    return {"type": kind, "output_index": 0, "item": {**item, "arguments": text}}


WHOLE = (Call("c0", "look", '{"q":1}'),)
CASES: list[Any] = [
    pytest.param(
        AnthropicParser(),
        [
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {}}},
            *_claude(0, '{"q":1}'),
            *_claude(1, '{"q":2}')[:2],
        ],
        [(), (), (), WHOLE, WHOLE, WHOLE],
        id="anthropic_messages",
    ),
    pytest.param(
        ChatParser(),
        [
            _chat(0, '{"q":1}'),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        ],
        [(), WHOLE],
        id="openai_chat",
    ),
    pytest.param(
        ResponsesParser(),
        [
            _responses("response.output_item.added", ""),
            {
                "type": "response.function_call_arguments.delta",
                "output_index": 0,
                "delta": '{"q":1}',
            },
            _responses("response.output_item.done", '{"q":1}'),
        ],
        [(), (), WHOLE],
        id="openai_responses",
    ),
    pytest.param(
        GeminiParser(),
        [
            {
                "candidates": [
                    {
                        "content": {
                            "parts": [
                                {"functionCall": {"id": "c0", "name": "look", "args": {"q": 1}}}
                            ]
                        }
                    }
                ]
            }
        ],
        [(Call("c0", "look", '{"q": 1}'),)],
        id="gemini",
    ),
]


@pytest.mark.parametrize(("parser", "events", "settled"), CASES)
def test_a_call_is_settled_when_nothing_can_change_it(
    parser: Parser, events: list[Json], settled: list[tuple[Call, ...]]
) -> None:
    found: list[tuple[Call, ...]] = []
    for event in events:
        parser.feed(SseEvent(None, json.dumps(event).encode()))
        found.append(parser.settled())
    assert found == settled


def test_a_call_of_converse_is_settled_when_its_block_stops() -> None:
    parser = ConverseParser()
    start = {"start": {"toolUse": {"toolUseId": "c0", "name": "look"}}, "contentBlockIndex": 0}
    delta = {"delta": {"toolUse": {"input": '{"q":1}'}}, "contentBlockIndex": 0}
    found: list[tuple[Call, ...]] = []
    for name, data in (
        ("messageStart", {"role": "assistant"}),
        ("contentBlockStart", start),
        ("contentBlockDelta", delta),
        ("contentBlockStop", {"contentBlockIndex": 0}),
    ):
        parser.feed(SseEvent(name, json.dumps(data).encode()))
        found.append(parser.settled())
    assert found == [(), (), (), WHOLE]
