"""Turns a direct call into a dispatcher call in the native message of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return the message with some calls renamed to the dispatcher.

    Args:
        native: The assistant message of the answer, alone.
        envelopes: Argument text of the dispatcher call, by call id.
        name: The dispatcher's name.
    """
    return tuple(_message(raw, envelopes, name) for raw in native)


def _message(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    message = msgspec.json.decode(raw, type=dict[str, Raw])
    if "tool_calls" not in message:
        return raw
    calls: list[Any] = []
    for call in msgspec.json.decode(message["tool_calls"], type=list[dict[str, Any]]):
        envelope = envelopes.get(call["id"])
        if envelope is not None:
            call["function"] = {"name": name, "arguments": envelope}
        calls.append(call)
    return Raw(encoding.encode({**message, "tool_calls": calls}))
