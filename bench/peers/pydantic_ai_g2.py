"""pydantic-ai plays a plan: toolsets are given to each run, as a switch in a page would do it.

`mid-run`: a tool of the agent's own makes each switch while its run goes on, so that pydantic-ai
tells of it in the history by itself. The plan's conversation has one more call for each.

`deltas`: every tool is declared from the start and deferred, and additions are written by hand into
the history. A removal has no such part: a tool that went off stays on for the model.

`through`: the provider's client gets `addendum.async_http_client()`, and nothing else is changed.

Usage: pydantic_ai_g2.py PLAN BASE_URL WIRE [mid-run|deltas|through]

WIRE is anthropic, responses or chat.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelRequest, ToolAvailabilityDeltaPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset
from said import NODES, answered, called, tell

CLAUDE = {
    "anthropic_cache": True,
    "anthropic_cache_tool_definitions": True,
    "anthropic_cache_instructions": True,
    "max_tokens": 4096,
}


def model(wire: str, base_url: str, how: str) -> tuple[Any, dict[str, Any]]:
    """Return the model of a wire, and the settings that its documentation asks for."""
    provider: Any
    if wire == "anthropic":
        provider = AnthropicProvider(base_url=base_url, api_key="any")
        if how == "through":
            from anthropic import AsyncAnthropic

            import addendum

            http_client = addendum.async_http_client(store=NODES)
            own = AsyncAnthropic(base_url=base_url, api_key="any", http_client=http_client)
            provider = AnthropicProvider(anthropic_client=own)
        return AnthropicModel("claude-opus-5-5", provider=provider), CLAUDE
    provider = OpenAIProvider(base_url=base_url, api_key="any")
    if how == "through":
        from openai import AsyncOpenAI

        import addendum

        http_client = addendum.async_http_client(store=NODES)
        client = AsyncOpenAI(base_url=base_url, api_key="any", http_client=http_client)
        provider = OpenAIProvider(openai_client=client)
    if wire == "responses":
        return OpenAIResponsesModel("gpt-6.1-sol", provider=provider), {}
    return OpenAIChatModel("gpt-4.1", provider=provider), {}


def toolset(tools: list[dict[str, Any]]) -> FunctionToolset[None]:
    """Return a toolset of canned tools."""

    def canned(tool: dict[str, Any]) -> Tool[None]:
        def answer(**arguments: Any) -> str:
            called(tool["name"], arguments)
            return tool["result"]

        schema = {"type": "object", **tool["parameters"]}
        return Tool.from_schema(answer, tool["name"], tool["description"], schema)

    return FunctionToolset([canned(tool) for tool in tools])


def main(plan_path: str, base_url: str, wire: str, how: str = "") -> None:
    """Play the plan."""
    plan = json.loads(Path(plan_path).read_text("utf-8"))
    chosen, settings = model(wire, base_url, how)
    head = toolset(plan["tools"])
    servers = {name: toolset(tools) for name, tools in plan["servers"].items()}
    agent = Agent(chosen, instructions=plan["instructions"], toolsets=[head])
    on: set[str] = set()
    if how == "mid-run":
        change(agent, servers, on)
    history: list[Any] = []
    for step in plan["steps"]:
        name = step.get("enable") or step.get("disable")
        if "user" in step:
            match how:
                case "mid-run":
                    given = []
                case "deltas":
                    given = [each.defer_loading() for each in servers.values()]
                case _:
                    given = [own for name, own in servers.items() if name in on]
            done = agent.run_sync(
                step["user"], message_history=history, toolsets=given, model_settings=settings
            )
            answered(done.output)
            history = done.all_messages()
        elif how == "deltas" and "enable" in step:
            added = [tool["name"] for tool in plan["servers"][name]]
            history.append(ModelRequest([ToolAvailabilityDeltaPart(tools_added=added)]))
        elif how in ("", "through"):
            (on.add if "enable" in step else on.remove)(name)
    tell()


def change(agent: Agent[None, str], servers: dict[str, Any], on: set[str]) -> None:
    """Give an agent a tool that switches servers, and the tools of those that are on."""

    @agent.tool_plain
    def switch_server(server: str, on_: bool) -> str:
        """Switch a server on or off."""
        (on.add if on_ else on.discard)(server)
        return "done"

    for name, own in servers.items():
        # Asked for again in front of each request of a run.
        def shown(context: RunContext[None], own: Any = own, name: str = name) -> Any:
            return own if name in on else None

        agent.toolset(shown)


if __name__ == "__main__":
    main(*sys.argv[1:])
