from __future__ import annotations

import json

import msgspec
import pytest
from msgspec import Raw
from tests.wire.messages_events import (
    SIGNATURE,
    TOOL,
    Json,
    answer,
    block,
    ended,
    inputs,
    message_start,
    natives,
    read,
)

from addendum import encoding
from addendum.errors import ProviderBusy, ProviderRefused, StreamBroken
from addendum.log.values import Call, Usage
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Parser,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.anthropic_messages.parse import AnthropicParser, parse_body
from addendum.wire.sse import SseEvent


def test_it_is_a_parser() -> None:
    parser: Parser = AnthropicParser()
    assert parser.partial() == Answer(complete=False)


def test_a_whole_answer() -> None:
    parser, deltas = read(
        [
            message_start({"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1}),
            {"type": "ping"},
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "let me "},
                {"type": "thinking_delta", "thinking": "see\u2028"},
                {"type": "signature_delta", "signature": SIGNATURE},
            ),
            *block(
                1,
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": "I "},
                {"type": "text_delta", "text": "look"},
            ),
            *block(2, TOOL, *inputs("", '{"q" : ', '"\\u00e9\\/ ', '\n", "n":1.0}')),
            {"type": "something_new", "x": 1},
            *ended("tool_use", {"output_tokens": 42, "cache_creation_input_tokens": 7}),
        ]
    )
    text = '{"q" : "\\u00e9\\/ \n", "n":1.0}'
    found = parser.finish()
    assert found.text == "I look"
    assert found.reasoning == "let me see\u2028"
    assert found.calls == (Call("toolu_1", "look", text),)
    assert (found.stop, found.message_id, found.model) == ("tool_use", "msg_1", "claude-x")
    assert found.complete
    assert natives(found)[:2] == [
        encoding.encode(
            {"type": "thinking", "thinking": "let me see\u2028", "signature": SIGNATURE}
        ),
        b'{"type":"text","text":"I look"}',
    ]
    assert found.usage == Usage(
        prompt=112,
        cache_read=100,
        cache_write=7,
        output=42,
        raw=Raw(
            b'{"input_tokens":5,"cache_read_input_tokens":100,"output_tokens":42,'
            b'"cache_creation_input_tokens":7}'
        ),
    )
    assert [d for d in deltas if not isinstance(d, CallArguments)] == [
        ReasoningDelta("let me "),
        ReasoningDelta("see\u2028"),
        TextDelta("I "),
        TextDelta("look"),
        CallStarted(0, "toolu_1", "look"),
    ]
    assert "".join(d.text for d in deltas if isinstance(d, CallArguments)) == text


def test_input_with_a_raw_line_break_in_a_string_is_no_json() -> None:
    text = '{"q": "a\nb"}'
    found = answer(block(0, TOOL, *inputs(text)))
    assert found.calls[0].arguments == text
    assert natives(found) == [b'{"type":"tool_use","id":"toolu_1","name":"look","input":{}}']


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ',
        "[1]",
        '"x"',
        '{"a": NaN}',
        '{"a": 1e999}',
        "{'a': 1}",
        '{"a":' + "[" * 300 + "]" * 300 + "}",
        '{"a":1}{"b":2}',
    ],
)
def test_input_that_cannot_be_sent_back(text: str) -> None:
    found = answer(block(0, TOOL, *inputs(text)))
    assert found.calls == (Call("toolu_1", "look", text),)
    assert natives(found) == [b'{"type":"tool_use","id":"toolu_1","name":"look","input":{}}']


@pytest.mark.parametrize("pieces", [(), ("",), ("", "")])
def test_no_input_is_an_empty_object(pieces: tuple[str, ...]) -> None:
    found = answer(block(0, TOOL, *inputs(*pieces)))
    assert found.calls[0].arguments == "{}"
    assert msgspec.json.decode(found.native[0])["input"] == {}


