"""Turns a direct call into a dispatcher call in the native items of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return the items with some calls renamed to the dispatcher.

    Text, order, reasoning and every signature stay as they are.

    Args:
        native: Content blocks of the answer.
        envelopes: Argument text of the dispatcher call, by call id.
        name: The dispatcher's name.
    """
    return tuple(_block(raw, envelopes, name) for raw in native)


def _block(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    block = msgspec.json.decode(raw, type=dict[str, Raw])
    if bytes(block.get("type", b"")) != b'"tool_use"':
        return raw
    envelope = envelopes.get(msgspec.json.decode(block["id"], type=str))
    if envelope is None:
        return raw
    changed: dict[str, Any] = {**block, "name": name, "input": Raw(envelope.encode())}
    return Raw(encoding.encode(changed))
