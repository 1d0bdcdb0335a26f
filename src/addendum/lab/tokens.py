"""The lab's one rule for counting tokens.

A request is a row of **segments** in the provider's cache order: the entries of `tools`, the
system blocks, the blocks of each message, or what the provider renders in their place. The
counted text of a segment is the word for where it stands (`tools`, `system`, `user`, ...)
followed by the segment's JSON value as compact UTF-8 text, with cache marks taken out and the keys
of its outermost object sorted (inside arguments and schemas their order is the model's to see); a
message whose content is a plain string counts as one text block. A segment has

    tokens = ceil(UTF-8 bytes of the counted text / 4)

Hence equal segments have equal counts, marks and whitespace between JSON tokens count nothing,
and the tokens of a request are the sum over its segments. Token *k* of a segment is its bytes
4k to 4k+3, which gives providers that compare tokens something to compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from addendum import encoding

MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Keys that mark a place for the cache and are no part of what the model reads."""


class Segment(msgspec.Struct, frozen=True):
    """A piece of a request in cache order.

    Attributes:
        text: The counted text.
    """

    text: bytes

    @property
    def tokens(self) -> int:
        """How many tokens the segment has."""
        return -(-len(self.text) // 4)


def segment(kind: str, value: dict[str, Any]) -> Segment:
    """Return the segment that `value` makes.

    Args:
        kind: Where it stands: `tools`, `system`, `user`, `assistant`, ...
        value: A JSON-like object; marks in it are ignored.
    """
    return Segment(kind.encode() + encoding.encode(dict(sorted(unmarked(value).items()))))


def filler(kind: str, tokens: int) -> Segment:
    """Return a segment of `tokens` tokens that stands for hidden text."""
    return Segment(kind.encode().ljust(4 * tokens, b"."))


def count(segments: Iterable[Segment]) -> int:
    """Return the tokens of several segments: the sum."""
    return sum(each.tokens for each in segments)


def stream(segments: Iterable[Segment]) -> bytes:
    """Return the segments as one text of whole tokens: token *k* is bytes 4k to 4k+3."""
    return b"".join(each.text.ljust(4 * each.tokens, b"\0") for each in segments)


def unmarked(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON-like object without cache marks, at the levels where a mark may stand.

    Those are the value itself and, one level down, the blocks of a `content` list and an inline
    `definition`. Arguments and schemas are left alone: there the same word would be data.
    """
    block = {k: v for k, v in value.items() if k not in MARKS}
    content = block.get("content")
    if isinstance(content, list):
        block["content"] = [unmarked(each) for each in cast(list[dict[str, Any]], content)]
    tool = block.get("tool")
    if isinstance(tool, dict) and "definition" in tool:
        tool = cast(dict[str, Any], tool)
        block["tool"] = {**tool, "definition": unmarked(tool["definition"])}
    return block