def test_an_input_that_is_missing_is_put_in() -> None:
    body = b'{"content":[{"type":"tool_use","id":"t","name":"look"}]}'
    assert natives(parse_body(body)) == [b'{"type":"tool_use","id":"t","name":"look","input":{}}']


def test_input_that_came_with_the_start() -> None:
    parser, deltas = read(
        [
            message_start(),
            *block(0, {**TOOL, "input": {"q": 1}, "caller": {"type": "direct"}}),
            *ended(),
        ]
    )
    found = parser.finish()
    assert found.calls[0].arguments == '{"q": 1}'
    assert deltas == [CallStarted(0, "toolu_1", "look"), CallArguments(0, '{"q": 1}')]
    assert natives(found) == [
        json.dumps({**TOOL, "input": {"q": 1}, "caller": {"type": "direct"}}).encode()
    ]


def test_other_fields_of_a_start_block_stay_behind_the_known_ones() -> None:
    start = (
        b'{"caller":{"type": "direct"},"name":"look","x":[1, 2],"id":"t","type":"tool_use",'
        b'"input":{}}'
    )
    events = [
        message_start(),
        b'{"type":"content_block_start","index":0,"content_block":' + start + b"}",
        *block(0, TOOL, *inputs('{"a":  1}'))[1:],
        *ended(),
    ]
    assert natives(read(events)[0].finish()) == [
        b'{"type":"tool_use","id":"t","name":"look","input":{"a":  1},'
        b'"caller":{"type": "direct"},"x":[1, 2]}'
    ]


def test_an_omitted_thinking_text_with_a_signature_is_complete() -> None:
    found = answer(
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "signature_delta", "signature": "sig"},
        )
    )
    assert natives(found) == [b'{"type":"thinking","thinking":"","signature":"sig"}']
    assert found.reasoning == ""


def test_a_signature_told_again_replaces_the_first() -> None:
    found = answer(
        block(
            0,
            {"type": "thinking", "thinking": "x", "signature": "old"},
            {"type": "signature_delta", "signature": "one"},
            {"type": "signature_delta", "signature": "two"},
        )
    )
    assert natives(found) == [b'{"type":"thinking","thinking":"x","signature":"two"}']


def test_thinking_without_a_signature_gets_none() -> None:
    start = {"type": "thinking", "thinking": ""}
    found = answer(block(0, start, {"type": "thinking_delta", "thinking": "hm"}))
    assert natives(found) == [b'{"type":"thinking","thinking":"hm"}']


@pytest.mark.parametrize("escaped", [True, False])
def test_escapes_of_the_event_do_not_reach_the_block(escaped: bool) -> None:
    thought = '\u0000\u001f"\\/\u007f\u0085\u2028😀\ufeff\r\n'
    parser = AnthropicParser()
    events = [
        message_start(),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": thought},
            {"type": "signature_delta", "signature": SIGNATURE},
        ),
        *ended(),
    ]
    for event in events:
        parser.feed(SseEvent(None, json.dumps(event, ensure_ascii=escaped).encode()))
    found = parser.finish()
    assert msgspec.json.decode(found.native[0]) == {
        "type": "thinking",
        "thinking": thought,
        "signature": SIGNATURE,
    }
    assert found.reasoning == thought


def test_blocks_we_do_not_know_are_kept_as_they_came() -> None:
    raws = [
        b'{"type": "redacted_thinking", "data": "x\\/y"}',
        b'{"type":"mcp_tool_listing","tools":[],"n":1.50}',
        b'{"type":"tool_search_tool_result","tool_use_id":"srv_1","content":{"type":"e","x":[ ]}}',
    ]
    events: list[Json | bytes] = [message_start()]
    for index, raw in enumerate(raws):
        events += [
            b'{"type":"content_block_start","index":%d,"content_block":%s}' % (index, raw),
            {"type": "content_block_stop", "index": index},
        ]
    found = read([*events, *ended()])[0].finish()
    assert natives(found) == raws
    assert found.calls == ()


