"""The parts of a parameter schema, each as an endpoint takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from addendum import encoding
from addendum.routes.schemas import SchemaRules
from addendum.tools.references import Json, Schema, SchemaUnusable
from addendum.tools.schema_slips import LISTED, NAMED, over_parts
from addendum.tools.validation import validator_for

_ANYTHING: Schema = {
    "anyOf": [
        {"type": "string"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "null"},
    ]
}
_RICH = re.compile(r"\\[A-Za-z0-9]|\(\?|\$|(?<!\[)\^")
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "object": frozenset(
        "properties required additionalProperties patternProperties propertyNames minProperties"
        " maxProperties dependentRequired".split()
    ),
    "array": frozenset("items prefixItems minItems maxItems uniqueItems contains".split()),
    "string": frozenset("pattern minLength maxLength format".split()),
    "number": frozenset("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()),
}


class Parts:
    """Mends every part of a schema.

    Args:
        rules: What the endpoint takes.
    """

    def __init__(self, rules: SchemaRules) -> None:
        self._rules = rules

    def mended(self, schema: Schema) -> Schema:
        """Return a schema whose parts the endpoint takes."""
        rules = self._rules
        value = over_parts(self._own(schema), self._below)
        if not rules.type_beside_unions:
            value = _branched(value)
        if rules.typed:
            value = _typed(value)
        if rules.items and "items" not in value and _is_array(value.get("type")):
            value = {**value, "items": _ANYTHING if rules.typed else {}}
        if rules.properties and _names_nothing(value):
            value = {**value, "properties": {}}
        return value

    def _below(self, part: Json) -> Json:
        return self.mended(cast("Schema", part)) if isinstance(part, dict) else part

    def _own(self, value: Schema) -> Schema:
        """Mend the keywords of one part; what stands below it is not looked at."""
        rules = self._rules
        if any(name in value for name in rules.left_out):
            value = {name: part for name, part in value.items() if name not in rules.left_out}
        for keyword in NAMED:
            parts = table(value.get(keyword))
            if keyword == "properties" and False in parts.values():
                parts = {name: part for name, part in parts.items() if part is not False}
                value = {**value, keyword: parts}
            if any(isinstance(part, bool) for part in parts.values()):
                value = {**value, keyword: {n: _no_boolean(part) for n, part in parts.items()}}
        for keyword in LISTED:
            if isinstance(value.get(keyword), list):
                listed = cast("list[Json]", value[keyword])
                if any(isinstance(each, bool) for each in listed):
                    value = {**value, keyword: [_no_boolean(each) for each in listed]}
        if isinstance(value.get("items"), bool):
            value = {name: part for name, part in value.items() if name != "items"}
        pattern: Json = value.get("pattern")
        if isinstance(pattern, str) and not self._takes(pattern):
            text = described(value.get("description"), f"Pattern: {pattern}")
            value = {name: part for name, part in value.items() if name != "pattern"}
            value = {**value, "description": text}
        return value

    def _takes(self, pattern: str) -> bool:
        if self._rules.patterns == "anchored":
            return _is_plain(pattern)
        return _compiles(pattern)


def of_an_object(rules: SchemaRules, value: Schema | None = None) -> Schema:
    """Return a schema as that of an object.

    Args:
        rules: What the endpoint takes.
        value: The schema; an empty one if None.
    """
    value = value or {}
    if value.get("type") != "object":
        # Nor can arguments be null.
        apart = ("type", "nullable")
        value = {"type": "object", **{n: part for n, part in value.items() if n not in apart}}
    if rules.properties and "properties" not in value:
        value = {**value, "properties": {}}
    return value


def _branched(value: Schema) -> Schema:
    """Move a type from beside a union into its branches."""
    union = next((word for word in ("anyOf", "oneOf") if isinstance(value.get(word), list)), None)
    if union is None or "type" not in value:
        return value
    kind = value["type"]
    branches = [
        {"type": kind, **each} if not each.keys() & {"type", "$ref", "anyOf", "oneOf"} else each
        for each in tables(value[union])
    ]
    return {**{name: part for name, part in value.items() if name != "type"}, union: branches}


def _typed(value: Schema) -> Schema:
    """Say a part's type, if nothing in it does."""
    if value.keys() & {"type", "$ref", "anyOf", "oneOf"}:
        return value
    kinds = _told_types(value)
    if not kinds:
        return {**value, **_ANYTHING}
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **value}


def _told_types(value: Schema) -> list[str]:
    """Return the types that a part's values or keywords tell."""
    options: Json = [value["const"]] if "const" in value else value.get("enum")
    if isinstance(options, list) and options:
        return list(dict.fromkeys(map(_kind, cast("list[Json]", options))))
    return [kind for kind, words in _KEYWORDS.items() if value.keys() & words]


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _no_boolean(part: Json) -> Json:
    return {} if part is True else {"not": {}} if part is False else part


def _is_array(kind: Json) -> bool:
    return "array" in (cast("list[Json]", kind) if isinstance(kind, list) else [kind])


def _names_nothing(value: Schema) -> bool:
    return value.get("type") == "object" and "required" in value and "properties" not in value


def _is_plain(pattern: str) -> bool:
    """Say whether a pattern is anchored and has no classes, groups of a kind, or anchors within."""
    inner = pattern[1:-1]
    anchored = len(pattern) > 1 and pattern[0] == "^" and pattern[-1] == "$"
    return anchored and not _RICH.search(inner)


@lru_cache(maxsize=1024)
def _compiles(pattern: str) -> bool:
    try:
        validator_for(encoding.encode({"pattern": pattern}))
    except SchemaUnusable:
        return False
    return True


def described(description: Json, text: str) -> str:
    """Return a part's description with a sentence behind it."""
    return f"{description} {text}" if isinstance(description, str) and description else text


def table(value: Json) -> Schema:
    """Return a JSON object; an empty one if it is none."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def tables(value: Json) -> list[Schema]:
    """Return the objects of a JSON list; nothing if it is no list."""
    listed = cast("list[Json]", value) if isinstance(value, list) else []
    return [cast("Schema", each) for each in listed if isinstance(each, dict)]
