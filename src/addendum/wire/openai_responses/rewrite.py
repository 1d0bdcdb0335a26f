"""Turns a direct call into a dispatcher call in the native items of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.wire.openai_responses.items import without_reasoning


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return the items with some calls renamed to the dispatcher.

    A call that says something else is not the item its reasoning led to, so it loses its id; and
    with it go the reasoning of the answer and the ids that depend on that.

    Args:
        native: Output items of the answer.
        envelopes: Argument text of the dispatcher call, by call id.
        name: The dispatcher's name.
    """
    return tuple(_item(raw, envelopes, name) for raw in without_reasoning(native))


def _item(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    item = msgspec.json.decode(raw, type=dict[str, Raw])
    if bytes(item.get("type", b"")) != b'"function_call"':
        return raw
    envelope = envelopes.get(msgspec.json.decode(item["call_id"], type=str))
    if envelope is None:
        return raw
    changed: dict[str, Any] = {**item, "name": name, "arguments": envelope}
    return Raw(encoding.encode(changed))
