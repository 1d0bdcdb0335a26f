"""Events of a Messages stream, and what they are read into."""

from __future__ import annotations

import json
from typing import Any

from addendum.wire.answer import (
    Answer,
    Delta,
)
from addendum.wire.anthropic_messages.parse import AnthropicParser
from addendum.wire.sse import SseEvent

Json = dict[str, Any]
SIGNATURE = "EqQB+/=\u2028é\\/"


def message_start(usage: Json | None = None) -> Json:
    message = {"id": "msg_1", "type": "message", "model": "claude-x", "content": []}
    return {"type": "message_start", "message": {**message, "usage": usage or {"input_tokens": 3}}}


def block(index: int, start: Json, *deltas: Json) -> list[Json]:
    grown = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *grown,
        {"type": "content_block_stop", "index": index},
    ]


def ended(stop: str = "end_turn", usage: Json | None = None) -> list[Json]:
    usage = usage or {"output_tokens": 9}
    return [
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    ]


def read(events: list[Json | bytes]) -> tuple[AnthropicParser, list[Delta]]:
    parser = AnthropicParser()
    deltas: list[Delta] = []
    for event in events:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        deltas.extend(parser.feed(SseEvent(None, data)))
    return parser, deltas


def answer(*blocks: list[Json], stop: str = "end_turn") -> Answer:
    content = [event for part in blocks for event in part]
    return read([message_start(), *content, *ended(stop)])[0].finish()


def natives(found: Answer) -> list[bytes]:
    return [bytes(raw) for raw in found.native]


TOOL: Json = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}


def inputs(*pieces: str) -> list[Json]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
