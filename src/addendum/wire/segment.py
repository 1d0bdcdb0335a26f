"""A request body taken apart in the provider's cache order.

A segment is one entry of `tools`, one system block or one block of a message. Each wire module
gives them by a function `segments(body)`; nothing here builds requests, so whoever judges a
request can rely on it without trusting who made it.

Two segments are the same content when their `key` is: role and JSON value in its own key order,
without cache marks and without blanks between JSON tokens. A message whose content is a plain
string is a message with one text block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from addendum import encoding
from addendum.errors import ContentError

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["tool", "system", "message"]
Mark: TypeAlias = Literal["5m", "1h", "explicit"]

ADDRESS = 3
LOOKS = 2
MAYBE = 1
"""How well a captured request fits a wire; see `addendum.wire.captured`."""

_MARKS = ("cache_control", "prompt_cache_breakpoint")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Segment(Struct, frozen=True):
    """One piece of a request.

    Attributes:
        kind: Part of the request: entry of `tools`, prompt text in front, or message block.
        role: `tools` for tool entries, else the role it is sent under.
        type: Type of the block, in the wire's word; `tool` for tool entries.
        path: Where it stands in the body, such as `messages[3].content[0]`.
        digest: SHA-256 of its value without marks.
        size: Bytes of that value as compact JSON. A block that brings in a deferred definition
            has the definition's bytes too: that is where the provider renders it.
        mark: The cache mark on it: its lifetime, or `explicit` where a mark names none.
        marks: How many marks it carries, inner ones included.
        misplaced: Whether one of them stands where the wire has no place for it.
        deferred: Outside the cached prefix: a deferred tool entry, or a turn-scoped message that
            a later user message has cleared.
        tail: This turn's instructions: turn-scoped, or the moved tail.
        transparent: Reasoning: stored with what follows it, and its tokens cannot be told from
            its bytes.
        markable: Whether a mark may stand on it.
        defines: Name of the tool that it defines, or empty.
        uses: Names of tools that it calls or refers to.
        opens: Id of the call that it makes, or empty.
        answers: Id of the call whose result it is, or empty.
    """

    kind: Kind
    role: str
    type: str
    path: str
    digest: str
    size: int
    mark: Mark | None = None
    marks: int = 0
    misplaced: bool = False
    deferred: bool = False
    tail: bool = False
    transparent: bool = False
    markable: bool = True
    defines: str = ""
    uses: tuple[str, ...] = ()
    opens: str = ""
    answers: str = ""

    @property
    def key(self) -> str:
        """What makes it the same content as another segment."""
        return f"{self.kind}/{self.role}/{self.digest}"

    @property
    def message(self) -> str:
        """Path of the message that it belongs to; its own path for all others."""
        return self.path.split("].", 1)[0] + "]" if "]." in self.path else self.path


def parse(body: bytes | Json) -> Json:
    """Decode a captured body; one that is decoded already is given back.

    Raises:
        ContentError: It is not a JSON object.
    """
    value = encoding.decode(body) if isinstance(body, bytes) else body
    if not isinstance(value, dict):
        raise ContentError("a request body must be a JSON object; capture the body, not the URL")
    return cast(Json, value)


def fields(value: Any) -> Json:
    """Return a JSON object; an empty one if it is none."""
    return cast(Json, value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[Json]:
    """Return the objects of a JSON list; nothing if it is no list."""
    if not isinstance(value, list):
        return []
    return [each for each in cast(list[Any], value) if isinstance(each, dict)]


def blocks(content: Any) -> list[Json]:
    """Return content as a list of blocks: a string is one text block, null is none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects(content)


def measured(*values: Any) -> tuple[str, int]:
    """Return digest and bytes of JSON values, written one after the other."""
    data = b"".join(encoding.encode(value) for value in values)
    return encoding.digest(data), len(data)


def unmarked(block: Json) -> Json:
    """Return a block without its cache marks.

    They are looked for on the block, on blocks inside its `content`, and on an inline
    definition. Arguments and schemas are data: there the same word is no mark.
    """
    bare = {key: value for key, value in block.items() if key not in _MARKS}
    if isinstance(bare.get("content"), list):
        bare["content"] = [
            unmarked(cast(Json, each)) if isinstance(each, dict) else each
            for each in cast(list[Any], bare["content"])
        ]
    tool = fields(bare.get("tool"))
    if isinstance(tool.get("definition"), dict):
        bare["tool"] = {**tool, "definition": unmarked(tool["definition"])}
    return bare


