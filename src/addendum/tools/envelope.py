"""Read what a model wrote into a dispatcher call, without changing a byte of it.

Two misplacements lose nothing and are put right where the target's schema leaves one reading: the
`name` inside `arguments`, and parameters of the target beside `name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import ContentError
from addendum.log.values import ToolSchema

MAX_ARGUMENTS = 4 * 1024 * 1024
"""Bytes that the argument text of one call may have."""

_INDIRECT = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")


def members(text: str) -> dict[str, Raw] | None:
    """Return the members of a JSON object, each as the model wrote it; None if it is none.

    An object that was written into a JSON string counts as well; empty text is an empty object.
    """
    if len(text) > MAX_ARGUMENTS:
        return None
    try:
        text = mended(text)
        decoded: Any = encoding.decode(text, limit=MAX_ARGUMENTS)
        if isinstance(decoded, str):
            text = mended(decoded)
            decoded = encoding.decode(text, limit=MAX_ARGUMENTS)
    except ContentError:
        return None
    return msgspec.json.decode(text, type=dict[str, Raw]) if isinstance(decoded, dict) else None


def with_name(
    fields: dict[str, Raw], registry: Mapping[str, ToolSchema]
) -> tuple[dict[str, Raw], bool]:
    """Move a `name` that slipped into `arguments` out of it, if it can be nothing else.

    It must name a tool that has no parameter `name` itself. Where the whole envelope slipped in,
    the tool may have no parameter `arguments` either.

    Args:
        fields: Members of the envelope.
        registry: Active tools by full name.

    Returns:
        The members, and whether they were changed.
    """
    if "name" in fields or "arguments" not in fields:
        return fields, False
    inner = members(inner_text(fields["arguments"]))
    name = plain(inner.get("name")) if inner else None
    schema = registry.get(name) if isinstance(name, str) else None
    own = _parameters(schema) if schema else None
    if inner is None or own is None or "name" in own:
        return fields, False
    rest = {key: raw for key, raw in inner.items() if key != "name"}
    if "arguments" in rest and "arguments" not in own:
        return {**rest, "name": inner["name"]}, True
    return {**fields, "name": inner["name"], "arguments": Raw(_object(rest).encode())}, True


def with_parameters(
    beside: dict[str, Raw], inner: str, given: bool, schema: ToolSchema
) -> str | None:
    """Return the target's arguments joined with parameters that stand beside them.

    Args:
        beside: Members of the envelope other than `name` and `arguments`.
        inner: Text of the arguments.
        given: Whether the envelope has `arguments`.
        schema: The target.

    Returns:
        The text; None if it is not certain what was meant. Unknown keys beside given arguments
        say nothing about the target and are left out.
    """
    own = _parameters(schema) or frozenset()
    known = [key for key in beside if key in own]
    if not known and given:
        return inner
    fields = members(inner)
    if len(known) < len(beside) or fields is None or fields.keys() & beside.keys():
        return None
    # Where the target has a parameter `arguments` itself, there are two ways to read this.
    return None if "arguments" in own else _object({**fields, **beside})


def inner_text(raw: Raw | None) -> str:
    """Return the text of the target's arguments: what was given, or what a given string holds."""
    if raw is None:
        return "{}"
    value = plain(raw)
    return mended(value) if isinstance(value, str) else bytes(raw).decode()


def plain(raw: Raw | None) -> Any:
    """Return what a member holds, decoded; None if there is none."""
    return None if raw is None else encoding.decode(bytes(raw))


def mended(text: str) -> str:
    """Return argument text without lone surrogates; empty text counts as no arguments."""
    if not text.strip():
        return "{}"
    return encoding.mend_surrogates(encoding.clean(text).encode()).decode()


def meant(text: str) -> str:
    """Return the object that a call's argument text stands for, where there is only one reading.

    No text, `null` and an empty string stand for no arguments, a JSON string that holds an object
    for that object, and an object behind an empty one for itself: some servers begin with `{}`.
    Any other text is returned as it is.

    Args:
        text: What a model or its server wrote.
    """
    bare = text.strip()
    if bare in ("", "null"):
        return "{}"
    if bare.startswith("{}") and len(bare) > 2:
        rest = bare[2:].lstrip()
        return rest if isinstance(_value(rest), dict) else text
    inner = bare
    for _ in range(_WRAPPED):
        if not inner.startswith('"'):
            break
        value = _value(inner)
        inner = value.strip() if isinstance(value, str) else text
        if inner in ("", "null"):
            return "{}"
        if inner.startswith("{"):
            return inner if isinstance(_value(inner), dict) else text
    return text


_WRAPPED = 4
"""How often an object may have been written into a string."""


def _value(text: str) -> Any:
    try:
        return encoding.decode(text, limit=MAX_ARGUMENTS)
    except ContentError:
        return None


def _parameters(schema: ToolSchema) -> frozenset[str] | None:
    """Return the names of a tool's parameters; None if its schema does not say them plainly."""
    try:
        decoded: Any = encoding.decode(bytes(schema.parameters) or b"{}")
    except ContentError:
        return None
    if not isinstance(decoded, dict) or any(keyword in decoded for keyword in _INDIRECT):
        return None
    found = cast("dict[str, Any]", decoded)
    properties = found.get("properties", {} if found.get("additionalProperties") is False else None)
    return frozenset(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else None


def _object(fields: Mapping[str, Raw]) -> str:
    return encoding.encode(fields).decode()
