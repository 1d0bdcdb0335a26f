"""The strict form of the lab's vendors: what each was reported to refuse of a definition."""

from __future__ import annotations

from typing import Any

import pytest

from addendum.lab.definitions import RULES, definitions, problem
from addendum.lab.server import PROVIDERS

S = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


REFUSED = [
    *[
        ("anthropic", of(**{key: S}), "Property keys")
        for key in ("$a", "a b", "a[]", "名前", "k" * 65)
    ],
    ("bedrock", of(**{"Account Number": S}), "Property keys"),
    ("openai", {"type": "object"}, "missing properties"),
    ("openai-chat", of(a={"type": "array"}), "missing items"),
    ("openai", of(a={"anyOf": [{"type": "null"}, {"type": "array"}]}), "missing items"),
    ("openai", of(a={"type": ["array", "null"]}), "missing items"),
    ("groq", of(a={"type": "object", "required": ["b"]}), "'properties' is missing"),
    ("moonshot", of(a={}), "type is not defined"),
    ("moonshot", of(a={"enum": ["x"]}), "type is not defined"),
    ("moonshot", of(a={"type": "string", "anyOf": [S]}), "type should be defined in anyOf"),
    ("moonshot", {**of(a={"$ref": "#/definitions/A"}), "definitions": {"A": S}}, "start with"),
    ("mistral", {**of(), "$schema": "x"}, "$schema"),
    ("gemini", {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": S}}, "reference to undefined"),
    ("gemini", of(a=True), "boolean"),
    ("llamacpp", of(a={"type": "string", "pattern": "[a-z]"}), "Pattern must start"),
    ("llamacpp", of(a={"type": "string", "pattern": "^\\S$"}), "pattern"),
    ("anthropic", of(a={"$ref": "#/$defs/none"}), "unresolvable"),
    ("compatible", of(a={"description": "x\0"}), "NUL"),
]


@pytest.mark.parametrize(("vendor", "schema", "said"), REFUSED)
def test_what_a_vendor_refuses(vendor: str, schema: dict[str, Any], said: str) -> None:
    tool = {"name": "t", "description": "d", "input_schema": schema}
    assert said in problem(vendor, {"tools": [tool]})
    assert problem(vendor, {"tools": [{**tool, "input_schema": of(a=S)}]}) == ""


def test_a_description_has_a_limit_at_openai() -> None:
    tool = {"name": "t", "description": "d" * 1025, "parameters": of()}
    assert "string too long" in problem("openai", {"tools": [tool]})
    assert problem("vllm", {"tools": [tool]}) == ""


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"name": "t", "input_schema": of(a=S)}]},
        {"tools": [{"type": "function", "function": {"name": "t", "parameters": of(a=S)}}]},
        {"tools": [{"functionDeclarations": [{"name": "t", "parametersJsonSchema": of(a=S)}]}]},
        {"toolConfig": {"tools": [{"toolSpec": {"name": "t", "inputSchema": {"json": of(a=S)}}}]}},
        {"input": [{"type": "additional_tools", "tools": [{"name": "t", "parameters": of(a=S)}]}]},
        {"messages": [{"tools": [{"function": {"name": "t", "parameters": of(a=S)}}]}]},
        {
            "messages": [
                {"content": [{"tool": {"definition": {"name": "t", "input_schema": of(a=S)}}}]}
            ]
        },
    ],
)
def test_definitions_are_found_wherever_they_stand(body: dict[str, Any]) -> None:
    assert [(each.name, each.schema) for each in definitions(body)] == [("t", of(a=S))]


def test_arguments_are_no_definitions() -> None:
    call = {"type": "tool_use", "name": "x", "input": {"name": "t", "input_schema": {"a": 1}}}
    assert list(definitions({"messages": [{"content": [call]}]})) == []


def test_every_name_is_a_provider_of_the_lab() -> None:
    assert set(RULES) <= set(PROVIDERS)
