"""DeepSeek's Chat Completions on loopback: whole units, and reasoning that has to come back.

While it thinks, which it does unless `thinking` says otherwise, an assistant message with calls
has to hold its `reasoning_content`, be it empty, as it is where the model did not think. Tools
stand at the top level only.

Source: api-docs.deepseek.com, "Context Caching" and "Thinking mode"; spring-projects/spring-ai#5968
and EverMind-AI/Raven#297 for the refusal.
"""

from __future__ import annotations

from dataclasses import replace

from addendum import encoding
from addendum.lab import facts
from addendum.lab.deepseek import UNITS, UnitCache
from addendum.lab.exchange import Call, Reply, json_body
from addendum.lab.openai_chat import bearer, heard, said, told
from addendum.lab.openai_rules import ChatDialect, Json, error_body, message_segments, read
from addendum.lab.refusal import Refusal
from addendum.lab.script import Spoken, speak
from addendum.lab.tokens import count, stream

_DIALECT = ChatDialect(
    roles=("system", "user", "assistant", "tool"),
    top=frozenset({"thinking"}),
    max_tokens=True,
    reasoning=frozenset({"reasoning_content"}),
)


class DeepSeekChat:
    """DeepSeek's Chat Completions."""

    def __init__(self) -> None:
        self._cache = UnitCache()

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        return None if facts.deepseek_model(model) is None else UNITS

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return Reply(refusal.status, payload=error_body(refusal), refusal=str(refusal))

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        credential = bearer(call)
        body = json_body(call)
        name = str(body.get("model"))
        if facts.deepseek_model(name) is None:
            raise Refusal("Model Not Exist")
        asked = read(body, _DIALECT)
        thinks = encoding.canonical(body.get("thinking")) != b'{"type":"disabled"}'
        if thinks:
            _check(asked.messages)
        row = stream(asked.segments)
        key = encoding.canonical([credential, name])
        hit = self._cache.read(key, row, call.now)
        shared = self._cache.shared(key, row, call.now)
        spoken = speak(call.script, heard(asked), asked.offered)
        message = said(call, spoken if thinks else Spoken(spoken.text, "", spoken.calls))
        if thinks and spoken.calls:
            message.setdefault("reasoning_content", "")
        own = message_segments(message)
        prompt, completion = len(row) // 4, count(own)
        usage: Json = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_cache_hit_tokens": hit,
            "prompt_cache_miss_tokens": prompt - hit,
        }
        whole = row + stream(own)
        return replace(
            told(call, body, message, usage),
            begin=lambda: self._cache.store(key, row, (prompt, shared), call.now),
            end=lambda: self._cache.store(key, whole, (len(whole) // 4,), call.now),
        )


def _check(messages: tuple[Json, ...]) -> None:
    for at, message in enumerate(messages):
        if message.get("tool_calls") and message.get("reasoning_content") is None:
            raise Refusal(
                "The `reasoning_content` in the thinking mode must be passed back to the API:"
                f" it is missing in the assistant message at message index {at}"
            )
