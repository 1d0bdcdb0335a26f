r"""Repair arguments that say the right thing in the wrong JSON kind: lossless, led by the schema.

============  ===========================================================================
schema wants  a string becomes one where
============  ===========================================================================
integer       it is a canonical decimal and a safe integer (at most 2^53 - 1)
number        it is finite and prints back identically
boolean       it is `true` or `false`
object,array  it is JSON text of that kind (models encode nested values twice)
============  ===========================================================================

`007`, `1.50`, `+3` and `1e3` stay strings; a parameter that may be a string is never touched; no
default is filled in and no key dropped. A nullable type counts as its one other type; a real
union (`anyOf` with two, `["integer", "string"]`) is left alone.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TypeAlias, cast

from addendum import encoding
from addendum.errors import ContentError
from addendum.tools.references import Json, References, Schema, SchemaUnusable, inner_base

MAX_DEPTH = 100
"""Levels of a value that are looked at; what lies deeper stays as it is."""

_SAFE = 2**53 - 1
_INTEGER = re.compile(r"(?:0|-?[1-9][0-9]{0,15})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,24})(?:\.[0-9]{0,24}[1-9])?")
_LARGEST, _SMALLEST = 1e21, 1e-6  # beyond these, decimal notation is not how a number prints

_Part: TypeAlias = tuple[Json, Json]  # a subschema, and where its references start from
_View: TypeAlias = tuple[Schema, Json]
_Path: TypeAlias = tuple[str | int, ...]


def coerce(
    schema: Json, value: Json, *, references: References | None = None
) -> tuple[Json, tuple[str, ...]]:
    """Return `value` with what the schema lets us repair, and where it was repaired.

    Args:
        schema: The decoded schema.
        value: Decoded JSON; never changed in place.
        references: The schema's references, if they are already known.

    Returns:
        The value (the same object if nothing changed) and JSON pointers to the repaired places.
    """
    try:
        return _Coercion(schema, references or References(schema)).run(value)
    except SchemaUnusable:
        return value, ()


def pointer(path: _Path | list[str | int]) -> str:
    """Return a path as a JSON pointer; the whole value is the empty text."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


class _Coercion:
    __slots__ = ("_changed", "_known", "_references", "_root")

    def __init__(self, root: Json, references: References) -> None:
        self._root = root
        self._references = references
        self._changed: list[str] = []
        # Views of the same subschemas, so that a long array looks them up once.
        self._known: dict[tuple[int, ...], list[_View]] = {}

    def run(self, value: Json) -> tuple[Json, tuple[str, ...]]:
        result = self._value([(self._root, self._root)], value, ())
        return result, tuple(self._changed)

    def _value(self, schemas: list[_Part], value: Json, path: _Path) -> Json:
        if len(path) > MAX_DEPTH or not isinstance(value, str | dict | list):
            return value
        views = self._views(schemas)
        if isinstance(value, str):
            repaired = _repair(value, _kinds(views))
            if repaired is None:
                return value
            self._changed.append(pointer(path))
            value = repaired
        if isinstance(value, dict):
            return self._object(views, cast("Schema", value), path)
        if isinstance(value, list):
            return self._array(views, cast("list[Json]", value), path)
        return value

    def _object(self, views: list[_View], value: Schema, path: _Path) -> Schema:
        result = value
        for key, item in value.items():
            schemas = [found for view in views if (found := _property(view, key))]
            new = self._value(schemas, item, (*path, key)) if schemas else item
            if new is not item:
                result = dict(value) if result is value else result
                result[key] = new
        return result

    def _array(self, views: list[_View], value: list[Json], path: _Path) -> list[Json]:
        result = value
        for place, item in enumerate(value):
            schemas = [found for view in views if (found := _item(view, place))]
            new = self._value(schemas, item, (*path, place)) if schemas else item
            if new is not item:
                result = list(value) if result is value else result
                result[place] = new
        return result

    def _views(self, schemas: list[_Part]) -> list[_View]:
        """Return all schema objects that hold for one value: themselves, references, `allOf`."""
        key = tuple(id(schema) for schema, _ in schemas)
        known = self._known.get(key)
        if known is not None:
            return known
        views: list[_View] = []
        seen: set[int] = set()
        stack = list(reversed(schemas))
        while stack:
            schema, base = stack.pop()
            if not isinstance(schema, dict):
                continue
            view = cast("Schema", schema)
            if id(view) in seen:
                continue
            seen.add(id(view))
            base = inner_base(view, base)
            views.append((view, base))
            if isinstance(reference := view.get("$ref"), str):
                stack.append(self._references.resolve(reference, base))
            if isinstance(every := view.get("allOf"), list):
                stack.extend((part, base) for part in cast("list[Json]", every))
            for keyword in ("anyOf", "oneOf"):
                if isinstance(some := view.get(keyword), list):
                    branches = [part for part in cast("list[Json]", some) if not _is_null(part)]
                    if len(branches) == 1:
                        stack.append((branches[0], base))
        self._known[key] = views
        return views


def _property(view: _View, key: str) -> _Part | None:
    schema, base = view
    properties = schema.get("properties")
    if isinstance(properties, dict) and key in properties:
        return cast("Schema", properties)[key], base
    # Whether a pattern takes the key is not ours to say: only without patterns is it additional.
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict) and "patternProperties" not in schema:
        return cast("Schema", additional), base
    return None


def _item(view: _View, place: int) -> _Part | None:
    schema, base = view
    rest = schema.get("items")
    prefix = schema.get("prefixItems")
    if isinstance(rest, list):  # before draft 2020-12
        prefix, rest = cast("list[Json]", rest), schema.get("additionalItems")
    if isinstance(prefix, list) and place < len(cast("list[Json]", prefix)):
        return cast("list[Json]", prefix)[place], base
    return (cast("Schema", rest), base) if isinstance(rest, dict) else None


def _is_null(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return False
    found = cast("Schema", schema)
    return (
        found.get("type") in ("null", ["null"])
        or ("const" in found and found["const"] is None)
        or found.get("enum") == [None]
    )


def _kinds(views: list[_View]) -> set[str]:
    """Return the kinds that every view with a `type` allows; empty if none says so."""
    allowed: set[str] | None = None
    for schema, _ in views:
        stated = schema.get("type")
        if isinstance(stated, str):
            stated = [stated]
        if isinstance(stated, list):
            kinds = {kind for kind in cast("list[Json]", stated) if isinstance(kind, str)}
            if "number" in kinds:
                kinds.add("integer")
            kinds.discard("null")
            allowed = kinds if allowed is None else allowed & kinds
    return allowed or set()


def _repair(text: str, kinds: set[str]) -> Json:
    """Return what `text` stands for in the one kind allowed; None if that is not certain."""
    if kinds == {"integer"}:
        if _INTEGER.fullmatch(text) and abs(int(text)) <= _SAFE:
            return int(text)
    elif kinds == {"integer", "number"}:
        return _number(text)
    elif kinds == {"boolean"}:
        return {"true": True, "false": False}.get(text)
    elif kinds and kinds <= {"object", "array"} and text.lstrip(" \t\r\n")[:1] in ("{", "["):
        try:
            decoded: Json = encoding.decode(text)
        except ContentError:
            return None
        if ("object" if isinstance(decoded, dict) else "array") in kinds:
            return cast("Json", decoded)
    return None


def _number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text) or text == "-0":
        return None
    number = float(text)
    if number and not _SMALLEST <= abs(number) < _LARGEST:
        return None
    if format(Decimal(repr(number)), "f").removesuffix(".0") != text:
        return None
    return number if "." in text else int(text)
