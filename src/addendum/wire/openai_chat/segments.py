"""A Chat Completions body in cache order: tools, then the messages.

Each message gives a head (its fields besides role, content and calls), then its reasoning, its
content parts, tools declared in it (Kimi) and its calls. The head makes the end of the message
before count: a part added to that message is not the same prompt as a new message. System and
developer messages in front of all others are the system part.

Two kinds of marks occur: OpenAI's `prompt_cache_breakpoint` and OpenRouter's `cache_control`, both
on parts of all but assistant messages; the latter on text parts only, and on tool entries.

Sources: OpenAI guide "Prompt caching" and openai-python 3.57.0 types (2026-11); OpenRouter docs
"Prompt caching"; platform.kimi.ai.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from addendum import encoding
from addendum.wire.segment import (
    ADDRESS,
    MAYBE,
    Json,
    Kind,
    Row,
    Segment,
    blocks,
    fields,
    objects,
    parse,
    text_of,
)

_JOINT = "\n\n"
"""Stands between what was joined in one text."""

_APART = frozenset({"role", "content", "tool_calls", "tools"})
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_MARKABLE = frozenset({"text", "image_url", "input_audio", "file"})
_SETTINGS = (
    "model",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_options",
)


def segments(body: bytes | Json, tail: str | None = None) -> tuple[Segment, ...]:
    """Return the segments of a request in cache order.

    Args:
        body: The captured body, or what it decodes to.
        tail: This turn's instructions where they are moved with the newest user message: the
            segments that carry them are flagged.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    row = Row(_markable)
    for at, entry in enumerate(objects(value.get("tools"))):
        row.add("tool", "tools", "tool", f"tools[{at}]", entry, defines=_function(entry))
    messages = objects(value.get("messages"))
    carrier = _carrier(messages, tail) if tail else -1
    front = True
    for at, message in enumerate(messages):
        front = front and message.get("role") in ("system", "developer")
        inside = tail if at == carrier else None
        _message(row, f"messages[{at}]", message, "system" if front else "message", inside)
    return row.finish(tail)


def settings(body: bytes | Json) -> dict[str, str]:
    """Return digests of the settings that count for the prefix, by name.

    `tool_choice` is none of them: the provider names it as the way to narrow the tools without
    touching the prefix.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    return {
        name: encoding.digest(encoding.canonical(value[name]))
        for name in _SETTINGS
        if value.get(name) is not None
    }


def _carrier(messages: Sequence[Json], tail: str) -> int:
    """Return the place of the newest message in which this turn's instructions have company."""
    for at in range(len(messages) - 1, -1, -1):
        content = messages[at].get("content")
        if messages[at].get("role") == "user" and isinstance(content, str) and tail in content:
            return at
    return -1


def _apart(text: str, tail: str) -> tuple[str, ...]:
    """Return a text in two, this turn's instructions first: they go with their turn."""
    found = text.find(tail)
    start = text.rfind(_JOINT, 0, found) + len(_JOINT) if _JOINT in text[:found] else 0
    end = text.find(_JOINT, found + len(tail))
    end = len(text) if end < 0 else end
    around = (text[:start].removesuffix(_JOINT), text[end:].removeprefix(_JOINT))
    rest = _JOINT.join(filter(None, around))
    return (text[start:end], rest) if rest else (text,)


def _message(row: Row, path: str, message: Json, kind: Kind, tail: str | None) -> None:
    role = str(message.get("role", ""))
    head = {
        name: value
        for name, value in message.items()
        if name not in _APART and name not in _REASONING and value is not None
    }
    answers = str(message.get("tool_call_id", "")) if role == "tool" else ""
    row.add(kind, role, "message", path, head, answers=answers)
    for name in _REASONING:
        if message.get(name) is not None:
            value = {name: message[name]}
            row.add(kind, role, "reasoning", f"{path}.{name}", value, transparent=True)
    for at, part in enumerate(blocks(message.get("content"))):
        # Where roles alternate, neighbours are one text.
        whole = (
            [part]
            if tail is None
            else [part | {"text": each} for each in _apart(text_of(part), tail)]
        )
        for piece in whole:
            row.add(kind, role, str(part.get("type", "")), f"{path}.content[{at}]", piece)
    for at, entry in enumerate(objects(message.get("tools"))):
        place = f"{path}.tools[{at}]"
        row.add(kind, role, "declaration", place, entry, defines=_function(entry))
    for at, call in enumerate(objects(message.get("tool_calls"))):
        place, opens = f"{path}.tool_calls[{at}]", str(call.get("id", ""))
        row.add(kind, role, "tool_call", place, call, uses=(_function(call),), opens=opens)


def _function(entry: Json) -> str:
    return str(fields(entry.get("function")).get("name", ""))


def _markable(role: str, type_: str, value: Json) -> bool:
    if type_ == "text" and not text_of(value):
        return False
    if "cache_control" in value:
        return type_ in ("tool", "text") and role != "assistant"
    return type_ in _MARKABLE and role not in ("assistant", "tools")


def speaks(path: str, headers: Mapping[str, str], body: Json) -> int:
    """Say how well a request fits this wire; see `addendum.wire.captured`."""
    if not isinstance(body.get("messages"), list):
        return 0
    return ADDRESS if path.endswith("/chat/completions") else MAYBE
