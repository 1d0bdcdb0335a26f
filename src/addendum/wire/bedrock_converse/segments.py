"""A Converse body in cache order: tools, system, message blocks.

A mark is a block of its own, `cachePoint`; here it is a property of the block in front of it. One
that stands first, behind reasoning, behind another one or inside a result marks nothing and is
misplaced.

Sources: botocore 1.44.8; AWS, "Prompt caching for faster model inference" (2026-08); refusals
that clients met behind reasoning (0xPlaygrounds/rig#1673).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from addendum import encoding
from addendum.wire.segment import (
    ADDRESS,
    LOOKS,
    Json,
    Kind,
    Row,
    Segment,
    fields,
    measured,
    objects,
    parse,
    text_of,
)

_POINT = "cachePoint"
_REASONING = "reasoningContent"
_SETTINGS = ("additionalModelRequestFields", "performanceConfig", "serviceTier")


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
    tools = objects(fields(value.get("toolConfig")).get("tools"))
    _entries(row, "tool", "tools", "toolConfig.tools", tools)
    _entries(row, "system", "system", "system", objects(value.get("system")))
    for at, message in enumerate(objects(value.get("messages"))):
        content = objects(message.get("content"))
        _entries(row, "message", str(message.get("role", "")), f"messages[{at}].content", content)
    return row.finish(tail)


def settings(body: bytes | Json) -> dict[str, str]:
    """Return digests of the settings that count for the prefix, by name.

    The model is part of the address and not of the body.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    found = {
        name: encoding.digest(encoding.canonical(value[name]))
        for name in _SETTINGS
        if value.get(name) is not None
    }
    choice = fields(value.get("toolConfig")).get("toolChoice")
    if choice not in (None, {"auto": {}}):
        found["toolChoice"] = encoding.digest(encoding.canonical(choice))
    return found


def _entries(row: Row, kind: Kind, role: str, path: str, entries: Sequence[Json]) -> None:
    """Read a list in which marks stand between the blocks."""
    own = -1
    for at, entry in enumerate(entries):
        if _POINT not in entry:
            _block(row, kind, role, f"{path}[{at}]", entry)
            own = len(row.found) - 1
        elif own >= 0:
            row.found[own] = _marked(row.found[own], fields(entry[_POINT]))
        else:
            # Nothing in front of it in its own row: it goes to whatever comes next.
            digest, size = measured({})
            place = f"{path}[{at}]"
            row.put(
                Segment(
                    kind, role, _POINT, place, digest, size, marks=1, misplaced=True, markable=False
                )
            )


def _marked(before: Segment, point: Json) -> Segment:
    return msgspec.structs.replace(
        before,
        mark="1h" if point.get("ttl") == "1h" else "5m",
        marks=before.marks + 1,
        misplaced=before.misplaced or not before.markable or before.marks > 0,
    )


def _block(row: Row, kind: Kind, role: str, path: str, entry: Json) -> None:
    type_ = next(iter(entry), "")
    result, use = fields(entry.get("toolResult")), fields(entry.get("toolUse"))
    inner = sum(_POINT in each for each in objects(result.get("content")))
    spec = fields(entry.get("toolSpec"))
    digest, size = measured(entry)
    text = text_of(entry)
    segment = Segment(
        kind,
        role,
        "tool" if kind == "tool" else type_,
        path,
        digest,
        size,
        marks=inner,
        misplaced=inner > 0,
        transparent=type_ == _REASONING,
        markable=type_ != _REASONING and (type_ != "text" or bool(text.strip())),
        defines=_text(spec.get("name")),
        uses=(_text(use.get("name")),) if use else (),
        opens=_text(use.get("toolUseId")),
        answers=_text(result.get("toolUseId")),
    )
    row.put(segment, text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def speaks(path: str, headers: Mapping[str, str], body: Json) -> int:
    """Say how well a request fits this wire; see `addendum.wire.captured`."""
    if not isinstance(body.get("messages"), list):
        return 0
    if path.endswith(("/converse", "/converse-stream")):
        return ADDRESS
    if "inferenceConfig" in body or "toolConfig" in body:
        return LOOKS
    parts = [
        each for message in objects(body["messages"]) for each in objects(message.get("content"))
    ]
    return LOOKS if parts and not any("type" in each for each in parts) else 0
