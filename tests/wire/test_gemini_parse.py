from __future__ import annotations

import json
from typing import Any

import pytest

from addendum.errors import ProviderBusy, ProviderRefused, StreamBroken
from addendum.log.values import Call
from addendum.wire.answer import Answer, CallArguments, CallStarted, ReasoningDelta, TextDelta
from addendum.wire.gemini.parse import GeminiParser, parse_body
from addendum.wire.sse import SseEvent

Json = dict[str, Any]
SIGNED = (
    '{"functionCall": {"name": "look","args": {"q":  1}, "id":"f1"}, "thoughtSignature":"+/A="}'
)


def chunk(*parts: str | Json, stop: str | None = None, **more: Any) -> bytes:
    listed = ",".join(p if isinstance(p, str) else json.dumps(p) for p in parts)
    content = f'"content":{{"parts":[{listed}],"role":"model"}}' if parts else '"content":{}'
    finish = f',"finishReason":"{stop}"' if stop else ""
    rest = "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in more.items())
    return f'{{"candidates":[{{{content}{finish},"index":0}}],"responseId":"r1"{rest}}}'.encode()


def read(*chunks: bytes) -> tuple[GeminiParser, list[Any]]:
    parser, deltas = GeminiParser(), []
    for data in chunks:
        deltas.extend(parser.feed(SseEvent(None, data)))
    return parser, deltas


def answer(*chunks: bytes) -> Answer:
    return read(*chunks)[0].finish()


def natives(found: Answer) -> list[str]:
    return [bytes(raw).decode() for raw in found.native]


def test_text_is_joined_and_signed_parts_stay_apart() -> None:
    found, deltas = read(
        chunk({"text": "think", "thought": True}),
        chunk({"text": "ing", "thought": True}),
        chunk({"text": "Hel"}, {"text": "lo"}),
        chunk('{"text": "!", "thoughtSignature": "YQ=="}'),
        chunk({"text": " on"}),
        chunk('{"text": "", "thoughtSignature": "Yg=="}', stop="STOP"),
    )
    whole = found.finish()
    assert (whole.text, whole.reasoning, whole.stop) == ("Hello! on", "thinking", "STOP")
    assert natives(whole) == [
        '{"text":"thinking","thought":true}',
        '{"text":"Hello"}',
        '{"text": "!", "thoughtSignature": "YQ=="}',
        '{"text": " on"}',
        '{"text": "", "thoughtSignature": "Yg=="}',
    ]
    assert deltas == [
        ReasoningDelta("think"),
        ReasoningDelta("ing"),
        TextDelta("Hel"),
        TextDelta("lo"),
        TextDelta("!"),
        TextDelta(" on"),
    ]


def test_a_call_is_its_own_text_byte_for_byte() -> None:
    found, deltas = read(chunk(SIGNED, '{"functionCall":{"id":"f2","name":"b"}}', stop="STOP"))
    whole = found.finish()
    assert natives(whole) == [SIGNED, '{"functionCall":{"id":"f2","name":"b"}}']
    assert whole.calls == (Call("f1", "look", '{"q":  1}'), Call("f2", "b", "{}"))
    assert deltas[:2] == [CallStarted(0, "f1", "look"), CallArguments(0, '{"q":  1}')]


def test_calls_without_ids_get_different_ones_that_stay() -> None:
    part = '{"functionCall":{"name":"look","args":{}}}'
    found = answer(chunk(part, part, stop="STOP"))
    ids = [call.id for call in found.calls]
    assert len(set(ids)) == 2
    assert [json.loads(raw)["functionCall"]["id"] for raw in natives(found)] == ids
    again = answer(chunk(part, part, stop="STOP"))
    assert [call.id for call in again.calls] == ids


def test_an_empty_text_that_carries_nothing_is_left_out() -> None:
    assert natives(answer(chunk({"text": ""}), chunk(SIGNED, stop="STOP"))) == [SIGNED]
    assert answer(chunk(stop="MAX_TOKENS")).native == ()


def test_unknown_parts_are_kept() -> None:
    assert natives(answer(chunk('{"inlineData": {"x":1}}', stop="STOP"))) == [
        '{"inlineData": {"x":1}}'
    ]


def test_usage_and_what_is_left_out_of_it() -> None:
    said = {
        "promptTokenCount": 100,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 64,
    }
    found = answer(chunk({"text": "x"}, stop="STOP", usageMetadata=said))
    assert (found.usage.prompt, found.usage.cache_read, found.usage.output) == (100, 64, 12)
    assert found.usage.cache_write is None
    assert found.message_id == "r1"
    # Zero counts are left out on this wire.
    bare = answer(chunk({"text": "x"}, stop="STOP", usageMetadata={"promptTokenCount": 9}))
    assert (bare.usage.prompt, bare.usage.cache_read, bare.usage.output) == (9, 0, 0)
    none = answer(chunk({"text": "x"}, stop="STOP"))
    assert (none.usage.prompt, none.usage.cache_read) == (None, None)


@pytest.mark.parametrize(
    ("chunks", "match"),
    [
        ([chunk({"text": "x"})], "cut before its finishReason"),
        ([chunk(stop="MALFORMED_FUNCTION_CALL")], "MALFORMED_FUNCTION_CALL"),
        ([b'{"candidates":[{},{}]}'], "cut before its finishReason"),
        ([b"[]"], "cut before its finishReason"),
        ([b'{"candidates":'], "unreadable JSON"),
    ],
)
def test_what_is_no_answer_breaks_the_stream(chunks: list[bytes], match: str) -> None:
    with pytest.raises(StreamBroken, match=match):
        answer(*chunks)


def test_a_blocked_prompt_is_refused() -> None:
    with pytest.raises(ProviderRefused, match="blocked the prompt"):
        answer(b'{"promptFeedback":{"blockReason":"SAFETY"}}')


def test_errors_in_the_stream() -> None:
    for code, kind in ((429, ProviderBusy), (400, ProviderRefused)):
        error = {"error": {"code": code, "message": "no", "status": "X"}}
        with pytest.raises(kind, match="no"):
            answer(json.dumps(error).encode())


def test_a_body_is_one_whole_chunk_and_blank_events_are_none() -> None:
    whole = chunk({"text": "x"}, stop="STOP")
    assert parse_body(whole) == answer(b" ", whole)
    partial = read(chunk({"text": "half"}))[0].partial()
    assert (partial.text, partial.native, partial.complete) == ("half", (), False)
