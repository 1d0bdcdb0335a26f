"""Chat Completions on loopback: OpenAI with its two caches, and a generic compatible server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from addendum import encoding
from addendum.lab import facts
from addendum.lab.exchange import Call, Reply, json_body, pieces, sse
from addendum.lab.openai_cache import OpenAICache, SteppedCache, openai_cache
from addendum.lab.openai_rules import ChatAsked, ChatDialect, Json, error_body, read, texts
from addendum.lab.refusal import Refusal
from addendum.lab.script import Heard, Spoken, pieces_of, speak
from addendum.lab.tokens import count, segment

_PREFIX_SETTINGS = (
    "model",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "prompt_cache_key",
)
COMPATIBLE = ChatDialect(
    roles=("system", "user", "assistant", "tool"),
    max_tokens=True,
    reasoning=frozenset({"reasoning_content"}),
)
"""What compatible servers take."""

_TEXT_PIECE = 24
_JSON_PIECE = 16


class OpenAIChat:
    """OpenAI's Chat Completions."""

    def __init__(self) -> None:
        self._cache = OpenAICache()

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
        model = facts.chat_model(name) if isinstance(name, str) else None
        if isinstance(name, str) and model is None:
            raise Refusal(
                f"The model `{name}` does not exist or you do not have access to it.",
                status=404,
                code="model_not_found",
            )
        model = model or facts.ChatModel()
        dialect = ChatDialect(
            breakpoints=model.exact,
            max_tokens=model.max_tokens,
            refused=call.switches.refused_shapes,
            result_names="nameless" in call.switches.refused_shapes,
        )
        asked = read(body, dialect)
        scope = encoding.canonical([key, [body.get(each) for each in _PREFIX_SETTINGS]])
        options: Mapping[str, Any] = body.get("prompt_cache_options") or {}
        mode = options.get("mode", "implicit")
        details, begin = self._cache.price(asked, key=scope, model=model, mode=mode, now=call.now)
        spoken = speak(call.script, heard(asked), asked.offered)
        spoken = Spoken(spoken.text, "", spoken.calls)  # this wire does not show reasoning
        return replace(answer(call, asked, spoken, details), begin=begin)


class Compatible:
    """A server that speaks Chat Completions and takes any model name."""

    def __init__(self) -> None:
        self._cache = SteppedCache()

    def caches(self, model: str) -> facts.CacheFacts:
        """Return how any model is cached here."""
        return facts.CacheFacts(
            minimum=0,
            step=facts.COMPATIBLE_STEP_TOKENS.value,
            lifetime=facts.COMPATIBLE_LIFETIME_SECONDS.value,
        )

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return Reply(refusal.status, payload=error_body(refusal), refusal=str(refusal))

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        body = json_body(call)
        dialect = structs.replace(COMPATIBLE, refused=call.switches.refused_shapes)
        asked = read(body, dialect)
        scope = encoding.canonical([body["model"]])
        cache = self.caches(body["model"])
        expires = call.now + cache.lifetime
        details: Json | None = None
        if call.switches.compatible_cached_tokens:
            cached = self._cache.read(asked, cache, key=scope, now=call.now)
            details = {"cached_tokens": cached}
        spoken = speak(call.script, heard(asked), asked.offered)
        return replace(
            answer(call, asked, spoken, details),
            begin=lambda: self._cache.store(asked, key=scope, expires=expires),
        )


def heard(asked: ChatAsked) -> list[Heard]:
    """Return the conversation as the scripted model hears it."""
    found: list[Heard] = []
    for message in asked.messages:
        if message["role"] == "user":
            said = (piece for text in texts(message) for piece in pieces_of(text))
            found.append(Heard("user", tuple(said)))
        elif message["role"] == "assistant":
            found.append(Heard("assistant"))
    return found


def answer(call: Call, asked: ChatAsked, spoken: Spoken, details: Json | None) -> Reply:
    """Return an answer, without what happens in the cache.

    Args:
        call: The request.
        asked: The same, read.
        spoken: What the model says.
        details: `prompt_tokens_details`, or None if the server reports none.
    """
    prompt = count(asked.segments)
    parts: list[Json] = [{"text": spoken.text}] if spoken.text else []
    parts += [{"reasoning_content": spoken.thinking}] if spoken.thinking else []
    completion = count(segment("assistant", each) for each in (*parts, *_calls(call, spoken)))
    usage: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if details is not None:
        usage["prompt_tokens_details"] = details
    return reply(call, asked.body, spoken, usage)


