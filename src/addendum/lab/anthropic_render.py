"""The Anthropic wire as the model reads it: a request in cache order, and the tools on offer.

Order: hidden text, tools outside deferral, system blocks, message blocks. A tool definition that
is not at the front is read where it appears: at the `tool_addition` (or search result) that first
surfaces it. Deferred entries are outside the prefix. A turn-scoped system message is read only
until a later user message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import msgspec

from addendum import encoding
from addendum.lab.anthropic_shapes import Asked, Json, Message, marks_of
from addendum.lab.facts import CLAUDE_LATE_BYTES, CLAUDE_LATE_TOOLS, CLAUDE_PREAMBLE_TOKENS
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import Segment, filler, segment, unmarked


class Block(msgspec.Struct, frozen=True):
    """One block in cache order.

    Attributes:
        section: `tools`, `system` or `messages`; hidden text belongs to `tools`.
        segment: What is counted.
        kind: The block's type.
        mark: The lifetime of the mark on it, or None.
        markable: It may carry the automatic mark.
    """

    section: str
    segment: Segment
    kind: str
    mark: str | None = None
    markable: bool = True


class Rendered(msgspec.Struct, frozen=True):
    """A request as the model reads it.

    Attributes:
        blocks: The blocks in cache order.
        offered: Names of the tools that may be called at the end, in order of appearance.
    """

    blocks: tuple[Block, ...]
    offered: tuple[str, ...]


@dataclass
class _Tools:
    """Tools along the messages: declared, surfaced (read by the model) and on offer."""

    declared: dict[str, Json]
    surfaced: set[str]
    offered: dict[str, None]
    late: int = 0
    late_bytes: int = 0
    defined: set[str] = field(default_factory=set[str])

    def addition(self, path: str, tool: Json) -> Json | None:
        """Apply an addition; return the definition if it is read here for the first time."""
        if tool["type"] == "tool_definition":
            return self._define(path, tool["definition"])
        name = tool["name"]
        self.require(path, name)
        self.offered.setdefault(name)
        return self.surface(name)

    def removal(self, path: str, name: str) -> None:
        self.require(path, name)
        self.offered.pop(name, None)

    def require(self, path: str, name: str) -> None:
        if name not in self.declared:
            raise Refusal(
                f"{path}: tool reference '{name}' is not declared in `tools` or defined earlier",
                code="tool_reference_unresolved",
            )

    def surface(self, name: str) -> Json | None:
        if name in self.surfaced:
            return None
        self.surfaced.add(name)
        return self.declared[name]

    def _define(self, path: str, definition: Json) -> None:
        """Apply a definition by value: it is read in its block, an equal one changes nothing."""
        name = definition["name"]
        before = self.declared.get(name)
        if before is not None and before.get("type", "custom") != "custom":
            raise Refusal(
                f"{path}: '{name}' is already a tool of type '{before['type']}'",
                code="tool_name_conflict",
            )
        self.late += 1
        self.late_bytes += len(encoding.encode(definition))
        if self.late > CLAUDE_LATE_TOOLS.value or self.late_bytes > CLAUDE_LATE_BYTES.value:
            raise Refusal(
                f"{path}: more than {CLAUDE_LATE_TOOLS.value:,} tools or"
                f" {CLAUDE_LATE_BYTES.value:,} bytes of definitions after the first user message",
                code="available_tools_limit_exceeded",
            )
        self.declared[name] = definition
        if not definition.get("defer_loading"):
            self.surfaced.add(name)
            self.offered.setdefault(name)


def render(
    asked: Asked,
    *,
    reads_thinking: Callable[[int, int], Segment | None],
    deferred_outside: bool = True,
    hidden: bool = True,
) -> Rendered:
    """Render a checked request in cache order.

    Args:
        asked: The request.
        reads_thinking: What the model reads of the thinking block at (message, block): None if
            it is left out.
        deferred_outside: False puts deferred entries in the prefix, as an endpoint might.
        hidden: Hidden text stands in front as soon as a tool is deferred or defined by value.

    Raises:
        Refusal: A tool change names a tool that is not there, or conflicts with one.
    """
    immediate = [tool for tool in asked.tools if not tool.get("defer_loading")]
    front = immediate if deferred_outside else asked.tools
    blocks = [_block("tools", "tools", tool, "tool") for tool in front]
    if hidden and _has_late_tools(asked):
        text = filler("hidden", CLAUDE_PREAMBLE_TOKENS.value)
        blocks.insert(0, Block("tools", text, "hidden", markable=False))
    blocks += [_block("system", "system", each, "text") for each in asked.system]
    names = [tool["name"] for tool in immediate]
    tools = _Tools({t["name"]: t for t in asked.tools}, set(names), dict.fromkeys(names))
    if not deferred_outside:
        tools.surfaced |= tools.declared.keys()
    last_user = max((at for at, m in enumerate(asked.messages) if m.role == "user"), default=-1)
    for at, message in enumerate(asked.messages):
        if message.turn_scoped and at < last_user:
            continue
        for number, block in enumerate(message.blocks):
            if block["type"] in ("thinking", "redacted_thinking"):
                read = reads_thinking(at, number)
                if read is not None:
                    blocks.append(Block("messages", read, "thinking", markable=False))
                continue
            blocks.append(_message_block(f"messages.{at}.content.{number}", message, block, tools))
    return Rendered(tuple(_automatic(blocks, asked.body)), tuple(tools.offered))


def late_tools_in_use(asked: Asked) -> Mapping[str, Json]:
    """Return the deferred entries of `tools` that a message refers to."""
    used = {name for message in asked.messages for b in message.blocks for name in references(b)}
    return {
        tool["name"]: tool
        for tool in asked.tools
        if tool.get("defer_loading") and tool["name"] in used
    }


def _has_late_tools(asked: Asked) -> bool:
    if any(tool.get("defer_loading") for tool in asked.tools):
        return True
    return any(
        block["type"] == "tool_addition" and block["tool"]["type"] == "tool_definition"
        for message in asked.messages
        for block in message.blocks
    )


def _message_block(path: str, message: Message, block: Json, tools: _Tools) -> Block:
    kind = block["type"]
    read: list[Json] = []
    if kind == "tool_addition":
        read = [definition] if (definition := tools.addition(path, block["tool"])) else []
    elif kind == "tool_removal":
        tools.removal(path, block["tool"]["name"])
    elif kind == "tool_result":
        for name in references(block):
            tools.require(path, name)
            tools.offered.setdefault(name)
            read += [definition] if (definition := tools.surface(name)) else []
    made = _block("messages", message.role, block, kind)
    if read:
        # The block and what is read at it are one segment: nothing can stand between them.
        text = b"".join([made.segment.text, *(_definition(each) for each in read)])
        made = msgspec.structs.replace(made, segment=Segment(text))
    if message.turn_scoped:
        made = msgspec.structs.replace(made, markable=False)
    return made


def _definition(tool: Json) -> bytes:
    return encoding.encode({k: v for k, v in unmarked(tool).items() if k != "defer_loading"})


def references(block: Json) -> list[str]:
    """Return the names of tools that a message block refers to without defining them."""
    if block.get("type") in ("tool_addition", "tool_removal"):
        return [block["tool"]["name"]] if block["tool"]["type"] == "tool_reference" else []
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, list):
        return []
    inner = cast(list[Json], content)
    return [each["tool_name"] for each in inner if each["type"] == "tool_reference"]


def _block(section: str, kind: str, value: Json, block_kind: str) -> Block:
    marks = marks_of(value)
    mark = marks[-1].get("ttl", "5m") if marks else None
    if block_kind == "tool" and value.get("defer_loading") is False:
        value = {k: v for k, v in value.items() if k != "defer_loading"}
    return Block(section, segment(kind, value), block_kind, mark)


def _automatic(blocks: list[Block], body: Json) -> list[Block]:
    """Put the automatic mark (`cache_control` of the body) on the last block that may carry it."""
    automatic = body.get("cache_control")
    if automatic is None:
        return blocks
    lifetime = automatic.get("ttl", "5m")
    at = max(at for at, block in enumerate(blocks) if block.markable)
    if blocks[at].mark not in (None, lifetime):
        raise Refusal("cache_control: the last block already has a mark with another ttl")
    return [
        *blocks[:at],
        msgspec.structs.replace(blocks[at], mark=lifetime),
        *blocks[at + 1 :],
    ]
