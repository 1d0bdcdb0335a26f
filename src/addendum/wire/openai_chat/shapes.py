"""An assistant message of Chat Completions as an endpoint takes it that refuses some shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, json

from addendum import encoding
from addendum.prompt.rounds import EMPTY_ANSWER
from addendum.wire.openai_chat.reasoning import FIELDS


def shaped(raw: Raw, avoids: Sequence[str], ids: Mapping[str, str]) -> Raw:
    """Return an answer without what an epoch avoids; the same object if it has nothing of that.

    Args:
        raw: The message.
        avoids: The shapes.
        ids: What the ids of its calls are sent as.
    """
    message = json.decode(raw, type=dict[str, Raw])
    kept = {name: own for name, own in message.items() if name not in FIELDS or name not in avoids}
    if "tool_calls" in kept and any(known != sent for known, sent in ids.items()):
        kept["tool_calls"] = _under(ids, kept["tool_calls"])
    if (lack := _lack(message)) in avoids:
        kept["content"] = Raw(encoding.encode(_CONTENT[lack]))
    return raw if kept == message else Raw(encoding.encode(kept))


def answer_shapes(raw: Raw) -> frozenset[str]:
    """Return the shapes that an answer has, other than those of its ids."""
    message = json.decode(raw, type=dict[str, Raw])
    found = {name for name in FIELDS if name in message}
    return frozenset(found | {_lack(message)} - {""})


_CONTENT = {"empty-answer": EMPTY_ANSWER, "null-content": ""}
"""What stands in the content of an answer that lacks it, by the shape that it is of else."""


def _lack(message: Mapping[str, Raw]) -> str:
    """Return the shape of what an answer lacks; empty if it lacks nothing."""
    content = message.get("content")
    if "tool_calls" in message:
        return "null-content" if content is None or bytes(content) == b"null" else ""
    return "empty-answer" if "refusal" not in message and _is_blank(content) else ""


def _under(ids: Mapping[str, str], calls: Raw) -> Raw:
    renamed: list[dict[str, Any]] = []
    for call in json.decode(calls, type=list[dict[str, Raw]]):
        sent = ids.get(json.decode(call["id"], type=str))
        renamed.append(call if sent is None else {**call, "id": sent})
    return Raw(encoding.encode(renamed))


def _is_blank(content: Raw | None) -> bool:
    value = None if content is None else json.decode(content)
    return not value.strip() if isinstance(value, str) else not value


_NOT_TAKEN = (
    r"(?:unsupported|not (?:be )?(?:permitted|allowed|supported)|unknown|unexpected|unrecogni[sz]ed"
    r"|forbidden)"
)


def _field(name: str) -> str:
    """Return a pattern of refusals that name a field of an answer as one that is not taken."""
    own = rf"['\"`.\[]{name}['\"`\],]"
    return rf"{own}.{{0,80}}{_NOT_TAKEN}|{_NOT_TAKEN}.{{0,160}}{own}|{own}.{{0,40}}{_NOT_TAKEN}"


_NULL = r"(?:\bnull\b|\bnil\b|\bNone\b|NoneType)"
_LIST = r"(?:got an|\barray\b|_value=\[|_type=list)"

# Templates of Gemma, Mistral's and DeepSeek's models: ggml-org/llama.cpp#19851,
# google/adk-python#1373, vllm-project/vllm#6862, deepseek-ai/DeepSeek-R1#21. Mistral's API:
# datapizza-labs/datapizza-ai#98, OpenHands/OpenHands#8685. Kimi: MoonshotAI/kimi-code#1985. Groq:
# janhq/jan#8136; Cerebras: Kilo-Org/kilocode#10375; Mistral: charmbracelet/crush#1590. Gemini
# behind others: router-for-me/CLIProxyAPI#5859, ollama/ollama#14214. Ids: anomalyco/opencode#1680,
# jundot/omlx#1997. Null: lmstudio-ai/lmstudio-bug-tracker#261, mistralai/mistral-common#324,
# TQZHR/grok2api#41, SAIL-Research-Lab/cheetahclaws#72. Parts:
# kvcache-ai/ktransformers#773, 0x676e67/duckai#16.
_REFUSED = {
    "user-after-user": r"roles? must alternate|successive (?:user|assistant)|must alternate between"
    r"|interleave the user|unexpected role \W{0,2}user\W{0,2} after role \W{0,2}user",
    "user-after-result": r"roles? must alternate"
    r"|unexpected role \W{0,2}user\W{0,2} after role \W{0,2}tool",
    "empty-answer": r"assistant\W{1,3} must not be empty|must have either content or tool_calls"
    r"|must contain either .?content.? or .?tool_calls|non-empty content|contentblock .{0,60}blank",
    "nameless-result": r"function_?response(?:\.name| name)"
    r"|tool (?:messages?|responses?)\W.{0,30}\bname\b",
    "long-call-id": r"must be a-z, A-Z, 0-9|alphanumeric strings? with length 9",
    "text-parts": rf"content\W(?!.{{0,160}}{_NULL}).{{0,80}}"
    r"(?:expected a string|valid string|must be a string(?! or))"
    rf"|expected (?:a )?string.{{0,40}}received (?:an )?array|unmarshal array into .{{0,60}}content"
    rf"|string_type\W(?!.{{0,160}}{_NULL}).{{0,80}}content"
    r"|invalid type: sequence, expected a string|unsupported types string and sequence",
    "null-content": rf"content type: <nil>|content\W.{{0,80}}must be a string or an array"
    rf"|content\W(?:(?!sequence|array).){{0,80}}(?:valid string|(?:must be|expected) a string)"
    rf"(?!.{{0,160}}{_LIST})|received null.{{0,40}}content|content\W.{{0,40}}field required"
    r"|content\W.{0,40}(?:is|got|received|cannot be|(?:must|should) not be) (?:null|nil|none)\b"
    r"|no previous assistant message with a tool call",
    "usage-option": r"stream_options|include_usage",
    **{name: _field(name) for name in FIELDS},
}
_PATTERNS = {name: re.compile(text, re.I | re.S) for name, text in _REFUSED.items()}


def refused_shapes(said: str) -> frozenset[str]:
    """Return the shapes of a history that a refusal is about, by its own words."""
    said = said.replace('\\"', '"')
    return frozenset(name for name, pattern in _PATTERNS.items() if pattern.search(said))
