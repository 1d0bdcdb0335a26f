from __future__ import annotations

import json
from typing import Any

import pytest

from addendum.errors import ProviderBusy, ProviderRefused, StreamBroken
from addendum.lab.aws_frames import frame
from addendum.log.values import Call
from addendum.wire.answer import Answer, CallArguments, CallStarted, ReasoningDelta, TextDelta
from addendum.wire.aws_event_stream import AwsEventParser
from addendum.wire.bedrock_converse.parse import ConverseParser, parse_body

Json = dict[str, Any]
Event = tuple[str, Json]
START: Event = ("messageStart", {"role": "assistant"})
SIGNATURE = "EqQB+/=é\\"


def block(index: int, *deltas: Json, start: Json | None = None) -> list[Event]:
    opened: list[Event] = []
    if start is not None:
        opened = [("contentBlockStart", {"contentBlockIndex": index, "start": start})]
    grown = [("contentBlockDelta", {"contentBlockIndex": index, "delta": d}) for d in deltas]
    return [*opened, *grown, ("contentBlockStop", {"contentBlockIndex": index})]


def thinking(index: int, *deltas: Json) -> list[Event]:
    return block(index, *({"reasoningContent": delta} for delta in deltas))


def use(index: int, *pieces: str, call_id: str = "t1") -> list[Event]:
    start = {"toolUse": {"toolUseId": call_id, "name": "look"}}
    return block(index, *({"toolUse": {"input": piece}} for piece in pieces), start=start)


def ended(usage: Json | None = None) -> list[Event]:
    said: list[Event] = [("messageStop", {"stopReason": "tool_use"})]
    return said + ([("metadata", {"usage": usage, "metrics": {}})] if usage else [])


def read(*events: Event) -> tuple[ConverseParser, list[Any]]:
    parser, deltas = ConverseParser(), []
    for name, payload in events:
        # Padding, as the service sends it.
        for event in AwsEventParser().feed(frame(name, {**payload, "p": "abc"})):
            deltas.extend(parser.feed(event))
    return parser, deltas


def answer(*blocks: list[Event], usage: Json | None = None) -> Answer:
    return read(START, *(event for part in blocks for event in part), *ended(usage))[0].finish()


def natives(found: Answer) -> list[Json]:
    return [json.loads(bytes(raw)) for raw in found.native]


def test_text_reasoning_and_calls_are_joined_in_order() -> None:
    found, deltas = read(
        START,
        *thinking(0, {"text": "I "}, {"text": "think"}, {"signature": SIGNATURE}),
        *block(1, {"text": "Hello "}, {"text": "there"}),
        *use(2, "", '{"q": ', '"é\\u00e9"}'),
        *ended(),
    )
    whole = found.finish()
    assert (whole.text, whole.reasoning, whole.stop) == ("Hello there", "I think", "tool_use")
    assert whole.calls == (Call("t1", "look", '{"q": "é\\u00e9"}'),)
    reasoning = {"reasoningText": {"text": "I think", "signature": SIGNATURE}}
    assert natives(whole) == [
        {"reasoningContent": reasoning},
        {"text": "Hello there"},
        {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"q": "éé"}}},
    ]
    # The model's own JSON text, spaces and escapes included.
    assert b'"input":{"q": "\xc3\xa9\\u00e9"}' in bytes(whole.native[2])
    assert deltas == [
        ReasoningDelta("I "),
        ReasoningDelta("think"),
        TextDelta("Hello "),
        TextDelta("there"),
        CallStarted(0, "t1", "look"),
        CallArguments(0, '{"q": '),
        CallArguments(0, '"é\\u00e9"}'),
    ]


def test_an_empty_reasoning_with_a_signature_stays() -> None:
    found = answer(thinking(0, {"signature": SIGNATURE}), block(1, {"text": "x"}))
    said = {"text": "", "signature": SIGNATURE}
    assert natives(found)[0] == {"reasoningContent": {"reasoningText": said}}


