from __future__ import annotations

import json
from typing import Any

from addendum.wire.gemini.segments import segments, settings
from addendum.wire.segment import resolve

BODY: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "t", "thought": True},
                {"thoughtSignature": "s", "functionCall": {"id": "f1", "name": "a", "args": {}}},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"id": "f1", "name": "a"}}]},
        {"role": "user", "parts": [{"text": "<turn_instructions>Brief."}, {"text": "more"}]},
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}, {"googleSearch": {}}],
}


def test_cache_order_roles_and_names() -> None:
    found = segments(json.dumps(BODY).encode(), "Brief.")
    assert [(each.kind, each.role, each.type) for each in found] == [
        ("tool", "tools", "tool"),
        ("tool", "tools", "tool"),
        ("tool", "tools", "tool"),
        ("system", "system", "text"),
        ("message", "user", "text"),
        ("message", "assistant", "thought"),
        ("message", "assistant", "functionCall"),
        ("message", "user", "functionResponse"),
        ("message", "user", "text"),
        ("message", "user", "text"),
    ]
    assert [each.defines for each in found[:3]] == ["a", "b", ""]
    assert (found[6].uses, found[6].opens, found[7].answers) == (("a",), "f1", "f1")
    assert [each.tail for each in found] == [False] * 8 + [True, False]
    assert found[5].transparent
    assert not any(each.marks or each.markable for each in found)
    for each in found:
        assert resolve(BODY, each.path) is not None


def test_settings_that_count() -> None:
    assert settings({"generationConfig": {"temperature": 1}}) == {}
    body = {"toolConfig": {}, "generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}
    assert set(settings(body)) == {"toolConfig", "thinkingConfig"}
