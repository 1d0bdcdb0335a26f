"""Whatever is sent, each provider answers: a refusal in its own shape, never an accident."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.lab_requests import (
    INLINE,
    MARK,
    Json,
    add,
    assistant,
    define,
    remove,
    result,
    system,
    tool,
    use,
    user,
)
from tests.lab.odd_bodies import answered, changed_twice, odd

from addendum.lab.anthropic import Anthropic
from addendum.lab.anthropic_thinking import Seal, sign
from addendum.lab.bedrock import Bedrock
from addendum.lab.deepseek import DeepSeek
from addendum.lab.exchange import Provider
from addendum.lab.gemini import Gemini
from addendum.lab.gemini_signatures import STAND_IN
from addendum.lab.openai_chat import Compatible, OpenAIChat
from addendum.lab.openai_responses import OpenAIResponses
from addendum.lab.openai_responses_reasoning import seal

HEADERS = {
    "x-api-key": "k",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": INLINE,
    "authorization": "Bearer k",
}
SIGNED = sign(Seal("claude-opus-5", "t", False, "", ""))
MESSAGES: Json = {
    "model": "claude-opus-5",
    "max_tokens": 2000,
    "cache_control": {"type": "ephemeral"},
    "thinking": {"type": "adaptive", "display": "summarized"},
    "tool_choice": {"type": "auto"},
    "output_config": {"effort": "high"},
    "system": [{"type": "text", "text": "s", "cache_control": MARK}],
    "tools": [tool("a", cache_control=MARK), tool("b", defer_loading=True)],
    "messages": [
        user("hi"),
        system(add("b"), define(tool("c")), remove("a")),
        assistant({"type": "thinking", "thinking": "t", "signature": SIGNED}, use("c1", q=1)),
        user(result("c1", [{"type": "text", "text": "ok"}]), "more"),
    ],
}
UNITS: Json = {
    "model": "deepseek-flash",
    "max_tokens": 9,
    "cache_control": MARK,
    "tools": [tool("a", cache_control=MARK), tool("b", defer_loading=True)],
    "messages": [
        user({"type": "text", "text": "hi", "cache_control": MARK}),
        system(add("b")),
        assistant({"type": "thinking", "thinking": "t", "signature": "x"}, use("c1", q=1)),
        user(result("c1")),
    ],
}
CHAT: Json = {
    "model": "gpt-6.1-sol",
    "stream": True,
    "stream_options": {"include_usage": True},
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_key": "k",
    "tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "developer", "content": "d"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ],
}
FUNCTION: Json = {
    "type": "function",
    "name": "a",
    "strict": False,
    "parameters": {"type": "object"},
}
ITEMS: Json = {
    "model": "gpt-6.1-sol",
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low"},
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_key": "k",
    "tools": [{"type": "tool_search"}, {**FUNCTION, "name": "b", "defer_loading": True}],
    "input": [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [FUNCTION],
        },
        {"role": "developer", "content": "d"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {
                    "type": "input_text",
                    "text": "x",
                    "prompt_cache_breakpoint": {"mode": "explicit"},
                }
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_00000000000000000000",
            "summary": [],
            "encrypted_content": seal("gpt-6.1-sol", "t", []),
        },
        {
            "type": "function_call",
            "id": "fc_00000000000000000000r1",
            "call_id": "c1",
            "name": "a",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    ],
}
PLAIN: Json = {
    "model": "llama",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "z"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ],
}
CONVERSE: Json = {
    "inferenceConfig": {"maxTokens": 9, "stopSequences": ["x"]},
    "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
    "toolConfig": {
        "tools": [
            {
                "toolSpec": {
                    "name": "a",
                    "description": "A.",
                    "inputSchema": {"json": {"type": "object"}},
                }
            },
            {"cachePoint": {"type": "default", "ttl": "5m"}},
        ],
        "toolChoice": {"auto": {}},
    },
    "system": [{"text": "s"}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "t", "signature": SIGNED}}},
                {"toolUse": {"toolUseId": "c1", "name": "a", "input": {"q": 1}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "c1",
                        "content": [{"text": "x"}, {"json": {"a": 1}}],
                        "status": "success",
                    }
                },
                {"text": "more"},
            ],
        },
    ],
}
CONTENTS: Json = {
    "systemInstruction": {"parts": [{"text": "s"}]},
    "generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "a",
                    "description": "A.",
                    "parametersJsonSchema": {"type": "object", "properties": {"q": {}}},
                }
            ]
        }
    ],
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "x", "thought": True},
                {
                    "functionCall": {"id": "c1", "name": "a", "args": {"q": 1}},
                    "thoughtSignature": STAND_IN,
                },
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "a", "response": {"output": "x"}}}],
        },
    ],
}
PATHS: dict[type[Provider], str] = {
    Bedrock: "/bedrock/model/anthropic.claude-opus-5-v1:0/converse-stream",
    Gemini: "/gemini/v1beta/models/gemini-3.8-flash:streamGenerateContent",
}
PROVIDERS: list[tuple[type[Provider], Json]] = [
    (Anthropic, MESSAGES),
    (DeepSeek, UNITS),
    (OpenAIChat, CHAT),
    (Compatible, PLAIN),
    (Bedrock, CONVERSE),
    (Gemini, CONTENTS),
    (OpenAIResponses, ITEMS),
]


@pytest.mark.parametrize(("provider", "body"), PROVIDERS)
def test_the_body_is_taken_as_it_is(provider: type[Provider], body: Json) -> None:
    reply = answered(provider(), body, PATHS.get(provider, ""), HEADERS)
    assert reply.status == 200, reply.refusal


@pytest.mark.parametrize("drops_unknown", [False, True], ids=["strict", "drops"])
@pytest.mark.parametrize(("provider", "body"), PROVIDERS)
def test_anything_odd_anywhere_is_answered(
    provider: type[Provider], body: Json, drops_unknown: bool
) -> None:
    made, path = provider(), PATHS.get(provider, "")
    replies = [
        answered(made, each, path, HEADERS, drops_unknown=drops_unknown) for each in odd(body)
    ]
    assert sum(reply.status != 200 for reply in replies) > len(replies) / 2


@pytest.mark.parametrize(("provider", "body"), PROVIDERS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_two_changes_are_answered(
    provider: type[Provider], body: Json, data: st.DataObject
) -> None:
    answered(provider(), data.draw(changed_twice(body)), PATHS.get(provider, ""), HEADERS)
