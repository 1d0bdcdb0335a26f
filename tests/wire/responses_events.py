"""Events of a Responses stream, and what they are read into."""

from __future__ import annotations

import json
from typing import Any

from addendum import encoding
from addendum.wire.answer import Answer, Delta
from addendum.wire.openai_responses.parse import ResponsesParser
from addendum.wire.sse import SseEvent

Json = dict[str, Any]
SEALED: Json = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "xyz"}
USAGE: Json = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 8},
    "output_tokens": 4,
    "total_tokens": 34,
}


def said(text: str, ident: str = "msg_1") -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    about = {"id": ident, "type": "message", "status": "completed", "role": "assistant"}
    return {**about, "content": [part]}


def called(call_id: str, name: str, arguments: str = "{}", ident: str = "fc_1") -> Json:
    about = {"id": ident, "type": "function_call", "status": "completed", "call_id": call_id}
    return {**about, "name": name, "arguments": arguments}


def event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def added(index: int, item: Json) -> Json:
    return event("output_item.added", output_index=index, item=item)


def done(index: int, item: Json) -> Json:
    return event("output_item.done", output_index=index, item=item)


def delta(kind: str, index: int, text: str) -> Json:
    return event(f"{kind}.delta", output_index=index, item_id="i", delta=text)


def response(status: str = "completed", **more: Any) -> Json:
    about = {"id": "resp_1", "object": "response", "model": "m-1", "status": status}
    return {**about, "error": None, "incomplete_details": None, "output": [], **more}


def completed(**more: Any) -> Json:
    return event("completed", response=response(usage=USAGE, **more))


def read(*events: Json | bytes) -> tuple[ResponsesParser, list[Delta]]:
    parser = ResponsesParser()
    deltas: list[Delta] = []
    for each in events:
        data = each if isinstance(each, bytes) else encoding.encode(each)
        deltas.extend(parser.feed(SseEvent(None, data)))
    return parser, deltas


def answer(*items: Json) -> Answer:
    return read(*(done(at, item) for at, item in enumerate(items)), completed())[0].finish()


def natives(found: Answer) -> list[Json]:
    return [json.loads(bytes(raw)) for raw in found.native]
