"""Two requests beside each other, segment by segment in cache order.

What is compared is what the provider caches: marks count nothing, blanks between JSON tokens count
nothing, the order of keys does. Deferred tools and this turn's instructions are shown, but lie
outside the lasting prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from addendum import encoding
from addendum.cache.record import Reading
from addendum.masking import masked_value
from addendum.wire.segment import Json, Segment, fields, parse, resolve, unmarked

State: TypeAlias = Literal["same", "changed", "added", "removed"]

EXCERPT = 96
"""Characters of a value that are shown on each side."""

BYTES_A_TOKEN = 4
"""Bytes that are taken for a token where the provider did not say how long the prompt was."""

_MOST_PAIRS = 4_000_000
"""Beyond so many pairs of segments, those in the middle are paired by their place alone."""

_BEFORE = 24
_OWN = frozenset(
    "role content tool_calls tools reasoning_content reasoning reasoning_details "
    "type output call_id id status".split()
)
"""Fields that are no part of a message's head: they are segments of their own, or no text."""


class Change(Struct, frozen=True):
    """One segment of two requests.

    Attributes:
        state: What became of it.
        kind: Part of the request.
        role: The role it is sent under.
        type: Type of the block.
        name: The tool, for tool entries.
        before: Path in the first request; None if it is not there.
        after: Path in the second; None if it is not there.
        size_before: Its bytes in the first request.
        size: Its bytes in the second.
        tokens: Its tokens, estimated by bytes; in the second request, or in the first if it is
            only there.
        in_prefix: Whether it is part of the lasting prefix.
    """

    state: State
    kind: str
    role: str
    type: str
    name: str
    before: str | None
    after: str | None
    size_before: int
    size: int
    tokens: int
    in_prefix: bool


class SettingChange(Struct, frozen=True):
    """A setting that counts for the prefix and differs; None where it is not set."""

    name: str
    before: str | None
    after: str | None


class First(Struct, frozen=True):
    """The first place where the second request does not extend the first.

    Attributes:
        area: `tools`, `system` or `messages`.
        state: What became of the segment there.
        path: JSON path, in the second request where it has one, else in the first.
        type: Type of the block there.
        before: Excerpt of the first request; None if nothing stands there.
        after: Excerpt of the second.
    """

    area: Literal["tools", "system", "messages"]
    state: State
    path: str
    type: str
    before: str | None
    after: str | None


class Comparison(Struct, frozen=True):
    """How one request follows another.

    Attributes:
        settings: Settings that differ.
        changes: All segments in cache order.
        first: Where the second stops extending the first; None if it extends all of it.
        kept: Bytes of the first request's prefix that the second begins with.
    """

    settings: tuple[SettingChange, ...]
    changes: tuple[Change, ...]
    first: First | None
    kept: int


def compare(before: Reading, after: Reading) -> Comparison:
    """Compare two requests.

    Args:
        before: The first request.
        after: The second; both on the same wire.
    """
    tokens = _tokens(before), _tokens(after)
    changes: list[Change] = []
    first: First | None = None
    kept, broken = 0, False
    pairs = list(_paired(before.segments, after.segments))
    last = max((at for at, (old, _) in enumerate(pairs) if old and _lasts(old)), default=-1)
    for at, (old, new) in enumerate(pairs):
        one = new or old
        assert one is not None
        same = old is not None and new is not None and old.key == new.key
        state: State = (
            "same" if same else "added" if old is None else "removed" if new is None else "changed"
        )
        lasting = any(each is not None and _lasts(each) for each in (old, new))
        changes.append(
            Change(
                state,
                one.kind,
                one.role,
                one.type,
                one.defines if one.kind == "tool" else "",
                None if old is None else old.path,
                None if new is None else new.path,
                0 if old is None else old.size,
                0 if new is None else new.size,
                tokens[0](one) if new is None else tokens[1](one),
                lasting,
            )
        )
        if not lasting or broken:
            continue
        if same:
            kept += one.size
        elif at <= last:
            broken = True
            bodies = parse(before.record.body), parse(after.record.body)
            first = _first(state, old, new, bodies)
        else:
            broken = True
    return Comparison(settings_changed(before, after), tuple(changes), first, kept)


def settings_changed(before: Reading, after: Reading) -> tuple[SettingChange, ...]:
    """Return the settings that differ between two requests."""
    names = sorted({*before.settings, *after.settings})
    differ = [name for name in names if before.settings.get(name) != after.settings.get(name)]
    if not differ:
        return ()
    bodies = parse(before.record.body), parse(after.record.body)

    def shown(body: Json, reading: Reading, name: str) -> str | None:
        if body.get(name) is not None:
            return _shown(masked_value({name: body[name]})[name])
        return reading.settings.get(name)

    return tuple(
        SettingChange(name, shown(bodies[0], before, name), shown(bodies[1], after, name))
        for name in differ
    )


def _lasts(segment: Segment) -> bool:
    return not segment.deferred and not segment.tail


