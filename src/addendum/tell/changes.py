"""How a change of tools is told to people: the text of a developer message's node."""

from __future__ import annotations

from msgspec import Struct

from addendum.log.events import DeveloperMessage
from addendum.log.values import DeveloperText, ToolAddition, ToolRemoval
from addendum.tell.words import Words


class ToolChange(Struct, frozen=True):
    """A change of tools in words.

    Attributes:
        title: One change names the tool; several do not.
        summary: How many came and went; empty for one change.
        details: What it opens to: names that came, names that went. Without any it does not open.
    """

    title: str
    summary: str = ""
    details: tuple[str, ...] = ()


def in_chat(message: DeveloperMessage) -> bool:
    """Say whether Chat shows a node: only those that tell of a tool."""
    return any(not isinstance(block, DeveloperText) for block in message.content)


def change(message: DeveloperMessage, words: Words) -> ToolChange | None:
    """Return what a developer message says, or None if it is not a change of tools and no more.

    Args:
        message: The message.
        words: The reader's language.
    """
    blocks = message.content
    if not blocks or any(isinstance(block, DeveloperText) for block in blocks):
        return None
    added = [block.tool_name for block in blocks if isinstance(block, ToolAddition)]
    removed = [block.tool_name for block in blocks if isinstance(block, ToolRemoval)]
    if len(blocks) == 1:
        key = "message.toolAdded" if added else "message.toolRemoved"
        return ToolChange(words(key, name=(added or removed)[0]))
    if added and removed:
        summary = words("message.toolsChanged", added=len(added), removed=len(removed))
    elif added:
        summary = words("message.toolsAddedCount", count=len(added))
    else:
        summary = words("message.toolsRemovedCount", count=len(removed))
    details = [
        words(key, names=", ".join(names))
        for key, names in (("message.toolsAdded", added), ("message.toolsRemoved", removed))
        if names
    ]
    return ToolChange(words("message.toolsUpdated"), summary, tuple(details))


def body(message: DeveloperMessage) -> str:
    """Return a node's opaque body: its blocks, a line each, in no language."""
    lines: list[str] = []
    for block in message.content:
        match block:
            case ToolAddition(tool_name=name):
                lines.append(f"+{name}")
            case ToolRemoval(tool_name=name):
                lines.append(f"-{name}")
            case DeveloperText(text=text):
                lines.append(text)
    return "\n".join(lines)
