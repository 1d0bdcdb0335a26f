"""Kinds of schemas as servers list them, on every route: taken, and nothing lost that need not be.

Each kind was reported where its comment says so; the judge is the strict lab, which shares no code
with what mends (`tests/property/test_schemas.py` goes over all that can be made of them).
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from msgspec import Raw
from tests.property.test_schemas import ROUTES, refusals

from addendum import encoding
from addendum.log.values import ToolSchema
from addendum.routes import resolve
from addendum.tools.servers import as_logged
from addendum.tools.validation import is_schema
from addendum.wire.schemas import screened

S: dict[str, Any] = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


WHOLE: dict[str, Any] = {
    "nothing": {},
    "an object": {"type": "object"},
    "no properties": of(),
    "required null": {**of(a=S), "required": None},
    "required empty": {**of(a=S), "required": []},
    "properties null": {"type": "object", "properties": None},
    "title at the top": {**of(a=S), "title": "Arguments"},
    "closed": {**of(a=S), "additionalProperties": False},
    "open": {**of(a=S), "additionalProperties": True},
    "an array without items": of(a={"type": "array"}),  # garrytan/gbrain#1028
    "items empty": of(a={"type": "array", "items": {}}),
    "items true": of(a={"type": "array", "items": True}),
    "nested arrays": of(a={"type": "array", "items": {"type": "array"}}),
    "an object inside": of(a=of(b=S)),
    "an empty object inside": of(a={"type": "object"}),
    "a type list": of(a={"type": ["string", "null"]}),
    "a type list with an array": of(a={"type": ["array", "string"]}),
    "const": of(a={"const": "x"}),
    "enum without a type": of(a={"enum": ["x", "y"]}),  # MoonshotAI/kimi-cli#1595
    "enum of numbers": of(a={"type": "integer", "enum": [1, 2]}),
    "enum with null": of(a={"type": ["string", "null"], "enum": ["x", None]}),
    "anyOf inside": of(a={"anyOf": [S, {"type": "integer"}]}),
    "oneOf inside": of(a={"oneOf": [S, {"type": "null"}]}),
    "allOf inside": of(a={"allOf": [{"type": "string"}, {"minLength": 1}]}),
    "a type beside anyOf": of(a={"type": "string", "anyOf": [{"minLength": 1}, {"maxLength": 9}]}),
    "$defs": {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": S}},  # google-gemini/gemini-cli#13326
    "definitions": {**of(a={"$ref": "#/definitions/A"}), "definitions": {"A": S}},
    "a reference beside a description": {
        **of(a={"$ref": "#/$defs/A", "description": "An A."}),
        "$defs": {"A": S},
    },
    "a reference to a property": of(a=S, b={"$ref": "#/properties/a"}),
    "draft 4": {
        **of(a={"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        "$schema": "http://json-schema.org/draft-04/schema#",
    },
    "draft 7": {**of(a=S), "$schema": "http://json-schema.org/draft-07/schema#"},
    "nullable": of(a={"type": "string", "nullable": True}),
    "format": of(a={"type": "string", "format": "date-time"}),
    "default null": of(a={"type": "string", "default": None}),
    "examples": of(a={"type": "string", "examples": ["x"]}),
    "deprecated": of(a={"type": "string", "deprecated": True}),
    "a description of 2,000 characters": of(a={"type": "string", "description": "x" * 2000}),
    "a key with a dollar": of(**{"$filter": S}),  # decocms/studio#6874
    "a key with brackets": of(**{"filter[id]": S}),
    "a key with a blank": of(**{"first name": S}),
    "a key in another script": of(**{"名前": S}),
    "a key of 70 characters": of(**{"k" * 70: S}),
    "two keys that become one": of(**{"a b": S, "a_b": S}),
    "a required odd key": {**of(**{"$filter": S}), "required": ["$filter"]},
    "an empty key": of(**{"": S}),
    "allOf of objects at the top": {"type": "object", "allOf": [of(a=S), of(b=S)]},
}
"""Kinds of which nothing is lost on any route."""

PARTLY: dict[str, Any] = {
    "oneOf at the top": {
        "type": "object",
        "oneOf": [of(a=S), of(b=S)],
    },  # langchain-ai/langchain#39271
    "anyOf at the top": {"anyOf": [of(a=S), of(b=S)]},
    "enum at the top": {"type": "object", "enum": [{"a": 1}]},
    "not at the top": {**of(a=S), "not": {"required": ["a"]}},
    "a tree": {**of(a={"$ref": "#"})},
    "a list that holds itself": {
        **of(a={"$ref": "#/$defs/A"}),
        "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
    },
    "a reference to nowhere": of(a={"$ref": "#/$defs/None"}),
    "a reference out of it": of(a={"$ref": "http://127.0.0.1/x"}),
    "a pattern that looks ahead": of(a={"type": "string", "pattern": "^(?=x).*$"}),
    "a pattern that is none": of(a={"type": "string", "pattern": "("}),
    "a type that is none": of(a={"type": "text"}),
    "no object": {"type": "string"},
    "true": True,
    "a list": [],
    "deep": reduce(lambda part, _: of(a=part), range(40), S),
}
KINDS = WHOLE | PARTLY


def tool(schema: Any) -> ToolSchema:
    return ToolSchema("kind", "A tool.", Raw(encoding.encode(schema)))


@pytest.mark.anyio
async def test_every_route_takes_every_kind() -> None:
    assert len(KINDS) >= 50
    for kind, schema in KINDS.items():
        assert await refusals((tool(schema),)) == [], kind


@pytest.mark.parametrize("name", ROUTES)
def test_what_is_sent_is_a_schema_and_calls_are_in_the_tools_own_keys(name: str) -> None:
    rules = resolve(name, environ={}, base_url="http://127.0.0.1:9").schemas
    for kind, schema in KINDS.items():
        made = screened(tool(schema), rules)
        sent = encoding.decode(bytes(made.tool.parameters))
        assert is_schema(sent), kind
        if kind in WHOLE:
            assert not made.losses, (kind, made.losses)
        # Mending what is mended changes nothing.
        assert screened(made.tool, rules).tool == made.tool, kind
        own = schema.get("properties") if isinstance(schema, dict) else None
        if kind in WHOLE and isinstance(own, dict) and own:
            properties = sent["properties"]
            assert len(properties) >= len(own), kind
            called = {key: number for number, key in enumerate(properties)}
            back = encoding.decode(made.own_arguments(encoding.encode(called).decode()).encode())
            assert own.keys() <= back.keys(), kind


LISTED = {"type": "object", "properties": {"a": S}, "oneOf": [of(a=S)], "not": {"required": ["b"]}}
ONCE = {"type": "object", "properties": {"a": S}}


@pytest.mark.parametrize(
    ("listed", "logged", "kept"),
    [
        # What an earlier release made of the very list goes on.
        (LISTED, ONCE, ONCE),
        ({**ONCE, "enum": [{}]}, ONCE, ONCE),
        ({**ONCE, "anyOf": [ONCE]}, ONCE, ONCE),
        # Nothing was left out, or nothing is in the log.
        (ONCE, ONCE, ONCE),
        (LISTED, LISTED, LISTED),
        (LISTED, None, LISTED),
        # It was defined anew.
        (LISTED, {**ONCE, "required": ["a"]}, LISTED),
        (LISTED, {"type": "object"}, LISTED),
        # Inside, such a word was never left out.
        ({"type": "object", "properties": {"a": {"oneOf": [S]}}}, of(a={}), of(a={"oneOf": [S]})),
    ],
)
def test_a_tool_goes_on_as_an_earlier_release_logged_it(
    listed: Any, logged: Any, kept: Any
) -> None:
    found = as_logged(tool(listed), None if logged is None else tool(logged))
    assert encoding.decode(bytes(found.parameters)) == kept
    other = ToolSchema("kind", "Another text.", Raw(encoding.encode(logged or {})))
    if logged != listed:
        assert as_logged(tool(listed), other) == tool(listed)
