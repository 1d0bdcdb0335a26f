"""Responses: what OpenAI refuses, and what becomes of reasoning that is sent back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.lab.lab_requests import Json

from addendum import encoding
from addendum.lab.exchange import Call, Reply, Switches, handle
from addendum.lab.openai_responses import OpenAIResponses
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep

HEADERS = {"authorization": "Bearer k"}
MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
ENCRYPTED = ["reasoning.encrypted_content"]


def text(value: str = "hi", **more: Any) -> Json:
    return {"type": "input_text", "text": value, **more}


def message(role: str = "user", *parts: Json, **more: Any) -> Json:
    return {"type": "message", "role": role, "content": list(parts) or [text()], **more}


def function(name: str = "a", **more: Any) -> Json:
    about = {"type": "function", "name": name, "description": "d", "strict": False}
    return {**about, "parameters": {"type": "object"}, **more}


def tools(*entries: Json, **more: Any) -> Json:
    return {"type": "additional_tools", "role": "developer", "tools": list(entries), **more}


def call(call_id: str = "c1", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "a", "arguments": "{}", **more}


def output(call_id: str = "c1", result: Any = "ok", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": result, **more}


def ask(
    *items: Json,
    provider: OpenAIResponses | None = None,
    script: Script | None = None,
    switches: Switches | None = None,
    **more: Any,
) -> Reply:
    body = {"model": "gpt-6.1-sol", "store": False, "input": list(items), **more}
    sent = Call(HEADERS, encoding.encode(body), 0.0, script, switches or Switches())
    return handle(provider or OpenAIResponses(), sent)


def answer(*items: Json, **more: Any) -> Json:
    reply = ask(*items, **more)
    assert reply.status == 200, reply.refusal
    return encoding.decode(reply.payload)


USER = message()
SEALED = {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "eA=="}

TAKEN: list[tuple[str, list[Json], Json]] = [
    ("a string", [], {"input": "hi"}),
    ("a message without a type", [{"role": "user", "content": "hi"}], {}),
    ("the head as an item", [tools(function()), message("developer"), USER], {}),
    ("defined again by an item", [tools(function()), USER, tools(function())], {}),
    ("marked parts", [message("developer", text("d", **MARK)), message("user", text(**MARK))], {}),
    ("a marked result", [USER, call(), output(result=[text("r", **MARK)])], {}),
    ("results in any order", [USER, call("a"), call("b"), output("b"), output("a")], {}),
    ("an answer without ids", [USER, {"role": "assistant", "content": "yes"}, USER], {}),
    ("many marks", [message("user", *[text(str(at), **MARK) for at in range(6)])], {}),
    ("a call of a namespace", [USER, {**call(), "namespace": "n"}, output()], {}),
    ("a function that waits for a search, defined by an item", [USER, tools(function())],
     {"tools": [{"type": "tool_search"}, function(defer_loading=True)]}),
]  # fmt: skip


@pytest.mark.parametrize(("items", "more"), [each[1:] for each in TAKEN], ids=lambda x: "")
def test_what_is_taken(items: list[Json], more: Json) -> None:
    reply = ask(*items, **more)
    assert reply.status == 200, reply.refusal


OLDER = {"model": "gpt-4.1"}
# name, items, more of the body, fragment of the message, param
REFUSED: list[tuple[str, list[Json], Json, str, str | None]] = [
    ("unknown parameter", [USER], {"messages": []}, "Unknown parameter: 'messages'", "messages"),
    ("unknown field", [{**USER, "x": 1}], {}, "Unknown parameter: 'input[0].x'", "input[0].x"),
    ("no input", [], {}, "empty array", "input"),
    ("stored state", [USER], {"previous_response_id": "r"}, "keeps no responses", None),
    ("unknown item", [{"type": "compaction"}], {}, "Invalid value: 'compaction'", "input[0].type"),
    ("unknown role", [message("tool")], {}, "Invalid value: 'tool'", "input[0].role"),
    ("text of the wrong side", [message("assistant")], {}, "'output_text'", None),
    ("orphan output", [USER, output()], {}, "No tool call found", "input"),
    ("missing output", [USER, call()], {}, "No tool output found for function call c1", "input"),
    ("output in front", [USER, output(), call()], {}, "No tool call found", "input"),
    ("answered twice", [USER, call(), output(), output()], {}, "No tool call found", "input"),
    ("call id used twice", [USER, call(), output(), call(), output()], {}, "Duplicate", "input"),
    ("tools of another role", [tools(function(), role="user")], {}, "'developer'", None),
    ("tools without any", [USER, tools()], {}, "empty array", "input[1].tools"),
    ("marked tools", [USER, tools(function(), **MARK)], {}, "Unknown parameter", None),
    ("marked tool", [USER, tools(function(**MARK))], {}, "Unknown parameter", None),
    ("marked answer", [message("assistant", {"type": "output_text", "text": "", **MARK})], {},
     "Unknown parameter", None),
    ("a mark of another kind", [message("user", text(prompt_cache_breakpoint={"mode": "x"}))], {},
     "prompt_cache_breakpoint", None),
    ("twice in an item", [USER, tools(function(), function())], {}, "declared twice", None),
    ("at the top and in an item", [USER, tools(function())], {"tools": [function()]},
     "declared twice", "input[1].tools[0].name"),
    ("twice at the top", [USER], {"tools": [function(), function()]}, "declared twice", None),
    ("deferred without a search", [USER], {"tools": [function(defer_loading=True)]},
     "Unknown parameter: 'tools[0].defer_loading'", None),
    ("a search before 5.6", [USER], {**OLDER, "tools": [{"type": "tool_search"}]},
     "Invalid value: 'tool_search'", "tools[0].type"),
    ("strict by default", [USER], {"tools": [{k: v for k, v in function().items()
                                              if k != "strict"}]}, "additionalProperties", None),
    ("a union at the top", [USER], {"tools": [function(parameters={"oneOf": []})]},
     "must have type 'object'", None),
    ("nested as in Chat", [USER], {"tools": [{"type": "function", "function": {}}]},
     "Unknown parameter: 'tools[0].function'", None),
    ("reasoning alone", [USER, SEALED], {}, "could not be verified", None),
    ("reasoning without content", [USER, {**SEALED, "encrypted_content": None}], {},
     "not found. Items are not persisted", "input"),
    ("items before 5.6", [tools(function()), USER], OLDER, "Invalid value", "input[0].type"),
    ("marks before 5.6", [message("user", text(**MARK))], OLDER, "Unknown parameter", None),
    ("options before 5.6", [USER], {**OLDER, "prompt_cache_options": {}}, "Unknown", None),
    ("asked to reveal what it does not think", [USER], {**OLDER, "include": ENCRYPTED},
     "Encrypted content is not supported with this model.", "include"),
    ("effort of what does not reason", [USER], {**OLDER, "reasoning": {"effort": "low"}},
     "not supported", "reasoning"),
    ("stop sequences", [USER], {"stop": ["x"]}, "Unknown parameter: 'stop'", "stop"),
    ("too few tokens", [USER], {"max_output_tokens": 5}, "max_output_tokens", None),
    ("no such model", [USER], {"model": "gpt-9000"}, "does not exist", "model"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("items", "more", "says", "param"), [each[1:] for each in REFUSED], ids=[e[0] for e in REFUSED]
)
def test_what_is_refused(items: list[Json], more: Json, says: str, param: str | None) -> None:
    reply = ask(*items, **more)
    assert reply.status in (400, 404)
    error = encoding.decode(reply.payload)["error"]
    assert says in error["message"]
    if param is not None:
        assert error["param"] == param


def test_an_endpoint_that_does_not_know_the_item_refuses_it() -> None:
    reply = ask(tools(function()), USER, switches=Switches(openai_additional_tools=False))
    assert "additional_tools" in (reply.refusal or "")


# --- reasoning ---------------------------------------------------------------------------------

STEPS = Script(
    (ScriptStep("hi", (Entry(thinking="hm", calls=(ScriptCall("a"),)), Entry(text="done"))),)
)


def first(**more: Any) -> tuple[list[Json], list[Json]]:
    """Return the items of a request and of its answer: reasoning and a call."""
    items = [tools(function()), message("developer", text("static")), USER]
    return items, answer(*items, script=STEPS, include=ENCRYPTED, **more)["output"]


def test_reasoning_and_what_it_led_to_go_back_and_are_read() -> None:
    items, said = first()
    assert [item["type"] for item in said] == ["reasoning", "function_call"]
    back = [*items, *said, output(said[1]["call_id"])]
    told = answer(*back, script=STEPS)
    assert "input_transformations" not in told
    without = [*items, {**said[1], "id": "fc_other"}, output(said[1]["call_id"])]
    assert told["usage"]["input_tokens"] > answer(*without, script=STEPS)["usage"]["input_tokens"]


def test_either_half_of_a_pair_alone_is_refused() -> None:
    items, (thought, called) = first()
    result = output(called["call_id"])
    bare = {name: value for name, value in called.items() if name != "id"}
    for half in ([thought], [thought, bare, result], [thought, message(), called, result]):
        reply = ask(*items, *half)
        assert "without its required following item" in (reply.refusal or "")
    reply = ask(*items, called, result)
    assert "without its required 'reasoning' item: 'rs_" in (reply.refusal or "")
    # Both halves gone, the rest stays.
    assert ask(*items, bare, result, script=STEPS).status == 200


@pytest.mark.parametrize(
    ("model", "reason"), [("gpt-6.1-sol", "prefix_mismatch"), ("gpt-6.1-terra", "model_mismatch")]
)
def test_reasoning_behind_another_prefix_is_left_out_and_reported(model: str, reason: str) -> None:
    items, said = first()
    other = [tools(function(description="another")), *items[1:]]
    told = answer(*other, *said, output(said[1]["call_id"]), script=STEPS, model=model)
    assert told["input_transformations"] == [
        {"id": said[0]["id"], "action": "removed", "type": "reasoning", "reason": reason}
    ]


def test_before_5_6_reasoning_is_bound_to_its_model_only() -> None:
    asked = [message("developer", text("static")), USER]
    more: Json = {"model": "gpt-5", "tools": [function()], "script": STEPS}
    said = answer(*asked, include=ENCRYPTED, **more)["output"]
    back = [message("developer", text("other")), USER, *said, output(said[1]["call_id"])]
    assert "input_transformations" not in answer(*back, **more)
    reply = ask(*back, **{**more, "model": "gpt-5-mini"})
    assert "could not be verified" in (reply.refusal or "")


def test_what_does_not_reason_gives_none_and_unasked_it_cannot_go_back() -> None:
    more: Json = {"tools": [function()], "script": STEPS}
    plain = answer(USER, model="gpt-4.1", **more)["output"]
    assert [item["type"] for item in plain] == ["function_call"]
    unasked = answer(USER, model="gpt-5", **more)["output"]
    assert unasked[0]["encrypted_content"] is None
