"""Reasoning inside an assistant message of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, json

from addendum import encoding
from addendum.wire.reading import table

FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of an assistant message that hold reasoning, by the servers' several spellings."""


def without_reasoning(raw: Raw) -> Raw:
    """Return an assistant message without its reasoning; the same object if it has none."""
    text = bytes(raw)
    if b'"reasoning' not in text and b'"thinking"' not in text:
        return raw
    message = json.decode(raw, type=dict[str, Raw])
    kept = {name: value for name, value in message.items() if name not in FIELDS}
    kept |= _content(kept)
    return raw if kept == message else Raw(encoding.encode(kept))


def _content(message: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the content without its chunks of thinking, where it has some (Mistral)."""
    content = message.get("content", Raw(b"null"))
    if bytes(content)[:1] != b"[":
        return {}
    chunks = json.decode(content, type=list[Raw])
    said = [chunk for chunk in chunks if table(json.decode(chunk)).get("type") != "thinking"]
    if len(said) == len(chunks):
        return {}
    return {"content": Raw(encoding.encode(said or ""))}
