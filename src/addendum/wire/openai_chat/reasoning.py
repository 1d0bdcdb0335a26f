"""Reasoning inside an assistant message of Chat Completions."""

from __future__ import annotations

from msgspec import Raw, json

from addendum import encoding

FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of an assistant message that hold reasoning, by the servers' several spellings."""


def without_reasoning(raw: Raw) -> Raw:
    """Return an assistant message without its reasoning; the same object if it has none."""
    if b'"reasoning' not in bytes(raw):
        return raw
    message = json.decode(raw, type=dict[str, Raw])
    kept = {name: value for name, value in message.items() if name not in FIELDS}
    return raw if len(kept) == len(message) else Raw(encoding.encode(kept))
