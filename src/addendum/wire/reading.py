"""JSON from a provider, read two ways: as values, and as exact slices of its own text.

Values are for deciding, slices for keeping: what goes back to the provider is cut out of what it
sent and never written again. Both ways obey the rules of `addendum.encoding` (a lone surrogate
becomes U+FFFD; NaN, numbers no float holds, deep nesting and bytes that are no UTF-8 are refused),
and both break the stream rather than let half-read JSON through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import ContentError, StreamBroken

_slices = msgspec.json.Decoder(dict[str, Raw])
_items = msgspec.json.Decoder(list[Raw])


def values(data: bytes) -> Mapping[str, Any]:
    """Decode a JSON object.

    Raises:
        StreamBroken: It is no JSON object, or breaks a rule of `addendum.encoding`.
    """
    try:
        value = encoding.decode(data)
    except ContentError as error:
        raise StreamBroken(f"the provider sent unreadable JSON ({error}); send it again") from error
    if not isinstance(value, dict):
        raise StreamBroken("the provider sent JSON that is no object; check the base URL")
    return cast("dict[str, Any]", value)


def slices(data: bytes | Raw) -> dict[str, Raw]:
    """Cut a JSON object, already checked by `values`, into the text of its fields.

    Raises:
        StreamBroken: It is no JSON object.
    """
    try:
        return {name: raw.copy() for name, raw in _slices.decode(mended(data)).items()}
    except msgspec.DecodeError as error:
        raise StreamBroken("the provider sent no object where one belongs") from error


def items(data: Raw) -> list[Raw]:
    """Cut a JSON array, already checked by `values`, into the text of its items.

    Raises:
        StreamBroken: It is no JSON array.
    """
    try:
        return [raw.copy() for raw in _items.decode(mended(data))]
    except msgspec.DecodeError as error:
        raise StreamBroken("the provider sent no array where one belongs") from error


def mended(data: bytes | Raw) -> bytes:
    """Return JSON text without escaped lone surrogates, which no decoder would take later."""
    raw = bytes(data)
    return encoding.mend_surrogates(raw) if b"\\u" in raw else raw


def legal_object(text: str) -> Raw | None:
    """Return a model's JSON text as it is, if it is an object that may be sent back.

    Args:
        text: What a model wrote as arguments.

    Returns:
        The same text (lone surrogates mended), or None if it is no JSON object or breaks a rule
        of `addendum.encoding`.
    """
    raw = mended(encoding.clean(text).encode())
    try:
        value = encoding.decode(raw)
    except ContentError:
        return None
    return Raw(raw) if isinstance(value, dict) else None


def sound(fields: Mapping[str, Raw], kinds: Mapping[str, str]) -> dict[str, Raw]:
    """Return the fields of an item without those of another kind than they have to be.

    A provider takes back what it sent itself; what came otherwise it would refuse for good.

    Args:
        fields: The item's fields, as text.
        kinds: What known fields begin with: `"`, `{`, `[`, `tf` for true and false, `n` for null.
    """
    return {
        name: raw
        for name, raw in fields.items()
        if name not in kinds or bytes(raw)[:1].decode("latin-1") in kinds[name]
    }


def table(value: Any) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def array(value: Any) -> Sequence[Any]:
    """Return `value` if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else ()


def text(value: Any) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> int | None:
    """Return `value` if it is a place in a row, else None: digits in a string count as well."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return count(value)


_SPOKEN = ("text", "content", "thinking", "summary", "refusal")


def spoken(value: Any) -> str:
    """Return the text of what may be a string, a part that holds one, or parts in a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(spoken, array(value)))
    inner = table(value)
    named = (inner[name] for name in _SPOKEN if inner.get(name))
    return next((said for each in named if (said := spoken(each))), "")


def count(value: Any) -> int | None:
    """Return `value` if it is a number of tokens, else None: unknown is never 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None
