"""Chat Completions: what OpenAI refuses, what a compatible server takes, and the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.lab.lab_requests import Json, chat

from addendum import encoding
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


def function(name: str = "a", **more: Any) -> Json:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object"}, **more},
    }


def call(call_id: str = "c1", name: str = "a", arguments: Any = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*each: Json, content: Any = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(each)}


def answer(call_id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


USER: Json = {"role": "user", "content": "hi"}
TOOLS = [function()]

# name, body, fragment of the message, param
REFUSED: list[tuple[str, Json, str, str]] = [
    (
        "unknown argument",
        {"messages": [USER], "cache_control": {"type": "ephemeral"}},
        "Unrecognized request argument supplied: cache_control",
        "cache_control",
    ),
    (
        "deferred tool",
        {"messages": [USER], "tools": [{**function(), "defer_loading": True}]},
        "Unrecognized request argument supplied: tools[0].defer_loading",
        "tools[0].defer_loading",
    ),
    (
        "marked tool",
        {"messages": [USER], "tools": [{**function(), "cache_control": {}}]},
        "Unrecognized request argument supplied: tools[0].cache_control",
        "tools[0].cache_control",
    ),
    (
        "deferred function",
        {"messages": [USER], "tools": [function(defer_loading=True)]},
        "tools[0].function.defer_loading",
        "tools[0].function.defer_loading",
    ),
    (
        "marked part",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "x", "cache_control": {}}],
                }
            ]
        },
        "messages[0].content[0].cache_control",
        "messages[0].content[0].cache_control",
    ),
    (
        "breakpoint on an older model",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": "x",
                            "prompt_cache_breakpoint": {"mode": "explicit"},
                        }
                    ],
                }
            ]
        },
        "prompt_cache_breakpoint",
        "messages[0].content[0].prompt_cache_breakpoint",
    ),
    (
        "cache options on an older model",
        {"messages": [USER], "prompt_cache_options": {"mode": "implicit"}},
        "prompt_cache_options",
        "prompt_cache_options",
    ),
    (
        "tools on a system message",
        {"messages": [{"role": "system", "tools": TOOLS}, USER]},
        "messages[0].tools",
        "messages[0].tools",
    ),
    ("no messages", {"messages": []}, "empty array", "messages"),
    (
        "a role",
        {"messages": [{"role": "function", "content": "x"}]},
        "'developer'",
        "messages[0].role",
    ),
    (
        "reasoning",
        {"messages": [USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}, USER]},
        "messages[1].reasoning_content",
        "messages[1].reasoning_content",
    ),
    ("no content", {"messages": [{"role": "user"}]}, "a string or an array", "messages[0].content"),
    (
        "nothing said",
        {"messages": [USER, {"role": "assistant", "content": None}]},
        "a string or an array",
        "messages[1].content",
    ),
    (
        "an image in a system message",
        {"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {}}]}]},
        "'image_url'",
        "messages[0].content[0]",
    ),
    ("no calls", {"messages": [USER, calls()]}, "empty array", "messages[1].tool_calls"),
    (
        "arguments as an object",
        {"messages": [USER, calls(call(arguments={"q": 1})), answer()]},
        "expected a string",
        "messages[1].tool_calls[0].function.arguments",
    ),
    (
        "a called name",
        {"messages": [USER, calls(call(name="a.b")), answer()]},
        "^[a-zA-Z0-9_-]{1,64}$",
        "messages[1].tool_calls[0].function.name",
    ),
    (
        "an answer to nothing",
        {"messages": [USER, answer()]},
        "must be a response to a preceding message with 'tool_calls'",
        "messages[1].role",
    ),
    (
        "an answer behind a user message",
        {"messages": [USER, calls(call()), answer(), USER, answer()]},
        "must be a response",
        "messages[4].role",
    ),
    (
        "an answer to another id",
        {"messages": [USER, calls(call()), answer("c2")]},
        "'tool_call_id' of 'c2' not found",
        "messages[2].tool_call_id",
    ),
    (
        "an answer twice",
        {"messages": [USER, calls(call()), answer(), answer()]},
        "answered twice",
        "messages[3].tool_call_id",
    ),
    (
        "a call that is not answered",
        {"messages": [USER, calls(call("c1"), call("c2")), answer("c1"), USER]},
        "did not have response messages: c2",
        "messages[3].role",
    ),
    (
        "a user message in between",
        {"messages": [USER, calls(call()), USER, answer()]},
        "did not have response messages: c1",
        "messages[2].role",
    ),
    (
        "a call at the end",
        {"messages": [USER, calls(call())]},
        "did not have response messages: c1",
        "messages[2].role",
    ),
    (
        "an id twice in one round",
        {"messages": [USER, calls(call(), call()), answer(), answer()]},
        "Duplicate ids",
        "messages[1].tool_calls",
    ),
    (
        "an answer without an id",
        {"messages": [USER, calls(call()), {"role": "tool", "content": "ok"}]},
        "Missing required parameter",
        "messages[2].tool_call_id",
    ),
    (
        "a call without an id",
        {"messages": [USER, calls({**call(), "id": None}), answer()]},
        "a string 'id'",
        "messages[1].tool_calls[0]",
    ),
    (
        "a text that is none",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "expected a string",
        "messages[0].content[0].text",
    ),
    (
        "a breakpoint of another kind",
        {
            "model": "gpt-6.1-sol",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": "x",
                            "prompt_cache_breakpoint": {"mode": "implicit"},
                        }
                    ],
                }
            ],
        },
        "prompt_cache_breakpoint",
        "messages[0].content[0].prompt_cache_breakpoint",
    ),
    (
        "another mode",
        {"model": "gpt-6.1-sol", "messages": [USER], "prompt_cache_options": {"mode": "off"}},
        "'implicit' or 'explicit'",
        "prompt_cache_options.mode",
    ),
    ("two choices", {"messages": [USER], "n": 2}, "one choice", "n"),
    ("messages as an object", {"messages": {}}, "expected an array", "messages"),
    ("a message as a text", {"messages": ["hi"]}, "expected an object", "messages[0]"),
    ("a flag as a text", {"messages": [USER], "stream": "yes"}, "a boolean", "stream"),
    (
        "a description that is none",
        {"messages": [USER], "tools": [function(description=None)]},
        "expected a string",
        "tools[0].function.description",
    ),
    ("no model", {"messages": [USER], "model": None}, "model parameter", "model"),
    ("empty tools", {"messages": [USER], "tools": []}, "empty array", "tools"),
    (
        "too many tools",
        {"messages": [USER], "tools": [function(f"t{n}") for n in range(129)]},
        "maximum length 128",
        "tools",
    ),
    (
        "a tool's type",
        {"messages": [USER], "tools": [{"type": "retrieval", "function": {"name": "a"}}]},
        "'function'",
        "tools[0].type",
    ),
    (
        "a name too long",
        {"messages": [USER], "tools": [function("a" * 65)]},
        "^[a-zA-Z0-9_-]{1,64}$",
        "tools[0].function.name",
    ),
    (
        "a schema of a string",
        {"messages": [USER], "tools": [function(parameters={"type": "string"})]},
        "Invalid schema for function 'a'",
        "tools[0].function.parameters",
    ),
    (
        "a union at the top",
        {"messages": [USER], "tools": [function(parameters={"type": "object", "anyOf": []})]},
        "Invalid schema for function 'a'",
        "tools[0].function.parameters",
    ),
    (
        "a choice without tools",
        {"messages": [USER], "tool_choice": "auto"},
        "only allowed when 'tools' are specified",
        "tool_choice",
    ),
    (
        "parallel calls without tools",
        {"messages": [USER], "parallel_tool_calls": True},
        "only allowed when 'tools' are specified",
        "parallel_tool_calls",
    ),
    (
        "stream options without a stream",
        {"messages": [USER], "stream_options": {"include_usage": True}},
        "only allowed when 'stream' is enabled",
        "stream_options",
    ),
    (
        "the older limit on a newer model",
        {"messages": [USER], "model": "gpt-5", "max_tokens": 9},
        "Use 'max_completion_tokens' instead",
        "max_tokens",
    ),
    (
        "a breakpoint on what the assistant said",
        {
            "model": "gpt-6.1-sol",
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {
                            "type": "text",
                            "text": "x",
                            "prompt_cache_breakpoint": {"mode": "explicit"},
                        }
                    ],
                },
                USER,
            ],
        },
        "prompt_cache_breakpoint",
        "messages[1].content[0].prompt_cache_breakpoint",
    ),
    (
        "a lifetime of the other API",
        {"model": "gpt-6.1-sol", "messages": [USER], "prompt_cache_options": {"ttl": "12h"}},
        "30m",
        "prompt_cache_options.ttl",
    ),
    (
        "warming, which the other API has",
        {"model": "gpt-6.1-sol", "messages": [USER], "prompt_cache_options": {"prewarm": True}},
        "prompt_cache_options.prewarm",
        "prompt_cache_options.prewarm",
    ),
]


@pytest.mark.parametrize(
    ("body", "fragment", "param"),
    [each[1:] for each in REFUSED],
    ids=[each[0] for each in REFUSED],
)
async def test_refuses(lab: Lab, body: Json, fragment: str, param: str) -> None:
    response = await chat(lab, body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert fragment in error["message"]
    assert error["param"] == param
    assert lab.captures[-1].refusal == error["message"]


async def test_a_key_is_required_and_a_model_has_to_exist(lab: Lab) -> None:
    missing = await chat(lab, {"messages": [USER]}, key="")
    assert (missing.status_code, missing.json()["error"]["code"]) == (401, "invalid_api_key")
    unknown = await chat(lab, {"messages": [USER]}, model="gpt-9")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    dated = await chat(lab, {"messages": [USER]}, model="gpt-4.1-2025-04-14")
    assert dated.status_code == 200


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER],
        [USER, {"role": "system", "content": "s"}, USER, USER],
        [USER, calls(call("c1"), call("c2")), answer("c2"), answer("c1"), USER],
        [USER, calls(call(), content="text"), answer(), {"role": "developer", "content": "d"}],
        [USER, calls(call(arguments="not json")), answer()],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://p"}}]}],
        [USER, {"role": "assistant", "content": "last"}],
    ],
)
async def test_takes(lab: Lab, messages: list[Json]) -> None:
    response = await chat(lab, {"messages": messages})
    assert response.status_code == 200, response.text


async def test_a_compatible_server_takes_any_model_and_no_key(lab: Lab) -> None:
    said = {"role": "assistant", "content": "x", "reasoning_content": "y"}
    body = {"messages": [USER, said, USER], "max_tokens": 9}
    response = await chat(lab, body, provider="compatible", model="llama-9", key="")
    assert response.status_code == 200
    assert "prompt_tokens_details" not in response.json()["usage"]
    developer = {"messages": [{"role": "developer", "content": "d"}, USER]}
    assert (await chat(lab, developer, provider="compatible")).status_code == 400


SCRIPT = Script(
    (
        ScriptStep(
            "hi",
            (
                Entry(
                    "let me look, and look again, at more than one piece",
                    calls=(ScriptCall("a", {"q": "a longer text", "n": 1}), ScriptCall("a")),
                    thinking="hm",
                ),
                Entry("done"),
            ),
        ),
    )
)


async def test_an_answer_in_one_piece(lab: Lab) -> None:
    lab.script = SCRIPT
    response = (await chat(lab, {"messages": [USER], "tools": TOOLS})).json()
    choice = response["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"].startswith("let me look")
    assert "reasoning_content" not in choice["message"]
    first, second = choice["message"]["tool_calls"]
    assert first["function"] == {"name": "a", "arguments": '{"q":"a longer text","n":1}'}
    assert first["id"] != second["id"]
    usage = response["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    done = {
        "messages": [USER, choice["message"], answer(first["id"]), answer(second["id"])],
        "tools": TOOLS,
    }
    finished = (await chat(lab, done)).json()["choices"][0]
    assert (finished["message"]["content"], finished["finish_reason"]) == ("done", "stop")


async def test_a_stream_carries_the_same_answer_in_pieces(lab: Lab) -> None:
    lab.script = SCRIPT
    body = {"messages": [USER], "tools": TOOLS}
    whole = (await chat(lab, body)).json()
    usage = {"include_usage": True}
    streamed = await chat(lab, {**body, "stream": True, "stream_options": usage})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    data = [line[6:] for line in streamed.text.split("\n\n") if line]
    assert data[-1] == "[DONE]"
    chunks = [encoding.decode(each) for each in data[:-1]]
    assert {each["object"] for each in chunks} == {"chat.completion.chunk"}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert all(each["usage"] is None for each in chunks[:-1])
    deltas = [each["choices"][0]["delta"] for each in chunks[:-1]]
    texts = [each["content"] for each in deltas[1:] if each.get("content")]
    assert len(texts) > 1
    assert "".join(texts) == whole["choices"][0]["message"]["content"]
    arguments = {0: "", 1: ""}
    names: list[str] = []
    pieces = 0
    for each in deltas:
        for part in each.get("tool_calls", []):
            pieces += part["index"] == 0
            arguments[part["index"]] += part["function"]["arguments"]
            names += [part["function"]["name"]] if "name" in part["function"] else []
    assert (arguments[0], arguments[1]) == ('{"q":"a longer text","n":1}', "{}")
    assert (names, pieces > 2) == (["a", "a"], True)
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_stream_without_usage_says_none(lab: Lab) -> None:
    streamed = await chat(lab, {"messages": [USER], "stream": True})
    assert "usage" not in streamed.text
    assert lab.captures[-1].usage["prompt_tokens"] > 0


async def test_a_compatible_server_shows_its_reasoning(lab: Lab) -> None:
    lab.script = SCRIPT
    response = await chat(lab, {"messages": [USER], "tools": TOOLS}, provider="compatible")
    assert response.json()["choices"][0]["message"]["reasoning_content"] == "hm"