def test_a_server_tool_keeps_its_input_text_and_is_no_call() -> None:
    start = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "search", "input": {}}
    parser, deltas = read([message_start(), *block(0, start, *inputs('{"q": ', '"a" }')), *ended()])
    assert natives(parser.finish()) == [
        b'{"type":"server_tool_use","id":"srvtoolu_1","name":"search","input":{"q": "a" }}'
    ]
    assert parser.finish().calls == ()
    assert deltas == []


def test_citations_are_kept_in_order() -> None:
    found = answer(
        block(
            0,
            {"type": "text", "text": "", "citations": [{"n": 0}]},
            {"type": "citations_delta", "citation": {"n": 1}},
            {"type": "text_delta", "text": "a"},
            {"type": "citations_delta", "citation": {"n": 2}},
        ),
        block(
            1, {"type": "text", "text": "", "citations": None}, {"type": "text_delta", "text": "b"}
        ),
    )
    assert natives(found) == [
        b'{"type":"text","text":"a","citations":[{"n": 0},{"n": 1},{"n": 2}]}',
        b'{"type":"text","text":"b","citations":null}',
    ]
    assert found.text == "ab"


def test_a_delta_of_an_unknown_kind_is_merged_in_order() -> None:
    start = {"type": "new", "a": "x", "b": None, "list": [1], "o": {"k": 1}, "same": 1}
    found = answer(
        block(
            0,
            start,
            {"type": "new_delta", "a": "y", "b": "p", "list": [2, 3], "same": None},
            {"type": "new_delta", "a": "z", "b": "q", "o": {"k": 2}, "c": [4], "d": "t"},
            {"type": "odd_delta", "c": "now text", "d": "u"},
        )
    )
    assert msgspec.json.decode(found.native[0]) == {
        "type": "new",
        "a": "xyz",
        "b": "pq",
        "list": [1, 2, 3],
        "o": {"k": 2},
        "same": 1,
        "c": "now text",
        "d": "tu",
    }


def test_a_compaction_block() -> None:
    found = answer(
        block(
            0,
            {"type": "compaction", "content": None, "encrypted_content": None},
            {"type": "compaction_delta", "content": "sum", "encrypted_content": "opaque"},
        )
    )
    assert natives(found) == [b'{"type":"compaction","content":"sum","encrypted_content":"opaque"}']


def test_a_blank_text_block_is_not_sent_back() -> None:
    found = answer(
        block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "\n\n"}),
        block(1, TOOL),
        block(2, {"type": "text", "text": ""}),
    )
    assert found.text == "\n\n"
    assert [msgspec.json.decode(raw)["type"] for raw in found.native] == ["tool_use"]
    body = b'{"type":"message","content":[{"type":"text","text":""}]}'
    assert parse_body(body).native == ()


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    found = answer(
        block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a\ud800b"}),
        block(1, TOOL, *inputs('{"q":"\\ud800 \\ud83d\\ude00"}')),
        block(2, {"type": "new", "x": "\udfff"}),
    )
    assert found.text == "a\ufffdb"
    assert found.calls[0].arguments == '{"q":"\\ud800 \\ud83d\\ude00"}'
    assert [msgspec.json.decode(raw) for raw in found.native][1:] == [
        {**TOOL, "input": {"q": "\ufffd 😀"}},
        {"type": "new", "x": "\ufffd"},
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"type":"ping","x":NaN}',
        b'{"type":"ping","x":1e999}',
        b'{"type":"ping","x":"\xff"}',
        b'{"type":"ping","x":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_unreadable_events_break_the_stream(data: bytes) -> None:
    parser, _ = read([message_start()])
    with pytest.raises(StreamBroken):
        parser.feed(SseEvent(None, data))
    with pytest.raises(StreamBroken):
        parser.finish()


