"""What is sent, held against the vendors' own types: every body of every scenario on every route.

Their types ignore keys that they do not know, so what comes out has to be what went in.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import bundled, find
from addendum.lab.server import open_lab
from addendum.routes import resolve

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

ROUTES = (
    "anthropic:claude-opus-5-5",
    "anthropic:claude-opus-5-5+by-reference",
    "anthropic:claude-sonnet-4-6",
    "deepseek:deepseek-flash",
    "openai:gpt-6.1-sol",
    "openai:gpt-4.1",
    "openai-chat:gpt-6.1-sol",
    "openai-chat:gpt-4.1",
    "compatible:model",
    "bedrock:anthropic.claude-sonnet-4-6",
    "bedrock:amazon.nova-pro",
    "gemini:gemini-4-argon",
    "vertex:gemini-2.5-pro",
)
ONE_OF_EACH_WIRE = (ROUTES[0], ROUTES[4], ROUTES[7], ROUTES[9], ROUTES[11])
SAME_WIRES = (
    "vertex-claude:claude-opus-5-5",
    "bedrock-claude:anthropic.claude-opus-5-5",
    "azure:gpt-6.1-sol",
    "azure-chat:gpt-4.1",
    "deepseek-chat:deepseek-flash",
    "openrouter:anthropic/claude-opus-5-5",
    "mistral:mistral-large-latest",
    "qwen:qwen3-max",
)
"""Other speakers of the same wires. Kimi's system messages with tools are in no vendor's types."""

OTHERS = ("wide", "prompt-and-tool", "empty-head", "tail", "flap", "redefine")
SAMPLE = [
    *((name, scenario) for name in ONE_OF_EACH_WIRE for scenario in ("g2", *OTHERS)),
    *((name, "redefine") for name in (*ROUTES, *SAME_WIRES) if name not in ONE_OF_EACH_WIRE),
]
"""All shapes on one route of each wire, the one with most of them on all routes."""

EVERY = [(name, scenario) for name in (*ROUTES, *SAME_WIRES) for scenario in sorted(bundled())]
PLAYED = EVERY if "ADDENDUM_EVERY" in os.environ else SAMPLE


def settled(value: Any) -> Any:
    """Return a validated value as plain data; what is validated while it is read is read here."""
    if isinstance(value, Mapping):
        return {key: settled(part) for key, part in value.items()}
    if isinstance(value, str | bytes | int | float | None):
        return value
    return [settled(part) for part in value]


@cache
def adapter(name: str) -> Any:
    make: Any = pytest.importorskip("pydantic").TypeAdapter
    match name:
        case "anthropic_messages":
            pytest.importorskip("anthropic")
            from anthropic.types.beta import message_create_params as messages

            return make(messages.MessageCreateParamsStreaming)
        case "openai_chat":
            pytest.importorskip("openai")
            from openai.types.chat import completion_create_params as chat

            return make(chat.CompletionCreateParamsStreaming)
        case _:
            pytest.importorskip("openai")
            from openai.types.responses import response_create_params as responses

            return make(responses.ResponseCreateParamsStreaming)


def by_type(name: str) -> Callable[[Json], Json]:
    def check(body: Json) -> Json:
        return settled(adapter(name).validate_python(body))

    return check


def by_gemini(body: Json) -> Json:
    types = pytest.importorskip("google.genai.types")
    kinds = {
        "contents": types.Content,
        "systemInstruction": types.Content,
        "tools": types.Tool,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    assert body.keys() <= kinds.keys()

    def told(kind: Any, value: Any) -> Any:
        if isinstance(value, list):
            return [told(kind, each) for each in value]
        made = kind.model_validate(value)
        return json.loads(made.model_dump_json(by_alias=True, exclude_unset=True))

    return {key: told(kinds[key], value) for key, value in body.items()}


@cache
def converse() -> Any:
    session = pytest.importorskip("botocore.session").get_session()
    return session.get_service_model("bedrock-runtime").operation_model("ConverseStream")


def by_botocore(body: Json) -> Json:
    from botocore.validate import ParamValidator

    def blobs(value: Any) -> Any:
        if isinstance(value, list):
            return [blobs(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64decode(part) if key == "redactedContent" else blobs(part)
            for key, part in value.items()
        }

    report = ParamValidator().validate({"modelId": "m", **blobs(body)}, converse().input_shape)
    assert not report.has_errors(), report.generate_report()
    return body


CHECKS: Mapping[str, Callable[[Json], Json]] = {
    "anthropic_messages": by_type("anthropic_messages"),
    "openai_chat": by_type("openai_chat"),
    "openai_responses": by_type("openai_responses"),
    "bedrock_converse": by_botocore,
    "gemini": by_gemini,
}


EXTENSIONS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
"""What other makers of the OpenAI wire added to an answer."""

OPENROUTER = EXTENSIONS | {"cache_control", "session_id"}
VERTEX = frozenset({"anthropic_version"})
"""What a cloud adds to a body; the model is in the address there."""


def comparable(value: Any, extra: frozenset[str] = EXTENSIONS) -> Any:
    """Return a body without what no type speaks of.

    Schemas are open objects, and google-genai writes the bytes of a signature in the other
    alphabet of base64.
    """
    if isinstance(value, list):
        return [comparable(part, extra) for part in value]
    if not isinstance(value, dict):
        return value
    found: Json = {}
    for key, part in value.items():
        if key == "input_schema":
            part = {"type": part["type"]}
        elif key == "thoughtSignature":
            part = part.replace("-", "+").replace("_", "/")
        if key not in extra:
            found[key] = comparable(part, extra)
    return found


@pytest.mark.parametrize(("name", "scenario"), PLAYED)
async def test_every_body_is_what_the_vendors_types_allow(name: str, scenario: str) -> None:
    found = find(scenario)
    async with open_lab(found.script()) as lab:
        route = resolve(name, base_url=lab.base_url(name.partition(":")[0]), environ={})
        run = await run_scenario(found, route)
        bodies = [json.loads(each.body) for each in lab.captures]
    assert bodies and run.holds, run.violations[:3]
    clouds = {"vertex-claude": VERTEX, "openrouter": OPENROUTER}
    extra = clouds.get(route.provider, EXTENSIONS)
    for body in bodies:
        whole = {"model": route.model, **body} if extra is VERTEX else body
        assert comparable(CHECKS[route.wire](whole), extra) == comparable(whole, extra)


def accepted(wire: str, body: Json) -> bool:
    try:
        return bool(comparable(CHECKS[wire](body)) == comparable(body))
    except AssertionError:
        # botocore's report
        return False


@pytest.mark.parametrize("wire", [name for name in CHECKS if name != "gemini"])
def test_a_key_that_nobody_knows_is_found(wire: str) -> None:
    body: Json = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    if wire == "openai_responses":
        body = {"model": "m", "input": [{"role": "user", "content": "x"}]}
    if wire == "bedrock_converse":
        body = {"messages": [{"role": "user", "content": [{"text": "x"}]}]}
    body |= {} if wire == "bedrock_converse" else {"stream": True}
    assert accepted(wire, body)
    holder = next(value for value in body.values() if isinstance(value, list))[0]
    holder["nonsense"] = 1
    assert not accepted(wire, body)
