"""Plays scenarios as the vendors' SDKs do, with whole histories and the tool list of the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
from anyio.from_thread import start_blocking_portal
from msgspec import Struct, json

from addendum.cache.capture import Capture as CaptureRecord
from addendum.cache.capture import record_of
from addendum.cache.figures import Report, judge
from addendum.cache.reported import usage_of
from addendum.gateway.foreign import route_at
from addendum.lab.records import lab_count, rules_of
from addendum.lab.scenario import AddTool, Redefine, RemoveTool, Say, Scenario, Toggle
from addendum.lab.server import Capture, Lab, open_lab

LIMIT = 8_000


@contextmanager
def lab_of(scenario: Scenario | None = None) -> Iterator[Lab]:
    script = None if scenario is None else scenario.script()
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(open_lab(script)) as lab,
    ):
        yield lab


class Offered(Struct, frozen=True):
    """A tool as a client offers it, in no wire's form."""

    name: str
    description: str
    parameters: Any
    result: str


class Played(Struct):
    """What a client read: the calls it was asked to make and the texts, in order."""

    calls: list[tuple[str, Any]]
    texts: list[str]
    offered: list[set[str]]


def turns(scenario: Scenario) -> Iterator[tuple[str, list[Offered]]]:
    """Yield each human message with the tools that are on."""
    functions = {tool.name: tool for tool in scenario.tools}
    servers = {each.name: {tool.name: tool for tool in each.tools} for each in scenario.servers}
    on = [each.name for each in scenario.servers if each.start]
    for step in scenario.steps:
        match step:
            case Toggle(server, True):
                on.append(server)
            case Toggle(server, False):
                on.remove(server)
            case AddTool(tool):
                functions[tool.name] = tool
            case RemoveTool(name):
                del functions[name]
            case Redefine(tool, server):
                (functions if server is None else servers[server])[tool.name] = tool
            case Say(user, _):
                tools = [_offered(each.name, each) for each in functions.values()]
                for name in on:
                    tools += [_offered(f"{name}__{key}", t) for key, t in servers[name].items()]
                yield user, tools
            case _:
                raise NotImplementedError(step)


def _offered(name: str, tool: Any) -> Offered:
    return Offered(name, tool.description, json.decode(tool.parameters), tool.result)


def instructions(scenario: Scenario) -> str:
    return f"{scenario.instructions}\n\n{scenario.conversation_instructions}"


Create = Callable[..., Any]


def play_chat(
    client: openai.OpenAI, model: str, scenario: Scenario, *, stream: bool = False
) -> Played:
    played = Played([], [], [])
    messages: list[Any] = [{"role": "system", "content": instructions(scenario)}]
    for user, tools in turns(scenario):
        messages.append({"role": "user", "content": user})
        results = {tool.name: tool.result for tool in tools}
        declared = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in tools
        ]
        while True:
            played.offered.append(set(results))
            message = _chat_answer(client, model, messages, declared, stream)
            messages.append(message)
            if not message.get("tool_calls"):
                played.texts.append(message["content"])
                break
            for call in message["tool_calls"]:
                name = call["function"]["name"]
                played.calls.append((name, json.decode(call["function"]["arguments"])))
                result = results.get(name, "no such tool")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return played


def _chat_answer(
    client: openai.OpenAI, model: str, messages: list[Any], tools: list[Any], stream: bool
) -> dict[str, Any]:
    if not stream:
        answer = client.chat.completions.create(model=model, messages=messages, tools=tools)
        return answer.choices[0].message.model_dump(exclude_none=True)
    with client.chat.completions.stream(
        model=model, messages=messages, tools=tools, stream_options={"include_usage": True}
    ) as events:
        for _ in events:
            pass
        message = events.get_final_completion().choices[0].message
    value = message.model_dump(exclude_none=True)
    value.pop("parsed", None)
    for call in value.get("tool_calls", []):
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    return value


def play_messages(
    client: anthropic.Anthropic,
    model: str,
    scenario: Scenario,
    *,
    stream: bool = False,
    thinking: bool = False,
) -> Played:
    played = Played([], [], [])
    messages: list[Any] = []
    more: dict[str, Any] = {"thinking": {"type": "adaptive"}} if thinking else {}
    for user, tools in turns(scenario):
        messages.append({"role": "user", "content": user})
        results = {tool.name: tool.result for tool in tools}
        declared = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": {"type": "object", **tool.parameters},
            }
            for tool in tools
        ]
        while True:
            played.offered.append(set(results))
            asked: dict[str, Any] = {
                "model": model,
                "max_tokens": LIMIT,
                "system": instructions(scenario),
                "messages": messages,
                "tools": declared,
                **more,
            }
            if stream:
                with client.messages.stream(**asked) as events:
                    answer = events.get_final_message()
            else:
                answer = client.messages.create(**asked)
            content = [block.model_dump(exclude_none=True) for block in answer.content]
            for block in content:
                block.pop("parsed_output", None)
            messages.append({"role": "assistant", "content": content})
            calls = [block for block in content if block["type"] == "tool_use"]
            played.texts += [block["text"] for block in content if block["type"] == "text"]
            if not calls:
                break
            done: list[Any] = []
            for call in calls:
                played.calls.append((call["name"], call["input"]))
                result = results.get(call["name"], "no such tool")
                done.append({"type": "tool_result", "tool_use_id": call["id"], "content": result})
            messages.append({"role": "user", "content": done})
    return played


def uncached(captures: list[Capture]) -> int:
    """Return the tokens that were not read from a cache."""
    total = 0
    for each in captures:
        if each.status == 200:
            usage = usage_of(wire_of(each), each.usage)
            total += (usage.prompt or 0) - (usage.cache_read or 0)
    return total


def wire_of(capture: Capture) -> str:
    return "anthropic_messages" if capture.path.endswith("/messages") else "openai_chat"


def report(captures: list[Capture], url: str) -> Report:
    """Judge what arrived, by the rules of its route."""
    records = []
    route = None
    for n, each in enumerate(captures):
        wire = wire_of(each)
        body = json.decode(each.body)
        route = route_at(url + each.path, wire, body["model"], False)
        capture = CaptureRecord(
            str(n),
            each.body,
            url=url + each.path,
            headers=each.headers,
            usage=usage_of(wire, each.usage),
            time=each.time + n * 1e-3,
            answered=each.time + n * 1e-3,
            status=each.status,
        )
        records.append(record_of(capture, n, "one"))
    assert route is not None
    return judge(records, rules_of(route.cache), lab_count)
