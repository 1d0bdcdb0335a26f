from __future__ import annotations

import json
from itertools import pairwise

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from tests.wire.messages_events import (
    TOOL,
    Json,
    answer,
    block,
    ended,
    inputs,
    message_start,
)

from addendum import encoding
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.anthropic_messages.parse import AnthropicParser, parse_body
from addendum.wire.sse import SseParser

# Random content: streamed anyhow, it is the same answer as the body that was not streamed.

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


ids = st.text("abcXYZ019_-", min_size=1)


@st.composite
def json_text(draw: st.DrawFn) -> str:
    """JSON object text as a model might write it: odd spaces, escapes or none."""
    return json.dumps(
        draw(st.dictionaries(st.text(), _values, max_size=4)),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 3])),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", "  :\t")])),
    )


@st.composite
def pieces(draw: st.DrawFn, whole: str) -> list[str]:
    cuts = draw(st.lists(st.integers(0, len(whole)), max_size=4))
    return [whole[a:b] for a, b in pairwise([0, *sorted(cuts), len(whole)])]


@st.composite
def streamed_block(draw: st.DrawFn, number: int) -> tuple[Raw, Json, list[Json]]:
    """Return a block as a body holds it, its start block, and its deltas."""
    kind = draw(st.sampled_from(["text", "thinking", "tool_use", "server_tool_use", "redacted"]))
    more = draw(st.dictionaries(st.sampled_from(["x1", "x2"]), _values, max_size=2))
    if kind == "text":
        whole = draw(st.text(min_size=1).filter(lambda text: text.strip()))
        deltas = [{"type": "text_delta", "text": piece} for piece in draw(pieces(whole))]
        body: Json = {"type": "text", "text": whole}
        start = {"type": "text", "text": ""}
    elif kind == "thinking":
        whole, signature = draw(st.text()), draw(st.text())
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in draw(pieces(whole))]
        deltas.append({"type": "signature_delta", "signature": signature})
        body = {"type": "thinking", "thinking": whole, "signature": signature}
        start = {"type": "thinking", "thinking": "", "signature": ""}
    elif kind == "redacted":
        body = start = {"type": "redacted_thinking", "data": draw(st.text())}
        deltas = []
    else:
        whole = draw(json_text())
        deltas = inputs(*draw(pieces(whole)))
        named = {"type": kind, "id": f"{draw(ids)}{number}", "name": draw(ids)}
        body, start = {**named, "input": Raw(whole.encode())}, {**named, "input": {}}
    return Raw(encoding.encode({**body, **more})), {**start, **more}, deltas


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_stream_split_anyhow_is_the_body(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 4))
    blocks = [data.draw(streamed_block(number)) for number in range(count)]
    usage = {"input_tokens": 4, "cache_read_input_tokens": 0, "output_tokens": 8}
    about = {"id": "msg_1", "type": "message", "model": "claude-x"}
    body = encoding.encode(
        {**about, "content": [raw for raw, _, _ in blocks], "stop_reason": "x", "usage": usage}
    )
    events = [
        message_start(usage),
        *(e for i, (_, start, deltas) in enumerate(blocks) for e in block(i, start, *deltas)),
        *ended("x", {"output_tokens": 8}),
    ]
    lines = [
        b"event: " + event["type"].encode() + b"\ndata: " + encoding.encode(event)
        if data.draw(st.booleans())
        else b"data: " + json.dumps(event).encode()
        for event in events
    ]
    end = data.draw(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
    stream = end.join(lines) + data.draw(st.sampled_from([b"", end]))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    framing, parser = SseParser(), AnthropicParser()
    deltas: list[Delta] = []
    for a, b in pairwise([0, *sorted(cuts), len(stream)]):
        for event in framing.feed(stream[a:b]):
            deltas.extend(parser.feed(event))
    for event in framing.close():
        deltas.extend(parser.feed(event))
    found = parser.finish()
    expected = parse_body(body)
    for native, (raw, start, grown) in zip(found.native, blocks, strict=True):
        if grown and not start.keys() & {"x1", "x2"}:
            assert bytes(native) == bytes(raw)
    # What came as one text may be written with other escapes in the two places.
    assert [msgspec.json.decode(raw) for raw in found.native] == [
        msgspec.json.decode(raw) for raw in expected.native
    ]
    assert msgspec.structs.replace(found, native=()) == msgspec.structs.replace(expected, native=())
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == found.text
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == found.reasoning
    told = {d.index: "" for d in deltas if isinstance(d, CallStarted)}
    for delta in deltas:
        if isinstance(delta, CallArguments):
            told[delta.index] += delta.text
    assert list(told.values()) == [call.arguments for call in found.calls]
    for call, (raw, start, _) in zip(
        found.calls, [b for b in blocks if b[1]["type"] == "tool_use"], strict=True
    ):
        assert (call.id, call.name) == (start["id"], start["name"])
        assert call.arguments.encode() in bytes(raw)
        assert any(call.arguments.encode() in bytes(native) for native in found.native)


def test_split_at_every_byte() -> None:
    events = [
        message_start(),
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "é😀"}),
        *block(1, TOOL, *inputs('{"q": "', 'ü"}')),
        *ended(),
    ]
    stream = b"".join(b"data: " + encoding.encode(event) + b"\r\n\r\n" for event in events)

    def parsed(*chunks: bytes) -> Answer:
        framing, parser = SseParser(), AnthropicParser()
        for chunk in chunks:
            for event in framing.feed(chunk):
                parser.feed(event)
        return parser.finish()

    whole = parsed(stream)
    assert all(parsed(stream[:cut], stream[cut:]) == whole for cut in range(len(stream)))
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == whole


def test_a_large_answer() -> None:
    text = "x" * 20_000_000
    found = answer(block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": text}))
    assert found.text == text
    assert len(bytes(found.native[0])) == len(text) + len('{"type":"text","text":""}')
