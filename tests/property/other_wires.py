"""Bodies of Converse and of Gemini, read anew into roles and blocks."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def is_other(value: Json) -> bool:
    """Whether a body is one of these two: told by its own fields."""
    if "contents" in value:
        return True
    first = value.get("messages", [{}])[0].get("content")
    return isinstance(first, list) and "type" not in first[0]


def tools(value: Json) -> list[Json]:
    listed = value.get("toolConfig", {}).get("tools", [])
    found = [entry["toolSpec"] for entry in listed if "cachePoint" not in entry]
    for entry in value.get("tools", []):
        found += entry["functionDeclarations"]
    return found


def spoken(value: Json) -> list[tuple[str, Json]]:
    """All blocks behind the prompt text, with their roles; marks are left out."""
    messages = value["contents"] if "contents" in value else value["messages"]
    return [
        (message["role"], block)
        for message in messages
        for block in message.get("parts", message.get("content"))
        if "cachePoint" not in block
    ]


def blocks(value: Json, *, moved: bool, bound: bool) -> list[tuple[str, str]]:
    found = [("tools", json.dumps(tool)) for tool in tools(value)]
    system = value.get("systemInstruction", {}).get("parts", value.get("system", []))
    found += [("system", json.dumps(each)) for each in system if "cachePoint" not in each]
    for role, block in spoken(value):
        if moved and bound and "reasoningContent" in block:
            continue
        if moved and role == "user" and block.get("text", "").startswith("<turn_instructions>"):
            continue
        found.append((role, json.dumps(block)))
    return found


def callable_names(value: Json) -> set[str]:
    names = {tool["name"] for tool in tools(value)}
    told: set[str] = set()
    for _, block in spoken(value):
        text = block.get("text", "")
        if text.startswith("<tool_update>"):
            names = announced(text, names, told)
    return names - {"tool_search", "call_tool", "deferred_tools_placeholder"}


def announced(text: str, names: set[str], told: set[str]) -> set[str]:
    """Return what can be called behind an announcement; `told` grows by what it defines."""
    update = json.loads(text[len("<tool_update>") : -len("</tool_update>")])
    new = {tool["name"] for kind in ("added", "changed") for tool in update.get(kind, [])}
    new |= set(update.get("added_names", []))
    again = set(update.get("added_again", []))
    assert again <= told, "no announcement stands in front of it"
    told |= new
    return (names | new | again | set(update.get("restored", []))) - set(update.get("removed", []))
