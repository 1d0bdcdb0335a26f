"""pydantic-ai plays a plan: toolsets are given to each run, as a switch in a page would do it.

Usage: pydantic_ai_g2.py PLAN BASE_URL WIRE     (WIRE: anthropic, responses or chat)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset

CLAUDE = {
    "anthropic_cache": True,
    "anthropic_cache_tool_definitions": True,
    "anthropic_cache_instructions": True,
    "max_tokens": 4096,
}


def model(wire: str, base_url: str) -> tuple[Any, dict[str, Any]]:
    """Return the model of a wire, and the settings that its documentation asks for."""
    if wire == "anthropic":
        provider = AnthropicProvider(base_url=base_url, api_key="any")
        return AnthropicModel("claude-opus-5-5", provider=provider), CLAUDE
    provider = OpenAIProvider(base_url=base_url, api_key="any")
    if wire == "responses":
        return OpenAIResponsesModel("gpt-6.1-sol", provider=provider), {}
    return OpenAIChatModel("gpt-4.1", provider=provider), {}


def toolset(tools: list[dict[str, Any]]) -> FunctionToolset[None]:
    """Return a toolset of canned tools."""

    def canned(tool: dict[str, Any]) -> Tool[None]:
        def answer(**arguments: Any) -> str:
            return tool["result"]

        schema = {"type": "object", **tool["parameters"]}
        return Tool.from_schema(answer, tool["name"], tool["description"], schema)

    return FunctionToolset([canned(tool) for tool in tools])


def main(plan_path: str, base_url: str, wire: str) -> None:
    """Play the plan."""
    plan = json.loads(Path(plan_path).read_text("utf-8"))
    chosen, settings = model(wire, base_url)
    head = toolset(plan["tools"])
    servers = {name: toolset(tools) for name, tools in plan["servers"].items()}
    agent = Agent(chosen, instructions=plan["instructions"], toolsets=[head])
    on: set[str] = set()
    history: list[Any] = []
    for step in plan["steps"]:
        if "enable" in step:
            on.add(step["enable"])
        elif "disable" in step:
            on.remove(step["disable"])
        else:
            done = agent.run_sync(
                step["user"],
                message_history=history,
                toolsets=[own for name, own in servers.items() if name in on],
                model_settings=settings,
            )
            history = done.all_messages()


if __name__ == "__main__":
    main(*sys.argv[1:])
