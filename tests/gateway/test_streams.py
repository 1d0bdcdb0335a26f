"""Answers as they come: cut at every byte, broken off at every byte, and read the same."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from addendum.gateway.drive import Gateway, GatewayExchange

CHAT = "https://api.openai.com/v1/chat/completions"
MESSAGES = "https://api.anthropic.com/v1/messages"
HEADERS = {"authorization": "Bearer k"}


def tool(name: str, wire: str) -> dict[str, Any]:
    own = {"name": name, "description": f"Does {name}."}
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    if wire == CHAT:
        return {"type": "function", "function": {**own, "parameters": schema}}
    return {**own, "input_schema": schema}


def begun(wire: str, *, stream: bool = True) -> GatewayExchange:
    """Return an exchange in which `two` and `three` were told and `gone` was taken away."""
    gateway = Gateway()
    model = "gpt-4.1" if wire == CHAT else "claude-sonnet-5"
    messages: list[Any] = [{"role": "user", "content": "hello " * 2000}]
    found: GatewayExchange | None = None
    for names in (["one", "gone"], ["one", "two", "three"]):
        body = {"model": model, "messages": messages, "tools": [tool(n, wire) for n in names]}
        body |= {"stream": stream} | ({} if wire == CHAT else {"max_tokens": 100})
        found = gateway.begin(wire, HEADERS, json.encode(body))
        assert found is not None and found.passed is None
        said = [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "go on"}]
        messages = [*messages, *said]
        if "two" not in names:
            found.start(200, "application/json")
            answer: dict[str, Any] = {"choices": [{"message": said[0], "finish_reason": "stop"}]}
            if wire == MESSAGES:
                answer = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
            found.feed(json.encode(answer))
            found.end()
    assert found is not None
    return found


def chat(*deltas: dict[str, Any], ends: str = "tool_calls") -> bytes:
    chunks = [{"index": 0, "delta": {"role": "assistant", "content": ""}}]
    chunks += [{"index": 0, "delta": delta} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": ends})
    events = [{"id": "c", "model": "m", "choices": [each]} for each in chunks]
    events.append({"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 5}})
    return b"".join(b"data: " + json.encode(each) + b"\n\n" for each in events) + (
        b"data: [DONE]\n\n"
    )


def call(index: int, name: str, *pieces: str, wire: str) -> list[dict[str, Any]]:
    """Return the deltas, or events, of one call."""
    if wire == CHAT:
        first = {"index": index, "id": f"id{index}", "type": "function"}
        parts = [{**first, "function": {"name": name, "arguments": pieces[0]}}]
        parts += [{"index": index, "function": {"arguments": each}} for each in pieces[1:]]
        return [{"tool_calls": [each]} for each in parts]
    block = {"type": "tool_use", "id": f"id{index}", "name": name, "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": index, "content_block": block}
    ]
    for each in pieces:
        delta = {"type": "input_json_delta", "partial_json": each}
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
    return [*events, {"type": "content_block_stop", "index": index}]


def claude(*events: dict[str, Any], ends: str = "tool_use") -> bytes:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}}
    whole = [
        {"type": "message_start", "message": message},
        *events,
        {"type": "message_delta", "delta": {"stop_reason": ends}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    return b"".join(
        b"event: " + each["type"].encode() + b"\ndata: " + json.encode(each) + b"\n\n"
        for each in whole
    )


def stream(wire: str, calls: list[tuple[str, tuple[str, ...]]]) -> bytes:
    parts = [
        part
        for index, (name, pieces) in enumerate(calls)
        for part in call(index, name, *pieces, wire=wire)
    ]
    return chat(*parts) if wire == CHAT else claude(*parts)


DIRECT = ("one", ('{"q":', '"x"}'))
DISPATCHED = ("call_tool", ('{"name":"two","argu', 'ments":{"q":"a\\"b"}}'))
TAKEN_AWAY = ("gone", ('{"q":"x"}',))
ANSWERS = {
    "direct": [DIRECT],
    "dispatched": [DISPATCHED],
    "both": [DIRECT, DISPATCHED],
    "beside_one_that_is_gone": [TAKEN_AWAY, DISPATCHED, DIRECT],
    "twice": [DISPATCHED, ("call_tool", ('{"name":"three","arguments":{}}',))],
}


def read(wire: str, raw: bytes) -> list[tuple[str, str, Any]]:
    """Return the calls that a client reads from a stream: id, name and arguments."""
    found: dict[int, list[str]] = {}
    for line in raw.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.decode(line[6:])
        if wire == CHAT:
            for choice in event["choices"]:
                for each in choice["delta"].get("tool_calls", []):
                    own = found.setdefault(each["index"], ["", "", ""])
                    own[0] += each.get("id", "")
                    own[1] += each["function"].get("name", "")
                    own[2] += each["function"]["arguments"]
        elif event["type"] == "content_block_start":
            block = event["content_block"]
            found[event["index"]] = [block["id"], block["name"], ""]
        elif event["type"] == "content_block_delta":
            found[event["index"]][2] += event["delta"]["partial_json"]
    assert sorted(found) == list(range(len(found)))
    return [(each[0], each[1], json.decode(each[2] or "{}")) for each in found.values()]


def fed(exchange: GatewayExchange, pieces: list[bytes]) -> bytes:
    exchange.start(200, "text/event-stream")
    out = b"".join(exchange.feed(each) for each in pieces)
    return out + exchange.end()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize("name", ANSWERS)
def test_cut_at_every_byte_it_reads_the_same(name: str, wire: str) -> None:
    raw = stream(wire, ANSWERS[name])
    whole = fed(begun(wire), [raw])
    calls = read(wire, whole)
    real = {"one": {"q": "x"}, "two": {"q": 'a"b'}, "three": {}}
    assert [(name, arguments) for _, name, arguments in calls] == [
        (name, real[name]) for _, name, _ in calls
    ]
    assert [each[1] for each in calls] == [
        json.decode("".join(pieces))["name"] if called == "call_tool" else called
        for called, pieces in ANSWERS[name]
        if called != "gone"
    ]
    assert len({each[0] for each in calls}) == len(calls)
    exchange = begun(wire)
    for at in range(1, len(raw)):
        exchange._filter = None  # pyright: ignore[reportPrivateUsage]
        exchange._shown = []  # pyright: ignore[reportPrivateUsage]
        assert fed(exchange, [raw[:at], raw[at:]]) == whole, at


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=["chat", "messages"])
def test_byte_by_byte_and_with_other_line_ends(wire: str) -> None:
    raw = stream(wire, ANSWERS["both"])
    whole = fed(begun(wire), [raw])
    assert fed(begun(wire), [raw[n : n + 1] for n in range(len(raw))]) == whole
    other = fed(begun(wire), [raw.replace(b"\n", b"\r\n")])
    assert read(wire, other) == read(wire, whole)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize("name", ["both", "beside_one_that_is_gone"])
def test_broken_off_at_every_byte_nothing_is_invented(name: str, wire: str) -> None:
    raw = stream(wire, ANSWERS[name])
    whole = read(wire, fed(begun(wire), [raw]))
    exchange = begun(wire)
    for at in range(len(raw)):
        exchange._filter = None  # pyright: ignore[reportPrivateUsage]
        exchange._shown = []  # pyright: ignore[reportPrivateUsage]
        out = fed(exchange, [raw[:at]])
        # What no blank line ends is no event to any client.
        events = out.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]
        assert b"call_tool" not in b"".join(events) and b'"gone"' not in b"".join(events)
        for event in events:
            line = event.splitlines()[-1]
            assert line == b"data: [DONE]" or json.decode(line.removeprefix(b"data: "))
    assert whole


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=["chat", "messages"])
def test_a_fault_of_ours_loses_no_byte_of_what_comes_then(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = stream(wire, ANSWERS["dispatched"])
    exchange = begun(wire)

    def fails(*called: str) -> Any:
        raise RuntimeError("a fault")

    monkeypatch.setattr("addendum.gateway.answers.Judging.judge", fails)
    assert fed(exchange, [raw]) == raw
    assert exchange.again is None
    exchange = begun(wire)
    start = raw.index(b"call_tool")
    pieces = [raw[: start - 40], raw[start - 40 :]]
    assert fed(exchange, pieces).endswith(pieces[1])