def test_a_cut_stream_gives_what_arrived() -> None:
    events: list[Json | bytes] = [
        message_start(),
        *block(0, {"type": "text", "text": "a"}, {"type": "text_delta", "text": "b"}),
        *block(1, TOOL, *inputs('{"q":'))[:-1],
    ]
    for count in range(len(events) + 1):
        parser, _ = read(events[:count])
        with pytest.raises(StreamBroken, match="cut before message_stop"):
            parser.finish()
        partial = parser.partial()
        assert (partial.complete, partial.native) == (False, ())
    assert partial.text == "ab"
    assert partial.calls == (Call("toolu_1", "look", '{"q":'),)
    assert partial.usage.prompt == 3


def test_what_comes_after_the_end_is_skipped() -> None:
    parser, deltas = read([message_start(), *ended(), b"[DONE]", b"{"])
    assert (parser.finish().stop, deltas) == ("end_turn", [])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", ProviderBusy),
        ("api_error", ProviderBusy),
        ("rate_limit_error", ProviderBusy),
        ("invalid_request_error", ProviderRefused),
    ],
)
def test_an_error_in_the_stream(kind: str, expected: type[Exception]) -> None:
    parser, _ = read([message_start()])
    error = {"type": "error", "error": {"type": kind, "message": "over"}}
    with pytest.raises(expected, match=rf"\({kind}\): over"):
        parser.feed(SseEvent("error", json.dumps(error).encode()))
    with pytest.raises(expected):
        parse_body(json.dumps(error).encode())


@pytest.mark.parametrize(
    ("start", "delta", "expected"),
    [
        ({"input_tokens": 5}, {"output_tokens": 2}, (5, None, None, 2)),
        ({"input_tokens": 5, "output_tokens": 1}, {"output_tokens": 2}, (5, None, None, 2)),
        (
            {"input_tokens": 0},
            {"input_tokens": 9, "cache_read_input_tokens": 4},
            (13, 4, None, None),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0},
            {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 2},
            (12, 7, 0, 2),
        ),
        ({"cache_read_input_tokens": 7}, {"output_tokens": 2}, (None, 7, None, 2)),
        ({"input_tokens": "5"}, {"output_tokens": -1}, (None, None, None, None)),
        ({"input_tokens": True}, {"output_tokens": 1.5}, (None, None, None, None)),
    ],
)
def test_usage(start: Json, delta: Json, expected: tuple[int | None, ...]) -> None:
    usage = read([message_start(start), *ended(usage=delta)])[0].finish().usage
    assert (usage.prompt, usage.cache_read, usage.cache_write, usage.output) == expected


def test_no_usage_is_unknown() -> None:
    events = [{"type": "message_start", "message": {}}, {"type": "message_stop"}]
    assert read([*events])[0].finish().usage == Usage()


def test_a_body_is_cut_not_written_again() -> None:
    content = (
        b'[ {"text":"h\\u00e9 ","type":"text"},\n '
        b'{"type":"thinking","signature":"s\\/","thinking":""},'
        b'{"type":"tool_use","name":"look","id":"t1","input": {"q" :1.0, "z":[ ]} , "x":null} ]'
    )
    usage = b'{"input_tokens": 4, "cache_read_input_tokens": 6}'
    body = b'{"id":"m","model":"c","stop_reason":"tool_use","content": %s,"usage":%s}' % (
        content,
        usage,
    )
    found = parse_body(body)
    assert natives(found) == [
        b'{"text":"h\\u00e9 ","type":"text"}',
        b'{"type":"thinking","signature":"s\\/","thinking":""}',
        b'{"type":"tool_use","name":"look","id":"t1","input": {"q" :1.0, "z":[ ]} , "x":null}',
    ]
    assert all(raw in body for raw in natives(found))
    assert found.calls == (Call("t1", "look", '{"q" :1.0, "z":[ ]}'),)
    assert (found.text, found.stop) == ("hé ", "tool_use")
    assert found.usage == Usage(prompt=10, cache_read=6, raw=Raw(usage))


@pytest.mark.parametrize("body", [b"{}", b'{"content":{}}', b'{"content":[1]}', b"<html>"])
def test_a_body_that_is_no_message(body: bytes) -> None:
    with pytest.raises(StreamBroken):
        parse_body(body)
