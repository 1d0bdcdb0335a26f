"""A tool's parameter schema as an endpoint takes it. The tool's own still decides every call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from msgspec import Raw

from addendum import encoding

UNIONS = ("oneOf", "anyOf", "allOf")
"""What Anthropic refuses at the top of a schema, on its own API and behind Bedrock."""

CHOICES = (*UNIONS, "enum", "not")
"""What OpenAI refuses there, and those that have its wires from it."""

_NOTHING = Raw(b'{"type":"object"}')


def relieved(schema: Raw, refused: Collection[str]) -> Raw:
    """Return a schema that is an object's, without what may not stand at its top.

    One that has to lose nothing is given back as it is, to the byte.

    Args:
        schema: JSON text.
        refused: Keywords that are left out at the top.
    """
    raw = bytes(schema)
    if raw.startswith(b'{"type":"object"') and not any(word.encode() in raw for word in refused):
        return schema
    decoded = encoding.decode(raw)
    if not isinstance(decoded, dict):
        return _NOTHING
    value = cast("dict[str, Any]", decoded)
    if value.get("type") == "object" and not any(word in value for word in refused):
        return schema
    kept = {name: part for name, part in value.items() if name not in refused}
    return Raw(encoding.encode({**kept, "type": "object"}))
