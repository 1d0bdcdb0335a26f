"""What a server's result must look like for the SDK, and what it really is.

The SDK checks each result against its version of the protocol and refuses all of it for one odd
block, field or word. What we read ourselves it is shown as a husk that is always good; the result
itself stays with us, raw. What the SDK needs (the handshake, fields of tools that become headers)
it gets in good form, with a note on what was not.
"""

from __future__ import annotations

from typing import Any, cast

from addendum.encoding import clean
from addendum.lines import one_line

BARE = "addendum/bare"
"""Key of a result that is no object, in the object that stands for it."""

_HUSKS: dict[str, dict[str, Any]] = {
    "tools/call": {"content": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "ping": {},
}

_MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Fields that the 2026 protocol demands, and versions before it let pass."""


def husk(method: str) -> dict[str, Any] | None:
    """Return the result that the SDK is shown for a method; None where it must see the real one."""
    found = _HUSKS.get(method)
    return None if found is None else {**found, **_MODERN}


def tools_page(tools: list[dict[str, Any]], cursor: Any) -> dict[str, Any]:
    """Return a page of a list of tools for the SDK."""
    page: dict[str, Any] = {"tools": tools, **_MODERN}
    if isinstance(cursor, str) and cursor:
        page["nextCursor"] = cursor
    return page


def handshake(raw: dict[str, Any], known: tuple[str, ...], notes: list[str]) -> dict[str, Any]:
    """Return the result of `initialize` in good form.

    Args:
        raw: What the server sent.
        known: The versions that may come of it, the newest last.
        notes: Told of a version that is not among them, which is taken for the newest.
    """
    version = raw.get("protocolVersion")
    if version not in known:
        said = one_line(str(version), 40) if isinstance(version, str) else "none"
        notes.append(f"its protocol version ({said}) is not known; {known[-1]} is spoken")
        version = known[-1]
    info = raw.get("serverInfo")
    named: dict[str, Any] = cast("dict[str, Any]", info) if isinstance(info, dict) else {}
    return {
        "protocolVersion": version,
        "capabilities": {},
        "serverInfo": {
            "name": _text(named.get("name")) or "unnamed",
            "version": _text(named.get("version")) or "0",
        },
        **_instructions(raw),
    }


def discovery(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the result of `server/discover` in good form; without versions it is none."""
    versions = raw.get("supportedVersions")
    if not isinstance(versions, list):
        return raw
    spoken = [each for each in cast("list[Any]", versions) if isinstance(each, str)]
    return {"supportedVersions": spoken, "capabilities": {}, **_instructions(raw), **_MODERN}


def _instructions(raw: dict[str, Any]) -> dict[str, str]:
    text = raw.get("instructions")
    return {"instructions": clean(text)} if isinstance(text, str) else {}


def _text(value: Any) -> str:
    return one_line(value, 100) if isinstance(value, str) else ""
