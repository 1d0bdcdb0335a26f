"""openai-agents plays a plan: each tool says by `is_enabled` whether its server is on.

`through`: its client gets `addendum.async_http_client()`, and nothing else is changed.

Usage: openai_agents_g2.py PLAN BASE_URL WIRE [through]     (WIRE: responses or chat)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from said import NODES, answered, called, tell


def main(plan_path: str, base_url: str, wire: str, how: str = "") -> None:
    """Play the plan."""
    set_tracing_disabled(True)
    plan = json.loads(Path(plan_path).read_text("utf-8"))
    more: dict[str, Any] = {}
    if how == "through":
        import addendum

        more["http_client"] = addendum.async_http_client(store=NODES)
    client = AsyncOpenAI(base_url=base_url, api_key="any", **more)
    on: set[str] = set()

    def canned(tool: dict[str, Any], server: str | None) -> FunctionTool:
        async def answer(context: Any, arguments: str) -> str:
            called(tool["name"], json.loads(arguments))
            return tool["result"]

        return FunctionTool(
            tool["name"],
            tool["description"],
            {"type": "object", **tool["parameters"]},
            answer,
            strict_json_schema=False,
            is_enabled=lambda context, agent: server is None or server in on,
        )

    if wire == "responses":
        model: Any = OpenAIResponsesModel("gpt-6.1-sol", client)
    else:
        model = OpenAIChatCompletionsModel("gpt-4.1", client)
    tools = [canned(tool, None) for tool in plan["tools"]]
    tools += [canned(tool, name) for name, own in plan["servers"].items() for tool in own]
    agent = Agent("g2", instructions=plan["instructions"], tools=tools, model=model)
    history: list[Any] = []
    for step in plan["steps"]:
        if "enable" in step:
            on.add(step["enable"])
        elif "disable" in step:
            on.discard(step["disable"])
        else:
            asked = [*history, {"role": "user", "content": step["user"]}]
            done = Runner.run_sync(agent, asked)
            answered(done.final_output)
            history = done.to_input_list()
    tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
