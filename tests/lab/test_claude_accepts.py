"""What Claude takes, though it looks odd, and which tools a model sees on offer there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.lab.lab_requests import (
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

from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
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

ACCEPTED: list[tuple[str, Json, str]] = [
    ("two user messages", {"messages": [user("hi"), user("there")]}, ""),
    (
        "results in two user messages",
        {
            "messages": [
                user("hi"),
                assistant(use("c1"), use("c2")),
                user(result("c1")),
                user(result("c2")),
            ]
        },
        "",
    ),
    ("text behind results", {"messages": [user("hi"), CALL, user(result("c1"), "x")]}, ""),
    ("system text without a beta", {"messages": [*HI, system("x")]}, ""),
    ("system behind results", {"messages": [user("hi"), CALL, ANSWER, system("x")]}, ""),
    (
        "a group of system messages",
        {
            "messages": [*HI, system("x"), system(add("b")), assistant("y"), user("z")],
            "tools": LATE,
        },
        INLINE,
    ),
    (
        "by reference with the older beta",
        {"messages": [*HI, system(add("b"))], "tools": LATE},
        REFERENCE,
    ),
    (
        "a reference to what was defined before",
        {
            "messages": [
                *HI,
                system(define(tool("c"))),
                assistant("x"),
                user("y"),
                system(remove("c")),
                system(add("c")),
            ],
            "tools": LATE,
        },
        INLINE,
    ),
    (
        "a definition again",
        {"messages": [*HI, system(define(tool("c")), define(tool("c", 40)))], "tools": LATE},
        INLINE,
    ),
    (
        "a removal twice",
        {"messages": [*HI, system(remove("a"), remove("a"))], "tools": LATE},
        INLINE,
    ),
    (
        "a mark on a change",
        {"messages": [*HI, system(remove("a", cache_control=MARK))], "tools": LATE},
        INLINE,
    ),
    (
        "a mark in a definition",
        {"messages": [*HI, system(define(tool("c", cache_control=MARK)))], "tools": LATE},
        INLINE,
    ),
    ("turn-scoped text", {"messages": [*HI, system("x", **TAIL)]}, CLEAR_AT),
    (
        "effort by message",
        {
            "messages": [
                *HI,
                {"role": "system", "content": [], "output_config": {"effort": "low"}},
                user("x"),
            ]
        },
        "mid-conversation-output-config-2026-07-01",
    ),
    (
        "effort between a call and its result",
        {
            "messages": [
                user("hi"),
                CALL,
                {"role": "system", "content": [], "output_config": {"effort": "low"}},
                ANSWER,
            ]
        },
        "mid-conversation-output-config-2026-07-01",
    ),
    (
        "an hour before five minutes",
        {
            "tools": [tool("a", cache_control=HOUR)],
            "messages": [user({"type": "text", "text": "x", "cache_control": MARK})],
        },
        "",
    ),
    (
        "a call of a tool that is gone",
        {"messages": [user("hi"), assistant(use("c1", "gone")), ANSWER], "tools": LATE},
        "",
    ),
    (
        "a search result",
        {
            "tools": LATE,
            "messages": [
                user("hi"),
                CALL,
                user(result("c1", [{"type": "tool_reference", "tool_name": "b"}])),
            ],
        },
        "",
    ),
    (
        "a hosted search tool beside deferred ones",
        {
            "messages": HI,
            "tools": [
                {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
                tool("b", defer_loading=True),
            ],
        },
        "",
    ),
    (
        "blank text in a result",
        {"messages": [user("hi"), CALL, user(result("c1", [{"type": "text", "text": " "}]))]},
        "",
    ),
]


@pytest.mark.parametrize(
    ("body", "betas"), [each[1:] for each in ACCEPTED], ids=[each[0] for each in ACCEPTED]
)
async def test_takes(lab: Lab, body: Json, betas: str) -> None:
    response = await claude(lab, body, betas=betas)
    assert response.status_code == 200, response.text


async def test_an_older_model_takes_a_last_assistant_message(lab: Lab) -> None:
    body = {"messages": [user("hi"), assistant("x")]}
    assert (await claude(lab, body, model="claude-sonnet-4-5")).status_code == 200


OFFERS: list[tuple[str, list[Json], str]] = [
    ("at the front", [user("go")], "a"),
    ("deferred", [user("go")], "call_tool b"),
    ("added by reference", [user("go"), system(add("b"))], "b"),
    ("defined by value", [user("go"), system(define(tool("c")))], "c"),
    (
        "defined and deferred",
        [user("go"), system(define(tool("c", defer_loading=True)))],
        "call_tool c",
    ),
    ("removed", [user("go"), system(remove("a"))], "call_tool a"),
    ("removed and added again", [user("go"), system(remove("a"), add("a"))], "a"),
    ("added and removed", [user("go"), system(add("b"), remove("b"))], "call_tool b"),
    (
        "found by a search",
        [
            user("x"),
            CALL,
            user(result("c1", [{"type": "tool_reference", "tool_name": "b"}]), "go"),
        ],
        "b",
    ),
]


@pytest.mark.parametrize(
    ("messages", "expected"), [each[1:] for each in OFFERS], ids=[each[0] for each in OFFERS]
)
async def test_a_tool_is_on_offer_from_its_place_on(
    lab: Lab, messages: list[Json], expected: str
) -> None:
    called = expected.split()[-1]
    call = ScriptCall(called)
    lab.script = Script((ScriptStep("go", (Entry(calls=(call,)),)),))
    body = {"messages": messages, "tools": [*LATE, tool("call_tool")]}
    block = (await claude(lab, body, betas=INLINE, model="claude-opus-5")).json()["content"][-1]
    assert block["name"] == expected.split()[0]
