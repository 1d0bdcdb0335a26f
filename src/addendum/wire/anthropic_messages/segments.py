"""An Anthropic Messages body in cache order: tools outside deferral, system, message blocks.

Where a definition is read: an entry of `tools` that is not deferred at the front; any other at
the block that first surfaces it (a `tool_addition`, a search result). A message with `clear_at`
is read until a later user message stands behind it, results included. The first deferred or
inline tool brings hidden text in front of everything, so its presence counts as a setting.

Sources: Claude docs "Mid-conversation system messages and tool changes", "Prompt caching",
"Tool search tool" (2026-08-22 to 2026-09-26).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from addendum import encoding
from addendum.wire.segment import (
    LOOKS,
    Json,
    Mark,
    Row,
    Segment,
    blocks,
    fields,
    marks_on,
    measured,
    objects,
    parse,
    text_of,
    unmarked,
)

_REASONING = frozenset({"thinking", "redacted_thinking"})
_OWN = frozenset({"tool_use", "tool_result", "tool_addition", "thinking"})
_SETTINGS = ("model", "tool_choice", "thinking", "output_config", "speed", "anthropic_beta")
_DEFAULTS: dict[str, Any] = {
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "disabled"},
    "output_config": {"effort": "high"},
}


def segments(body: bytes | Json, tail: str | None = None) -> tuple[Segment, ...]:
    """Return the segments of a request in cache order.

    Args:
        body: The captured body, or what it decodes to.
        tail: This turn's instructions where they are moved with the newest user message: the
            segment that carries them is flagged.

    Raises:
        ContentError: The body is not a JSON object.
    """
    return _Reader(parse(body)).read(tail)


def settings(body: bytes | Json) -> dict[str, str]:
    """Return digests of the settings that count for the prefix, by name.

    A setting with its default value is the same as none. `deferral` stands for the hidden text
    that the first deferred or inline tool brings, `images` for images anywhere.

    Raises:
        ContentError: The body is not a JSON object.
    """
    value = parse(body)
    found = {
        name: encoding.digest(encoding.canonical(value[name]))
        for name in _SETTINGS
        if value.get(name) is not None and value[name] != _DEFAULTS.get(name)
    }
    parts = [
        block
        for message in objects(value.get("messages"))
        for block in blocks(message.get("content"))
    ]
    inline = any(
        part.get("type") == "tool_addition" and _definition(part) is not None for part in parts
    )
    if inline or any(_deferred(entry) for entry in objects(value.get("tools"))):
        found["deferral"] = "present"
    if any(inner.get("type") == "image" for part in parts for inner in (part, *_inner(part))):
        found["images"] = "present"
    return found


class _Reader:
    """One pass over a body; it keeps which definitions have been read so far."""

    def __init__(self, body: Json) -> None:
        self._body = body
        self._declared: dict[str, Json] = {}
        self._surfaced: set[str] = set()
        self._row = Row()

    def read(self, tail: str | None) -> tuple[Segment, ...]:
        for at, entry in enumerate(objects(self._body.get("tools"))):
            self._tool(f"tools[{at}]", entry)
        for at, block in enumerate(blocks(self._body.get("system"))):
            self._block(f"system[{at}]", "system", block, system=True)
        messages = objects(self._body.get("messages"))
        last_user = max(
            (at for at, message in enumerate(messages) if message.get("role") == "user"),
            default=-1,
        )
        for at, message in enumerate(messages):
            scoped = message.get("clear_at") is not None
            for number, block in enumerate(blocks(message.get("content"))):
                self._block(
                    f"messages[{at}].content[{number}]",
                    str(message.get("role", "")),
                    block,
                    scoped=scoped,
                    cleared=scoped and at < last_user,
                )
        self._automatic()
        return self._row.finish(tail)

    def _tool(self, path: str, entry: Json) -> None:
        name = str(entry.get("name") or entry.get("mcp_server_name") or entry.get("type") or "")
        deferred = _deferred(entry)
        self._declared[name] = entry
        if not deferred:
            self._surfaced.add(name)
        bare = unmarked(entry)
        if bare.get("defer_loading") is False:
            del bare["defer_loading"]
        digest, size = measured(bare)
        own = marks_on(entry)
        self._row.put(
            Segment(
                "tool",
                "tools",
                "tool",
                path,
                digest,
                size,
                mark=_lifetime(own),
                marks=len(own),
                deferred=deferred,
                markable=not deferred,
                defines=name,
            )
        )

    def _block(
        self,
        path: str,
        role: str,
        block: Json,
        *,
        system: bool = False,
        scoped: bool = False,
        cleared: bool = False,
    ) -> None:
        kind = str(block.get("type", ""))
        values: list[Any] = [unmarked(block)]
        uses = _uses(kind, block)
        definition = _definition(block) if kind == "tool_addition" else None
        defines = "" if definition is None else str(definition.get("name", ""))
        if definition is not None:
            self._declared[defines] = definition
            if not _deferred(definition):
                self._surfaced.add(defines)
        elif kind != "tool_use":
            for name in uses if kind != "tool_removal" else ():
                if name in self._declared and name not in self._surfaced:
                    self._surfaced.add(name)
                    values.append(_shown(self._declared[name]))
        digest, size = measured(*values)
        own, inner = marks_on(block), _inner_marks(block)
        empty = kind == "text" and not text_of(block)
        self._row.put(
            Segment(
                "system" if system else "message",
                role,
                kind,
                path,
                digest,
                size,
                mark=_lifetime(own or inner),
                marks=len(own) + len(inner),
                misplaced=bool(inner) and (kind != "tool_addition" or bool(own)),
                deferred=cleared,
                tail=scoped,
                transparent=kind in _REASONING,
                markable=not (kind in _REASONING or empty or scoped),
                defines=defines,
                uses=uses,
                opens=str(block.get("id", "")) if kind == "tool_use" else "",
                answers=str(block.get("tool_use_id", "")) if kind == "tool_result" else "",
            ),
            text_of(block),
        )

    def _automatic(self) -> None:
        """Put the mark of the body itself where the provider puts it: the last place there is."""
        own = marks_on(self._body)
        if not own:
            return
        found = self._row.found
        for at in range(len(found) - 1, -1, -1):
            segment = found[at]
            if segment.markable and not segment.deferred:
                if segment.mark is None:
                    found[at] = msgspec.structs.replace(
                        segment, mark=_lifetime(own), marks=segment.marks + 1
                    )
                return


def _deferred(entry: Json) -> bool:
    places = (entry, fields(entry.get("default_config")))
    return any(each.get("defer_loading") is True for each in places)


def _definition(block: Json) -> Json | None:
    return fields(fields(block.get("tool")).get("definition")) or None


def _shown(entry: Json) -> Json:
    return {key: value for key, value in unmarked(entry).items() if key != "defer_loading"}


def _uses(kind: str, block: Json) -> tuple[str, ...]:
    """Return the names of tools that a block calls or refers to."""
    if kind == "tool_use":
        return (str(block.get("name", "")),)
    if kind in ("tool_addition", "tool_removal"):
        tool = fields(block.get("tool"))
        return (str(tool.get("name", "")),) if tool.get("type") == "tool_reference" else ()
    return tuple(
        str(inner.get("tool_name", ""))
        for inner in _inner(block)
        if inner.get("type") == "tool_reference"
    )


def _inner(block: Json) -> list[Json]:
    """Return the blocks inside a block: of a result, or the references of a search result."""
    content = block.get("content")
    return objects(fields(content).get("tool_references") or content)


def _inner_marks(block: Json) -> list[Json]:
    found = [mark for inner in _inner(block) for mark in marks_on(inner)]
    definition = _definition(block)
    return found + (marks_on(definition) if definition is not None else [])


def _lifetime(marks: list[Json]) -> Mark | None:
    if not marks:
        return None
    return "1h" if marks[-1].get("ttl") == "1h" else "5m"


def speaks(path: str, headers: Mapping[str, str], body: Json) -> int:
    """Say how well a request fits this wire; see `addendum.wire.captured`."""
    if not isinstance(body.get("messages"), list):
        return 0
    if path.endswith("/messages") or "anthropic-version" in headers or "anthropic_version" in body:
        return LOOKS
    if "system" in body or any("input_schema" in tool for tool in objects(body.get("tools"))):
        return LOOKS
    for message in objects(body["messages"]):
        if message.get("role") == "tool" or "tool_calls" in message:
            return 0
        if any(each.get("type") in _OWN for each in blocks(message.get("content"))):
            return LOOKS
    return LOOKS if str(body.get("model", "")).startswith("claude") else 0