def _tokens(reading: Reading) -> Callable[[Segment], int]:
    """Return a function that estimates a segment's tokens, by the prompt's total if it is known."""
    rendered = sum(each.size for each in reading.rendered)
    prompt = reading.record.usage.prompt

    def estimate(segment: Segment) -> int:
        if prompt is None or not rendered:
            return -(-segment.size // BYTES_A_TOKEN)
        return round(prompt * segment.size / rendered)

    return estimate


# -- pairing ------------------------------------------------------------------------------------


def _paired(
    old: Sequence[Segment], new: Sequence[Segment]
) -> Iterator[tuple[Segment | None, Segment | None]]:
    """Yield the segments of both requests side by side, one part of the request after another."""
    for kind in ("tool", "system", "message"):
        ours = [each for each in old if each.kind == kind]
        theirs = [each for each in new if each.kind == kind]
        yield from _aligned(ours, theirs)


def _aligned(
    old: Sequence[Segment], new: Sequence[Segment]
) -> Iterator[tuple[Segment | None, Segment | None]]:
    front, shorter = 0, min(len(old), len(new))
    while front < shorter and old[front].key == new[front].key:
        front += 1
    back = 0
    while back < shorter - front and old[-1 - back].key == new[-1 - back].key:
        back += 1
    yield from zip(old[:front], new[:front], strict=True)
    yield from _middle(old[front : len(old) - back], new[front : len(new) - back])
    yield from zip(old[len(old) - back :], new[len(new) - back :], strict=True)


def _middle(
    old: Sequence[Segment], new: Sequence[Segment]
) -> Iterator[tuple[Segment | None, Segment | None]]:
    if len(old) * len(new) > _MOST_PAIRS:
        yield from _replaced(old, new)
        return
    keys = [each.key for each in old], [each.key for each in new]
    matcher = SequenceMatcher(None, *keys, autojunk=False)
    for _, start, end, other, stop in matcher.get_opcodes():
        yield from _replaced(old[start:end], new[other:stop])


def _replaced(
    old: Sequence[Segment], new: Sequence[Segment]
) -> Iterator[tuple[Segment | None, Segment | None]]:
    """Yield two runs by their places; what cannot be the same thing goes and comes."""
    for at in range(max(len(old), len(new))):
        ours = old[at] if at < len(old) else None
        theirs = new[at] if at < len(new) else None
        if ours is None or theirs is None or _same_thing(ours, theirs):
            yield ours, theirs
        else:
            yield ours, None
            yield None, theirs


def _same_thing(old: Segment, new: Segment) -> bool:
    names = old.defines == new.defines if old.kind == "tool" else True
    return names and (old.role, old.type) == (new.role, new.type)


# -- inside a segment ---------------------------------------------------------------------------

_AREAS: dict[str, Literal["tools", "system", "messages"]] = {
    "tool": "tools",
    "system": "system",
    "message": "messages",
}


def _first(
    state: State, old: Segment | None, new: Segment | None, bodies: tuple[Json, Json]
) -> First:
    one = new or old
    assert one is not None
    area = _AREAS[one.kind]
    if old is None or new is None:
        text = _shown(_value(bodies[0] if new is None else bodies[1], one))
        sides = (text, None) if new is None else (None, text)
        return First(area, state, one.path, one.type, *sides)
    if old.role != new.role:
        path = f"{new.message}.role"
        return First(area, state, path, new.type, old.role, new.role)
    found = inside(_value(bodies[0], old), _value(bodies[1], new))
    if found is None:
        # The bytes of the block are the same; what it brings in is not.
        return First(area, state, new.path, new.type, None, None)
    path, before, after = found
    return First(area, state, new.path + path, new.type, before, after)


def _value(body: Json, segment: Segment) -> Any:
    """Return what a segment holds, without credentials: excerpts are made of it."""
    return masked_value(_own(body, segment))


def _own(body: Json, segment: Segment) -> Any:
    value = resolve(body, segment.path)
    if not isinstance(value, dict):
        return value
    bare = unmarked(cast(Json, value))
    if segment.type == "message":
        return {name: each for name, each in bare.items() if name not in _OWN}
    if segment.path.startswith("input["):
        return {name: each for name, each in bare.items() if name not in ("id", "status")}
    return bare


def inside(before: Any, after: Any, path: str = "") -> tuple[str, str | None, str | None] | None:
    """Return where two JSON values differ first, and what stands there on both sides.

    Args:
        before: A decoded value.
        after: Another one.
        path: Path of both.

    Returns:
        Path behind `path` and two excerpts, None for a side that has nothing there; None if the
        values are written the same, key order included.
    """
    if encoding.encode(before) == encoding.encode(after):
        return None
    if isinstance(before, dict) and isinstance(after, dict):
        return _in_object(fields(before), fields(after), path)
    if isinstance(before, list) and isinstance(after, list):
        ours, theirs = cast("list[Any]", before), cast("list[Any]", after)
        for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            found = inside(one, other, f"{path}[{at}]")
            if found is not None:
                return found
        at = min(len(ours), len(theirs))
        if len(ours) > at:
            return f"{path}[{at}]", _shown(ours[at]), None
        return f"{path}[{at}]", None, _shown(theirs[at])
    if isinstance(before, str) and isinstance(after, str):
        at = next(
            (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
            min(len(before), len(after)),
        )
        start = max(0, at - _BEFORE)
        return path, _cut(before, start), _cut(after, start)
    return path, _shown(before), _shown(after)


def _in_object(before: Json, after: Json, path: str) -> tuple[str, str | None, str | None] | None:
    for (ours, one), (theirs, other) in zip(before.items(), after.items(), strict=False):
        if ours == theirs:
            found = inside(one, other, f"{path}.{ours}")
            if found is not None:
                return found
        elif ours not in after:
            return f"{path}.{ours}", _shown(one), None
        elif theirs not in before:
            return f"{path}.{theirs}", None, _shown(other)
        else:
            return f"{path}.{theirs}", f"key {ours!r} stands here", f"key {theirs!r} stands here"
    if len(before) > len(after):
        name = list(before)[len(after)]
        return f"{path}.{name}", _shown(before[name]), None
    name = list(after)[len(before)]
    return f"{path}.{name}", None, _shown(after[name])


def _cut(text: str, start: int) -> str:
    end = start + EXCERPT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else encoding.encode(value).decode()
    return _cut(text, 0)
