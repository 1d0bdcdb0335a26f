"""What a server offers beside tools: prompts and resources, screened like its tools.

One bad entry never costs the others: it is left out. A list is bounded, and says what it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from addendum.encoding import clean
from addendum.lines import one_line
from addendum.tools.mcp.raw import BARE
from addendum.tools.mcp.results import blocks, objects, read_content
from addendum.tools.mcp.values import MAX_NAME, CallOutcome, cut

MAX_OFFERS = 1_000
"""Prompts, or resources, that are taken from one server."""

MAX_URI = 4_096
"""Characters of a resource's address."""

_SAID = 500
"""Characters of a description."""


class PromptArgument(Struct, frozen=True):
    """An argument of a prompt; its value is text."""

    name: str
    description: str = ""
    required: bool = False


class RemotePrompt(Struct, frozen=True):
    """A prompt as its server lists it.

    Attributes:
        name: The server's own name for it.
        description: One line; empty where the server gives none.
        arguments: What it can be filled with.
    """

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class RemoteResource(Struct, frozen=True, omit_defaults=True):
    """A resource as its server lists it.

    Attributes:
        uri: Its address, or a template of addresses.
        name: What people call it.
        description: One line.
        type: Its media type, as the server says.
        size: Bytes, as the server says.
        template: Whether `uri` has places to fill in.
    """

    uri: str
    name: str = ""
    description: str = ""
    type: str = ""
    size: int | None = None
    template: bool = False


def screen_prompts(entries: Sequence[dict[str, Any]]) -> tuple[RemotePrompt, ...]:
    """Return the good ones of listed prompts, sorted by name; of equal names the first counts."""
    remote_prompts: dict[str, RemotePrompt] = {}
    for entry in entries:
        name = entry.get("name")
        if _named(name) and len(remote_prompts) < MAX_OFFERS:
            arguments = tuple(
                PromptArgument(
                    each["name"], _line(each.get("description")), each.get("required") is True
                )
                for each in objects(entry.get("arguments"))
                if _named(each.get("name"))
            )
            description = _line(entry.get("description") or entry.get("title"))
            remote_prompts.setdefault(str(name), RemotePrompt(str(name), description, arguments))
    return tuple(sorted(remote_prompts.values(), key=lambda each: each.name))


def screen_resources(entries: Sequence[dict[str, Any]]) -> tuple[RemoteResource, ...]:
    """Return the good ones of listed resources and templates, in the server's order."""
    remote_resources: dict[str, RemoteResource] = {}
    for entry in entries:
        template = "uriTemplate" in entry
        uri = entry.get("uriTemplate" if template else "uri")
        if not isinstance(uri, str) or not 0 < len(uri) <= MAX_URI or not uri.isprintable():
            continue
        if len(remote_resources) == MAX_OFFERS:
            break
        size = entry.get("size")
        made = RemoteResource(
            uri,
            _line(entry.get("title") or entry.get("name")),
            _line(entry.get("description")),
            _line(entry.get("mimeType")),
            size if isinstance(size, int) else None,
            template,
        )
        remote_resources.setdefault(uri, made)
    return tuple(remote_resources.values())


def prompt_text(result: dict[str, Any]) -> str:
    """Return a filled-in prompt as the text of one user message.

    What the server wrote for the model to have said stands under a line `[assistant]`. Files have
    no place in a user message: each is told of in a line.

    Args:
        result: The raw result; its messages may be anything.
    """
    parts: list[str] = []
    last = "user"
    for each in blocks(result.get("messages", result.get(BARE))):
        message = cast("dict[str, Any]", each) if isinstance(each, dict) else {"content": each}
        role = "assistant" if message.get("role") == "assistant" else "user"
        if role != last:
            parts.append(f"[{role}]")
            last = role
        # Some send the block itself, without a message around it.
        content = message.get("content", message if "type" in message else None)
        for block in blocks(content):
            said, media = read_content([block])
            parts.append(f"{said[:-1]}: not shown: a prompt holds text only]" if media else said)
    return cut("\n\n".join(parts))


def resource_outcome(result: dict[str, Any]) -> CallOutcome:
    """Return what a resource holds, as the result of a call.

    Args:
        result: The raw result; its contents may be anything.
    """
    found = result.get("contents", result.get("content", result.get(BARE)))
    text, media = read_content(
        [
            {"type": "resource", "resource": block}
            if isinstance(block, dict) and "type" not in block
            else block
            for block in blocks(found)
        ]
    )
    return CallOutcome(text or "the resource is empty", media=media)


def _named(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def _line(text: object) -> str:
    return one_line(clean(text), _SAID) if isinstance(text, str) else ""
