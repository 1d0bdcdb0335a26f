"""Claude on loopback: the Messages API with its refusals, its cache and its signed thinking."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from addendum import encoding
from addendum.lab import anthropic_answer, anthropic_rules, anthropic_thinking, facts
from addendum.lab.anthropic_cache import PrefixCache
from addendum.lab.anthropic_render import render
from addendum.lab.anthropic_shapes import (
    Asked,
    Dialect,
    Fields,
    Json,
    Role,
    fields,
    read,
    without_unknown,
)
from addendum.lab.diagnostics import Memory, claude_asks, claude_says
from addendum.lab.exchange import Call, Reply, Switches, json_body
from addendum.lab.facts import (
    BETA_BINDING,
    BETA_CLEAR_AT,
    BETA_INLINE,
    BETA_OUTPUT_CONFIG,
    BETA_REFERENCE,
    CacheFacts,
    ClaudeModel,
    claude_cache,
    claude_model,
    undated,
)
from addendum.lab.refusal import Refusal
from addendum.lab.script import Heard, Spoken, speak
from addendum.lab.tokens import Segment

_TOP = fields(
    "model messages max_tokens",
    "system tools tool_choice stream thinking metadata stop_sequences temperature top_p top_k"
    " output_config cache_control service_tier",
)
_TOOL = fields(
    "name input_schema",
    "description type cache_control defer_loading strict input_examples allowed_callers"
    " eager_input_streaming",
)
_HOSTED = frozenset({"tool_search_tool_regex_20251119", "tool_search_tool_bm25_20251119"})
_TEXT = fields("text", "cache_control citations")
_USER = {
    "text": _TEXT,
    "image": fields("source", "cache_control"),
    "document": fields("source", "cache_control title context citations"),
    "tool_result": fields("tool_use_id", "content is_error cache_control"),
}
_ASSISTANT = {
    "text": _TEXT,
    "thinking": fields("thinking signature"),
    "redacted_thinking": fields("data"),
    "tool_use": fields("id name input", "cache_control caller"),
}
_CHANGE = fields("tool", "cache_control")


class Anthropic:
    """Claude's Messages API.

    Args:
        cloud: It is another cloud's copy: each block of a run is a position of its own.
        minimum: Shortest prefix that is cached there, in tokens, where that is more than usual.
    """

    def __init__(self, *, cloud: bool = False, minimum: int = 0) -> None:
        self._cache = PrefixCache()
        self._memory = Memory()
        self._cloud = cloud
        self._minimum = minimum

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return anthropic_answer.refusal(refusal)

    def caches(self, model: str) -> CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        known = claude_model(model)
        if known is None:
            return None
        return claude_cache(known, minimum=self._minimum, runs=not self._cloud)

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        key = _credential(call)
        whole, betas = json_body(call), _betas(call)
        body, diagnosed, before = (whole, False, None) if self._cloud else claude_asks(whole, betas)
        name, model = _model(body)
        spoken_version = call.headers["anthropic-version"]
        spoken = dialect(model, betas, spoken_version, call.switches)
        asked = read(without_unknown(body, spoken) if call.switches.drops_unknown else body, spoken)
        anthropic_rules.check_tools(asked.tools)
        anthropic_rules.check_messages(asked.messages)
        anthropic_rules.check_marks(asked)
        anthropic_rules.check_choice(asked, model)
        verdicts = anthropic_thinking.judge(asked, name, model)
        rendered = render(asked, reads_thinking=lambda at, number: verdicts.read.get((at, number)))
        scope = encoding.canonical([key, name, sorted(betas)])
        priced, writes = self._cache.price(
            rendered.blocks,
            keys={"tools": scope, "messages": _settings(asked)},
            facts=claude_cache(model, minimum=self._minimum, runs=not self._cloud),
            now=call.now,
        )
        warming = body["max_tokens"] == 0
        said = Spoken() if warming else speak(call.script, heard(asked), rendered.offered)
        blocks = anthropic_answer.content(said.text, said.calls, call.body)
        thinking = self._think(asked, name, model, verdicts, said.thinking)
        if thinking is not None:
            blocks.insert(0, thinking[0])
        extra: Json = {}
        if BETA_BINDING in betas:
            extra["input_transformations"] = list(verdicts.dropped)
        if diagnosed:
            extra["diagnostics"] = claude_says(self._memory, before, body)
            self._memory.keep(anthropic_answer.message_id(call.body), body)
        output = anthropic_answer.output_tokens(blocks, thinking[1].tokens if thinking else 0)
        reply = anthropic_answer.answer(
            model=body["model"],
            blocks=blocks,
            usage={**priced.usage, "output_tokens": output},
            stop_reason=_stop_reason(warming, said),
            stream=body.get("stream", False),
            seed=call.body,
            extra=extra,
        )
        return replace(reply, begin=lambda: self._cache.store(writes, call.now))

    def _think(
        self,
        asked: Asked,
        name: str,
        model: ClaudeModel,
        verdicts: anthropic_thinking.Verdicts,
        text: str,
    ) -> tuple[Json, Segment] | None:
        """Return the signed block for `text`, or None if the model does not think here."""
        kind = asked.thinking.get("type")
        if not text or not (kind in ("enabled", "adaptive") or (model.thinks and kind is None)):
            return None
        omitted = asked.thinking.get("display", "omitted" if model.omits else None) == "omitted"
        seal = anthropic_thinking.Seal(name, text, omitted, verdicts.prefix, verdicts.last)
        shown = "" if omitted else text
        signature = anthropic_thinking.sign(seal)
        return {"type": "thinking", "thinking": shown, "signature": signature}, seal.read


def dialect(model: ClaudeModel, betas: Sequence[str], version: str, switches: Switches) -> Dialect:
    """Return what Claude takes from a request with these betas and this `anthropic-version`."""
    sampling = version < facts.CLAUDE_VERSION_WITHOUT_SAMPLING.value
    blocks: dict[Role, dict[str, Fields]] = {"user": _USER, "assistant": _ASSISTANT}
    weakest = "none" if switches.drops_unknown else switches.claude_tool_changes
    inline = BETA_INLINE in betas and weakest == "by-value"
    changes = inline or ((BETA_INLINE in betas or BETA_REFERENCE in betas) and weakest != "none")
    if model.system_messages:
        blocks["system"] = {"text": _TEXT}
        if changes:
            blocks["system"] |= {"tool_addition": _CHANGE, "tool_removal": _CHANGE}
    return Dialect(
        top=_TOP if sampling else (_TOP[0], _TOP[1] - {"temperature", "top_p", "top_k"}),
        tool=_TOOL,
        hosted=_HOSTED,
        blocks=blocks,
        inline=inline,
        clear_at=BETA_CLEAR_AT in betas,
        output_config=BETA_OUTPUT_CONFIG in betas,
        binding=BETA_BINDING in betas,
        no_system=model.no_system,
    )


def heard(asked: Asked) -> list[Heard]:
    """Return the conversation as the scripted model hears it."""
    found: list[Heard] = []
    for message in asked.messages:
        if message.role != "system":
            texts = tuple(block["text"] for block in message.blocks if block["type"] == "text")
            found.append(Heard(message.role, texts))
    return found


def _credential(call: Call) -> str:
    # Anthropic's own SDK sends its key as a bearer token (anthropic 2.14.0, `auth_headers`).
    bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
    key = call.headers.get("x-api-key", "") or bearer
    if not key:
        raise Refusal("x-api-key header is required", status=401)
    version = call.headers.get("anthropic-version")
    if not version:
        raise Refusal("anthropic-version: header is required")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", version):
        raise Refusal(f"anthropic-version: {version!r} is not a valid version")
    return encoding.digest(key)


def _betas(call: Call) -> list[str]:
    listed = call.headers.get("anthropic-beta", "").split(",")
    return sorted({each.strip() for each in listed if each.strip()})


def _model(body: Json) -> tuple[str, ClaudeModel]:
    name = body.get("model")
    if not isinstance(name, str):
        raise Refusal(
            "model: Field required" if name is None else "model: Input should be a string"
        )
    model = claude_model(name)
    if model is None:
        raise Refusal(f"model: {name}", status=404)
    return undated(name), model


def _settings(asked: Asked) -> bytes:
    """Return what counts for the messages part of the prefix besides its blocks.

    A default that is stated is the same as one left out.
    """
    body = asked.body
    choice = body.get("tool_choice")
    output: Json = dict(body.get("output_config", {}))
    if output.get("effort") == "high":
        del output["effort"]
    # "Anywhere in the prompt", so in results too.
    images = any(
        each.get("type") == "image"
        for message in asked.messages
        for block in message.blocks
        for each in (block, *_inner(block))
    )
    thinking: Json = {k: v for k, v in asked.thinking.items() if k in ("type", "budget_tokens")}
    default = choice in (None, {"type": "auto"})
    return encoding.canonical([None if default else choice, thinking, output, images])


def _inner(block: Json) -> list[Json]:
    content = block.get("content")
    return cast(list[Json], content) if isinstance(content, list) else []


def _stop_reason(warming: bool, spoken: Spoken) -> str:
    if warming:
        return "max_tokens"
    return "tool_use" if spoken.calls else "end_turn"
