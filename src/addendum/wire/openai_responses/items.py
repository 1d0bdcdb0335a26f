"""Output items as they are sent back, and the pairs that reasoning makes with them.

A reasoning item has to be followed by the item it led to, and that item, as long as it has its
`id`, has to keep its reasoning: either half alone is a 400. So reasoning leaves together with the
ids of what it led to. Without stored responses only reasoning with `encrypted_content` can be sent
back.

Sources: openai-python 3.57.0 types; openai/openai-agents-python#3207, openai/openai-node#1567.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from addendum import encoding


class _Face(Struct):
    type: str = ""
    encrypted_content: str | None = None


_face = msgspec.json.Decoder(_Face)
_fields = msgspec.json.Decoder(dict[str, Raw])


def is_reasoning(raw: Raw) -> bool:
    """Return whether an item is reasoning."""
    return _face.decode(raw).type == "reasoning"


def without_id(raw: Raw) -> Raw:
    """Return an item without its own id; all else is its own text."""
    fields = _fields.decode(raw)
    if "id" not in fields:
        return raw
    return Raw(encoding.encode({name: value for name, value in fields.items() if name != "id"}))


def without_reasoning(items: Iterable[Raw]) -> tuple[Raw, ...]:
    """Return an answer's items without reasoning, and without the ids that would ask for it."""
    return tuple(without_id(raw) for raw in items if not is_reasoning(raw))


def replayable(items: Iterable[Raw]) -> tuple[Raw, ...]:
    """Return an answer's items as they can be sent back: verbatim, where nothing stands against it.

    Reasoning at the end led to nothing (the answer was cut) and is left out. If some reasoning has
    no encrypted content, all of it is left out.
    """
    kept = list(items)
    while kept and is_reasoning(kept[-1]):
        kept.pop()
    faces = [_face.decode(raw) for raw in kept]
    if any(face.type == "reasoning" and not face.encrypted_content for face in faces):
        return without_reasoning(kept)
    return tuple(kept)
