"""Signed thinking: what is refused, what is left out, and what does not count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy

import pytest
from tests.lab.lab_requests import (
    BINDING,
    CLEAR_AT,
    INLINE,
    MARK,
    Json,
    add,
    assistant,
    claude,
    define,
    figures,
    remove,
    result,
    system,
    text,
    tool,
    user,
)

from addendum.lab.anthropic_thinking import unseal
from addendum.lab.script import Entry, Script, ScriptStep
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio

SCRIPT = Script(
    tuple(ScriptStep(f"q{n}", (Entry(f"a{n}", thinking=f"thought {n}"),)) for n in range(1, 5))
)
BOUND = "claude-opus-5-5"


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(SCRIPT, clock=Clock(0.0)) as lab:
        yield lab


def base() -> Json:
    return {
        "model": BOUND,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "tools": [tool("a"), tool("b", defer_loading=True)],
        "system": [{"type": "text", "text": "be good"}],
        "messages": [user("q1")],
    }


async def grow(lab: Lab, body: Json, turns: int) -> Json:
    """Ask until `turns` answers stand in the body, each with its question; one more is open."""
    for n in range(1, turns + 1):
        response = await claude(lab, body, betas=INLINE)
        assert response.status_code == 200, response.text
        body["messages"] += [assistant(*response.json()["content"]), user(f"q{n + 1}")]
    return body


async def status(lab: Lab, body: Json, betas: str = INLINE) -> tuple[int, str]:
    response = await claude(lab, body, betas=betas)
    message = "" if response.status_code == 200 else response.json()["error"]["message"]
    return response.status_code, message


async def test_a_history_sent_back_as_it_was_is_valid(lab: Lab) -> None:
    body = await grow(lab, base(), 3)
    assert await status(lab, body) == (200, "")
    thinking = [m["content"][0] for m in body["messages"] if m["role"] == "assistant"]
    assert [block["thinking"] for block in thinking] == ["thought 1", "thought 2", "thought 3"]


def _mark(body: Json) -> None:
    body["system"][0]["cache_control"] = MARK
    body["tools"][0]["cache_control"] = MARK


def _key_order(body: Json) -> None:
    body["tools"][0] = dict(reversed(body["tools"][0].items()))


def _unused_deferred(body: Json) -> None:
    body["tools"].append(tool("c", defer_loading=True))


def _edit_unused_deferred(body: Json) -> None:
    body["tools"][1]["description"] = "other"


def _parameters(body: Json) -> None:
    body["max_tokens"] = 77
    body["tool_choice"] = {"type": "none"}


def _oldest_first(body: Json) -> None:
    del body["messages"][1]["content"][0]


def _from_the_end(body: Json) -> None:
    del body["messages"][5]["content"][0]


def _all(body: Json) -> None:
    for at in (1, 3, 5):
        del body["messages"][at]["content"][0]


@pytest.mark.parametrize(
    "change",
    [
        _mark,
        _key_order,
        _unused_deferred,
        _edit_unused_deferred,
        _parameters,
        _oldest_first,
        _from_the_end,
        _all,
    ],
)
async def test_what_does_not_count(lab: Lab, change: object) -> None:
    body = await grow(lab, base(), 3)
    assert callable(change)
    change(body)
    assert await status(lab, body) == (200, "")


def _new_tool(body: Json) -> None:
    body["tools"].append(tool("c"))


def _no_tool(body: Json) -> None:
    body["tools"] = []


def _edited_tool(body: Json) -> None:
    body["tools"][0]["description"] = "other"


def _system(body: Json) -> None:
    body["system"].append({"type": "text", "text": "and kind"})


def _earlier_text(body: Json) -> None:
    body["messages"][0]["content"][0]["text"] = "q one"


def _gap(body: Json) -> None:
    del body["messages"][3]["content"][0]


@pytest.mark.parametrize(
    "change", [_new_tool, _no_tool, _edited_tool, _system, _earlier_text, _gap]
)
async def test_what_counts(lab: Lab, change: object) -> None:
    body = await grow(lab, base(), 3)
    assert callable(change)
    change(body)
    code, message = await status(lab, body)
    assert code == 400
    assert "bound to a different conversation" in message
    # The same change is nothing to a model that does not bind.
    body = await grow(lab, {**base(), "model": "claude-opus-5"}, 3)
    change(body)
    assert await status(lab, body) == (200, "")


async def test_the_place_of_the_mismatch_is_named(lab: Lab) -> None:
    body = await grow(lab, base(), 3)
    body["messages"][2]["content"][0]["text"] = "q two"
    assert (await status(lab, body))[1].startswith("messages.3.content.0: ")


async def test_a_removed_block_that_is_put_back_is_refused(lab: Lab) -> None:
    body = await grow(lab, base(), 1)
    removed = body["messages"][1]["content"].pop(0)
    response = await claude(lab, body, betas=INLINE)
    body["messages"] += [assistant(*response.json()["content"]), user("q3")]
    assert await status(lab, body) == (200, "")
    body["messages"][1]["content"].insert(0, removed)
    code, message = await status(lab, body)
    assert code == 400
    assert message.startswith("messages.3.content.0: ")


async def test_tool_changes_that_are_appended_keep_it_valid(lab: Lab) -> None:
    body = await grow(lab, base(), 1)
    body["messages"].append(system(define(tool("c")), add("b"), remove("a")))
    response = await claude(lab, body, betas=INLINE)
    body["messages"] += [assistant(*response.json()["content"]), user("q3")]
    assert await status(lab, body) == (200, "")
    # Now `b` is referred to: its definition counts.
    edited = deepcopy(body)
    edited["tools"][1]["description"] = "other"
    assert (await status(lab, edited))[0] == 400
    # The update moved behind the next question: history was edited.
    moved = deepcopy(body)
    moved["messages"].append(moved["messages"].pop(3))
    assert (await status(lab, moved))[0] == 400


async def test_a_turn_scoped_message_counts_as_long_as_it_is_left_in_place(lab: Lab) -> None:
    betas = f"{INLINE},{CLEAR_AT}"
    body = base()
    body["messages"].append(system("now", clear_at="next_user_message"))
    response = await claude(lab, body, betas=betas)
    body["messages"] += [assistant(*response.json()["content"]), user("q2")]
    assert await status(lab, body, betas) == (200, "")
    del body["messages"][1]
    assert (await status(lab, body, betas))[0] == 400


async def test_a_shortened_result_counts(lab: Lab) -> None:
    lab.script = None
    body = base()
    body["messages"] = [user('/call a {"q": 1}')]
    call = (await claude(lab, body)).json()["content"][0]
    lab.script = SCRIPT
    body["messages"] = [user("q1"), assistant(call), user(result(call["id"], "a long text"))]
    # The script's first entry is behind one assistant message already, so ask anew.
    body["messages"] += [assistant("ok"), user("q2")]
    response = await claude(lab, body)
    body["messages"] += [assistant(*response.json()["content"]), user("q3")]
    assert await status(lab, body, "") == (200, "")
    body["messages"][2]["content"][0]["content"] = "a long…"
    assert (await status(lab, body, ""))[0] == 400


async def test_an_edited_text_is_refused_on_every_model(lab: Lab) -> None:
    for model in (BOUND, "claude-opus-5", "claude-haiku-4-5"):
        body = await grow(lab, {**base(), "model": model, "tools": []}, 1)
        body["messages"][1]["content"][0]["thinking"] = "thought 1!"
        code, message = await status(lab, body)
        assert code == 400
        assert "cannot be modified" in message


@pytest.mark.parametrize("signature", ["", "abc", "bm9uZSBvZiBvdXJz" * 8])
async def test_a_signature_of_somebody_else_is_refused(lab: Lab, signature: str) -> None:
    thinking = {"type": "thinking", "thinking": "x", "signature": signature}
    body = {**base(), "messages": [user("q1"), assistant(thinking, "a1"), user("q2")]}
    code, message = await status(lab, body)
    assert (code, message) == (
        400,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    )


async def test_redacted_thinking_that_is_not_the_labs_is_refused(lab: Lab) -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    body = {**base(), "messages": [user("q1"), assistant(redacted, "a1"), user("q2")]}
    assert "Invalid `data`" in (await status(lab, body))[1]


async def test_newer_models_omit_the_text_and_still_read_it(lab: Lab) -> None:
    body = {**base(), "thinking": {"type": "adaptive"}}
    response = await claude(lab, body)
    block = response.json()["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "")
    seal = unseal(block["signature"])
    assert seal is not None
    assert seal.text == "thought 1"
    body["messages"] += [assistant(*response.json()["content"]), user("q2")]
    whole = figures(await claude(lab, body))[2]
    # Text written into an omitted block is ignored; without the block the prompt is shorter by it.
    body["messages"][1]["content"][0]["thinking"] = "mine"
    assert figures(await claude(lab, body))[2] == whole
    del body["messages"][1]["content"][0]
    thought = -(-len('assistant{"thinking":"thought 1","type":"thinking"}') // 4)
    assert figures(await claude(lab, body))[2] == whole - thought


@pytest.mark.parametrize(
    ("model", "setting", "thinks"),
    [
        (BOUND, None, True),
        (BOUND, {"type": "disabled"}, False),
        ("claude-opus-4-6", None, False),
        ("claude-opus-4-6", {"type": "adaptive"}, True),
    ],
)
async def test_who_thinks(lab: Lab, model: str, setting: Json | None, thinks: bool) -> None:
    body: Json = {"model": model, "messages": [user("q1")]}
    if setting is not None:
        body["thinking"] = setting
    content = (await claude(lab, body)).json()["content"]
    assert [block["type"] for block in content] == (["thinking"] if thinks else []) + ["text"]


async def test_blocks_of_another_model_are_left_out_and_revive(lab: Lab) -> None:
    body = await grow(lab, base(), 1)
    other = {**body, "model": "claude-opus-5"}
    thought = -(-len('assistant{"thinking":"thought 1","type":"thinking"}') // 4)
    assert figures(await claude(lab, body))[2] == figures(await claude(lab, other))[2] + thought
    response = await claude(lab, other)
    body["messages"] += [assistant(*response.json()["content"]), user("q3")]
    assert await status(lab, body) == (200, "")
    told = await claude(lab, body, betas=BINDING)
    assert told.json()["input_transformations"] == [
        {
            "type": "thinking_dropped",
            "path": "messages.3.content.0",
            "reason": "model_binding_mismatch",
        }
    ]
    assert "input_transformations" not in (await claude(lab, body)).json()


async def test_drop_block_leaves_out_what_is_behind_the_change(lab: Lab) -> None:
    body = await grow(lab, base(), 3)
    body["messages"][2]["content"][0]["text"] = "q too"
    body["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    response = await claude(lab, body, betas=BINDING)
    assert response.status_code == 200
    dropped = response.json()["input_transformations"]
    assert [(each["path"], each["reason"]) for each in dropped] == [
        ("messages.3.content.0", "prefix_binding_mismatch"),
        ("messages.5.content.0", "prefix_binding_mismatch"),
    ]
    # What is thought from now on is bound to the new prefix.
    body["messages"] += [assistant(*response.json()["content"]), user("q1")]
    again = (await claude(lab, body, betas=BINDING)).json()["input_transformations"]
    assert again == dropped


async def test_a_dropped_block_loses_the_cache_from_its_place_on(lab: Lab) -> None:
    body = base()
    body["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    body["system"] = [text("system", 600)]
    body["messages"] = [user("q1")]
    body["tools"] = [tool("a")]
    for n in range(1, 4):
        response = await claude(lab, body, betas=BINDING)
        assert response.json()["input_transformations"] == []
        marked = {"type": "text", "text": f"q{n + 1}", "cache_control": MARK}
        body["messages"] += [assistant(*response.json()["content"]), user(marked)]
    whole = sum(figures(await claude(lab, body, betas=BINDING)))
    del body["messages"][3]["content"][0]  # the second of three: the third is behind a gap
    read, written, uncached = figures(await claude(lab, body, betas=BINDING))
    thought = -(-len('assistant{"thinking":"thought 1","type":"thinking"}') // 4)
    assert read + written + uncached == whole - 2 * thought
    pieces = [
        'tools{"description":"d","input_schema":{"type":"object"},"name":"a"}',
        'user{"text":"q1","type":"text"}',
        'assistant{"text":"a1","type":"text"}',
        'user{"text":"q2","type":"text"}',
    ]
    assert read == 600 + thought + sum(-(-len(piece) // 4) for piece in pieces)
