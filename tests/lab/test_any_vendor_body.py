"""Whatever is sent, each vendor and gateway answers: a refusal in its own shape, no accident."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.lab_requests import Json, assistant, result, tool, use, user
from tests.lab.odd_bodies import answered, changed_twice, odd

from addendum.lab.anthropic_clouds import BedrockClaude, VertexClaude
from addendum.lab.anthropic_thinking import Seal, sign
from addendum.lab.azure import Azure
from addendum.lab.chat_shapes import USAGE_OPTION
from addendum.lab.deepseek_chat import DeepSeekChat
from addendum.lab.exchange import Provider
from addendum.lab.facts import CHAT_VENDORS
from addendum.lab.openai_chat import OpenAIChat
from addendum.lab.openai_vendors import Vendor
from addendum.lab.openrouter import OpenRouter
from addendum.routes.data import providers

HEADERS = {"anthropic-version": "2023-06-01", "authorization": "Bearer k", "api-key": "k"}
MARK = {"type": "ephemeral"}
FUNCTION = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "a", "arguments": '{"q":1}'}}
SIGNED = sign(Seal("claude-opus-5", "t", False, "", ""))
DETAIL = {
    "type": "reasoning.text",
    "text": "t",
    "signature": SIGNED,
    "format": "anthropic-claude-v1",
    "index": 0,
}


def chat(model: str, *, first: Json | None = None, **answer: Any) -> Json:
    return {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [FUNCTION],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
            {"role": "user", "content": "hi"},
            *([first] if first else []),
            {"role": "assistant", "content": None, "tool_calls": [CALL], **answer},
            {"role": "tool", "tool_call_id": "call00001", "content": "ok"},
        ],
    }


LATER = {"type": "function", "function": {"name": "b", "parameters": {"type": "object"}}}
LATE = {"role": "system", "tools": [LATER]}
MARKED = chat("anthropic/claude-opus-5", reasoning_details=[DETAIL])
MARKED["messages"][0]["content"][0]["cache_control"] = MARK
MARKED["tools"] = [{**FUNCTION, "cache_control": MARK}]
MARKED["session_id"] = "s"
MARKED["provider"] = {"sort": "price"}
CLAUDE: Json = {
    "max_tokens": 100,
    "stream": True,
    "tools": [tool("a")],
    "messages": [user("hi"), assistant(use("c1", q=1)), user(result("c1"))],
}
VERTEX = {**CLAUDE, "anthropic_version": "vertex-2023-10-16"}
PATH = "/p/publishers/anthropic/models/claude-opus-5:streamRawPredict"
CASES: dict[str, tuple[Callable[[], Provider], Json]] = {
    "kimi": (lambda: Vendor(CHAT_VENDORS["moonshot"].value), chat("kimi-k3", first=LATE)),
    "groq": (lambda: Vendor(CHAT_VENDORS["groq"].value), chat("m", reasoning="t")),
    "deepseek": (DeepSeekChat, chat("deepseek-flash", reasoning_content="t")),
    "openrouter": (OpenRouter, MARKED),
    "openrouter openai": (OpenRouter, chat("openai/gpt-6.1-sol")),
    "azure": (lambda: Azure(OpenAIChat()), chat("gpt-4.1")),
    "vertex": (VertexClaude, VERTEX),
    "bedrock": (BedrockClaude, {**CLAUDE, "model": "anthropic.claude-opus-5"}),
}


# Vendors by their facts alone.
CASES |= {
    f"{name} by its facts": (
        partial(Vendor, vendor.value),
        chat(next((model for row in providers()[name].rows for model in row.models), "any")),
    )
    for name, vendor in CHAT_VENDORS.items()
}
for _name, _vendor in CHAT_VENDORS.items():
    if USAGE_OPTION in _vendor.value.refused:
        del CASES[f"{_name} by its facts"][1]["stream_options"]


@pytest.mark.parametrize("name", CASES)
def test_the_body_is_taken_as_it_is(name: str) -> None:
    made, body = CASES[name]
    reply = answered(made(), body, PATH, HEADERS)
    assert reply.status == 200, reply.refusal


@pytest.mark.parametrize("name", CASES)
def test_anything_odd_anywhere_is_answered(name: str) -> None:
    made, body = CASES[name]
    provider = made()
    replies = [answered(provider, each, PATH, HEADERS) for each in odd(body)]
    assert sum(reply.status != 200 for reply in replies) > len(replies) / 2


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40)
@given(data=st.data())
def test_any_two_changes_are_answered(name: str, data: st.DataObject) -> None:
    made, body = CASES[name]
    answered(made(), data.draw(changed_twice(body)), PATH, HEADERS)
