"""Vendors and gateways in the lab: what each of them refuses, and what its cache finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.lab.lab_requests import Json

from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio

LONG = "x" * 20_000
SYSTEM: Json = {"role": "system", "content": "You help."}
USER: Json = {"role": "user", "content": "hi"}
PATHS = {"azure": "/openai/v1/responses", "azure-chat": "/openai/v1/chat/completions"}
MODELS = {
    "moonshot": "kimi-k3",
    "deepseek-chat": "deepseek-flash",
    "openrouter": "anthropic/claude-opus-5",
    "mistral": "mistral-large-4",
    "azure-chat": "gpt-4.1",
    "xai": "grok-4.7",
    "llamacpp": "m",
}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


def function(name: str = "a", **more: Any) -> Json:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object"}},
        **more,
    }


def declared(*names: str, **more: Any) -> Json:
    return {"role": "system", "tools": [function(name) for name in names], **more}


def calls(call_id: str = "c1", **more: Any) -> Json:
    call = {"id": call_id, "type": "function", "function": {"name": "a", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def result(call_id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def marked(text: str = "x", **more: Any) -> Json:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", **more}}


async def post(lab: Lab, provider: str, *messages: Json, **more: Any) -> httpx2.Response:
    headers = more.pop("headers", {"authorization": "Bearer k", "api-key": "k"})
    body = {"model": MODELS[provider], "messages": list(messages), **more}
    url = lab.base_url(provider) + PATHS.get(provider, "/chat/completions")
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.post(url, json=body, headers=headers)


# provider, messages, further fields, fragment of the refusal
REFUSED: list[tuple[str, list[Json], Json, str]] = [
    ("moonshot", [declared("a", content=None), USER], {}, "must not have content"),
    ("moonshot", [declared("a", content="x"), USER], {}, "must not have content"),
    ("moonshot", [declared(), USER], {}, "empty array"),
    ("moonshot", [declared("a", "a"), USER], {}, "a is duplicated"),
    ("moonshot", [declared("a"), USER, declared("a")], {}, "a is duplicated"),
    ("moonshot", [USER, declared("a")], {"tools": [function("a")]}, "a is duplicated"),
    ("moonshot", [USER, declared("1a")], {}, "does not match pattern"),
    ("moonshot", [USER, declared("a" * 257)], {}, "does not match pattern"),
    ("moonshot", [{"role": "user", "tools": [function()]}], {}, "messages[0].tools"),
    ("moonshot", [USER, declared("a")], {"model": "kimi-k2.6"}, "tokenization failed"),
    ("moonshot", [USER], {"model": "gpt-4.1"}, "Not found the model"),
    ("deepseek-chat", [USER, declared("a")], {}, "messages[1].tools"),
    ("deepseek-chat", [USER, calls(), result()], {}, "must be passed back to the API"),
    ("deepseek-chat", [{"role": "developer", "content": "x"}, USER], {}, "Supported values"),
    ("deepseek-chat", [USER], {"model": "kimi-k3"}, "Model Not Exist"),
    ("openrouter", [USER, SYSTEM], {}, "role 'system' is not supported"),
    ("openrouter", [USER, declared("a")], {}, "messages[1].tools"),
    ("openrouter", [{"role": "user", "content": [marked()] * 5}], {}, "maximum of 4"),
    ("openrouter", [{"role": "user", "content": [marked("")]}], {}, "empty text"),
    ("openrouter", [{"role": "user", "content": [marked(ttl="2h")]}], {}, "cache_control"),
    (
        "openrouter",
        [USER, {"role": "assistant", "content": [marked()]}, USER],
        {},
        "messages[1].content[0].cache_control",
    ),
    (
        "openrouter",
        [USER, {"role": "assistant", "content": "x", "reasoning_details": [{"format": "z"}]}, USER],
        {},
        "not of this model",
    ),
    ("openrouter", [USER], {"model": "anthropic/claude-9"}, "not a valid model ID"),
    ("openrouter", [USER], {"model": "claude-opus-5"}, "not a valid model ID"),
    ("mistral", [USER, calls("call_1"), result("call_1")], {}, "Tool call id was call_1"),
    (
        "mistral",
        [USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}, USER],
        {},
        "messages[1].reasoning_content",
    ),
    ("xai", [USER, declared("a")], {}, "messages[1].tools"),
]


@pytest.mark.parametrize(
    ("provider", "messages", "more", "said"), REFUSED, ids=[str(n) for n in range(len(REFUSED))]
)
async def test_what_is_refused(
    lab: Lab, provider: str, messages: list[Json], more: Json, said: str
) -> None:
    response = await post(lab, provider, *messages, **more)
    assert response.status_code in (400, 404), response.text
    assert said in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("provider", "messages"),
    [
        ("moonshot", [USER, declared("a", "b"), {"role": "assistant", "content": "x"}, USER]),
        ("moonshot", [USER, calls(), result(), declared("b")]),
        ("deepseek-chat", [USER, calls(reasoning_content=""), result()]),
        ("deepseek-chat", [USER, {"role": "assistant", "content": "x"}, USER]),
        ("openrouter", [SYSTEM, USER, USER, calls(), result(), USER]),
        ("mistral", [USER, calls("abcdefghi"), result("abcdefghi")]),
    ],
    ids=["kimi", "kimi behind results", "empty reasoning", "no reasoning", "two users", "nine"],
)
async def test_what_is_taken(lab: Lab, provider: str, messages: list[Json]) -> None:
    response = await post(lab, provider, *messages, tools=[function("c")])
    assert response.status_code == 200, response.text


async def test_keys_are_asked_for_each_in_its_own_header(lab: Lab) -> None:
    for provider in ("moonshot", "xai", "openrouter", "deepseek-chat"):
        assert (await post(lab, provider, USER, headers={"api-key": "k"})).status_code == 401
    assert (await post(lab, "azure-chat", USER, headers={"authorization": "Bearer k"})).is_error
    assert (await post(lab, "azure-chat", USER)).status_code == 200
    assert (await post(lab, "llamacpp", USER, headers={})).status_code == 200


async def test_additional_tools_are_refused_by_azure(lab: Lab) -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": []}
    message = {"type": "message", "role": "user", "content": "hi"}
    body = {"model": "gpt-6.1-sol", "input": [item, message]}
    async with httpx2.AsyncClient(trust_env=False) as client:
        url = lab.base_url("azure") + PATHS["azure"]
        response = await client.post(url, json=body, headers={"api-key": "k"})
    assert response.status_code == 400
    assert "additional_tools" in response.json()["error"]["message"]


async def read(lab: Lab, provider: str, *messages: Json, **more: Any) -> int:
    response = await post(lab, provider, *messages, **more)
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("prompt_token_details") or {}
    return usage.get("prompt_cache_hit_tokens", details.get("cached_tokens", 0))


async def test_deepseek_reads_whole_units_only(lab: Lab) -> None:
    """A+B and A+C share A, which becomes a unit by that; A+D then finds it."""
    start: Json = {"role": "system", "content": LONG}
    first: Json = {"role": "user", "content": "b" * 4_000}
    assert await read(lab, "deepseek-chat", start, first) == 0
    answered = (await post(lab, "deepseek-chat", start, first)).json()
    assert answered["usage"]["prompt_cache_hit_tokens"] == answered["usage"]["prompt_tokens"]
    # Fixed intervals of 4,096 tokens are units too: less than what the two share.
    second = await read(lab, "deepseek-chat", start, {"role": "user", "content": "c" * 4_000})
    assert second == 4_096
    third = await read(lab, "deepseek-chat", start, {"role": "user", "content": "d" * 4_000})
    assert third > second
    # The unit at the end of an answer is found where the answer is sent back as it was.
    message = answered["choices"][0]["message"]
    went_on = await read(lab, "deepseek-chat", start, first, message, USER)
    assert went_on > answered["usage"]["prompt_tokens"]
    changed = {**message, "content": message["content"] + "!"}
    assert await read(lab, "deepseek-chat", start, first, changed, USER) < went_on


async def test_mistral_caches_nothing_without_a_key(lab: Lab) -> None:
    messages = ({"role": "system", "content": LONG}, USER)
    for _ in range(2):
        assert await read(lab, "mistral", *messages) == 0
    assert await read(lab, "mistral", *messages, prompt_cache_key="k") == 0
    assert await read(lab, "mistral", *messages, prompt_cache_key="k") > 4_000
    assert await read(lab, "mistral", *messages, prompt_cache_key="other") == 0


async def test_openrouter_finds_by_claudes_rules(lab: Lab) -> None:
    start: Json = {"role": "system", "content": [marked(LONG)]}
    assert await read(lab, "openrouter", start, USER, session_id="s") == 0
    found = await read(lab, "openrouter", start, {"role": "user", "content": "ho"}, session_id="s")
    assert found > 4_000
    # Without a mark nothing is found, and twenty positions is as far as a mark looks back.
    plain: Json = {"role": "system", "content": LONG}
    assert await read(lab, "openrouter", plain, USER, session_id="s") == 0
    for added, read_ in ((18, found), (19, 0)):
        parts = [{"type": "text", "text": "y"}] * added
        content = [*parts, marked(f"end {added}")]
        message: Json = {"role": "user", "content": content}
        body = ({"role": "system", "content": LONG}, message)
        assert await read(lab, "openrouter", *body, session_id="s") == read_


SCRIPT = Script(
    (ScriptStep("one", (Entry(thinking="why", calls=(ScriptCall("a", {}),)), Entry(text="1"))),)
)


async def test_openrouter_binds_signed_reasoning_to_what_stands_in_front() -> None:
    tools = [function("a")]
    one: Json = {"role": "user", "content": "one"}
    async with open_lab(SCRIPT) as lab:
        more: Json = {"tools": tools, "model": "anthropic/claude-opus-5.5"}
        answer = (await post(lab, "openrouter", one, **more)).json()["choices"][0]["message"]
        (detail,) = answer["reasoning_details"]
        assert (detail["type"], detail["format"]) == ("reasoning.text", "anthropic-claude-v1")
        sent = {k: v for k, v in answer.items() if k != "reasoning"}
        back = result(answer["tool_calls"][0]["id"])
        assert (await post(lab, "openrouter", one, sent, back, **more)).status_code == 200
        refused = await post(lab, "openrouter", SYSTEM, one, sent, back, **more)
        assert "bound to a different conversation" in refused.json()["error"]["message"]


# path behind the base, body, headers, fragment of the refusal
CLOUDS: list[tuple[str, str, Json, Json, str]] = [
    ("vertex-claude", "claude-opus-5:streamRawPredict", {"model": "x"}, {}, "model: Extra"),
    ("vertex-claude", "claude-opus-5:streamRawPredict", {"anthropic_version": "1"}, {}, "version"),
    ("vertex-claude", "claude-opus-5:rawPredict", {}, {}, "not what rawPredict answers"),
    ("vertex-claude", "claude-opus-5:generate", {}, {}, "no such method"),
    (
        "vertex-claude",
        "claude-opus-5:streamRawPredict",
        {},
        {"anthropic-beta": "inline-tools-2026-09-15"},
        "invalid beta flag",
    ),
    ("bedrock-claude", "", {"model": "claude-opus-5"}, {}, "model: claude-opus-5"),
    (
        "bedrock-claude",
        "",
        {"model": "anthropic.claude-opus-5"},
        {"anthropic-beta": "mid-conversation-system-clear-at-2026-08-21"},
        "invalid beta flag",
    ),
]


@pytest.mark.parametrize(
    ("provider", "path", "more", "headers", "said"),
    CLOUDS,
    ids=[str(n) for n in range(len(CLOUDS))],
)
async def test_what_other_clouds_refuse_of_claude(
    lab: Lab, provider: str, path: str, more: Json, headers: Json, said: str
) -> None:
    body: Json = {"messages": [USER], "max_tokens": 100, "stream": True}
    head = {"authorization": "Bearer k", **headers}
    url = lab.base_url(provider)
    if provider == "vertex-claude":
        body["anthropic_version"] = "vertex-2023-10-16"
        url += f"/publishers/anthropic/models/{path}"
    else:
        head["anthropic-version"] = "2023-06-01"
        url += "/v1/messages"
    async with httpx2.AsyncClient(trust_env=False) as client:
        response = await client.post(url, json={**body, **more}, headers=head)
    assert response.status_code in (400, 404)
    assert said in response.json()["error"]["message"]
