"""Claude's refusals: status, error shape, and a message that names the place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.lab.lab_requests import (
    Json,
    assistant,
    claude,
    result,
    system,
    tool,
    use,
    user,
)

from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


HI = [user("hi")]
LATE = [tool("a"), tool("b", defer_loading=True)]
CALL = assistant(use("c1"))
ANSWER = user(result("c1"))
REQUIRED = {"type": "object", "properties": {"q": {"type": "string"}}}


def schema(**value: Any) -> list[Json]:
    return [{"name": "a", "input_schema": value}]


# name, body, betas, fragment of the message
REFUSED: list[tuple[str, Json, str, str]] = [
    # fields
    ("no max_tokens", {"messages": HI, "max_tokens": None}, "", "max_tokens"),
    ("no messages", {"messages": []}, "", "messages: at least one message"),
    ("unknown field", {"messages": HI, "functions": []}, "", "functions: Extra inputs are not"),
    ("unknown message field", {"messages": [{**HI[0], "id": 1}]}, "", "messages.0.id: Extra"),
    (
        "unknown block field",
        {"messages": [user({"type": "text", "text": "x", "id": 1})]},
        "",
        "messages.0.content.0.text.id: Extra inputs",
    ),
    ("unknown block", {"messages": [user({"type": "video"})]}, "", "Input tag 'video' found"),
    ("unknown role", {"messages": [{"role": "tool", "content": "x"}]}, "", "messages.0.role"),
    ("a result's own block", {"messages": [user("hi"), assistant(result("c"))]}, "", "tool_result"),
    ("empty text", {"messages": [user("")]}, "", "text content blocks must be non-empty"),
    ("blank text", {"messages": [user(" \n")]}, "", "must contain non-whitespace"),
    ("empty content", {"messages": [{"role": "user", "content": ""}]}, "", "non-empty content"),
    (
        "empty system text",
        {"messages": HI, "system": [{"type": "text", "text": ""}]},
        "",
        "system.0",
    ),
    ("system as an object", {"messages": HI, "system": {}}, "", "system: Input should be an array"),
    ("negative max_tokens", {"messages": HI, "max_tokens": -1}, "", "max_tokens"),
    # tools
    ("tool name", {"messages": HI, "tools": [tool("a.b")]}, "", "^[a-zA-Z0-9_-]{1,128}$"),
    ("tool name too long", {"messages": HI, "tools": [tool("a" * 129)]}, "", "tools.0.custom.name"),
    ("tool twice", {"messages": HI, "tools": [tool("a"), tool("a")]}, "", "must be unique"),
    ("tool of unknown type", {"messages": HI, "tools": [tool("a", type="odd")]}, "", "tag 'odd'"),
    ("no schema", {"messages": HI, "tools": [{"name": "a"}]}, "", "input_schema: Field required"),
    ("schema without type", {"messages": HI, "tools": schema()}, "", "input_schema.type: Field"),
    ("schema of an array", {"messages": HI, "tools": schema(type="array")}, "", "'object'"),
    (
        "union at the top",
        {"messages": HI, "tools": schema(type="object", oneOf=[REQUIRED])},
        "",
        "oneOf, allOf, or anyOf at the top level",
    ),
    (
        "all of at the top",
        {"messages": HI, "tools": schema(type="object", allOf=[REQUIRED])},
        "",
        "at the top level",
    ),
    (
        "no JSON schema",
        {"messages": HI, "tools": schema(type="object", properties={"q": {"type": "text"}})},
        "",
        "JSON schema is invalid",
    ),
    (
        "all tools deferred",
        {"messages": HI, "tools": [tool("a", defer_loading=True)]},
        "",
        "all tools are deferred",
    ),
    ("choice without tools", {"messages": HI, "tool_choice": {"type": "auto"}}, "", "tool_choice"),
    (
        "choice of an unknown tool",
        {"messages": HI, "tools": LATE, "tool_choice": {"type": "tool", "name": "z"}},
        "",
        "Tool 'z' not found",
    ),
    # order of messages
    ("assistant first", {"messages": [assistant("x"), user("hi")]}, "", 'must use the "user" role'),
    ("assistant last", {"messages": [user("hi"), assistant("x")]}, "", "assistant message prefill"),
    ("system first", {"messages": [system("x"), user("hi")]}, "", "top-level `system`"),
    (
        "system before a user message",
        {"messages": [user("hi"), system("x"), user("there")]},
        "",
        "messages.1: role 'system' must precede an 'assistant' message or end the array",
    ),
    (
        "a group of system messages before a user message",
        {"messages": [user("hi"), system("x"), system("y"), user("there")]},
        "",
        "messages.2: role 'system' must precede",
    ),
    (
        "system behind an assistant message",
        {"messages": [user("hi"), assistant("x"), system("y"), assistant("z"), user("q")]},
        "",
        "must follow a 'user' message",
    ),
    (
        "system between a call and its result",
        {"messages": [user("hi"), CALL, system("x"), ANSWER]},
        "",
        "messages.2: role 'system' must follow",
    ),
    # calls and results
    (
        "a call without a result",
        {"messages": [user("hi"), CALL, user("x")]},
        "",
        "c1. Each `tool_use`",
    ),
    ("a call at the end", {"messages": [user("hi"), CALL]}, "", "without `tool_result`"),
    ("an orphan result", {"messages": [user(result("c9"))]}, "", "unexpected `tool_use_id` found"),
    (
        "a late result",
        {"messages": [user("hi"), CALL, ANSWER, assistant("x"), ANSWER]},
        "",
        "unexpected `tool_use_id`",
    ),
    (
        "a result twice",
        {"messages": [user("hi"), CALL, user(result("c1"), result("c1"))]},
        "",
        "single result",
    ),
    (
        "text in front of a result",
        {"messages": [user("hi"), CALL, user("x", result("c1"))]},
        "",
        "must come first",
    ),
    (
        "one of two results",
        {"messages": [user("hi"), assistant(use("c1"), use("c2")), user(result("c1"))]},
        "",
        "immediately after: c2",
    ),
    (
        "an id twice",
        {"messages": [user("hi"), CALL, ANSWER, CALL, ANSWER]},
        "",
        "ids must be unique",
    ),
    ("a call's id", {"messages": [user("hi"), assistant(use("c:1"))]}, "", "^[a-zA-Z0-9_-]+$"),
    (
        "a called name",
        {"messages": [user("hi"), assistant(use("c1", "a.b"))]},
        "",
        "tool_use.name: String should match",
    ),
    (
        "arguments as text",
        {"messages": [user("hi"), assistant({**use("c1"), "input": "{}"})]},
        "",
        "tool_use.input: Input should be an object",
    ),
]


@pytest.mark.parametrize(
    ("body", "betas", "fragment"),
    [each[1:] for each in REFUSED],
    ids=[each[0] for each in REFUSED],
)
async def test_refuses(lab: Lab, body: Json, betas: str, fragment: str) -> None:
    response = await claude(lab, body, betas=betas)
    assert response.status_code == 400, response.text
    error = response.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert fragment in error["error"]["message"]
    assert lab.captures[-1].status == 400
    assert lab.captures[-1].refusal == error["error"]["message"]


@pytest.mark.parametrize(
    ("model", "fragment"),
    [
        ("claude-opus-4-7", "role 'system' is not supported on this model"),
        ("claude-haiku-4-5", 'Unexpected role "system"'),
        ("claude-sonnet-4-6", 'Unexpected role "system"'),
        ("claude-sonnet-5", 'Unexpected role "system"'),
    ],
)
async def test_models_without_system_messages_refuse_them(
    lab: Lab, model: str, fragment: str
) -> None:
    response = await claude(lab, {"messages": [*HI, system("x")]}, model=model)
    assert response.status_code == 400
    assert fragment in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("model", "status"),
    [
        ("claude-opus-5-5", 400),
        ("claude-fable-5-1", 400),
        ("claude-mythos-5-1", 400),
        ("claude-sonnet-5-5", 400),
        ("claude-opus-5", 200),
    ],
)
async def test_the_newest_models_cannot_be_forced(lab: Lab, model: str, status: int) -> None:
    for choice in ({"type": "any"}, {"type": "tool", "name": "a"}):
        body = {"messages": HI, "tools": LATE, "tool_choice": choice}
        assert (await claude(lab, body, model=model)).status_code == status


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"anthropic-version": "2023-06-01"}, 401, "authentication_error"),
        ({"x-api-key": "k"}, 400, "invalid_request_error"),
        ({"x-api-key": "k", "anthropic-version": "new"}, 400, "invalid_request_error"),
    ],
)
async def test_headers_are_required(lab: Lab, headers: Json, status: int, kind: str) -> None:
    response = await claude(lab, {"messages": HI}, headers=headers)
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)


@pytest.mark.parametrize("missing", ["model", "max_tokens", "messages"])
async def test_fields_are_required(lab: Lab, missing: str) -> None:
    body = {"model": "claude-opus-5", "max_tokens": 10, "messages": HI}
    del body[missing]
    async with httpx2.AsyncClient() as client:
        url = lab.base_url("anthropic") + "/v1/messages"
        headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
        response = await client.post(url, json=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == f"{missing}: Field required"


async def test_an_unknown_model_is_not_found(lab: Lab) -> None:
    response = await claude(lab, {"messages": HI}, model="claude-opus-9")
    assert response.status_code == 404
    assert response.json()["error"] == {
        "type": "not_found_error",
        "message": "model: claude-opus-9",
    }


async def test_the_newer_version_takes_no_sampling_settings(lab: Lab) -> None:
    for version, status in (("2023-06-01", 200), ("2026-10-21", 400)):
        headers = {"x-api-key": "k", "anthropic-version": version}
        response = await claude(lab, {"messages": HI, "temperature": 1}, headers=headers)
        assert response.status_code == status
