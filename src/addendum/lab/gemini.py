"""Gemini's `generateContent` on loopback: implicit caching, thought signatures.

Implicit caching matches the beginning of a prompt with that of an earlier one. The provider states
a minimum and no more; prefixes are counted in whole steps here, the less kind reading.

Sources: ai.google.dev, "Context caching" and "Thought signatures" (2026-10).
"""

from __future__ import annotations

import re
from dataclasses import replace

from addendum import encoding
from addendum.lab import facts
from addendum.lab.exchange import Call, Reply, json_body, pieces, sse
from addendum.lab.gemini_rules import GeminiAsked, Json, read
from addendum.lab.gemini_signatures import sign
from addendum.lab.refusal import Refusal
from addendum.lab.script import Heard, Spoken, speak
from addendum.lab.token_history import TokenHistory
from addendum.lab.tokens import count, segment, stream

_TEXT_PIECE = 24
_MODEL = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?:-[a-z0-9.-]+)?")
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Gemini:
    """Gemini's API.

    Args:
        minimum: Shortest prefix that is cached on current models, in tokens.
    """

    def __init__(self, minimum: int = facts.GEMINI_MINIMUM_TOKENS.value) -> None:
        self._minimum = minimum
        self._history = TokenHistory()

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        error = {
            "code": refusal.status,
            "message": str(refusal),
            "status": _STATUS.get(refusal.status, "UNKNOWN"),
        }
        return Reply(
            refusal.status, payload=encoding.encode({"error": error}), refusal=str(refusal)
        )

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        if not _MODEL.fullmatch(model):
            return None
        older = facts.GEMINI_OLDER_MINIMUM_TOKENS.value
        return facts.CacheFacts(
            minimum=self._minimum if _generation(model) >= (3, 0) else older,
            step=facts.GEMINI_STEP_TOKENS.value,
            lifetime=facts.GEMINI_LIFETIME_SECONDS.value,
        )

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        key = _credential(call)
        model, streams = _asked_for(call.path)
        current = _generation(model) >= (3, 0)
        asked = read(json_body(call), model, signs=current)
        scope = encoding.canonical([key, model, asked.thinking, asked.body.get("toolConfig")])
        tokens = stream(asked.segments)
        cache = self.caches(model)
        assert cache is not None
        shared = self._history.common(scope, tokens, call.now) // cache.step * cache.step
        cached = shared if shared >= cache.minimum else 0
        spoken = speak(call.script, heard(asked), asked.offered)
        parts = _parts(spoken, call.body, model, asked, current=current)
        usage = _usage(asked, parts, spoken, cached)
        expires = call.now + cache.lifetime
        return replace(
            _reply(call, model, parts, usage, streams),
            begin=lambda: self._history.add(scope, tokens, expires),
        )


def heard(asked: GeminiAsked) -> list[Heard]:
    """Return the conversation as the scripted model hears it."""
    return [
        Heard(
            "user" if role == "user" else "assistant",
            tuple(part["text"] for part in parts if "text" in part),
        )
        for role, parts in asked.contents
    ]


def _credential(call: Call) -> str:
    bearer = call.headers.get("authorization", "").partition(" ")[2]
    key = call.headers.get("x-goog-api-key", "") or bearer.strip()
    if not key:
        raise Refusal(
            "Method doesn't allow unregistered callers (callers without established identity)."
            " Please use API Key or other form of API consumer identity to call this API.",
            status=403,
        )
    return encoding.digest(key)


def _asked_for(path: str) -> tuple[str, bool]:
    """Return the model and whether the answer is streamed."""
    name, _, operation = path.rpartition("/")[2].partition(":")
    if operation not in ("generateContent", "streamGenerateContent"):
        raise Refusal("there is no such method", status=404)
    if not _MODEL.fullmatch(name):
        raise Refusal(
            f"models/{name} is not found for API version v1beta, or is not supported for"
            " generateContent.",
            status=404,
        )
    return name, operation == "streamGenerateContent"


def _generation(model: str) -> tuple[int, int]:
    found = _MODEL.fullmatch(model)
    assert found is not None
    return int(found[1]), int(found[2] or 0)


def _parts(
    spoken: Spoken, seed: bytes, model: str, asked: GeminiAsked, *, current: bool
) -> list[Json]:
    parts: list[Json] = []
    if spoken.thinking and asked.thinking.get("includeThoughts"):
        parts.append({"text": spoken.thinking, "thought": True})
    if spoken.text:
        parts.append({"text": spoken.text})
    calls: list[Json] = []
    for at, (name, arguments) in enumerate(spoken.calls):
        given = {"id": encoding.digest(seed + bytes([at]))[:16]} if current else {}
        calls.append({"functionCall": {**given, "name": name, "args": encoding.decode(arguments)}})
    if current and calls:
        calls[0]["thoughtSignature"] = sign(model, seed)
    elif current and spoken.thinking:
        # Text is signed by an empty part behind it.
        calls.append({"text": "", "thoughtSignature": sign(model, seed)})
    return [*parts, *calls]


def _usage(asked: GeminiAsked, parts: list[Json], spoken: Spoken, cached: int) -> Json:
    prompt = count(asked.segments)
    shown = [part for part in parts if not part.get("thought")]
    output = count(segment("assistant", each) for each in shown)
    thought = segment("assistant", {"text": spoken.thinking}).tokens if spoken.thinking else 0
    usage: Json = {"promptTokenCount": prompt, "candidatesTokenCount": output}
    usage["totalTokenCount"] = prompt + output + thought
    # What is 0 is left out, as protocol buffers do.
    if thought:
        usage["thoughtsTokenCount"] = thought
    if cached:
        usage["cachedContentTokenCount"] = cached
    return usage


def _reply(call: Call, model: str, parts: list[Json], usage: Json, streams: bool) -> Reply:
    head: Json = {"modelVersion": model, "responseId": encoding.digest(call.body)[:20]}
    if not streams:
        content = {"parts": parts, "role": "model"}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        body = {"candidates": [candidate], "usageMetadata": usage, **head}
        return Reply(200, payload=encoding.encode(body), usage=usage)
    chunks: list[Json] = []
    for part in parts:
        if part.get("text"):
            chunks += [{**part, "text": each} for each in pieces(part["text"], _TEXT_PIECE)]
        else:
            chunks.append(part)
    events: list[bytes] = []
    for at, part in enumerate(chunks or [None]):
        content = {"parts": [part], "role": "model"} if part is not None else {"role": "model"}
        candidate: Json = {"content": content, "index": 0}
        if at >= len(chunks) - 1:
            candidate["finishReason"] = "STOP"
        events.append(sse({"candidates": [candidate], "usageMetadata": usage, **head}))
    return Reply(200, events=tuple(events), usage=usage)
