"""Chunks of a Chat Completions stream, and what they are read into."""

from __future__ import annotations

import json
from typing import Any

from addendum.wire.answer import (
    Answer,
    Delta,
)
from addendum.wire.openai_chat.parse import ChatParser
from addendum.wire.sse import SseEvent

Json = dict[str, Any]
DONE = b"[DONE]"


def chunk(delta: Json | None = None, finish: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, "logprobs": None}
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m-1"}
    return {**about, "choices": [choice], "usage": None, **more}


def piece(index: Any = 0, ident: Any = None, name: Any = None, arguments: Any = None) -> Json:
    """Return a piece of a call; what is not given is absent."""
    function = {"name": name, "arguments": arguments}
    given = {"index": index, "id": ident, "function": function, "type": "function"}
    return {k: v for k, v in given.items() if v is not None}


def calls(*pieces: Json) -> Json:
    return chunk({"tool_calls": list(pieces)})


def read(events: list[Json | bytes]) -> tuple[ChatParser, list[Delta]]:
    parser = ChatParser()
    deltas: list[Delta] = []
    for event in events:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        deltas.extend(parser.feed(SseEvent(None, data)))
    return parser, deltas


def answer(*events: Json | bytes, finish: str = "stop") -> Answer:
    return read([*events, chunk(finish=finish), DONE])[0].finish()


def native(found: Answer) -> bytes:
    (raw,) = found.native
    return bytes(raw)