def test_redacted_reasoning_stays_and_unsigned_goes() -> None:
    found = answer(thinking(0, {"redactedContent": "AAEC"}), thinking(1, {"text": "unsigned"}))
    assert natives(found) == [{"reasoningContent": {"redactedContent": "AAEC"}}]
    assert found.reasoning == "unsigned"


def test_a_blank_text_is_left_out() -> None:
    assert natives(answer(block(0, {"text": " \n"}), use(1))) == [
        {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}
    ]


def test_a_call_without_input_has_an_empty_object() -> None:
    found, deltas = read(START, *use(0), *ended())
    assert found.finish().calls == (Call("t1", "look", "{}"),)
    assert deltas == [CallStarted(0, "t1", "look"), CallArguments(0, "{}")]


@pytest.mark.parametrize("text", ['{"q": 1', "[1]", '{"q": NaN}'])
def test_input_that_is_no_object_is_kept_in_the_call_only(text: str) -> None:
    found = answer(use(0, text))
    assert found.calls[0].arguments == text
    assert natives(found)[0]["toolUse"]["input"] == {}


def test_usage_is_summed() -> None:
    usage = {
        "inputTokens": 5,
        "outputTokens": 7,
        "totalTokens": 12,
        "cacheReadInputTokens": 100,
        "cacheWriteInputTokens": 20,
    }
    found = answer(block(0, {"text": "x"}), usage=usage).usage
    assert (found.prompt, found.cache_read, found.cache_write, found.output) == (125, 100, 20, 7)


def test_usage_without_a_cache_is_the_whole_prompt_and_a_missing_one_is_unknown() -> None:
    found = answer(block(0, {"text": "x"}), usage={"inputTokens": 5, "outputTokens": 1}).usage
    assert (found.prompt, found.cache_read) == (5, None)
    assert answer(block(0, {"text": "x"})).usage.prompt is None


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([START, *block(0, {"text": "x"})], "before messageStop"),
        (block(0, {"text": "x"}), "before messageStop"),
        ([START, ("contentBlockStop", {})], "before messageStop"),
    ],
)
def test_what_is_no_answer_breaks_the_stream(events: list[Event], match: str) -> None:
    with pytest.raises(StreamBroken, match=match):
        read(*events)[0].finish()


def test_exceptions_in_the_stream() -> None:
    for name, kind in (
        ("throttlingException", ProviderBusy),
        ("validationException", ProviderRefused),
    ):
        parser = ConverseParser()
        (event,) = AwsEventParser().feed(frame(name, {"message": "too much"}, kind="exception"))
        with pytest.raises(kind, match="too much"):
            parser.feed(event)


def test_what_arrived_is_kept_of_a_failed_attempt() -> None:
    partial = read(START, *block(0, {"text": "half"})[:-1])[0].partial()
    assert (partial.text, partial.native, partial.complete) == ("half", (), False)


def test_a_body_is_cut_into_its_own_text() -> None:
    said = '{"reasoningContent":{"reasoningText":{"signature":"s","text":"t"}}}'
    unsigned = '{"reasoningContent":{"reasoningText":{"text":"u"}}}'
    call = '{"toolUse": {"name": "look", "input": {"q":  1}, "toolUseId": "t1"}}'
    content = f'[{said}, {unsigned}, {{"text": "hi"}}, {{"text":" "}}, {call}]'
    body = f'{{"output":{{"message":{{"content":{content}}}}},"stopReason":"tool_use"}}'
    found = parse_body(body.encode())
    assert [bytes(raw).decode() for raw in found.native] == [said, '{"text": "hi"}', call]
    assert found.calls == (Call("t1", "look", '{"q":  1}'),)
    assert (found.text.strip(), found.reasoning, found.stop) == ("hi", "tu", "tool_use")
    with pytest.raises(StreamBroken, match="before messageStop"):
        parse_body(b"{}")
