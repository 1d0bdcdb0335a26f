"""A plan told as well as it can be told by hand, on each wire, with bare httpx2.

Claude: definitions inline in the history, marks on the tools, the prompt, the end of the request
before and the end. Responses: `additional_tools` items; what went is said in words. Chat: one
fixed tool that calls the others by name, and their definitions in the user's message.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2

MARK = {"cache_control": {"type": "ephemeral"}}
HEADERS = {
    "x-api-key": "any",
    "authorization": "Bearer any",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "inline-tools-2026-09-15,mid-conversation-tool-changes-2026-07-01",
}
IDLE = {
    "name": "not_in_use",
    "description": "Not in use.",
    "input_schema": {"type": "object"},
    "defer_loading": True,
}
"""The first deferred or inline tool brings hidden text in front of all: so one is there at once."""


CALL_TOOL = {
    "type": "function",
    "function": {
        "name": "call_tool",
        "description": "Call a tool that the application has announced, by its name.",
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
        },
    },
}


async def play(plan: dict[str, Any], base_url: str, wire: str) -> None:
    """Play a plan against a provider."""
    talks = {"anthropic": Claude, "responses": Responses, "chat": Chat}
    talk = talks[wire](plan)
    ahead: list[tuple[str, bool]] = []
    async with httpx2.AsyncClient(base_url=base_url, headers=HEADERS, timeout=60) as client:
        for step in plan["steps"]:
            if "user" not in step:
                ahead.append((step.get("enable") or step["disable"], "enable" in step))
                continue
            talk.say(step["user"], ahead)
            ahead = []
            calls = True
            while calls:
                answer = await client.post(talk.path, json=talk.body())
                answer.raise_for_status()
                calls = talk.hear(answer.json())


def schema(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    return {"type": "object", **tool["parameters"]}


class Results:
    """The canned results of a plan's tools, by name."""

    def __init__(self, plan: dict[str, Any]) -> None:
        every = [*plan["tools"], *(tool for own in plan["servers"].values() for tool in own)]
        self.by_name = {tool["name"]: tool["result"] for tool in every}


class Claude:
    """The Messages API."""

    path = "/v1/messages"

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self._results = plan, Results(plan).by_name
        self._messages: list[dict[str, Any]] = []
        self._before: dict[str, Any] | None = None

    def say(self, text: str, changes: list[tuple[str, bool]]) -> None:
        """Add a user's message, and behind it what has changed."""
        self._add("user", [{"type": "text", "text": text}])
        blocks = [
            self._told(tool, on) for name, on in changes for tool in self._plan["servers"][name]
        ]
        if blocks:
            self._add("system", blocks)

    def _told(self, tool: dict[str, Any], on: bool) -> dict[str, Any]:
        if not on:
            reference = {"type": "tool_reference", "name": tool["name"]}
            return {"type": "tool_removal", "tool": reference}
        return {
            "type": "tool_addition",
            "tool": {"type": "tool_definition", "definition": self._definition(tool)},
        }

    def _definition(self, tool: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": schema(tool),
        }

    def _add(self, role: str, content: list[dict[str, Any]]) -> None:
        self._messages.append({"role": role, "content": content})

    def body(self) -> dict[str, Any]:
        """Return the next request; marks are moved, and none stands on a removal."""
        tools = [self._definition(tool) for tool in self._plan["tools"]]
        blocks = [block for message in self._messages for block in message["content"]]
        last = next(each for each in reversed(blocks) if each["type"] != "tool_removal")
        marked = [last] if self._before is None else [self._before, last]
        self._before = last
        messages = [
            {
                "role": message["role"],
                "content": [
                    {**block, **MARK} if any(block is each for each in marked) else block
                    for block in message["content"]
                ],
            }
            for message in self._messages
        ]
        return {
            "model": "claude-opus-5-5",
            "max_tokens": 4096,
            "tools": [*tools[:-1], {**tools[-1], **MARK}, IDLE],
            "system": [{"type": "text", "text": self._plan["instructions"], **MARK}],
            "messages": messages,
        }

    def hear(self, answer: dict[str, Any]) -> bool:
        """Add an answer and the results of its calls; say whether there were any."""
        self._add("assistant", answer["content"])
        calls = [each for each in answer["content"] if each["type"] == "tool_use"]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": each["id"],
                "content": self._results[each["name"]],
            }
            for each in calls
        ]
        if results:
            self._add("user", results)
        return bool(results)


class Responses:
    """The Responses API."""

    path = "/responses"

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self._results = plan, Results(plan).by_name
        self._input: list[dict[str, Any]] = []

    def say(self, text: str, changes: list[tuple[str, bool]]) -> None:
        """Add a user's message, and behind it what has changed."""
        self._input.append({"role": "user", "content": text})
        for name, on in changes:
            own = self._plan["servers"][name]
            if on:
                tools = [self._definition(tool) for tool in own]
                self._input.append(
                    {"type": "additional_tools", "role": "developer", "tools": tools}
                )
            else:
                names = ", ".join(tool["name"] for tool in own)
                self._input.append({"role": "developer", "content": f"Switched off: {names}"})

    def _definition(self, tool: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "function",
            "name": tool["name"],
            "description": tool["description"],
            "parameters": schema(tool),
            "strict": False,
        }

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        return {
            "model": "gpt-6.1-sol",
            "store": False,
            "instructions": self._plan["instructions"],
            "tools": [self._definition(tool) for tool in self._plan["tools"]],
            "input": self._input,
        }

    def hear(self, answer: dict[str, Any]) -> bool:
        """Add an answer and the results of its calls; say whether there were any."""
        self._input += answer["output"]
        calls = [each for each in answer["output"] if each["type"] == "function_call"]
        self._input += [
            {
                "type": "function_call_output",
                "call_id": each["call_id"],
                "output": self._results[each["name"]],
            }
            for each in calls
        ]
        return bool(calls)


class Chat:
    """Chat Completions."""

    path = "/chat/completions"

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self._results = plan, Results(plan).by_name
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": plan["instructions"]}]

    def say(self, text: str, changes: list[tuple[str, bool]]) -> None:
        """Add a user's message, and behind it what has changed."""
        self._messages.append({"role": "user", "content": text})
        for name, on in changes:
            own = self._plan["servers"][name]
            told = [self._definition(tool)["function"] for tool in own]
            said = json.dumps(told) if on else ", ".join(tool["name"] for tool in own)
            word = "on" if on else "off"
            self._messages.append(
                {"role": "user", "content": f'<tool_update kind="{word}">{said}</tool_update>'}
            )

    def _definition(self, tool: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": schema(tool),
            },
        }

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        head = [self._definition(tool) for tool in self._plan["tools"]]
        return {"model": "gpt-4.1", "tools": [*head, CALL_TOOL], "messages": self._messages}

    def hear(self, answer: dict[str, Any]) -> bool:
        """Add an answer and the results of its calls; say whether there were any."""
        message = answer["choices"][0]["message"]
        self._messages.append({k: v for k, v in message.items() if v is not None})
        calls = message.get("tool_calls") or []
        for call in calls:
            name = call["function"]["name"]
            if name == "call_tool":
                name = json.loads(call["function"]["arguments"])["name"]
            self._messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": self._results[name]}
            )
        return bool(calls)
