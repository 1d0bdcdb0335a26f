"""Histories of Chat Completions that some servers refuse, each as it was reported.

Templates of models count the messages of user and assistant; APIs check what stands behind what.
Each shape here is refused in the words of those that refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from addendum.lab.refusal import Refusal

Json = dict[str, Any]
Check = Callable[[Sequence[Json]], str]


def _template(messages: Sequence[Json]) -> str:
    """Devstral, Ministral (ggml-org/llama.cpp#19851): calls and results are not counted."""
    last = "assistant"
    for message in messages:
        role = message["role"]
        if role in ("system", "developer", "tool") or message.get("tool_calls"):
            continue
        if role == last:
            return (
                "Jinja Exception: After the optional system message, conversation roles must"
                " alternate user and assistant roles except for tool calls and results."
            )
        last = role
    return ""


def _neighbours(messages: Sequence[Json]) -> str:
    """DeepSeek's reasoner (deepseek-ai/DeepSeek-R1#21)."""
    for at in range(1, len(messages)):
        role = messages[at]["role"]
        if role == messages[at - 1]["role"] and role in ("user", "assistant"):
            return f"does not support successive user or assistant messages (messages[{at}])"
    return ""


def _behind_results(messages: Sequence[Json]) -> str:
    """Mistral's API (datapizza-labs/datapizza-ai#98, zed-industries/zed#37021)."""
    roles = [message["role"] for message in messages]
    follows = ("tool", "user") in pairwise(roles)
    return "Unexpected role 'user' after role 'tool'" if follows else ""


def _empty(messages: Sequence[Json]) -> str:
    """Kimi (MoonshotAI/kimi-code#1985), and Mistral in other words (OpenHands/OpenHands#8685)."""
    for at, message in enumerate(messages):
        content = message.get("content")
        blank = not (content.strip() if isinstance(content, str) else content)
        if message["role"] == "assistant" and blank and not message.get("tool_calls"):
            return f"the message at position {at} with role 'assistant' must not be empty"
    return ""


def _field(name: str) -> Check:
    """Groq (janhq/jan#8136), Cerebras (Kilo-Org/kilocode#10375): a field of reasoning."""

    def check(messages: Sequence[Json]) -> str:
        at = next((at for at, message in enumerate(messages) if name in message), None)
        if at is None:
            return ""
        return (
            f"'messages.{at}' : for 'role:assistant' the following must be satisfied"
            f"[('messages.{at}' : property '{name}' is unsupported)]"
        )

    return check


def _nameless(messages: Sequence[Json]) -> str:
    """Gemini behind others (router-for-me/CLIProxyAPI#5859, ollama/ollama#14214)."""
    for at, message in enumerate(messages):
        if message["role"] == "tool" and not message.get("name"):
            return f"contents[{at}].parts[0].function_response.name: Name cannot be empty."
    return ""


def _ids(messages: Sequence[Json]) -> str:
    """Mistral, and its templates (anomalyco/opencode#1680, jundot/omlx#1997)."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
                return (
                    f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
                )
    return ""


def _null(messages: Sequence[Json]) -> str:
    """Ollama (SAIL-Research-Lab/cheetahclaws#72), LM Studio, and whoever wants a string."""
    for message in messages:
        if message.get("tool_calls") and message.get("content") is None:
            return "invalid message content type: <nil>"
    return ""


def _parts(messages: Sequence[Json]) -> str:
    """Servers that read one string (kvcache-ai/ktransformers#773, 0x676e67/duckai#16)."""
    for at, message in enumerate(messages):
        content: list[Json] | str | None = message.get("content")
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            return f"messages[{at}].content: invalid type: sequence, expected a string"
    return ""


def _second_system(messages: Sequence[Json]) -> str:
    """Qwen's template (lumpenspace/raft#16, Tarquinen/opencode-dynamic-context-pruning#407)."""
    late = any(message["role"] == "system" for message in messages[1:])
    return "Jinja Exception: System message must be at the beginning." if late else ""


CHAT_SHAPES: Mapping[str, Check] = {
    "template": _template,
    "neighbours": _neighbours,
    "behind results": _behind_results,
    "empty": _empty,
    "reasoning_content": _field("reasoning_content"),
    "reasoning": _field("reasoning"),
    "nameless": _nameless,
    "ids": _ids,
    "parts": _parts,
    "null content": _null,
    "second system": _second_system,
}
"""What servers refuse, by a name for each; a check returns their words, or nothing."""


USAGE_OPTION = "usage option"
"""Name of a request that asks for usage in its stream (openai/openai-agents-python#442)."""


def check_shapes(body: Json, messages: Sequence[Json], refused: frozenset[str]) -> None:
    """Refuse a request that has one of the shapes.

    Raises:
        Refusal: It has.
    """
    if USAGE_OPTION in refused and "stream_options" in body:
        place = ["body", "stream_options", "include_usage"]
        raise Refusal(f"Extra inputs are not permitted at {place}", status=422)
    for name, check in CHAT_SHAPES.items():
        if name in refused and (said := check(messages)):
            raise Refusal(said, param="messages", code="invalid_request_message_order")
