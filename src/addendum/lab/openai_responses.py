"""OpenAI's Responses API on loopback, stateless, with its two caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from addendum import encoding
from addendum.lab import facts
from addendum.lab.diagnostics import Memory, openai_says
from addendum.lab.exchange import Call, Reply, json_body, pieces, sse
from addendum.lab.openai_cache import OpenAICache, openai_cache
from addendum.lab.openai_chat import bearer
from addendum.lab.openai_responses_reasoning import ENCRYPTED, seal, thought
from addendum.lab.openai_responses_rules import (
    ResponsesAsked,
    kind_of,
    read,
    texts,
    without_unknown,
)
from addendum.lab.openai_rules import error_body
from addendum.lab.refusal import Refusal
from addendum.lab.script import Heard, Spoken, speak
from addendum.lab.tokens import count, segment
from addendum.wire.segment import fields

Json = dict[str, Any]

_PREFIX_SETTINGS = ("model", "parallel_tool_calls", "text", "prompt_cache_key")
_TEXT_PIECE = 24
_JSON_PIECE = 16


class OpenAIResponses:
    """OpenAI's Responses."""

    def __init__(self) -> None:
        self._cache = OpenAICache()
        self._memory = Memory()

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        known = facts.chat_model(model)
        return None if known is None else openai_cache(known)

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return Reply(refusal.status, payload=error_body(refusal), refusal=str(refusal))

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        key = bearer(call)
        body = json_body(call)
        name = body.get("model")
        if not isinstance(name, str):
            raise Refusal("Missing required parameter: 'model'.", param="model")
        model = facts.chat_model(name)
        if model is None:
            raise Refusal(
                f"The requested model '{name}' does not exist.",
                code="model_not_found",
                param="model",
            )
        if call.switches.drops_unknown:
            body = without_unknown(body)
        taken = call.switches.openai_additional_tools
        asked = read(body, model, additional_tools=taken)
        reasoning: Json = body.get("reasoning") or {}
        settings = [body.get(each) for each in _PREFIX_SETTINGS]
        scope = encoding.canonical([key, [*settings, reasoning.get("effort")]])
        options: Mapping[str, Any] = body.get("prompt_cache_options") or {}
        mode = options.get("mode", "implicit")
        details, begin = self._cache.price(asked, key=scope, model=model, mode=mode, now=call.now)
        spoken = speak(call.script, heard(asked), asked.offered)
        if not model.reasons:
            spoken = Spoken(spoken.text, "", spoken.calls)
        items = output(call, asked, spoken)
        prompt = count(asked.segments)
        thinking = thought(spoken.thinking).tokens if spoken.thinking else 0
        told = [segment("assistant", each) for each in items if each["type"] != "reasoning"]
        spent = thinking + count(told)
        usage: Json = {
            "input_tokens": prompt,
            "input_tokens_details": details,
            "output_tokens": spent,
            "output_tokens_details": {"reasoning_tokens": thinking},
            "total_tokens": prompt + spent,
        }
        other = fields(body.get("prompt_cache_options")).get("comparison_response_id")
        extra: Json = {}
        if model.exact and other:
            extra["prompt_cache_diagnostics"] = openai_says(self._memory, other, body)
        self._memory.keep(response_id(call), body)
        return reply(call, body, items, usage, dropped=asked.dropped, begin=begin, extra=extra)


def _nothing() -> None:
    return None


def response_id(call: Call) -> str:
    """Return the id of the response that answers a request."""
    return f"resp_{encoding.digest(call.body)[:24]}"


def reply(
    call: Call,
    body: Json,
    items: list[Json],
    usage: Json,
    *,
    dropped: Sequence[Json] = (),
    begin: Callable[[], None] = _nothing,
    extra: Mapping[str, Any] | None = None,
) -> Reply:
    """Return an answer, streamed if the body asks for it.

    Args:
        call: The request.
        body: Its body.
        items: What the model says, as from `output`.
        usage: The whole usage object.
        dropped: Reasoning that was left out of the prompt.
        begin: What happens in the cache when the answer begins.
        extra: Further fields of the response.
    """
    head: Json = {
        "id": response_id(call),
        "object": "response",
        "created_at": int(call.now),
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body["model"],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": None,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": None,
        "store": body.get("store", True),
        **({"input_transformations": list(dropped)} if dropped else {}),
        **(extra or {}),
    }
    whole = {**head, "status": "completed", "output": items, "usage": usage}
    if not body.get("stream"):
        return Reply(200, payload=encoding.encode(whole), usage=usage, begin=begin)
    begun: Json = {**head, "status": "in_progress", "output": [], "usage": None}
    return Reply(200, events=tuple(_events(begun, whole)), usage=usage, begin=begin)


