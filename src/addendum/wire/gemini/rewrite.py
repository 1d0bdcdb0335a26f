"""Turns a direct call into a dispatcher call in the native parts of an answer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from addendum import encoding

_fields = msgspec.json.Decoder(dict[str, Raw])


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return the parts with some calls renamed to the dispatcher.

    Text, order and every signature stay as they are, that of a renamed call too.

    Args:
        native: Parts of the answer.
        envelopes: Argument text of the dispatcher call, by call id.
        name: The dispatcher's name.
    """
    return tuple(_part(raw, envelopes, name) for raw in native)


def _part(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    part = _fields.decode(raw)
    if "functionCall" not in part:
        return raw
    call = _fields.decode(part["functionCall"])
    envelope = envelopes.get(msgspec.json.decode(call["id"], type=str))
    if envelope is None:
        return raw
    changed = {**call, "name": name, "args": Raw(envelope.encode())}
    return Raw(encoding.encode({**part, "functionCall": changed}))
