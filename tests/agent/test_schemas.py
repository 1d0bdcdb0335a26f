"""Tools whose schemas an endpoint does not take as they are: in the strict lab, on every wire."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from tests.agent.stage import stage

from addendum import encoding
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import ToolResult
from addendum.log.values import ToolSchema
from addendum.tools.functions import FunctionTool

pytestmark = pytest.mark.anyio

ROUTES = (
    "anthropic:claude-opus-5-5",
    "anthropic:claude-opus-5-5+by-reference",
    "deepseek:deepseek-flash",
    "openai:gpt-6.1-sol",
    "bedrock:anthropic.claude-opus-5-5",
    "gemini:gemini-3.8-flash",
    "openai-chat:gpt-4.1",
    "moonshot:kimi-k3",
    "xai:grok-4.6",
    "mistral:mistral-large-4",
    "groq:openai/gpt-oss-120b",
    "zai:glm-5",
    "qwen:qwen3-max",
    "vllm:qwen3",
    "llamacpp:any",
    "compatible:m",
)
"""A route of each wire and of each kind of Chat endpoint."""


def made(name: str, schema: Any, ran: list[Any] | None = None) -> FunctionTool[..., Any]:
    def run(arguments: dict[str, Any]) -> str:
        if ran is not None:
            ran.append(arguments)
        return f"{name} ran"

    return FunctionTool.from_schema(ToolSchema(name, "", Raw(encoding.encode(schema))), run)


def script(*steps: tuple[str, dict[str, Any]]) -> Script:
    """A model that calls the tool of each message's name with these arguments."""
    said = [
        ScriptStep(name, (Entry(calls=(ScriptCall(name, arguments),)), Entry(text="done")))
        for name, arguments in steps
    ]
    return Script((*said, ScriptStep("bye", (Entry(text="bye"),))))


A = {"a": {"type": "string"}, "b": {"type": "string"}}
CHOICES = {
    "oneOf": [{"required": ["a"]}],
    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    "allOf": [{"required": ["a"]}],
    "enum": [{"a": "x"}, {"a": "y"}],
    "not": {"required": ["b"]},
}


@pytest.mark.parametrize("route", ROUTES)
async def test_a_choice_at_the_top_of_a_schema_is_taken_everywhere(route: str) -> None:
    """It is relieved of the choice, and its own schema still decides whether a call is valid."""
    ran: list[Any] = []
    tools = [
        made(f"use_{word}", {"type": "object", "properties": A, word: part}, ran)
        for word, part in CHOICES.items()
    ]
    steps = [(tool.name, {"a": "x"}) for tool in tools] + [("use_not", {"b": "x"})]
    spoken = script(*steps[:-1])
    again = ScriptStep("again", (Entry(calls=(ScriptCall(*steps[-1]),)), Entry(text="done")))
    async with stage(Script((*spoken.steps, again))) as here:
        async with here.open(here.agent(route, tools=tools)) as session:
            for name, _ in steps[:-1]:
                await session.run(name)
            await session.run("again")
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
        assert not here.refused()
    assert ran == [{"a": "x"}] * len(tools)
    assert [each.is_error for each in results] == [False] * len(tools) + [True]