def reply(call: Call, body: Json, spoken: Spoken, usage: Json) -> Reply:
    """Return an answer with its usage.

    Args:
        call: The request.
        body: Its body.
        spoken: What the model says.
        usage: The whole usage object.
    """
    return told(call, body, said(call, spoken), usage)


def said(
    call: Call, spoken: Spoken, *, reasoning: str = "reasoning_content", call_ids: str = "call_{}"
) -> Json:
    """Return the message that says what the model says.

    Args:
        call: The request.
        spoken: What the model says.
        reasoning: Field for its reasoning.
        call_ids: Form of the ids of calls; cut to nine characters where it is bare.
    """
    message: Json = {"role": "assistant", "content": spoken.text or None}
    if spoken.thinking:
        message[reasoning] = spoken.thinking
    calls = _calls(call, spoken, call_ids)
    if calls:
        message["tool_calls"] = calls
    return message


def told(call: Call, body: Json, message: Json, usage: Json, *, in_choice: bool = False) -> Reply:
    """Return an answer that is a message.

    Args:
        call: The request.
        body: Its body.
        message: The message.
        usage: The whole usage object.
        in_choice: In a stream the usage stands beside the last choice.
    """
    calls = message.get("tool_calls")
    head: Json = {
        "id": f"chatcmpl-{encoding.digest(call.body)[:24]}",
        "object": "chat.completion",
        "created": int(call.now),
        "model": body["model"],
    }
    finish = "tool_calls" if calls else "stop"
    if body.get("stream"):
        options: Mapping[str, Any] = body.get("stream_options") or {}
        shown = usage if options.get("include_usage") else None
        events = _chunks(head, message, finish, shown, in_choice)
        return Reply(200, events=events, usage=usage)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return Reply(
        200, payload=encoding.encode({**head, "choices": [choice], "usage": usage}), usage=usage
    )


def _calls(call: Call, spoken: Spoken, form: str = "call_{}") -> list[Json]:
    size = 9 if form == "{}" else 22
    return [
        {
            "id": form.format(encoding.digest(call.body + bytes([at]))[:size]),
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for at, (name, arguments) in enumerate(spoken.calls)
    ]


def _chunks(
    head: Json, message: Json, finish: str, usage: Json | None, in_choice: bool
) -> tuple[bytes, ...]:
    deltas: list[Json] = [{"role": "assistant", "content": "" if message["content"] else None}]
    for detail in message.get("reasoning_details", []):
        bare = {name: value for name, value in detail.items() if name not in ("text", "signature")}
        for piece in pieces(detail["text"], _TEXT_PIECE):
            deltas.append({"reasoning": piece, "reasoning_details": [{**bare, "text": piece}]})
        signed = {**bare, "text": "", "signature": detail["signature"]}
        deltas.append({"reasoning_details": [signed]})
    for name in ("reasoning_content", "reasoning", "content"):
        if name == "reasoning" and "reasoning_details" in message:
            continue
        if message.get(name) == "":
            deltas.append({name: ""})
        for piece in pieces(message.get(name) or "", _TEXT_PIECE):
            deltas.append({name: piece})
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        opened = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [opened]})
        for piece in pieces(function["arguments"], _JSON_PIECE):
            part = {"index": index, "function": {"arguments": piece}}
            deltas.append({"tool_calls": [part]})
    reasons = [None] * len(deltas) + [finish]
    events: list[bytes] = []
    for delta, reason in zip([*deltas, Json()], reasons, strict=True):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk: Json = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        if usage is not None and in_choice:
            choice |= {"usage": usage} if reason else {}
        elif usage is not None:
            chunk["usage"] = None
        events.append(sse(chunk))
    if usage is not None and not in_choice:
        last: Json = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        events.append(sse(last))
    events.append(b"data: [DONE]\n\n")
    return tuple(events)


def bearer(call: Call) -> str:
    """Return the digest of a request's key.

    Raises:
        Refusal: There is none.
    """
    kind, _, key = call.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not key.strip():
        raise Refusal(
            "You didn't provide an API key. You need to provide your API key in an Authorization"
            " header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            status=401,
            code="invalid_api_key",
        )
    return encoding.digest(key.strip())
