"""What Claude refuses of tool changes, marks and thinking, and who takes tool changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.lab.lab_requests import (
    BINDING,
    CLEAR_AT,
    HOUR,
    INLINE,
    MARK,
    REFERENCE,
    Json,
    add,
    assistant,
    claude,
    define,
    remove,
    result,
    system,
    tool,
    use,
    user,
)

from addendum.lab.exchange import Switches
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


TAIL: Json = {"clear_at": "next_user_message"}

# name, body, betas, fragment of the message
REFUSED: list[tuple[str, Json, str, str]] = [
    # tool changes
    (
        "by reference without a beta",
        {"messages": [*HI, system(add("b"))], "tools": LATE},
        "",
        "'tool_addition'",
    ),
    (
        "removal without a beta",
        {"messages": [*HI, system(remove("a"))], "tools": LATE},
        "",
        "'tool_removal'",
    ),
    (
        "by value with the older beta",
        {"messages": [*HI, system(define(tool("c")))], "tools": LATE},
        REFERENCE,
        "messages.1.content.0.tool_addition.tool: Input tag 'tool_definition'",
    ),
    (
        "removal by value",
        {
            "messages": [*HI, system({**define(tool("a")), "type": "tool_removal"})],
            "tools": LATE,
        },
        INLINE,
        "Input tag 'tool_definition'",
    ),
    (
        "an addition in a user message",
        {"messages": [user("hi", add("b"))], "tools": LATE},
        INLINE,
        "tool_addition blocks can only be in `system` messages",
    ),
    (
        "a definition of another kind",
        {
            "messages": [*HI, system(define({"type": "computer_20250124", "name": "computer"}))],
            "tools": LATE,
        },
        INLINE,
        "cannot be defined by value",
    ),
    (
        "a definition with a bad name",
        {"messages": [*HI, system(define(tool("a b")))], "tools": LATE},
        INLINE,
        "definition",
    ),
    (
        "a search result's reference with the wrong field",
        {
            "messages": [
                *HI,
                system(
                    {"type": "tool_addition", "tool": {"type": "tool_reference", "tool_name": "b"}}
                ),
            ],
            "tools": LATE,
        },
        INLINE,
        "tool.name: Field required",
    ),
    # turn-scoped system messages
    (
        "clear_at without its beta",
        {"messages": [*HI, system("x", **TAIL)]},
        "",
        "messages.1.clear_at: Extra",
    ),
    (
        "clear_at of another kind",
        {"messages": [*HI, system("x", clear_at="later")]},
        CLEAR_AT,
        "next_user_message",
    ),
    (
        "a tool change that is turn-scoped",
        {"messages": [*HI, system(add("b"), **TAIL)], "tools": LATE},
        f"{CLEAR_AT},{INLINE}",
        "may hold text only",
    ),
    (
        "a mark that is turn-scoped",
        {"messages": [*HI, system({"type": "text", "text": "x", "cache_control": MARK}, **TAIL)]},
        CLEAR_AT,
        "cache_control: not allowed",
    ),
    (
        "effort without its beta",
        {"messages": [*HI, system("x", output_config={})]},
        "",
        "output_config: Extra",
    ),
    # marks
    (
        "a mark on a deferred tool",
        {"messages": HI, "tools": [tool("a"), tool("b", defer_loading=True, cache_control=MARK)]},
        "",
        "`defer_loading` cannot have `cache_control`",
    ),
    (
        "a mark on a deferred definition",
        {
            "messages": [*HI, system(define(tool("c", defer_loading=True, cache_control=MARK)))],
            "tools": LATE,
        },
        INLINE,
        "`defer_loading` cannot have `cache_control`",
    ),
    (
        "a mark on a block and on its definition",
        {
            "messages": [*HI, system(define(tool("c", cache_control=MARK), cache_control=MARK))],
            "tools": LATE,
        },
        INLINE,
        "keep one",
    ),
    (
        "a mark on thinking",
        {
            "messages": [
                user("hi"),
                assistant(
                    {"type": "thinking", "thinking": "", "signature": "", "cache_control": MARK}
                ),
                user("x"),
            ]
        },
        "",
        "thinking.cache_control: Extra inputs",
    ),
    (
        "five marks",
        {"messages": [user(*[{"type": "text", "text": "x", "cache_control": MARK}] * 5)]},
        "",
        "Found 5",
    ),
    (
        "four marks and the automatic one",
        {
            "cache_control": MARK,
            "messages": [user(*[{"type": "text", "text": "x", "cache_control": MARK}] * 4)],
        },
        "",
        "Found 5",
    ),
    (
        "the automatic mark beside another lifetime",
        {
            "cache_control": MARK,
            "messages": [user({"type": "text", "text": "x", "cache_control": HOUR})],
        },
        "",
        "another ttl",
    ),
    (
        "an hour behind five minutes",
        {
            "tools": [tool("a", cache_control=MARK)],
            "messages": [user({"type": "text", "text": "x", "cache_control": HOUR})],
        },
        "",
        "must not come after a ttl='5m'",
    ),
    (
        "an automatic hour behind five minutes",
        {
            "cache_control": HOUR,
            "tools": [tool("a", cache_control=MARK)],
            "messages": HI,
        },
        "",
        "must not come after a ttl='5m'",
    ),
    (
        "a mark of unknown lifetime",
        {"messages": HI, "cache_control": {"type": "ephemeral", "ttl": "1d"}},
        "",
        "'5m' or '1h'",
    ),
    (
        "a mark of unknown type",
        {"messages": HI, "cache_control": {"type": "permanent"}},
        "",
        "'permanent'",
    ),
    # references of search results
    (
        "a reference beside text",
        {
            "tools": LATE,
            "messages": [
                user("hi"),
                CALL,
                user(
                    result(
                        "c1",
                        [
                            {"type": "tool_reference", "tool_name": "b"},
                            {"type": "text", "text": "x"},
                        ],
                    )
                ),
            ],
        },
        "",
        "cannot be mixed",
    ),
    # thinking
    (
        "a budget too small",
        {"messages": HI, "thinking": {"type": "enabled", "budget_tokens": 10}},
        "",
        "1024",
    ),
    (
        "no budget",
        {"messages": HI, "thinking": {"type": "enabled"}},
        "",
        "budget_tokens: Field required",
    ),
    (
        "a budget over max_tokens",
        {"messages": HI, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        "",
        "greater than `thinking.budget_tokens`",
    ),
    (
        "a forced tool with manual thinking",
        {
            "messages": HI,
            "tools": LATE,
            "max_tokens": 2000,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tool_choice": {"type": "any"},
        },
        "",
        "Thinking may not be enabled",
    ),
    (
        "manual thinking without its block",
        {
            "messages": [user("hi"), CALL, ANSWER],
            "max_tokens": 2000,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        "",
        "must start with a thinking block",
    ),
    (
        "binding controls without their beta",
        {"messages": HI, "thinking": {"type": "adaptive", "block_binding": {}}},
        "",
        "block_binding: Extra inputs",
    ),
    (
        "unknown binding behaviour",
        {
            "messages": HI,
            "thinking": {
                "type": "adaptive",
                "block_binding": {"prefix_mismatch_behavior": "ignore"},
            },
        },
        BINDING,
        "'error' or 'drop_block'",
    ),
    ("unknown thinking", {"messages": HI, "thinking": {"type": "deep"}}, "", "thinking: Input tag"),
    (
        "effort that is turn-scoped",
        {"messages": [*HI, system("x", output_config={}, **TAIL)]},
        f"{CLEAR_AT},mid-conversation-output-config-2026-07-01",
        "cannot be combined",
    ),
    (
        "warming with a stream",
        {"messages": HI, "max_tokens": 0, "stream": True},
        "",
        "max_tokens: 0",
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
    ("body", "code"),
    [
        ({"messages": [*HI, system(add("z"))], "tools": LATE}, "tool_reference_unresolved"),
        ({"messages": [*HI, system(remove("z"))], "tools": LATE}, "tool_reference_unresolved"),
        (
            {"messages": [*HI, system(add("c"), define(tool("c")))], "tools": LATE},
            "tool_reference_unresolved",
        ),
        (
            {
                "messages": [
                    user("hi"),
                    CALL,
                    user(result("c1", [{"type": "tool_reference", "tool_name": "z"}])),
                ],
                "tools": LATE,
            },
            "tool_reference_unresolved",
        ),
        (
            {
                "messages": [*HI, system(define(tool("tool_search_tool_bm25")))],
                "tools": [
                    {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
                ],
            },
            "tool_name_conflict",
        ),
        (
            {
                "messages": [*HI, system(*[define(tool("c"))] * 10_001)],
                "tools": LATE,
            },
            "available_tools_limit_exceeded",
        ),
        (
            {
                "messages": [*HI, system(define({**tool("c"), "description": "d" * 4_194_304}))],
                "tools": LATE,
            },
            "available_tools_limit_exceeded",
        ),
        (
            {
                "messages": HI,
                "tools": [tool("a"), *(tool(f"t{n}", defer_loading=True) for n in range(10_001))],
            },
            "available_tools_limit_exceeded",
        ),
    ],
    ids=[
        "addition",
        "removal",
        "addition before its definition",
        "search result",
        "another kind",
        "too many definitions",
        "too long definitions",
        "too many deferred tools",
    ],
)
async def test_refuses_with_an_error_code(lab: Lab, body: Json, code: str) -> None:
    response = await claude(lab, body, betas=INLINE)
    assert response.status_code == 400
    assert response.json()["error"]["details"] == {"error_code": code}


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-5-5",
        "claude-opus-5",
        "claude-opus-4-8",
        "claude-fable-5-1",
        "claude-fable-5",
        "claude-mythos-5-1",
        "claude-mythos-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5-20261001",
    ],
)
async def test_models_with_tool_changes_take_them(lab: Lab, model: str) -> None:
    body = {"messages": [*HI, system(define(tool("c"))), system(remove("a"))], "tools": LATE}
    assert (await claude(lab, body, betas=INLINE, model=model)).status_code == 200


async def test_an_endpoint_without_inline_definitions(lab: Lab) -> None:
    lab.switches = Switches(claude_tool_changes="by-reference")
    by_value = {"messages": [*HI, system(define(tool("c")))], "tools": LATE}
    response = await claude(lab, by_value, betas=INLINE)
    assert "'tool_definition'" in response.json()["error"]["message"]
    by_reference = {"messages": [*HI, system(add("b"))], "tools": LATE}
    assert (await claude(lab, by_reference, betas=INLINE)).status_code == 200


async def test_an_endpoint_without_tool_changes(lab: Lab) -> None:
    lab.switches = Switches(claude_tool_changes="none")
    by_reference = {"messages": [*HI, system(add("b"))], "tools": LATE}
    response = await claude(lab, by_reference, betas=INLINE)
    assert response.status_code == 400
    assert "'tool_addition'" in response.json()["error"]["message"]
