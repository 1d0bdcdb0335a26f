"""Output references: `{{tool0turn3}}` in a call's arguments stands for an earlier result's text.

The label of a result is made of its place in its round and the round's number in the session. Both
are counted in the log, so labels go on in later runs, in other processes and in forks, and no two
results of a session share one. What is put in is data: it is not looked through again, so no result
can refer to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from addendum.errors import ContentError

Fill: TypeAlias = Callable[[Any], Any]
"""Gives decoded arguments with what they refer to put in; the same object if that is nothing."""

_REFERENCE = re.compile(r"\{\{(tool\d{1,9}turn\d{1,9})\}\}")


def label(place: int, round_number: int) -> str:
    """Return the label of a result.

    Args:
        place: The call's place in its round, from 0.
        round_number: Rounds of calls in the session before this one.
    """
    return f"tool{place}turn{round_number}"


def references(text: str) -> tuple[str, ...]:
    """Return the labels that a text refers to, each once, in order."""
    return tuple(dict.fromkeys(_REFERENCE.findall(text)))


def fill(value: Any, texts: Mapping[str, str], *, limit: int) -> Any:
    """Put results in where decoded arguments refer to them; what is not known stays as it is.

    Args:
        value: Decoded JSON. Keys of objects refer to nothing.
        texts: Results by label.
        limit: Characters that may be put in, all together.

    Returns:
        The value with results in it; the same object if it refers to none.

    Raises:
        ContentError: The results are longer than the limit.
    """
    left = limit

    def put(found: re.Match[str]) -> str:
        nonlocal left
        text = texts.get(found[1])
        if text is None:
            return found[0]
        left -= len(text)
        if left < 0:
            raise ContentError("the outputs that it refers to are too long; pass on less")
        return text

    def walk(node: Any) -> Any:
        if isinstance(node, str):
            return _REFERENCE.sub(put, node) if "{{tool" in node else node
        if isinstance(node, list):
            items = cast("list[Any]", node)
            made = [walk(item) for item in items]
            return made if any(a is not b for a, b in zip(made, items, strict=True)) else items
        if isinstance(node, dict):
            fields = cast("dict[str, Any]", node)
            filled = {key: walk(item) for key, item in fields.items()}
            return filled if any(filled[key] is not fields[key] for key in fields) else fields
        return node

    return walk(value)
