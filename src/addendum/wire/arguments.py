"""What the wires do alike with a call's arguments: the text a model wrote, as a JSON object."""

from __future__ import annotations

from msgspec import Raw

from addendum import encoding
from addendum.errors import ContentError


def as_object(arguments: str) -> Raw:
    """Return a call's argument text as the object that most wires need.

    Text that is no JSON object, which no tool ran with, is kept under a key of its own.

    Args:
        arguments: JSON text as the model wrote it; empty counts as `{}`.
    """
    try:
        value = encoding.decode(arguments or "{}")
    except ContentError:
        value = None
    if isinstance(value, dict):
        return Raw((arguments or "{}").encode())
    return Raw(encoding.encode({"unreadable_arguments": encoding.clean(arguments)}))
