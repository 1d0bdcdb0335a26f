"""Whatever a tool's schema is like: each vendor takes it, and arguments get the tool's own keys.

The judge is the strict lab, which shares no code with what mends.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from tests.wire.prompts import human, prompt

from addendum import encoding
from addendum.lab.exchange import Switches
from addendum.lab.server import Lab
from addendum.log.values import Config, ToolSchema
from addendum.routes import resolve
from addendum.wire.apis import wire
from addendum.wire.schemas import screened

ROUTES = (
    "anthropic:claude-opus-5-5",
    "openai:gpt-6.1-sol",
    "openai-chat:gpt-4.1",
    "bedrock:anthropic.claude-opus-5-5",
    "gemini:gemini-3.8-flash",
    "moonshot:kimi-k3",
    "mistral:mistral-large-4",
    "groq:openai/gpt-oss-120b",
    "llamacpp:any",
    "openrouter:anthropic/claude-opus-5.5",
    "compatible:m",
)

NAMES = st.sampled_from(
    [
        "a",
        "b",
        "filter",
        "$filter",
        "filter[id]",
        "first name",
        "名前",
        "@type",
        "k" * 70,
        "a.b",
        "\n",
    ]
)
TEXTS = st.sampled_from(["", "x", "What to show.", "é\0", "oneOf", "d" * 1100])
TYPES = st.sampled_from(
    [
        "string",
        "integer",
        "number",
        "boolean",
        "object",
        "array",
        "null",
        "any",
        "STRING",
        "nope",
        5,
    ]
)
VALUES = st.sampled_from([None, True, 0, 1.5, "x", [], {}, [1], {"a": 1}])
NUMBERS = st.sampled_from([0, 1, -1, 2.5, True, "3", None])
REFERENCES = st.sampled_from(
    ["#", "#/$defs/A", "#/definitions/B", "#/properties/a", "#/nowhere", "http://127.0.0.1/x", 7]
)
PATTERNS = st.sampled_from(["^[a-z]+$", "\\S", "(", "a", "^(?=x).*$", "^\\d{3}$"])


def schemas(deeper: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(NAMES, deeper, max_size=4)
    listed = st.lists(deeper, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(TYPES, st.lists(TYPES, max_size=3)),
            "description": st.one_of(TEXTS, st.none(), st.just(7)),
            "properties": st.one_of(named, named, st.none(), st.just([])),
            "required": st.one_of(
                st.lists(NAMES, max_size=3), st.none(), st.booleans(), st.just({})
            ),
            "items": st.one_of(deeper, listed, st.none()),
            "prefixItems": listed,
            "additionalProperties": st.one_of(st.booleans(), deeper, st.none()),
            "anyOf": listed,
            "oneOf": listed,
            "allOf": listed,
            "not": deeper,
            "enum": st.one_of(st.lists(VALUES, min_size=1, max_size=3), st.none()),
            "const": VALUES,
            "default": VALUES,
            "examples": VALUES,
            "format": st.sampled_from(["date", "uri", 5]),
            "pattern": PATTERNS,
            "minimum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "minLength": NUMBERS,
            "nullable": st.booleans(),
            "$ref": REFERENCES,
            "$defs": st.dictionaries(st.sampled_from(["A", "C"]), deeper, max_size=2),
            "definitions": st.dictionaries(st.sampled_from(["B"]), deeper, max_size=1),
            "$schema": st.sampled_from(
                [
                    "http://json-schema.org/draft-04/schema#",
                    "http://json-schema.org/draft-07/schema#",
                ]
            ),
            "propertyNames": deeper,
            "dependentRequired": st.just({"a": ["$filter"]}),
        },
    )


ANY = st.recursive(
    st.one_of(st.booleans(), schemas(st.just({})), st.just({})), schemas, max_leaves=8
)
TOOLS = st.lists(st.one_of(ANY, ANY, ANY, VALUES), min_size=1, max_size=5)


def tool(number: int, schema: Any) -> ToolSchema:
    description = "D. " * (500 if number % 3 == 0 else 1)
    return ToolSchema(f"t{number}", description, Raw(encoding.encode(schema)))


async def refusals(tools: tuple[ToolSchema, ...]) -> list[str]:
    """What the strict lab has against a request with these tools, by route."""
    lab = Lab(switches=Switches(strict_definitions=True))
    lab.url = "http://127.0.0.1:9"
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=lab.app)) as client:
        for name in ROUTES:
            route = resolve(name, base_url=lab.base_url(name.partition(":")[0]), environ={})
            said = prompt(route.wire, human(1, "hi"), tools=tools)
            config = Config("x", route.model, max_tokens=64)
            made = wire(route.wire).renderer(route, 2, route.shapes.refuses).body(said, config)
            headers = {"content-type": "application/json", "authorization": "Bearer k"}
            headers |= {"x-api-key": "k", "x-goog-api-key": "k"} | dict(route.endpoint.headers)
            await client.post(route.url, content=made, headers=headers)
    return [f"{each.provider}: {each.refusal}" for each in lab.captures if each.refusal]


@settings(max_examples=30)
@given(found=TOOLS)
def test_every_vendor_takes_whatever_a_schema_is_like(found: list[Any]) -> None:
    tools = tuple(tool(number, schema) for number, schema in enumerate(found))
    assert anyio.run(refusals, tools) == []


@settings(max_examples=100)
@given(schema=ANY, name=st.sampled_from(ROUTES), values=st.lists(VALUES, min_size=9, max_size=9))
def test_arguments_come_back_with_the_tools_own_keys(
    schema: Any, name: str, values: list[Any]
) -> None:
    found = screened(tool(1, schema), resolve(name, environ={}).schemas)
    sent = json.loads(bytes(found.tool.parameters)).get("properties", {})
    # A model that fills in every property that it was told of, and one that is not there.
    said = dict(zip([*sent, "other"], values, strict=False))
    own = json.loads(found.own_arguments(json.dumps(said)))
    assert own == {found.keys.get(key, key): value for key, value in said.items()}
    assert len(own) == len(said)
    # What has to be there is there under its own key.
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and not found.losses and "$ref" not in schema:
        known = {key for key, part in properties.items() if part is not False}
        assert known <= {found.keys.get(key, key) for key in sent}


@settings(max_examples=60)
@given(schema=ANY, name=st.sampled_from(ROUTES))
def test_a_definition_that_was_mended_is_left_alone(schema: Any, name: str) -> None:
    """What is sent depends on the definition alone, and has nothing left to mend."""
    rules = resolve(name, environ={}).schemas
    once = screened(tool(1, schema), rules)
    again = screened(once.tool, rules)
    assert bytes(again.tool.parameters) == bytes(once.tool.parameters)
    assert again.tool.description == once.tool.description
    assert (again.keys, again.losses) == ({}, ())
