"""One answer said on each wire: text, reasoning and calls as good streams, and as whole bodies.

What a test wants otherwise it changes in the events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from addendum.wire.answer import Answer, Delta, Parser
from addendum.wire.apis import WIRES
from addendum.wire.sse import SseEvent

Json = dict[str, Any]
Event = tuple[str | None, Any]
"""Name and data of an event; data is JSON, or bytes as they are."""


@dataclass(frozen=True)
class Said:
    """Text, or reasoning, in pieces."""

    pieces: Sequence[str]
    thought: bool = False


@dataclass(frozen=True)
class Called:
    """A call, its arguments in pieces."""

    id: str
    name: str
    pieces: Sequence[str]


Part = Said | Called


def thought(*pieces: str) -> Said:
    return Said(pieces, True)


def said(*pieces: str) -> Said:
    return Said(pieces)


def called(name: str, *pieces: str, id: str = "call_1") -> Called:
    return Called(id, name, pieces)


# -- Messages -----------------------------------------------------------------------------------


def messages(parts: Iterable[Part], stop: str | None) -> list[Event]:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 1}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "c", "content": []}
    events: list[Json] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    for index, part in enumerate(parts):
        start, deltas = _block(part)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if stop is not None:
        end = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}}
        events += [{**end, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]
    return [(event["type"], event) for event in events]


def _block(part: Part) -> tuple[Json, list[Json]]:
    if isinstance(part, Called):
        start = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        return start, [{"type": "input_json_delta", "partial_json": p} for p in part.pieces]
    if part.thought:
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": p} for p in part.pieces]
        signed = {"type": "signature_delta", "signature": "sig"}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in part.pieces]


def messages_body(parts: Iterable[Part], stop: str | None) -> Json:
    content: list[Json] = []
    for part in parts:
        if isinstance(part, Called):
            given = json.loads("".join(part.pieces) or "{}")
            content.append({"type": "tool_use", "id": part.id, "name": part.name, "input": given})
        elif part.thought:
            whole = "".join(part.pieces)
            content.append({"type": "thinking", "thinking": whole, "signature": "sig"})
        else:
            content.append({"type": "text", "text": "".join(part.pieces)})
    usage = {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 7}
    about = {"id": "m1", "type": "message", "role": "assistant", "model": "c"}
    return {**about, "content": content, "stop_reason": stop, "usage": usage}


# -- Chat Completions ---------------------------------------------------------------------------

CHAT_USAGE: Json = {
    "prompt_tokens": 140,
    "completion_tokens": 7,
    "total_tokens": 147,
    "prompt_tokens_details": {"cached_tokens": 40},
}


def chat_chunk(delta: Json | None, stop: str | None = None, **more: Any) -> Json:
    about = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": delta or {}, "finish_reason": stop}
    return {**about, "choices": [choice], **more}


def chat_piece(index: int, id: str | None, name: str | None, arguments: str) -> Json:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    head = {"index": index, "id": id, "type": "function"} if id else {"index": index}
    return chat_chunk({"tool_calls": [{**head, "function": function}]})


def chat(parts: Iterable[Part], stop: str | None) -> list[Event]:
    events: list[Any] = [chat_chunk({"role": "assistant", "content": ""})]
    number = 0
    for part in parts:
        if isinstance(part, Called):
            events.append(chat_piece(number, part.id, part.name, ""))
            events += [chat_piece(number, None, None, piece) for piece in part.pieces]
            number += 1
        else:
            field = "reasoning_content" if part.thought else "content"
            events += [chat_chunk({field: piece}) for piece in part.pieces]
    if stop is not None:
        events += [chat_chunk({}, stop), {**chat_chunk(None), "choices": [], "usage": CHAT_USAGE}]
        events.append(b"[DONE]")
    return [(None, event) for event in events]


def chat_body(parts: Iterable[Part], stop: str | None) -> Json:
    listed = list(parts)
    message: Json = {"role": "assistant"}
    texts = [part for part in listed if isinstance(part, Said)]
    message["content"] = "".join("".join(p.pieces) for p in texts if not p.thought)
    if any(part.thought for part in texts):
        message["reasoning_content"] = "".join("".join(p.pieces) for p in texts if p.thought)
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": "".join(part.pieces)},
        }
        for part in listed
        if isinstance(part, Called)
    ]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": stop}
    about = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**about, "choices": [choice], "usage": CHAT_USAGE}


# -- Responses ----------------------------------------------------------------------------------

RESPONSES_USAGE: Json = {
    "input_tokens": 140,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 7,
    "total_tokens": 147,
}


def _item(number: int, part: Part) -> tuple[Json, str, str]:
    """Return an item, the kind of its deltas, and the field that is empty at its beginning."""
    if isinstance(part, Called):
        item: Json = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
        item |= {"call_id": part.id, "name": part.name, "arguments": "".join(part.pieces)}
        return item, "function_call_arguments", "arguments"
    whole = "".join(part.pieces)
    if part.thought:
        summary = [{"type": "summary_text", "text": whole}]
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": summary}
        return {**item, "encrypted_content": "sealed"}, "reasoning_summary_text", "summary"
    content = [{"type": "output_text", "text": whole, "annotations": []}]
    item = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
    return {**item, "content": content}, "output_text", "content"


def responses_body(parts: Iterable[Part], stop: str | None) -> Json:
    items = [_item(number, part)[0] for number, part in enumerate(parts)]
    whole = stop == "completed"
    reason = None if whole or stop is None else {"reason": stop}
    status = "completed" if whole else "incomplete"
    about = {"id": "r1", "object": "response", "model": "m", "status": status, "error": None}
    return {**about, "incomplete_details": reason, "output": items, "usage": RESPONSES_USAGE}


def responses(parts: Iterable[Part], stop: str | None) -> list[Event]:
    listed = list(parts)
    begun = {"id": "r1", "object": "response", "model": "m", "status": "in_progress", "output": []}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for number, part in enumerate(listed):
        item, kind, field = _item(number, part)
        empty = {**item, field: "" if field == "arguments" else [], "status": "in_progress"}
        place = {"output_index": number}
        events.append({"type": "response.output_item.added", **place, "item": empty})
        named = {"type": f"response.{kind}.delta", **place, "item_id": item["id"]}
        events += [{**named, "delta": piece} for piece in part.pieces]
        events.append({"type": "response.output_item.done", **place, "item": item})
    if stop is not None:
        last = responses_body(listed, stop)
        events.append({"type": f"response.{last['status']}", "response": last})
    events = [{**event, "sequence_number": n} for n, event in enumerate(events)]
    return [(event["type"], event) for event in events]


# -- Converse -----------------------------------------------------------------------------------

CONVERSE_USAGE: Json = {
    "inputTokens": 100,
    "cacheReadInputTokens": 40,
    "outputTokens": 7,
    "totalTokens": 147,
}


def converse(parts: Iterable[Part], stop: str | None) -> list[Event]:
    events: list[Event] = [("messageStart", {"role": "assistant"})]
    for index, part in enumerate(parts):
        at = {"contentBlockIndex": index}
        if isinstance(part, Called):
            start = {"toolUse": {"toolUseId": part.id, "name": part.name}}
            events.append(("contentBlockStart", {**at, "start": start}))
            deltas: list[Json] = [{"toolUse": {"input": piece}} for piece in part.pieces]
        elif part.thought:
            deltas = [{"reasoningContent": {"text": piece}} for piece in part.pieces]
            deltas.append({"reasoningContent": {"signature": "sig"}})
        else:
            deltas = [{"text": piece} for piece in part.pieces]
        events += [("contentBlockDelta", {**at, "delta": delta}) for delta in deltas]
        events.append(("contentBlockStop", at))
    if stop is not None:
        events.append(("messageStop", {"stopReason": stop}))
        events.append(("metadata", {"usage": CONVERSE_USAGE, "metrics": {"latencyMs": 1}}))
    return events


def converse_body(parts: Iterable[Part], stop: str | None) -> Json:
    content: list[Json] = []
    for part in parts:
        if isinstance(part, Called):
            given = json.loads("".join(part.pieces) or "{}")
            use = {"toolUseId": part.id, "name": part.name, "input": given}
            content.append({"toolUse": use})
        elif part.thought:
            whole = {"text": "".join(part.pieces), "signature": "sig"}
            content.append({"reasoningContent": {"reasoningText": whole}})
        else:
            content.append({"text": "".join(part.pieces)})
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": stop, "usage": CONVERSE_USAGE}


# -- Gemini -------------------------------------------------------------------------------------

GEMINI_USAGE: Json = {
    "promptTokenCount": 140,
    "cachedContentTokenCount": 40,
    "candidatesTokenCount": 7,
    "totalTokenCount": 147,
}


def _parts(parts: Iterable[Part]) -> list[Json]:
    found: list[Json] = []
    for part in parts:
        if isinstance(part, Called):
            call: Json = {"id": part.id, "name": part.name}
            if written := "".join(part.pieces):
                call["args"] = json.loads(written)
            # Of parallel calls the first one is signed.
            signed = any("functionCall" in each for each in found)
            found.append({"functionCall": call, **({} if signed else {"thoughtSignature": "sig"})})
        else:
            mark = {"thought": True} if part.thought else {}
            found += [{"text": piece, **mark} for piece in part.pieces]
    return found


def _chunk(parts: list[Json], stop: str | None = None, usage: Json | None = None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if stop is not None:
        candidate["finishReason"] = stop
    more = {} if usage is None else {"usageMetadata": usage}
    return {"candidates": [candidate], "responseId": "g1", "modelVersion": "m", **more}


def gemini(parts: Iterable[Part], stop: str | None) -> list[Event]:
    chunks = [_chunk([part]) for part in _parts(parts)]
    if stop is not None:
        chunks.append(_chunk([], stop, GEMINI_USAGE))
    return [(None, chunk) for chunk in chunks]


def gemini_body(parts: Iterable[Part], stop: str | None) -> Json:
    return _chunk(_parts(parts), stop, GEMINI_USAGE)


# -- all of them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Speaker:
    """A wire, and how it says things.

    Attributes:
        wire: Its name.
        route: A route that speaks it.
        stream: Makes the events of an answer, without an end if the stop word is None.
        body: Makes an answer that was not streamed.
        whole: The stop word of a whole answer, with calls and without.
        cut: Stop words of answers that ran into a limit.
        withheld: Those of answers that were kept back.
        trouble: Those of answers that the provider gave up.
        error: Makes the events that report an error with a code and a text.
    """

    wire: str
    route: str
    stream: Callable[[Iterable[Part], str | None], list[Event]]
    body: Callable[[Iterable[Part], str | None], Json]
    whole: tuple[str, str]
    cut: tuple[str, ...]
    withheld: tuple[str, ...]
    trouble: tuple[str, ...]
    error: Callable[[str, str], Event]

    def parser(self) -> Parser:
        return WIRES[self.wire].parser()

    def answer(self, *parts: Part, stop: str | None = None) -> Answer:
        """Return what a good stream is read into."""
        calls = any(isinstance(part, Called) for part in parts)
        return read(self, self.stream(parts, stop or self.whole[not calls]))[0]


def _typed(code: str, message: str) -> Event:
    return "error", {"type": "error", "error": {"type": code, "message": message}}


def _coded(code: str, message: str) -> Event:
    return None, {"error": {"code": code, "type": code, "message": message}}


def _flat(code: str, message: str) -> Event:
    return "error", {"type": "error", "code": code, "message": message, "param": None}


def _stated(code: str, message: str) -> Event:
    return None, {"error": {"status": code, "message": message}}


def _thrown(code: str, message: str) -> Event:
    return "exception", {"error": {"type": code, "message": message}}


MESSAGES = Speaker(
    "anthropic_messages",
    "anthropic:claude-opus-5-5",
    messages,
    messages_body,
    ("tool_use", "end_turn"),
    ("max_tokens", "model_context_window_exceeded"),
    ("refusal",),
    (),
    _typed,
)
CHAT = Speaker(
    "openai_chat",
    "vllm:qwen3",
    chat,
    chat_body,
    ("tool_calls", "stop"),
    ("length", "model_length", "model_context_window_exceeded"),
    ("content_filter", "sensitive"),
    ("error", "insufficient_system_resource", "network_error", "abort"),
    _coded,
)
RESPONSES = Speaker(
    "openai_responses",
    "openai:gpt-4.1",
    responses,
    responses_body,
    ("completed", "completed"),
    ("max_output_tokens", "max_messages", "steered"),
    ("content_filter",),
    (),
    _flat,
)
CONVERSE = Speaker(
    "bedrock_converse",
    "bedrock:anthropic.claude-sonnet-4-6",
    converse,
    converse_body,
    ("tool_use", "end_turn"),
    ("max_tokens", "model_context_window_exceeded"),
    ("guardrail_intervened", "content_filtered"),
    ("malformed_tool_use", "malformed_model_output"),
    _thrown,
)
GEMINI = Speaker(
    "gemini",
    "gemini:gemini-3.8-flash",
    gemini,
    gemini_body,
    ("STOP", "STOP"),
    ("MAX_TOKENS", "CONTINUATION"),
    ("SAFETY", "RECITATION", "BLOCKLIST", "MODEL_ARMOR", "LANGUAGE"),
    ("MALFORMED_FUNCTION_CALL", "OTHER", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"),
    _stated,
)
SPEAKERS = (MESSAGES, CHAT, RESPONSES, CONVERSE, GEMINI)


def event(name: str | None, data: Any) -> SseEvent:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return SseEvent(name, raw)


def read(speaker: Speaker, events: Iterable[Event]) -> tuple[Answer, list[Delta]]:
    """Read events to the end of the answer."""
    parser = speaker.parser()
    deltas: list[Delta] = []
    for name, data in events:
        deltas.extend(parser.feed(event(name, data)))
    return parser.finish(), deltas


def encoded(events: Iterable[Event]) -> bytes:
    """Return events as server-sent events."""
    lines: list[bytes] = []
    for name, data in events:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        lines.append((b"event: %s\n" % name.encode() if name else b"") + b"data: %s\n\n" % raw)
    return b"".join(lines)
