"""Turns a direct call into a dispatcher call in the native items of an answer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from addendum import encoding

_fields = msgspec.json.Decoder(dict[str, Raw])


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
    block = _fields.decode(raw)
    if "toolUse" not in block:
        return raw
    use = _fields.decode(block["toolUse"])
    envelope = envelopes.get(msgspec.json.decode(use["toolUseId"], type=str))
    if envelope is None:
        return raw
    changed = {**use, "name": name, "input": Raw(envelope.encode())}
    return Raw(encoding.encode({**block, "toolUse": changed}))
