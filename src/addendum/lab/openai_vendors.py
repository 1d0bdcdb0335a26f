"""Vendors of Chat Completions on loopback, each by its facts: what it takes, and a cache in steps.

All of them cache prefixes by themselves. What differs is data (`facts.CHAT_VENDORS`): figures,
where cached tokens are reported, what a name and an id may be, and on Kimi K3 tools in system
messages, whose names are unique for ever.
"""

from __future__ import annotations

import re
from dataclasses import replace

from addendum import encoding
from addendum.lab.chat_shapes import USAGE_OPTION
from addendum.lab.exchange import Call, Reply, json_body
from addendum.lab.facts import CacheFacts, ChatVendor
from addendum.lab.openai_cache import SteppedCache
from addendum.lab.openai_chat import bearer, heard, said, told
from addendum.lab.openai_rules import ChatDialect, Json, error_body, message_segments, read
from addendum.lab.refusal import Refusal
from addendum.lab.script import Spoken, speak
from addendum.lab.tokens import count

_KIMI = frozenset({"prompt_cache_options"})


class Vendor:
    """One vendor.

    Args:
        facts: What it takes, and how it caches.
    """

    def __init__(self, facts: ChatVendor) -> None:
        self._facts = facts
        self._cache = SteppedCache()

    def caches(self, model: str) -> CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        facts = self._facts
        if not (re.fullmatch(facts.models, model) and re.fullmatch(facts.caches, model)):
            return None
        return CacheFacts(
            minimum=facts.minimum, step=facts.step, fresh=facts.fresh, lifetime=facts.lifetime
        )

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the vendor's own error shape."""
        return Reply(refusal.status, payload=error_body(refusal), refusal=str(refusal))

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        facts = self._facts
        account = bearer(call) if facts.needs_key else ""
        body = json_body(call)
        name = str(body.get("model", ""))
        if not re.fullmatch(facts.models, name):
            raise Refusal(f"Not found the model {name}", status=404, code="model_not_found")
        asked = read(body, _dialect(facts, call.switches.refused_shapes))
        declared = any("tools" in message for message in asked.messages)
        taken = call.switches.kimi_message_tools and re.fullmatch(facts.message_tools, name)
        if declared and not taken:
            raise Refusal("tokenization failed")
        key = body.get("prompt_cache_key")
        cache = self.caches(name) if key or not facts.keyed else None
        cached = 0
        prompt = count(asked.segments)
        scope = encoding.canonical([account, name, key, body.get("reasoning_effort")])
        if cache is not None:
            found = self._cache.read(asked, cache, key=scope, now=call.now)
            cached = min(found, prompt - cache.fresh)
        spoken = speak(call.script, heard(asked), asked.offered)
        if not facts.reasoning:
            spoken = Spoken(spoken.text, "", spoken.calls)
        message = said(call, spoken, reasoning=facts.reasoning, call_ids=facts.own_ids)
        completion = count(message_segments(message))
        usage: Json = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        if cache is not None:
            details = "prompt_token_details" if facts.usage == "detail" else "prompt_tokens_details"
            usage[details] = {"cached_tokens": cached}
        if USAGE_OPTION in facts.refused:
            # Where nobody may ask for it, it comes unasked.
            body = {**body, "stream_options": {"include_usage": True}}
        reply = told(call, body, message, usage, in_choice=facts.usage == "choice")
        expires = call.now + facts.lifetime
        return replace(reply, begin=lambda: self._cache.store(asked, key=scope, expires=expires))


def _dialect(facts: ChatVendor, refused: frozenset[str]) -> ChatDialect:
    return ChatDialect(
        roles=("system", "user", "assistant", "tool"),
        top=_KIMI if facts.message_tools else frozenset(),
        max_tokens=True,
        reasoning=frozenset({facts.reasoning} if facts.reasoning else ()),
        message_tools=bool(facts.message_tools),
        names=facts.names,
        call_ids=facts.call_ids,
        refused=facts.refused | refused,
    )
