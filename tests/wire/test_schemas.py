"""A schema as a wire takes it: what may not stand at its top is left out, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from addendum import encoding
from addendum.wire.schemas import CHOICES, UNIONS, relieved


def sent(schema: Any, words: tuple[str, ...] = CHOICES) -> Any:
    return json.loads(bytes(relieved(Raw(encoding.encode(schema)), words)))


A = {"a": {"type": "string"}}


@pytest.mark.parametrize("word", CHOICES)
def test_what_may_not_stand_at_the_top_is_left_out_there_only(word: str) -> None:
    part: Any = {"not": {}, "enum": [{}]}.get(word, [{"required": ["a"]}])
    inner = {"type": "object", "properties": {"a": {word: part}, word: {"type": "string"}}}
    assert sent({**inner, word: part}) == inner
    assert sent(inner) == inner


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"properties": A, "not": {}}, {"properties": A, "type": "object"}),
        ({"type": "array", "items": {}}, {"type": "object", "items": {}}),
        ({"type": ["object", "null"], "properties": A}, {"type": "object", "properties": A}),
        ({}, {"type": "object"}),
        (True, {"type": "object"}),
        ([], {"type": "object"}),
        (None, {"type": "object"}),
    ],
)
def test_a_schema_that_goes_out_is_an_objects(given: Any, left: Any) -> None:
    assert sent(given) == left


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"object","properties":{"not":{"enum":[1]}}}',
        b'{ "type" : "object" }',
        b'{"properties":{},"type":"object"}',
        '{"type":"object","description":"oneOf, anyOf, \\u00e9 é"}'.encode(),
        b'{"type":"object","required":["allOf"]}',
    ],
)
def test_a_schema_that_loses_nothing_keeps_its_bytes(text: bytes) -> None:
    assert bytes(relieved(Raw(text), CHOICES)) == text


def test_each_wire_has_its_own_words() -> None:
    assert sent({"type": "object", "enum": [{}]}, UNIONS) == {"type": "object", "enum": [{}]}
