from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.wire.chat_events import Json, calls, chunk, piece

from addendum import encoding
from addendum.log.values import Call
from addendum.tools.envelope import meant
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.openai_chat.parse import ChatParser, parse_body
from addendum.wire.sse import SseParser

# Random content: streamed anyhow, it is the same answer as the body that was not streamed.


@st.composite
def pieces(draw: st.DrawFn, whole: str) -> list[str]:
    cuts = draw(st.lists(st.integers(0, len(whole)), max_size=4))
    return [whole[a:b] for a, b in pairwise([0, *sorted(cuts), len(whole)])]


@given(st.data())
def test_a_stream_split_anyhow_is_the_body(data: st.DataObject) -> None:
    draw = data.draw
    message: Json = {"role": "assistant", "content": draw(st.none() | st.text())}
    deltas: list[Json] = [{"role": "assistant"}]
    for field in draw(st.sampled_from([(), ("reasoning_content",), ("reasoning",), ("refusal",)])):
        message[field] = draw(st.text())
        deltas += [{field: part} for part in draw(pieces(message[field]))]
    if message["content"] is not None:
        deltas += [{"content": part} for part in draw(pieces(message["content"]))]
    named = st.tuples(
        st.text(min_size=1), st.text(min_size=1), st.text() | st.just('{"q" :\n"\\u00e9"}')
    )
    made = draw(st.lists(named, max_size=3, unique_by=lambda call: call[0]))
    if made:
        message["tool_calls"] = [piece(None, *call) for call in made]
    for index, (ident, name, arguments) in enumerate(made):
        first, *rest = draw(pieces(arguments))
        blank = draw(st.sampled_from([None, ""]))
        deltas.append({"tool_calls": [piece(index, ident, name, first)]})
        deltas += [{"tool_calls": [piece(index, blank, blank, part)]} for part in rest]
    usage = {"prompt_tokens": 5, "num_cached_tokens": 2, "completion_tokens": 1}
    about = {"id": "chatcmpl-1", "model": "m-1"}
    choice = {"index": 0, "message": message, "finish_reason": "x"}
    body = encoding.encode({**about, "choices": [choice], "usage": usage})
    events = [
        *(chunk(delta) for delta in deltas),
        chunk(finish="x"),
        {**about, "choices": [], "usage": usage},
    ]
    lines = [
        b"data:" + (encoding.encode(e) if draw(st.booleans()) else json.dumps(e).encode())
        for e in events[:-1]
    ]
    lines += [b"data: " + encoding.encode(events[-1]), b"data: [DONE]"]
    end = draw(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
    stream = end.join(lines)
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=6))
    framing, parser = SseParser(), ChatParser()
    told: list[Delta] = []
    for a, b in pairwise([0, *sorted(cuts), len(stream)]):
        for event in framing.feed(stream[a:b]):
            told.extend(parser.feed(event))
    for event in framing.close():
        told.extend(parser.feed(event))
    found = parser.finish()
    assert found == parse_body(body)
    assert found.calls == tuple(Call(i, n, meant(text)) for i, n, text in made)
    # A call without arguments is told when the answer ends.
    started = {d.index: d.id for d in told if isinstance(d, CallStarted)}
    assert [started[place] for place in range(len(made))] == [call[0] for call in made]
    assert found.reasoning == "".join(d.text for d in told if isinstance(d, ReasoningDelta))
    assert sorted(found.text) == sorted("".join(d.text for d in told if isinstance(d, TextDelta)))
    for place, call in enumerate(found.calls):
        parts = [d.text for d in told if isinstance(d, CallArguments) and d.index == place]
        assert meant("".join(parts)) == call.arguments


def test_split_at_every_byte() -> None:
    events = [
        chunk({"content": "é😀", "reasoning_content": "ü"}),
        calls(piece(0, "a", "f", '{"q": ')),
        calls(piece(0, arguments='"é"}')),
        chunk(finish="stop"),
    ]
    stream = b"".join(b"data: " + encoding.encode(event) + b"\n\n" for event in events)
    stream += b"data: [DONE]\n\n"

    def parsed(*chunks: bytes) -> Answer:
        framing, parser = SseParser(), ChatParser()
        for part in chunks:
            for event in framing.feed(part):
                parser.feed(event)
        return parser.finish()

    whole = parsed(stream)
    assert all(parsed(stream[:cut], stream[cut:]) == whole for cut in range(len(stream)))
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == whole