def heard(asked: ResponsesAsked) -> list[Heard]:
    """Return the conversation as the scripted model hears it: one answer may be several items."""
    found: list[Heard] = []
    answering = False
    for item in asked.items:
        kind = kind_of(item)
        own = kind in ("function_call", "reasoning") or item.get("role") == "assistant"
        if own and not answering:
            found.append(Heard("assistant"))
        elif kind == "message" and item["role"] == "user":
            found.append(Heard("user", texts(item)))
        answering = own
    return found


def output(call: Call, asked: ResponsesAsked, spoken: Spoken) -> list[Json]:
    """Return what the model says as items.

    An id says whether its item was led to by reasoning: that is how the rules know it again.
    """
    base = encoding.digest(call.body)[:20]
    made: list[Json] = []
    led = "n"
    if spoken.thinking:
        led = "r"
        include: list[str] = asked.body.get("include") or []
        reasoning: Json = asked.body.get("reasoning") or {}
        content = seal(asked.body["model"], spoken.thinking, asked.segments)
        shown = [{"type": "summary_text", "text": spoken.thinking}]
        made.append(
            {
                "id": f"rs_{base}",
                "type": "reasoning",
                "summary": shown if reasoning.get("summary") else [],
                "encrypted_content": content if ENCRYPTED in include else None,
            }
        )
    if spoken.text or not spoken.calls:
        part: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": spoken.text}
        made.append(
            {
                "id": f"msg_{base}{led}0",
                "type": "message",
                "status": "completed",
                "content": [part],
                "role": "assistant",
                "phase": "commentary" if spoken.calls else "final_answer",
            }
        )
    for at, (name, arguments) in enumerate(spoken.calls, len(made)):
        made.append(
            {
                "id": f"fc_{base}{led}{at}",
                "type": "function_call",
                "status": "completed",
                "arguments": arguments,
                "call_id": f"call_{encoding.digest(call.body + bytes([at % 256]))[:24]}",
                "name": name,
            }
        )
    return made


def _events(begun: Json, whole: Json) -> Iterator[bytes]:
    """Return the events of a streamed answer, numbered in order."""
    for number, event in enumerate(_unnumbered(begun, whole)):
        yield sse({**event, "sequence_number": number}, event["type"])


def _unnumbered(begun: Json, whole: Json) -> Iterator[Json]:
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": begun}
    for index, item in enumerate(whole["output"]):
        place: Json = {"output_index": index, "item_id": item["id"]}
        bare = _begun(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": bare}
        match item["type"]:
            case "function_call":
                kind, text = "response.function_call_arguments", item["arguments"]
                for piece in pieces(text, _JSON_PIECE):
                    yield {"type": f"{kind}.delta", **place, "delta": piece}
                yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": text}
            case "message":
                part = item["content"][0]
                place["content_index"] = 0
                empty = {**part, "text": ""}
                yield {"type": "response.content_part.added", **place, "part": empty}
                for piece in pieces(part["text"], _TEXT_PIECE):
                    kind = "response.output_text.delta"
                    yield {"type": kind, **place, "delta": piece, "logprobs": []}
                kind = "response.output_text.done"
                yield {"type": kind, **place, "text": part["text"], "logprobs": []}
                yield {"type": "response.content_part.done", **place, "part": part}
            case _:
                for part in item["summary"]:
                    place["summary_index"] = 0
                    empty = {**part, "text": ""}
                    yield {"type": "response.reasoning_summary_part.added", **place, "part": empty}
                    for piece in pieces(part["text"], _TEXT_PIECE):
                        kind = "response.reasoning_summary_text.delta"
                        yield {"type": kind, **place, "delta": piece}
                    kind = "response.reasoning_summary_text.done"
                    yield {"type": kind, **place, "text": part["text"]}
                    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole}


def _begun(item: Json) -> Json:
    """Return an item as its first event shows it; its encrypted content is not the last one."""
    match item["type"]:
        case "function_call":
            return {**item, "status": "in_progress", "arguments": ""}
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case _:
            return {**item, "summary": [], "encrypted_content": ""}
