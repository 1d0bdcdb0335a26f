"""Mistakes that users of Gemini and of the local engine made, by their numbers: none is ours.

The eighth is about a wire that is not spoken here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.stage import stage
from tests.agent.trouble import answering
from tests.lab.engine.engine_here import needs_engine

from addendum import encoding
from addendum.lab.engine import server as engine_server
from addendum.lab.engine.server import open_engine
from addendum.log.values import ToolSchema
from addendum.tools.functions import FunctionTool
from addendum.wire.gemini.segments import segments, settings

pytestmark = pytest.mark.anyio

GEMINI = "gemini:gemini-4-argon"


def options() -> list[str]:
    return list(engine_server._OPTIONS)


def option(name: str) -> str:
    return options()[options().index(name) + 1]


@needs_engine
async def test_gemini_trap_1_the_engine_lives_through_many_requests_with_tools() -> None:
    """Reading tool calls is what aborts on some templates: it is switched off."""
    assert "--skip-chat-parsing" in options()
    tools = [
        {
            "type": "function",
            "function": {"name": f"t{n}", "parameters": {"type": "object", "properties": {}}},
        }
        for n in range(3)
    ]
    async with open_engine() as engine:
        for number in range(15):
            messages = [{"role": "user", "content": f"message {number}"}]
            status, _ = await engine.post(
                "/v1/chat/completions",
                {"model": "m", "messages": messages, "tools": tools, "max_tokens": 1},
            )
            assert status == 200


@needs_engine
async def test_gemini_trap_2_no_answer_has_to_fit_a_tool_format() -> None:
    """A random model says what no tool format allows; the engine does not mind."""
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}
    async with open_engine() as engine:
        status, answer = await engine.post(
            "/v1/chat/completions",
            {
                "model": "m",
                "messages": [{"role": "user", "content": "say something"}],
                "tools": [tool],
                "max_tokens": 40,
            },
        )
    assert status == 200, answer


def test_gemini_trap_3_no_prompt_is_kept_but_that_of_the_one_slot() -> None:
    """Else an old tool list comes back as a hit, and hides that the prefix was broken."""
    assert (option("--cache-ram"), option("--parallel")) == ("0", "1")


def test_gemini_trap_9_the_engine_asks_nobody() -> None:
    assert {"--offline", "--no-ui"} <= set(options())
    assert not {"--tools", "--agent"} & set(options())
    assert option("--host") == "127.0.0.1"


async def test_gemini_trap_5_the_keys_of_a_schema_keep_their_order_over_a_restart() -> None:
    properties = {"zebra": {"type": "string"}, "ant": {"type": "integer"}, "mole": {"type": "null"}}
    raw = Raw(encoding.encode({"type": "object", "properties": properties, "required": ["mole"]}))

    async def run(arguments: dict[str, Any]) -> str:
        return "ok"

    tool = FunctionTool.from_schema(ToolSchema("zoo", "A zoo.", raw), run)
    declared: list[str] = []
    async with stage() as here:
        for _ in range(2):
            async with here.open(here.agent(GEMINI, tools=[tool])) as session:
                await session.run("hello")
                text = session.sent[-1].body.decode()
                declared.append(text[: text.index('"contents"')])
    assert declared[0] == declared[1]
    assert declared[0].index("zebra") < declared[0].index("ant") < declared[0].index("mole")


async def test_gemini_trap_6_a_signature_goes_back_as_its_own_text_and_nothing_is_dropped() -> None:
    part = (
        '{"functionCall": {"name":"web","id":"c1","args":{"q0": "x"}},'
        '"thoughtSignature":"+/+/+w==","somethingNew":{"b":1,"a":2}}'
    )
    texts = [_answer(part), _answer('{"text":"ok"}')]
    async with stage() as here:
        transport = answering(*(f"data: {each}\n\n".encode() for each in texts))
        async with here.open(here.agent(GEMINI, transport=transport)) as session:
            assert (await session.run("hello")).text == "ok"
            assert part.encode() in session.sent[-1].body


def _answer(part: str) -> str:
    content = f'{{"role":"model","parts":[{part}]}}'
    return f'{{"candidates":[{{"content":{content},"finishReason":"STOP"}}]}}'


def test_gemini_trap_7_captures_of_the_vendors_sdk_are_read_in_its_mixed_spelling() -> None:
    """Schemas stay in snake case there, and the names that are allowed do on Vertex."""

    def captured(schema: str, allowed: str) -> dict[str, Any]:
        declaration = {"name": "look", "description": "Looks.", schema: {"type": "object"}}
        return {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [{"functionDeclarations": [declaration]}],
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED", allowed: ["look"]}},
        }

    ours = captured("parametersJsonSchema", "allowedFunctionNames")
    theirs = captured("parameters_json_schema", "allowed_function_names")
    for body in (ours, theirs):
        found = segments(json.dumps(body).encode())
        assert [each.defines for each in found] == ["look", ""]
    # A body is compared with others of the same client, and there it differs in nothing.
    assert settings(theirs) == settings(
        captured("parameters_json_schema", "allowed_function_names")
    )
    changed = captured("parameters_json_schema", "other_names")
    assert settings(theirs) != settings(changed)
