"""Whatever a client posts: what is not understood leaves as it came, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import json
from tests.gateway.test_streams import CHAT, HEADERS, MESSAGES, tool

from addendum.gateway.drive import Gateway

WIRES = [CHAT, MESSAGES]


def good(wire: str) -> dict[str, Any]:
    model = "gpt-4.1" if wire == CHAT else "claude-opus-5-5"
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        ],
        "tools": [tool("one", wire), tool("two", wire)],
        "max_tokens": 100,
    }
    return body | ({} if wire == CHAT else {"system": "You help."})


PLAIN: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"not json",
    b"\xff\xfe\x00",
    b'{"model":',
    b'{"model":1,"messages":2,"tools":3}',
    b'{"model":"m","messages":[],"tools":[]}',
    b'{"model":"m","messages":[1,null,"x"],"tools":[{"name":1}]}',
    b'{"model":"m","messages":[{"role":"nobody"}],"tools":[[]]}',
    b"[" * 100_000,
    b'{"messages":' + b"[" * 5000,
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("body", PLAIN, ids=range(len(PLAIN)))
def test_what_is_no_request_leaves_as_it_came(body: bytes, wire: str) -> None:
    exchange = Gateway().begin(wire, HEADERS, body)
    assert exchange is None or (exchange.body == body and exchange.passed)


def test_what_is_packed_or_goes_elsewhere_is_not_looked_at() -> None:
    body = json.encode(good(CHAT))
    gateway = Gateway()
    assert gateway.begin(CHAT, {"content-encoding": "zstd"}, body) is None
    for path in ("/v1/models", "/v1/embeddings", "/v1/messages/count_tokens", "/v1/responses"):
        assert gateway.begin(f"https://api.openai.com{path}", HEADERS, body) is None


ODD: list[Any] = [None, 0, -1, 1e300, True, "", "x", "\u0000", [], [1], {}, {"type": "odd"}, [[]]]


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return every place in a JSON value."""
    found = [at] if at else []
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, each in inner:
        found += places(each, (*at, key))
    return found


def changed(body: Any, at: tuple[Any, ...], value: Any) -> bytes:
    copy = json.decode(json.encode(body))
    inner = copy
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return json.encode(copy)


@pytest.mark.parametrize("wire", WIRES)
def test_one_odd_value_anywhere_is_driven_or_leaves_as_it_came(wire: str) -> None:
    body = good(wire)
    for at in places(body):
        for value in ODD:
            gateway, sent = Gateway(), changed(body, at, value)
            exchange = gateway.begin(wire, HEADERS, sent)
            assert exchange is not None
            if exchange.passed:
                assert exchange.body == sent, (at, value)
            else:
                held_by_us(sent, exchange.body)


def held_by_us(sent: bytes, left: bytes) -> None:
    """Hold that every message of the client's is there, in order, with all that it says."""
    ours = [_bare(each) for each in json.decode(left)["messages"]]
    for message in json.decode(sent)["messages"]:
        wanted = _bare(message)
        assert wanted in ours, (wanted, ours)
        ours = ours[ours.index(wanted) + 1 :]


def _bare(message: Any) -> Any:
    """Return a message without marks; one text is the same as a string."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [
            {k: v for k, v in each.items() if k != "cache_control"}
            if isinstance(each, dict)
            else each
            for each in content
        ]
    return {**message, "content": content}


@pytest.mark.parametrize("wire", WIRES)
def test_random_bytes_in_a_good_body(wire: str) -> None:
    chance = random.Random(7)
    raw = json.encode(good(wire))
    for _ in range(400):
        at, size = chance.randrange(len(raw)), chance.randrange(1, 6)
        sent = raw[:at] + chance.randbytes(chance.randrange(4)) + raw[at + size :]
        exchange = Gateway().begin(wire, HEADERS, sent)
        assert exchange is not None
        if exchange.passed:
            assert exchange.body == sent


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_is_none_reaches_the_client_as_it_came(wire: str) -> None:
    for status, kind, raw in (
        (200, "application/json", b"not json"),
        (200, "application/json", b"{}"),
        (200, "application/json", b'{"choices":[]}'),
        (200, "text/html", b"<html>"),
        (200, "text/event-stream", b"data: nothing\n\nevent: x\ndata: [1]\n\n"),
        (200, "text/event-stream", b"\x00\xff"),
        (404, "application/json", b'{"error":"no"}'),
        (429, "application/json", b'{"error":"later"}'),
        (500, "text/plain", b"oh"),
        (200, "", b""),
    ):
        exchange = Gateway().begin(wire, HEADERS, json.encode(good(wire)))
        assert exchange is not None and exchange.passed is None
        exchange.start(status, kind)
        assert exchange.feed(raw) + exchange.end() == raw
        assert exchange.again is None