def marks_on(block: Json) -> list[Json]:
    """Return the marks that stand on the block itself."""
    return [block[key] for key in _MARKS if isinstance(block.get(key), dict)]


def text_of(block: Json) -> str:
    """Return a block's text, empty if it has none."""
    text = block.get("text")
    return text if isinstance(text, str) else ""


class Row:
    """The segments of a body as a wire module finds them.

    Args:
        markable: Whether a mark may stand on a value, by role, type and value; nowhere if None.

    Attributes:
        found: The segments so far, in cache order.
    """

    def __init__(self, markable: Callable[[str, str, Json], bool] | None = None) -> None:
        self._markable = markable
        self.found: list[Segment] = []
        self._texts: list[str] = []

    def put(self, segment: Segment, text: str = "") -> None:
        """Add a segment.

        Args:
            segment: The segment.
            text: Its text, in which this turn's instructions are looked for.
        """
        self.found.append(segment)
        self._texts.append(text)

    def add(
        self,
        kind: Kind,
        role: str,
        type_: str,
        path: str,
        value: Json,
        *,
        transparent: bool = False,
        defines: str = "",
        uses: tuple[str, ...] = (),
        opens: str = "",
        answers: str = "",
    ) -> None:
        """Add the segment of a value that carries its own marks; see `Segment`."""
        digest, size = measured(unmarked(value))
        marks = marks_on(value)
        segment = Segment(
            kind,
            role,
            type_,
            path,
            digest,
            size,
            mark=_lifetime(value) if marks else None,
            marks=len(marks),
            transparent=transparent,
            markable=self._markable is not None and self._markable(role, type_, value),
            defines=defines,
            uses=uses,
            opens=opens,
            answers=answers,
        )
        self.put(segment, text_of(value))

    def finish(self, tail: str | None) -> tuple[Segment, ...]:
        """Return the segments.

        Args:
            tail: This turn's instructions where they are moved: what carries them is flagged, with
                the head of its message if nothing else stands in that.
        """
        place = moved_tail(self.found, self._texts, tail) if tail else None
        if place is not None:
            message = self.found[place].message
            within = [at for at, each in enumerate(self.found) if each.message == message]
            alone = all(at == place or self.found[at].type == "message" for at in within)
            for at in within if alone else [place]:
                self.found[at] = msgspec.structs.replace(self.found[at], tail=True)
        return tuple(self.found)


def _lifetime(value: Json) -> Mark:
    if "cache_control" not in value:
        return "explicit"
    return "1h" if value["cache_control"].get("ttl") == "1h" else "5m"


def newest_human(segments: Sequence[Segment]) -> range:
    """Return the places of the newest run of user segments that holds no tool result.

    It begins with the newest human message, or with what was put in front of it; announcements
    may follow within the run. Empty if there is no such run.
    """
    end = len(segments)
    while end > 0:
        start = end
        while start > 0 and segments[start - 1].role == "user":
            start -= 1
        if start < end and not any(segment.answers for segment in segments[start:end]):
            return range(start, end)
        end = start if start < end else end - 1
    return range(0)


def moved_tail(segments: Sequence[Segment], texts: Sequence[str], tail: str) -> int | None:
    """Find the segment that carries this turn's instructions.

    Args:
        segments: The segments of a request.
        texts: Their texts, in the same order.
        tail: The instructions as the person set them; a wrapper around them is no matter.

    Returns:
        Its place: the first in or right in front of the newest human run, else the last anywhere
        in the messages, else None.
    """
    found = [
        at
        for at, (segment, text) in enumerate(zip(segments, texts, strict=True))
        if tail in text and segment.kind == "message" and segment.role in _TAIL_ROLES
    ]
    run = newest_human(segments)
    start = run.start
    while run and start > 0 and segments[start - 1].role in ("system", "developer"):
        start -= 1
    near = [at for at in found if run and start <= at < run.stop]
    return near[0] if near else found[-1] if found else None


_TAIL_ROLES = ("user", "system", "developer")


def resolve(body: Json, path: str) -> Any:
    """Return the value at a segment's path; None if there is nothing.

    Args:
        body: A decoded body.
        path: A path such as `messages[3].content[0]`.
    """
    value: Any = body
    for name, index in _STEP.findall(path):
        if name:
            value = fields(value).get(name)
        else:
            listed = cast(list[Any], value) if isinstance(value, list) else blocks(value)
            value = listed[int(index)] if int(index) < len(listed) else None
    return value
