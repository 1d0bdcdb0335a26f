"""Answers on the Anthropic wire: a message as one JSON body, or as a stream of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from addendum import encoding
from addendum.lab.anthropic_shapes import Json
from addendum.lab.exchange import Reply, pieces, sse
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import segment

_TEXT_PIECE = 24
_JSON_PIECE = 16

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def content(text: str, calls: Sequence[tuple[str, str]], seed: bytes) -> list[Json]:
    """Return the blocks that say `text` and make `calls`.

    Args:
        text: The text; none is said if it is empty.
        calls: Pairs of a name and arguments as JSON text.
        seed: The request's body: equal requests get equal call ids, others never do.
    """
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for at, (name, arguments) in enumerate(calls):
        call_id = f"toolu_{encoding.digest(seed + bytes([at]))[:22]}"
        blocks.append(
            {
                "type": "tool_use",
                "id": call_id,
                "name": name,
                "input": encoding.decode(arguments),
            }
        )
    return blocks


def output_tokens(blocks: Sequence[Json], thinking: int = 0) -> int:
    """Return the tokens of an answer.

    Args:
        blocks: Its blocks; thinking blocks are left to `thinking`.
        thinking: Tokens of its thinking.
    """
    spoken = [block for block in blocks if block["type"] != "thinking"]
    return thinking + sum(segment("assistant", block).tokens for block in spoken)


def message_id(seed: bytes) -> str:
    """Return the id of the message that answers a body."""
    return f"msg_{encoding.digest(seed)[:22]}"


def answer(
    *,
    model: str,
    blocks: Sequence[Json],
    usage: Mapping[str, Any],
    stop_reason: str,
    stream: bool,
    seed: bytes,
    extra: Mapping[str, Any] | None = None,
) -> Reply:
    """Return an answer with its usage, without what happens in the cache.

    Args:
        model: The model's id as the request gave it.
        blocks: The answer's content.
        usage: The whole usage object.
        stop_reason: `end_turn`, `tool_use` or `max_tokens`.
        stream: Whether to answer with events.
        seed: The request's body, for ids.
        extra: Further fields of the message.
    """
    message: Json = {
        "id": message_id(seed),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(blocks),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": dict(usage),
        **(extra or {}),
    }
    headers = {"request-id": f"req_{encoding.digest(seed)[:22]}"}
    if not stream:
        return Reply(200, payload=encoding.encode(message), usage=usage, headers=headers)
    return Reply(200, events=_events(message), usage=usage, headers=headers)


def refusal(error: Refusal) -> Reply:
    """Return a refusal in the wire's error shape."""
    kind = error.kind
    if kind == "invalid_request_error":
        kind = _KINDS.get(error.status, kind)
    body: Json = {"type": kind, "message": str(error)}
    if error.code:
        body["details"] = {"error_code": error.code}
    return Reply(
        error.status,
        payload=encoding.encode({"type": "error", "error": body, "request_id": "req_lab"}),
        refusal=str(error),
        headers={"request-id": "req_lab"},
    )


def _events(message: Json) -> tuple[bytes, ...]:
    begun = {**message["usage"], "output_tokens": 1}
    start: Json = {**message, "content": [], "stop_reason": None, "usage": begun}
    events = [_event("message_start", message=start), _event("ping")]
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block)
        events.append(_event("content_block_start", index=index, content_block=empty))
        events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(_event("content_block_stop", index=index))
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append(_event("message_delta", delta=stop, usage=message["usage"]))
    events.append(_event("message_stop"))
    return tuple(events)


def _deltas(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            parts = pieces(block["text"], _TEXT_PIECE)
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in parts]
        case "thinking":
            parts = pieces(block["thinking"], _TEXT_PIECE)
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": p} for p in parts]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case _:
            parts = ["", *pieces(encoding.encode(block["input"]).decode(), _JSON_PIECE)]
            json_deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            return {**block, "input": {}}, json_deltas


def _event(kind: str, **data: Any) -> bytes:
    return sse({"type": kind, **data}, kind)
