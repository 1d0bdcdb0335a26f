"""A Responses body in cache order: tools, instructions, then the items of `input`.

A message gives a head (its fields besides role and content), then its parts; a result and an
`additional_tools` item likewise; calls and reasoning are one segment each. The head makes the end
of an item before count: a part added to a message is not the same prompt as a new message.
`additional_tools` items that stand in front of everything else are the tool part, developer and
system messages in front of all others the system part.

An item's own `id` and `status` are no text that a model reads, so they make no other prompt.

Sources: OpenAI guides "Prompt caching" and "Keep the prefix unchanged"; openai-python 3.57.0 types
(2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from addendum import encoding
from addendum.wire.segment import ADDRESS, Json, Kind, Row, Segment, fields, objects, parse

_APART = frozenset({"type", "role", "content", "output", "tools", "call_id", "id", "status"})
_MARKABLE = frozenset({"input_text", "input_image", "input_file"})
_PROMPT_ROLES = ("system", "developer")
_SETTINGS = (
    "model",
    "parallel_tool_calls",
    "text",
    "context_management",
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
        _tool(row, f"tools[{at}]", entry, "tool", "tools")
    instructions = value.get("instructions")
    if isinstance(instructions, str) and instructions:
        row.add("system", "system", "text", "instructions", _text("text", instructions))
    given = value.get("input")
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    front: Kind = "tool"
    for at, item in enumerate(objects(given)):
        kind = str(item.get("type") or "message")
        if kind != "additional_tools":
            prompt = kind == "message" and item.get("role") in _PROMPT_ROLES
            front = "system" if prompt and front != "message" else "message"
        _item(row, f"input[{at}]", kind, item, front)
    return row.finish(tail)


def settings(body: bytes | Json) -> dict[str, str]:
    """Return digests of the settings that count for the prefix, by name.

    Of `reasoning` its effort counts. `tool_choice` is none of them: the provider names it as the
    way to narrow the tools without touching the prefix. Nor is the response that diagnostics are
    asked to compare with: it is another one in each request.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    found = {name: value[name] for name in _SETTINGS if value.get(name) is not None}
    effort = fields(value.get("reasoning")).get("effort")
    if effort is not None:
        found["reasoning"] = effort
    options = fields(found.pop("prompt_cache_options", None))
    if kept := {name: each for name, each in options.items() if name != "comparison_response_id"}:
        found["prompt_cache_options"] = kept
    return {name: encoding.digest(encoding.canonical(each)) for name, each in found.items()}


def _tool(row: Row, path: str, entry: Json, kind: Kind, role: str) -> None:
    named = str(entry.get("name") or entry.get("server_label") or entry.get("type") or "")
    row.add(kind, role, "tool" if role == "tools" else "definition", path, entry, defines=named)


def _item(row: Row, path: str, kind: str, item: Json, part: Kind) -> None:
    head = {name: value for name, value in item.items() if name not in _APART and value is not None}
    match kind:
        case "message":
            role = str(item.get("role", ""))
            row.add(part, role, "message", path, head)
            text = "output_text" if role == "assistant" else "input_text"
            _parts(row, f"{path}.content", part, role, _listed(item.get("content"), text))
        case "function_call_output" | "custom_tool_call_output":
            row.add(part, "tool", "message", path, head, answers=str(item.get("call_id", "")))
            parts = _listed(item.get("output"), "input_text")
            _parts(row, f"{path}.output", part, "tool", parts)
        case "additional_tools":
            row.add(part, "developer", "message", path, head)
            for at, entry in enumerate(objects(item.get("tools"))):
                _tool(row, f"{path}.tools[{at}]", entry, part, "developer")
        case "function_call" | "custom_tool_call":
            value = {**head, "call_id": item.get("call_id")}
            name, opens = str(item.get("name", "")), str(item.get("call_id", ""))
            row.add(part, "assistant", kind, path, value, uses=(name,), opens=opens)
        case "reasoning":
            value = {**head, "content": item.get("content")}
            row.add(part, "assistant", kind, path, value, transparent=True)
        case _:
            value = {name: each for name, each in item.items() if name not in ("id", "status")}
            row.add(part, str(item.get("role") or "assistant"), kind, path, value)


def _parts(row: Row, path: str, kind: Kind, role: str, parts: list[Json]) -> None:
    for at, part in enumerate(parts):
        row.add(kind, role, str(part.get("type", "")), f"{path}[{at}]", part)


def _markable(role: str, type_: str, value: Json) -> bool:
    return type_ in _MARKABLE and role != "assistant"


def _listed(content: Any, kind: str) -> list[Json]:
    return [_text(kind, content)] if isinstance(content, str) else objects(content)


def _text(kind: str, text: str) -> Json:
    return {"type": kind, "text": text}


def speaks(path: str, headers: Mapping[str, str], body: Json) -> int:
    """Say how well a request fits this wire; see `addendum.wire.captured`."""
    asks = "model" in body and isinstance(body.get("input"), list | str)
    return ADDRESS if asks and not isinstance(body.get("messages"), list) else 0
