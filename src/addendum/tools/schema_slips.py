"""Slips in a JSON Schema that say the right thing in the wrong form, and what was meant.

Nothing is lost by any of these; what else is wrong with a schema stays wrong. Schemas are read by
draft 2020-12, whatever they say of themselves: providers do so too.

=========================================  ====================================================
slip                                       meant
=========================================  ====================================================
a keyword that is null                     none (`const` and `default` may be null)
`properties: []`, `required: {}`           none (an empty list and an empty object of PHP)
`required: "a"`, a name twice              a list, each name once
`required: true` in a property (draft 3)   the name in `required` around it
`exclusiveMinimum: true` (draft 4)         the limit itself
`items: [...]` (draft 7)                   `prefixItems`; `additionalItems` is `items` then
`type: "any"`, `""`, `[]`                  none
`type: ["string"]`                         `string`
`type: "STRING"`, `int`, `bool` ...        the word for it
`additionalProperties: "false"`            `false`
`minLength: "3"`                           a number
`examples: "x"`                            a list of one
a property that is a type's word           a schema of that type
`nullable: true` (OpenAPI)                 null is allowed too
=========================================  ====================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from addendum.tools.references import Json, Schema

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords that hold schemas by name."""

SINGLE = (
    "items",
    "additionalProperties",
    "additionalItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
)
"""Keywords that hold one schema."""

LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords that hold a list of schemas."""

TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

_WORDS = {
    **{name: name for name in TYPES},
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
    "nil": "null",
}
_ANY = frozenset({"any", "mixed", "unknown", ""})
_NUMBERS = (
    "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains"
    " minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"
).split()
_MAY_BE_NULL = frozenset({"const", "default"})

Change: TypeAlias = Callable[[Json], Json]


def over_parts(schema: Schema, change: Change) -> Schema:
    """Return a schema with each of its direct subschemas changed; itself if none is.

    Args:
        schema: The schema.
        change: Gives another subschema, or the same object.
    """
    changed: Schema = {}
    for keyword in NAMED:
        part = schema.get(keyword)
        if isinstance(part, dict):
            parts = cast("Schema", part)
            after = {name: change(each) for name, each in parts.items()}
            if any(after[name] is not each for name, each in parts.items()):
                changed[keyword] = after
    for keyword in SINGLE:
        if isinstance(schema.get(keyword), dict | bool | str):
            after = change(schema[keyword])
            if after is not schema[keyword]:
                changed[keyword] = after
    for keyword in (*LISTED, "items"):
        part = schema.get(keyword)
        if isinstance(part, list):
            listed = cast("list[Json]", part)
            after = [change(each) for each in listed]
            if any(one is not other for one, other in zip(after, listed, strict=True)):
                changed[keyword] = after
    # In place of what was there, so that the order of keys stays.
    return {**schema, **changed} if changed else schema


def parts_of(schema: Schema) -> list[Json]:
    """Return a schema's direct subschemas."""
    found: list[Json] = []

    def note(part: Json) -> Json:
        found.append(part)
        return part

    over_parts(schema, note)
    return found


def mended(schema: Json) -> Json:
    """Return a schema without slips; the same object if it has none."""
    if not isinstance(schema, dict):
        return schema
    value = over_parts(_own(cast("Schema", schema)), _property)
    return _required(value)


def in_this_draft(schema: Json) -> Json:
    """Return a schema without slips, read by draft 2020-12; the same object if it has none."""
    meant = mended(schema)
    if meant is schema or not isinstance(meant, dict):
        return meant
    return {name: part for name, part in cast("Schema", meant).items() if name != "$schema"}


def _property(part: Json) -> Json:
    """Return what stands where a schema has to stand."""
    if isinstance(part, str):
        word = _word(part)
        return {"type": word} if word else {} if part.lower() in _ANY else part
    return {} if part is None else mended(part)


def _own(schema: Schema) -> Schema:
    """Mend a schema's own keywords; its subschemas stay as they are."""
    value: Schema = {}
    for keyword, part in schema.items():
        if part is None and keyword not in _MAY_BE_NULL:
            continue
        if keyword in NAMED and part == []:
            part = {}
        elif keyword == "type":
            part = _type(part)
            if part is None:
                continue
        elif keyword == "required":
            part = _names(part)
            if part is None:
                continue
        elif keyword == "additionalProperties" and part in ("true", "false"):
            part = part == "true"
        elif keyword in _NUMBERS and isinstance(part, str):
            part = _number(part)
        elif keyword == "examples" and not isinstance(part, list):
            part = [part]
        value[keyword] = part
    for keyword, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if value.get(keyword) is False:
            del value[keyword]
        elif value.get(keyword) is True and isinstance(value.get(limit), int | float):
            value[keyword] = value.pop(limit)
    if isinstance(value.get("items"), list):
        first = value.pop("items")
        rest = value.pop("additionalItems", None)
        value["prefixItems"] = first
        if rest is not None:
            value["items"] = rest
    if value.get("nullable") is True:
        value = _nullable(value)
    same = value.keys() == schema.keys() and all(value[key] is schema[key] for key in value)
    return schema if same else value


def _required(schema: Schema) -> Schema:
    """Move `required: true` of properties to where it counts."""
    parts: Any = schema.get("properties")
    if not isinstance(parts, dict):
        return schema
    properties = cast("Schema", parts)
    told = {
        name: cast("Schema", part)
        for name, part in properties.items()
        if isinstance(part, dict) and isinstance(cast("Schema", part).get("required"), bool)
    }
    if not told:
        return schema
    bare = {
        name: {key: each for key, each in part.items() if key != "required"}
        for name, part in told.items()
    }
    known: list[Json] = schema.get("required") or []
    needed = [*known, *(n for n, part in told.items() if part["required"] and n not in known)]
    value = {**schema, "properties": {**properties, **bare}}
    return {**value, "required": needed} if needed else value


def _type(part: Json) -> Json:
    """Return the value of `type`, or None where it says nothing."""
    if isinstance(part, str):
        return None if part.lower() in _ANY else _word(part) or part
    if not isinstance(part, list):
        return part
    given = cast("list[Json]", part)
    if not given or any(isinstance(each, str) and each.lower() in _ANY for each in given):
        return None
    words = [_word(each) if isinstance(each, str) else None for each in given]
    if None in words:
        return cast(Json, given)
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else unique if unique != given else cast(Json, given)


def _word(text: str) -> str | None:
    return _WORDS.get(text.lower())


def _names(part: Json) -> Json:
    """Return the value of `required`, or None where it says nothing."""
    if part in ({}, ""):
        return None
    if isinstance(part, str):
        return [part]
    if not isinstance(part, list):
        return part
    names = cast("list[Json]", part)
    once = list(dict.fromkeys(names)) if all(isinstance(each, str) for each in names) else names
    return once if len(once) < len(names) else cast(Json, names)


def _number(text: str) -> Json:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text.strip():
            return number
    return text


def _nullable(schema: Schema) -> Schema:
    """Say in the words of JSON Schema that null is allowed."""
    kind: Any = schema.get("type")
    if isinstance(kind, str) and kind != "null":
        kinds = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        kinds = [*cast("list[Json]", kind), "null"]
    else:
        return schema
    value = {key: part for key, part in schema.items() if key != "nullable"}
    options: Any = value.get("enum")
    if isinstance(options, list) and None not in options:
        value["enum"] = [*cast("list[Json]", options), None]
    return {**value, "type": kinds}
