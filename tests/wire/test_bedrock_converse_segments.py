from __future__ import annotations

import json
from typing import Any

from addendum.wire.bedrock_converse.segments import segments, settings

Json = dict[str, Any]
POINT: Json = {"cachePoint": {"type": "default"}}
HOUR: Json = {"cachePoint": {"type": "default", "ttl": "1h"}}
SPEC: Json = {"toolSpec": {"name": "a", "inputSchema": {"json": {"type": "object"}}}}
USE: Json = {"toolUse": {"toolUseId": "t1", "name": "a", "input": {}}}
RESULT: Json = {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}]}}
THOUGHT: Json = {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}}


def user(*content: Json) -> Json:
    return {"role": "user", "content": list(content)}


def assistant(*content: Json) -> Json:
    return {"role": "assistant", "content": list(content)}


BODY: Json = {
    "messages": [
        user({"text": "hi"}),
        assistant(THOUGHT, USE, POINT),
        user(RESULT, {"text": "more"}, POINT),
    ],
    "system": [{"text": "s"}, HOUR, {"text": "c"}],
    "toolConfig": {"tools": [SPEC, HOUR]},
}


def test_cache_order_roles_and_marks() -> None:
    found = segments(json.dumps(BODY).encode())
    assert [(each.kind, each.role, each.type, each.mark) for each in found] == [
        ("tool", "tools", "tool", "1h"),
        ("system", "system", "text", "1h"),
        ("system", "system", "text", None),
        ("message", "user", "text", None),
        ("message", "assistant", "reasoningContent", None),
        ("message", "assistant", "toolUse", "5m"),
        ("message", "user", "toolResult", None),
        ("message", "user", "text", "5m"),
    ]
    assert [each.path for each in found[:3]] == ["toolConfig.tools[0]", "system[0]", "system[2]"]
    assert found[5].path == "messages[1].content[1]"
    assert (found[0].defines, found[5].uses, found[5].opens) == ("a", ("a",), "t1")
    assert found[6].answers == "t1"
    assert found[4].transparent
    assert not any(each.misplaced for each in found)


def test_marks_do_not_count() -> None:
    bare = json.loads(json.dumps(BODY))
    for row in (
        bare["system"],
        bare["toolConfig"]["tools"],
        *(m["content"] for m in bare["messages"]),
    ):
        row[:] = [each for each in row if "cachePoint" not in each]
    assert [each.key for each in segments(bare)] == [each.key for each in segments(BODY)]


def test_marks_where_there_is_no_place_for_one() -> None:
    inside: Json = {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}, POINT]}}
    for content in (
        [POINT, {"text": "a"}],
        [THOUGHT, POINT],
        [{"text": "a"}, POINT, POINT],
        [inside],
    ):
        found = segments({"messages": [user(*content)]})
        assert [each for each in found if each.misplaced], content


def test_the_moved_tail_is_found() -> None:
    body = {
        "messages": [
            user({"text": "<turn_instructions>Brief.</turn_instructions>"}, {"text": "hi"})
        ]
    }
    assert [each.tail for each in segments(body, "Brief.")] == [True, False]


def test_settings_that_count() -> None:
    assert settings({"toolConfig": {"toolChoice": {"auto": {}}}, "inferenceConfig": {"a": 1}}) == {}
    found = settings(
        {
            "toolConfig": {"toolChoice": {"any": {}}},
            "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
        }
    )
    assert set(found) == {"toolChoice", "additionalModelRequestFields"}
