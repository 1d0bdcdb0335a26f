"""A `generateContent` body in cache order: function declarations, system instruction, parts.

The provider does not document the order of the three. Declarations first is the safe reading: a
change of tools loses all that follows, the system instruction too.

Sources: google-genai 3.6.1 types; ai.google.dev, "Context caching" (2026-10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from addendum import encoding
from addendum.wire.segment import ADDRESS, Json, Kind, Row, Segment, fields, objects, parse

_ROLES = {"user": "user", "model": "assistant"}
_SETTINGS = ("toolConfig", "cachedContent", "safetySettings")


def segments(body: bytes | Json, tail: str | None = None) -> tuple[Segment, ...]:
    """Return the segments of a request in cache order.

    Args:
        body: The captured body, or what it decodes to.
        tail: This turn's instructions where they are moved with the newest user message: the
            segment that carries them is flagged.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    row = Row()
    for at, tool in enumerate(objects(value.get("tools"))):
        entries = objects(tool.get("functionDeclarations"))
        for number, entry in enumerate(entries):
            place = f"tools[{at}].functionDeclarations[{number}]"
            row.add("tool", "tools", "tool", place, entry, defines=_text(entry.get("name")))
        if not entries:
            row.add("tool", "tools", "tool", f"tools[{at}]", tool)
    for at, part in enumerate(objects(fields(value.get("systemInstruction")).get("parts"))):
        _part(row, "system", "system", f"systemInstruction.parts[{at}]", part)
    for at, content in enumerate(objects(value.get("contents"))):
        for number, part in enumerate(objects(content.get("parts"))):
            role = _ROLES.get(str(content.get("role")), "user")
            _part(row, "message", role, f"contents[{at}].parts[{number}]", part)
    return row.finish(tail)


def settings(body: bytes | Json) -> dict[str, str]:
    """Return digests of the settings that count for the prefix, by name.

    The model is part of the address and not of the body. Of the generation settings only those of
    thinking are counted; which count is not documented.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    thinking = fields(value.get("generationConfig")).get("thinkingConfig")
    stated = {name: value.get(name) for name in _SETTINGS} | {"thinkingConfig": thinking}
    return {
        name: encoding.digest(encoding.canonical(each))
        for name, each in stated.items()
        if each is not None
    }


def _part(row: Row, kind: Kind, role: str, path: str, part: Json) -> None:
    call, response = fields(part.get("functionCall")), fields(part.get("functionResponse"))
    thought = part.get("thought") is True
    names = [name for name in part if name not in ("thought", "thoughtSignature")]
    row.add(
        kind,
        role,
        "thought" if thought else next(iter(names), ""),
        path,
        part,
        transparent=thought,
        uses=(_text(call.get("name")),) if call else (),
        opens=_text(call.get("id")),
        answers=_text(response.get("id")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def speaks(path: str, headers: Mapping[str, str], body: Json) -> int:
    """Say how well a request fits this wire; see `addendum.wire.captured`."""
    return ADDRESS if isinstance(body.get("contents"), list) else 0
