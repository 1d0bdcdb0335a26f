"""langchain plays a plan: an agent is made for each turn with the tools that are on.

With `deltas` (Anthropic alone) the tools stay the first ones, and changes are written by hand into
the history: a system message with the blocks that the adapter passes through.

With `through` (not Anthropic: `ChatAnthropic` takes no HTTP client) the model gets
`addendum.http_client()`, and nothing else is changed.

Usage: langchain_g2.py PLAN BASE_URL WIRE [deltas|through]     (WIRE: anthropic, responses or chat)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import SystemMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from said import NODES, answered, called, tell


def model(wire: str, base_url: str, how: str) -> Any:
    """Return the model of a wire."""
    if wire == "anthropic":
        return ChatAnthropic(
            model_name="claude-opus-5-5", base_url=base_url, api_key="any", max_tokens=4096
        )
    name = "gpt-6.1-sol" if wire == "responses" else "gpt-4.1"
    more: dict[str, Any] = {}
    if how == "through":
        import addendum

        more["http_client"] = addendum.http_client(store=NODES)
    responses = wire == "responses"
    return ChatOpenAI(
        model=name, base_url=base_url, api_key="any", use_responses_api=responses, **more
    )


def canned(tool: dict[str, Any]) -> StructuredTool:
    """Return a tool that always answers the same."""

    def answer(**arguments: Any) -> str:
        called(tool["name"], arguments)
        return tool["result"]

    schema = {"type": "object", "title": tool["name"], **tool["parameters"]}
    return StructuredTool.from_function(
        answer, name=tool["name"], description=tool["description"], args_schema=schema
    )


class OnlyFirst(AgentMiddleware):
    """Sends the first tools alone, while the others can be run."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self._names = names

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        """Leave out what is told in the history."""
        first = [tool for tool in request.tools if tool.name in self._names]
        return handler(request.override(tools=first))


def change(tools: list[dict[str, Any]], on: bool) -> SystemMessage:
    """Return the blocks that tell of a server."""
    if not on:
        gone = [{"type": "tool_reference", "name": tool["name"]} for tool in tools]
        return SystemMessage([{"type": "tool_removal", "tool": each} for each in gone])
    definitions = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": {"type": "object", **tool["parameters"]},
        }
        for tool in tools
    ]
    blocks = [{"type": "tool_definition", "definition": each} for each in definitions]
    return SystemMessage([{"type": "tool_addition", "tool": each} for each in blocks])


def main(plan_path: str, base_url: str, wire: str, how: str = "") -> None:
    """Play the plan."""
    plan = json.loads(Path(plan_path).read_text("utf-8"))
    chosen = model(wire, base_url, how)
    servers = plan["servers"]
    middleware: list[Any] = [AnthropicPromptCachingMiddleware()] if wire == "anthropic" else []
    if how == "deltas":
        middleware.insert(0, OnlyFirst({tool["name"] for tool in plan["tools"]}))
    on: set[str] = set()
    messages: list[Any] = []
    ahead: list[Any] = []
    for step in plan["steps"]:
        name = step.get("enable") or step.get("disable")
        if name is not None:
            (on.add if "enable" in step else on.remove)(name)
            ahead.append(change(servers[name], "enable" in step))
            continue
        own = [tool for name, tools in servers.items() if name in on for tool in tools]
        agent = create_agent(
            chosen,
            [canned(tool) for tool in (*plan["tools"], *own)],
            system_prompt=plan["instructions"],
            middleware=middleware,
        )
        told = ahead if how == "deltas" else []
        sent = [*messages, {"role": "user", "content": step["user"]}, *told]
        messages = agent.invoke({"messages": sent})["messages"]
        answered(messages[-1].text)
        ahead = []
    tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
