"""What the tests of odd streams share: an answer in parts, and ways to change it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.wire.wires import (
    CHAT,
    SPEAKERS,
    Event,
    called,
    chat_chunk,
    read,
    said,
    thought,
)

from addendum.wire.answer import Answer

Json = dict[str, Any]
by_wire = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.wire)
PARTS = [
    thought("let me ", "see"),
    said("I ", "look"),
    called("add", '{"a": 1, ', '"b": 2}', id="c1"),
    called("add", '{"a": 3, "b": 4}', id="c2"),
]
ONE, TWO = '{"a": 1, "b": 2}', '{"a": 3, "b": 4}'
WANTED = [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]


def chat(*chunks: Json, stop: str = "tool_calls") -> Answer:
    return read(CHAT, [*((None, each) for each in chunks), (None, chat_chunk({}, stop))])[0]


def piece(**call: Any) -> Json:
    return chat_chunk({"tool_calls": [call]})


def fn(arguments: Any, name: str | None = "add") -> Json:
    return {"name": name, "arguments": arguments} if name else {"arguments": arguments}


def calls(found: Answer) -> list[tuple[str, Any]]:
    """Return names and decoded arguments, after checking that each id goes back with its call."""
    ids = [call.id for call in found.calls]
    assert len(set(ids)) == len(ids) and all(ids)
    sent_back = b"".join(bytes(raw) for raw in found.native).decode()
    assert all(json.dumps(ident, ensure_ascii=False) in sent_back for ident in ids)
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


def changed(events: Iterable[Event], change: Callable[[Json], None]) -> list[Event]:
    """Return events with something done to each object in them."""

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            change(value)
            for inner in list(value.values()):
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    found = [
        (name, data if isinstance(data, bytes) else json.loads(json.dumps(data)))
        for name, data in events
    ]
    for _, data in found:
        walk(data)
    return found
