"""Bedrock in the lab: what it refuses, how it counts, how it streams."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from addendum import encoding
from addendum.lab.bedrock import Bedrock
from addendum.lab.exchange import Call, Reply, handle
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.wire.aws_event_stream import AwsEventParser
from addendum.wire.bedrock_converse.parse import ConverseParser, parse_body

Json = dict[str, Any]
SONNET = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
OPUS = "anthropic.claude-opus-5-5"
NOVA = "us.amazon.nova-pro-v1:0"
POINT: Json = {"cachePoint": {"type": "default"}}
HOUR: Json = {"cachePoint": {"type": "default", "ttl": "1h"}}
USE: Json = {"toolUse": {"toolUseId": "t1", "name": "a", "input": {}}}
RESULT: Json = {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}], "status": "success"}}
THOUGHT: Json = {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}}
SPEC: Json = {
    "toolSpec": {"name": "a", "description": "A.", "inputSchema": {"json": {"type": "object"}}}
}
TOOLS: Json = {"tools": [SPEC]}


def user(*content: Json | str) -> Json:
    return {"role": "user", "content": [{"text": c} if isinstance(c, str) else c for c in content]}


def assistant(*content: Json) -> Json:
    return {"role": "assistant", "content": list(content)}


def ask(
    lab: Bedrock,
    body: Json,
    *,
    model: str = SONNET,
    now: float = 0.0,
    operation: str = "converse",
    key: str = "k",
    script: Script | None = None,
) -> Reply:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    path = f"/bedrock/model/{model}/{operation}"
    return handle(lab, Call(headers, encoding.encode(body), now, script=script, path=path))


def stored(reply: Reply) -> tuple[int, int, int]:
    """Read, written, neither."""
    assert reply.status == 200, reply.refusal
    reply.begin()
    usage = reply.usage
    return usage["cacheReadInputTokens"], usage["cacheWriteInputTokens"], usage["inputTokens"]


GOOD: Json = {
    "toolConfig": {"tools": [SPEC, POINT]},
    "system": [{"text": "s"}, POINT],
    "inferenceConfig": {"maxTokens": 9},
    "messages": [user("hi"), assistant({"text": "ok"}, USE), user(RESULT, "more", POINT)],
}


def changed(**parts: Any) -> Json:
    return deepcopy({**GOOD, **parts})


def test_the_good_body_is_taken() -> None:
    assert ask(Bedrock(), GOOD).status == 200


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (changed(tools=[]), "extraneous key [tools]"),
        (changed(messages=[]), "messages: a list with an entry"),
        (changed(messages=[assistant({"text": "x"})]), "start with a user message"),
        (changed(messages=[user("x"), user("y")]), "must alternate"),
        (changed(messages=[user("x"), assistant({"text": "y"})]), "end with a user message"),
        (changed(messages=[{"role": "system", "content": [{"text": "x"}]}]), "role system"),
        (changed(messages=[user(" ")]), "is blank"),
        (changed(messages=[user({"text": "a", "image": {}})]), "exactly one member"),
        (changed(messages=[user({"toolAddition": {}})]), "extraneous key [toolAddition]"),
        (changed(messages=[user("x"), assistant(USE), user("y")]), "Expected toolResult blocks"),
        (changed(messages=[user("x", RESULT)]), "exceeds the number of toolUse blocks"),
        (
            changed(messages=[user("x"), assistant(USE), user("y", RESULT)]),
            "toolResult blocks have to come first",
        ),
        (
            {"messages": GOOD["messages"]},
            "The toolConfig field must be defined when using toolUse",
        ),
        (changed(toolConfig={"tools": []}), "toolConfig.tools: a list with an entry"),
        (changed(toolConfig={"tools": [SPEC, SPEC]}), "have to be unique"),
        (changed(toolConfig={"tools": [SPEC], "toolChoice": {"none": {}}}), "exactly one of auto"),
        (
            changed(
                toolConfig={"tools": [{"toolSpec": {**SPEC["toolSpec"], "deferLoading": True}}]}
            ),
            "extraneous key [deferLoading]",
        ),
        (
            changed(toolConfig={"tools": [{"toolSpec": {**SPEC["toolSpec"], "description": ""}}]}),
            "at least one character",
        ),
        (changed(messages=[user(POINT, "x")]), "has to follow a content block"),
        (
            changed(messages=[user("x"), assistant(THOUGHT, POINT), user("y")]),
            "cannot follow a reasoning block",
        ),
        (
            changed(
                messages=[
                    user("x"),
                    assistant(USE),
                    user({"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}, POINT]}}),
                ]
            ),
            "text or json is needed",
        ),
        (changed(system=[{"text": "s"}, POINT, {"text": "c"}, HOUR]), "1h must not come after"),
        (
            changed(messages=[user("a", POINT, "b", POINT, "c", POINT)]),
            "A maximum of 4 blocks with cache_control may be provided. Found 5",
        ),
    ],
)
def test_refusals(body: Json, match: str) -> None:
    reply = ask(Bedrock(), body)
    assert reply.status == 400
    assert match in (reply.refusal or "")
    assert encoding.decode(reply.payload) == {"message": reply.refusal}
    assert reply.headers["x-amzn-errortype"] == "ValidationException"


def test_what_depends_on_the_model() -> None:
    lab = Bedrock()
    assert "toolConfig/tools" in (ask(lab, GOOD, model=NOVA).refusal or "")
    beside = changed(toolConfig=TOOLS, system=[{"text": "s"}, POINT])
    assert "messages/2" in (ask(lab, beside, model=NOVA).refusal or "")
    alone = changed(toolConfig=TOOLS, messages=[user("x", POINT)])
    assert ask(lab, alone, model=NOVA).status == 200
    hour = {"messages": [user("x", HOUR)]}
    assert "ttl is not supported" in (ask(lab, hour, model=NOVA).refusal or "")
    assert "ttl is not supported" in (ask(lab, hour, model=OPUS).refusal or "")
    assert ask(lab, hour).status == 200
    plain = {"messages": [user("x")]}
    assert ask(lab, {"messages": [user("x", POINT)]}, model="meta.llama4").status == 403
    assert "cacheReadInputTokens" not in ask(lab, plain, model="meta.llama4").usage
    forced = {"messages": [user("x")], "toolConfig": {**TOOLS, "toolChoice": {"any": {}}}}
    assert "any is not supported" in (ask(lab, forced, model=OPUS).refusal or "")
    assert ask(lab, forced).status == 200
    unsigned = {"reasoningContent": {"reasoningText": {"text": "t"}}}
    missing = {"messages": [user("x"), assistant(unsigned), user("y")]}
    assert "thinking.signature: Field required" in (ask(lab, missing).refusal or "")


def test_credentials_and_addresses() -> None:
    assert ask(Bedrock(), GOOD, key="").status == 403
    assert ask(Bedrock(), GOOD, operation="invoke").status == 404


LONG = "word " * 2_000


def test_marks_write_and_later_marks_find_what_is_in_reach() -> None:
    lab = Bedrock()
    first = {"messages": [user(LONG, POINT)]}
    read, written, fresh = stored(ask(lab, first))
    assert (read, fresh) == (0, 0)
    assert written > 1024
    turns = [assistant({"text": "ok"}), user("more", POINT)]
    again = {"messages": [user(LONG), *turns]}
    read, more, fresh = stored(ask(lab, again, now=10))
    assert (read, fresh) == (written, 0)
    assert more > 0
    # Nothing without a mark, nothing after five minutes, nothing for another account.
    assert stored(ask(lab, {"messages": [user(LONG)]}, now=11))[:2] == (0, 0)
    assert stored(ask(lab, again, key="other", now=12))[0] == 0
    assert stored(ask(lab, again, now=320))[0] == 0


def test_each_block_is_a_position_and_nova_looks_back_at_none() -> None:
    for model, reach in ((SONNET, 20), (NOVA, 1)):
        for extra in (reach - 1, reach):
            lab = Bedrock()
            written = stored(ask(lab, {"messages": [user(LONG, POINT)]}, model=model))[1]
            blocks = ["x"] * extra
            marked = user(LONG, *blocks, POINT)
            read = stored(ask(lab, {"messages": [marked]}, model=model, now=1))[0]
            assert read == (written if extra < reach else 0), (model, extra)


def test_a_prefix_below_the_minimum_is_not_cached() -> None:
    short = {"messages": [user("x" * 4 * 1000, POINT)]}
    assert stored(ask(Bedrock(), short))[:2] == (0, 0)
    body = {"messages": [user(LONG, POINT)]}
    assert stored(ask(Bedrock(), body, model="anthropic.claude-opus-4-6-v1"))[1] == 0


def test_a_changed_tool_list_loses_everything() -> None:
    lab = Bedrock()
    body = {"toolConfig": TOOLS, "messages": [user(LONG, POINT)]}
    stored(ask(lab, body))
    other = deepcopy(body)
    other["toolConfig"]["tools"][0]["toolSpec"]["name"] = "b"
    assert stored(ask(lab, other, now=1))[0] == 0


SCRIPT = Script(
    (
        ScriptStep(
            "go", (Entry("Said.", "thought", (ScriptCall("a", {"q": "é"}),)), Entry("Done.", "end"))
        ),
    )
)


def test_a_stream_is_the_same_answer_as_a_body() -> None:
    body = {"toolConfig": TOOLS, "messages": [user("go")]}
    whole = parse_body(ask(Bedrock(), body, model="anthropic.claude-opus-5", script=SCRIPT).payload)
    reply = ask(
        Bedrock(), body, model="anthropic.claude-opus-5", operation="converse-stream", script=SCRIPT
    )
    assert reply.headers["content-type"] == "application/vnd.amazon.eventstream"
    frames, parser = AwsEventParser(), ConverseParser()
    for chunk in reply.events:
        for event in frames.feed(chunk):
            parser.feed(event)
    streamed = parser.finish()
    assert [json.loads(bytes(raw)) for raw in streamed.native] == [
        json.loads(bytes(raw)) for raw in whole.native
    ]
    assert len(streamed.native) == 3
    assert (streamed.calls[0].name, streamed.usage.prompt) == ("a", whole.usage.prompt)


def test_signed_reasoning_is_bound_to_the_prefix_on_the_newest_models() -> None:
    lab = Bedrock()
    body: Json = {"system": [{"text": "s"}], "toolConfig": TOOLS, "messages": [user("go")]}
    first = parse_body(ask(lab, body, model=OPUS, script=SCRIPT).payload)
    content = [json.loads(bytes(raw)) for raw in first.native]
    result = deepcopy(RESULT)
    result["toolResult"]["toolUseId"] = first.calls[0].id
    body["messages"] += [assistant(*content), user(result)]
    assert ask(lab, body, model=OPUS, script=SCRIPT).status == 200
    edited = deepcopy(body)
    edited["system"] = [{"text": "other"}]
    assert "bound to a different conversation" in (
        ask(lab, edited, model=OPUS, script=SCRIPT).refusal or ""
    )
    broken = deepcopy(body)
    broken["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] = "x"
    assert "Invalid `signature`" in (ask(lab, broken, model=OPUS, script=SCRIPT).refusal or "")
