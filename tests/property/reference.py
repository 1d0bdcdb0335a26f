"""The tests' own reading of captured bodies, and which breaks may be declared for what.

Nothing here uses the code that is under test: bodies are taken apart anew.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.property import other_wires

from addendum.lab.script import pieces_of
from addendum.log.events import RequestContext

Block = tuple[str, str]


def blocks(body: bytes, context: RequestContext) -> list[Block]:
    """Return a body's blocks in cache order, without marks and without a moved tail."""
    value = json.loads(body)
    if other_wires.is_other(value):
        return other_wires.blocks(
            value, moved=context.tail == "moved", bound=context.reasoning_bound
        )
    found: list[Block] = []
    for tool in value.get("tools", []):
        if not tool.get("defer_loading"):
            found.append(("tools", _bare(tool)))
    for block in _content(value.get("system", [])):
        found.append(("system", _bare(block)))
    moved = context.tail == "moved"
    for item in value.get("input", []):
        if moved and (_is_tail(_text(item)) or item["type"] == "reasoning"):
            continue
        # Without its reasoning an item has no id.
        bare = {key: part for key, part in item.items() if not (moved and key == "id")}
        found.append((item["type"], _bare(bare)))
    for message in _apart(value.get("messages", [])):
        role = message["role"]
        if context.wire == "openai_chat":
            if not (moved and _is_tail(_text(message) or message.get("content"))):
                gone = REASONING if moved and context.reasoning_bound else ()
                found.append((role, _bare({k: v for k, v in message.items() if k not in gone})))
            continue
        for block in _content(message["content"]):
            if (
                context.tail == "moved"
                and context.reasoning_bound
                and block["type"] in ("thinking", "redacted_thinking")
            ):
                # There it goes with the tail of its turn.
                continue
            if context.tail == "moved" and role == "user" and _is_tail(block.get("text")):
                continue
            found.append((role + str(message.get("clear_at")), _bare(block)))
    return found


def _apart(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of which each text of the user's is one: some routes join neighbours."""
    found: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        joined = message["role"] == "user" and isinstance(content, str)
        pieces = pieces_of(str(content)) if joined else (content,)
        found += [{**message, "content": each} if joined else message for each in pieces]
    return found


def _is_tail(text: Any) -> bool:
    return isinstance(text, str) and text.startswith("<turn_instructions>")


def _content(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    return "".join(part["text"] for part in content) if isinstance(content, list) else ""


REASONING = ("reasoning_content", "reasoning", "reasoning_details")
MARKS = ("cache_control", "prompt_cache_breakpoint")


def _bare(value: Any) -> str:
    if isinstance(value, dict):
        value = {key: part for key, part in value.items() if key not in MARKS}
        for key in ("content", "output"):
            if isinstance(value.get(key), list):
                value[key] = [_bare(part) for part in value[key]]
    return json.dumps(value, sort_keys=False)


def extends(before: list[Block], after: list[Block]) -> bool:
    return after[: len(before)] == before


def callable_names(body: bytes) -> set[str]:
    """Return what a model reading this body may call, apart from our own two tools."""
    value = json.loads(body)
    if other_wires.is_other(value):
        return other_wires.callable_names(value)
    names: set[str] = set()
    told: set[str] = set()
    for tool in value.get("tools", []):
        if not tool.get("defer_loading"):
            names.add(tool["function"]["name"] if "function" in tool else tool["name"])
    if "input" in value:
        return _callable_by_items(value["input"], names)
    defined = set(names)
    for message in _apart(value["messages"]):
        content = message.get("content")
        if "tools" in message:
            added = {tool["function"]["name"] for tool in message["tools"]}
            assert not added & defined, "a name is defined twice"
            defined |= added
            names |= added
        elif message["role"] == "system" and str(content).endswith("stay available."):
            names = defined - _off(str(content))
        if content is None:
            continue
        for block in _content(content):
            if block["type"] == "tool_addition":
                tool = block["tool"]
                names.add(tool["name"] if "name" in tool else tool["definition"]["name"])
            elif block["type"] == "tool_removal":
                names.discard(block["tool"]["name"])
            elif block["type"] == "text" and block["text"].startswith("<tool_update>"):
                names = other_wires.announced(block["text"], names, told)
    return names - {"tool_search", "call_tool", "deferred_tools_placeholder"}


def _off(notice: str) -> set[str]:
    found = re.search(r"do not call: ([^.]*)\.", notice)
    return set(found[1].split(", ") if found else [])


def _callable_by_items(items: list[dict[str, Any]], names: set[str]) -> set[str]:
    defined = set(names)
    told: set[str] = set()
    for item in items:
        if item["type"] == "additional_tools":
            added = {tool["name"] for tool in item["tools"]}
            defined |= added
            names |= added
        elif item.get("role") == "developer" and _text(item).endswith("stay available."):
            names = defined - _off(_text(item))
        elif _text(item).startswith("<tool_update>"):
            names = other_wires.announced(_text(item), names, told)
    return names - {"tool_search", "call_tool"}


CHANGES = {"add", "remove", "redefine", "revert", "on", "off"}
"""Moves that change the active tools."""


def allowed(context: RequestContext, moves: set[str]) -> set[str]:
    """Return the reasons that these moves may give on an epoch of this kind."""
    reasons: set[str] = set()
    if "compact" in moves:
        reasons.add("compaction")
    if "rewind" in moves:
        reasons.add("rewind")
    if "failed" in moves:
        reasons.add("attempt failed")
    if "wait" in moves:
        reasons.add("lifetime passed")
    if "settings" in moves:
        reasons.add("settings changed")
    if "rehead" in moves:
        reasons.add("head changed")
    if "weaken" in moves:
        reasons.add("downgrade")
    if "go" in moves:
        reasons.add("route changed")
    # A prompt is rewritten where it cannot be appended, or where a series consolidates it.
    if "blank" in moves:
        # An empty text cannot be appended.
        reasons.add("prompt rewritten")
    if "prompt" in moves and (
        not context.prompt_update
        or moves & {"series", "rewind", "compact", "rehead"}
        or (context.projection == "rebind" and moves & CHANGES)
        or "go" in moves
    ):
        reasons.add("prompt rewritten")
    exact = context.projection in ("in-history", "addition-only") and (
        context.definitions == "by-reference"
    )
    if context.projection == "addition-only" and context.readd == "text":
        if moves & {"redefine", "revert", "add"} and context.definitions == "by-value":
            # Nothing can replace a definition but another one in its place.
            reasons.add("redefinition")
    if context.projection == "rebind":
        if moves & CHANGES:
            reasons.add("rebinding")
        if "series" in moves:
            reasons.add("explicit series")
    elif exact:
        if moves & {"redefine", "revert", "add"}:
            # Returning with another definition or flag is a redefinition too.
            reasons.add("redefinition")
        if "series" in moves or (moves & {"prompt", "blank"} and not context.prompt_update):
            reasons.add("explicit series")
        if context.projection == "addition-only" and moves & {"remove", "off", "add", "on"}:
            reasons |= {"removal", "restore"}
    return reasons
