from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.wire.chat_events import DONE, Json, answer, calls, chunk, native, piece, read

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
from addendum.wire.openai_chat.parse import ChatParser, parse_body
from addendum.wire.sse import SseEvent


def test_it_is_a_parser() -> None:
    parser: Parser = ChatParser()
    assert parser.partial() == Answer(complete=False)


def test_a_whole_answer() -> None:
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0},
    }
    parser, deltas = read(
        [
            chunk({"role": "assistant", "content": "", "reasoning_content": None}),
            chunk({"reasoning_content": "hm "}),
            chunk({"reasoning_content": "é"}),
            chunk({"content": "I "}),
            chunk({"content": "look"}),
            calls(piece(0, "c1", "look", "")),
            calls(piece(0, arguments='{"q" : ')),
            calls(piece(0, "", "", '"\\u00e9"}'), piece(1, "c2", "see", None)),
            calls(piece(1, None, None, "{}")),
            chunk(finish="tool_calls"),
            {**chunk(), "choices": [], "usage": usage},
            DONE,
        ]
    )
    found = parser.finish()
    assert (found.text, found.reasoning, found.stop) == ("I look", "hm é", "tool_calls")
    assert found.calls == (Call("c1", "look", '{"q" : "\\u00e9"}'), Call("c2", "see", "{}"))
    assert (found.message_id, found.model, found.complete) == ("chatcmpl-1", "m-1", True)
    assert (
        native(found)
        == (
            '{"role":"assistant","content":"I look","reasoning_content":"hm é","tool_calls":['
            '{"id":"c1","type":"function","function":'
            '{"name":"look","arguments":"{\\"q\\" : \\"\\\\u00e9\\"}"}},'
            '{"id":"c2","type":"function","function":{"name":"see","arguments":"{}"}}]}'
        ).encode()
    )
    assert found.usage == Usage(
        prompt=120, cache_read=100, cache_write=0, output=9, raw=Raw(json.dumps(usage).encode())
    )
    assert deltas == [
        ReasoningDelta("hm "),
        ReasoningDelta("é"),
        TextDelta("I "),
        TextDelta("look"),
        CallStarted(0, "c1", "look"),
        CallArguments(0, '{"q" : '),
        CallArguments(0, '"\\u00e9"}'),
        CallStarted(1, "c2", "see"),
        CallArguments(1, "{}"),
    ]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # the usual, and names that are empty, null or repeated later
        (
            [piece(0, "a", "f", ""), piece(0, "", "", "{"), piece(0, None, None, "}")],
            [("a", "f", "{}")],
        ),
        ([piece(0, "a", "f", "{"), piece(0, "a", "f", "}")], [("a", "f", "{}")]),
        (
            [{"index": 0, "id": "a", "function": {"name": "f", "arguments": None}}],
            [("a", "f", "{}")],
        ),
        ([piece(0, "a", "f", "{"), {"index": 0, "id": None, "function": None}], [("a", "f", "{")]),
        # id and name in different pieces, either one first, and after arguments
        ([piece(0, "a"), piece(0, None, "f", "{}")], [("a", "f", "{}")]),
        ([piece(0, None, "f", "{}"), piece(0, "a")], [("a", "f", "{}")]),
        # another id in every piece, but the name only once
        ([piece(0, "a", "f", "{"), piece(0, "b", None, "}")], [("a", "f", "{}")]),
        # a name in pieces
        (
            [piece(0, "a", "get_"), piece(0, None, "it"), piece(0, arguments="{}")],
            [("a", "get_it", "{}")],
        ),
        # every call numbered 0
        (
            [
                piece(0, "a", "f", '{"x":1}'),
                piece(0, "b", "f", '{"x":2}'),
                piece(0, "c", "g", "{}"),
            ],
            [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}'), ("c", "g", "{}")],
        ),
        # no numbers: by id, then the last one
        (
            [piece(None, "a", "f", "{"), piece(None, "b", "g", ""), piece(None, "a", None, "}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
        ),
        ([piece(None, "a", "f", "{"), piece(None, None, None, "}")], [("a", "f", "{}")]),
        # pieces of two calls in turn, and numbers with gaps
        (
            [
                piece(3, "a", "f", "{"),
                piece(1, "b", "g", "["),
                piece(3, arguments="}"),
                piece(1, arguments="]"),
            ],
            [("a", "f", "{}"), ("b", "g", "[]")],
        ),
        # arguments that are no JSON stay as they are
        ([piece(0, "a", "f", '{"x": ')], [("a", "f", '{"x": ')]),
    ],
)
def test_calls_in_the_ways_servers_send_them(
    pieces: list[Json], expected: list[tuple[str, str, str]]
) -> None:
    events: list[Json | bytes] = [*(calls(p) for p in pieces), chunk(finish="tool_calls"), DONE]
    parser, deltas = read(events)
    found = parser.finish()
    assert [(call.id, call.name, call.arguments) for call in found.calls] == expected
    assert [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in msgspec.json.decode(found.native[0])["tool_calls"]
    ] == expected
    told = {d.index: [d.id, d.name, ""] for d in deltas if isinstance(d, CallStarted)}
    for delta in deltas:
        if isinstance(delta, CallArguments):
            told[delta.index][2] += delta.text
    assert [tuple(told[place]) for place in sorted(told)] == expected
    assert answer(calls(*pieces)).calls == found.calls


def test_content_is_null_only_beside_calls() -> None:
    call = calls(piece(0, "a", "f", "{}"))
    assert native(answer(call)).startswith(b'{"role":"assistant","content":null,"tool_calls":')
    assert native(answer(chunk({"content": ""}), call)).startswith(
        b'{"role":"assistant","content":null,'
    )
    assert native(answer(chunk({"content": None}))) == b'{"role":"assistant","content":""}'


def test_a_refusal_is_text_and_goes_back_as_a_refusal() -> None:
    found = answer(chunk({"refusal": "I will "}), chunk({"refusal": "not"}))
    assert found.text == "I will not"
    assert native(found) == b'{"role":"assistant","content":"","refusal":"I will not"}'


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_under_its_own_name(field: str) -> None:
    found = answer(chunk({field: "a"}), chunk({field: "b", "content": "c"}))
    assert found.reasoning == "ab"
    assert native(found) == b'{"role":"assistant","content":"c","%s":"ab"}' % field.encode()


def test_reasoning_told_twice_counts_once() -> None:
    parser, deltas = read(
        [chunk({"reasoning": p, "reasoning_content": p}) for p in "ab"] + [chunk(finish="stop")]
    )
    assert parser.finish().reasoning == "ab"
    assert deltas == [ReasoningDelta("a"), ReasoningDelta("b")]
    assert native(parser.finish()) == (
        b'{"role":"assistant","content":"","reasoning_content":"ab"}'
    )


def test_pieces_of_reasoning_details_become_whole_entries() -> None:
    def detail(**fields: Any) -> Json:
        return {"type": "reasoning.text", "format": "anthropic-claude-v1", **fields}

    encrypted = {"type": "reasoning.encrypted", "data": "x/y", "index": 0, "id": "e1"}
    pieces = [
        detail(text="let ", index=0, signature=None),
        detail(text="me", index=0),
        detail(signature="sig", index=0, text=None),
        detail(signature=None, index=0, text=None),
        encrypted,
        {**encrypted, "id": "e2"},
        detail(text="again", index=1, id="r1"),
        detail(text="!", index=1, id="r1"),
        detail(text="other", index=1, id="r2"),
        detail(text="no index"),
        detail(text="no index"),
    ]
    found = answer(
        *(chunk({"reasoning": p.get("text") or "", "reasoning_details": [p]}) for p in pieces)
    )
    message = msgspec.json.decode(found.native[0])
    assert list(message) == ["role", "content", "reasoning_details"]
    assert message["reasoning_details"] == [
        detail(text="let me", index=0, signature="sig"),
        encrypted,
        {**encrypted, "id": "e2"},
        detail(text="again!", index=1, id="r1"),
        detail(text="other", index=1, id="r2"),
        detail(text="no index"),
        detail(text="no index"),
    ]
    assert json.dumps(encrypted).encode() in native(found)
    assert found.reasoning == "let meagain!otherno indexno index"


def test_the_signature_beside_a_call_goes_back() -> None:
    extra = {"google": {"thought_signature": "s+/="}}
    found = answer(calls({**piece(0, "a", "f", "{}"), "extra_content": extra, "unknown": 1}))
    assert native(found).endswith(
        b'"function":{"name":"f","arguments":"{}"},"extra_content":'
        + json.dumps(extra).encode()
        + b"}]}"
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, (9, None, None, 2)),
        (
            {
                "prompt_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            },
            (9, 4, 3, None),
        ),
        ({"prompt_tokens": 9, "prompt_token_details": {"cached_tokens": 4}}, (9, 4, None, None)),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
            (9, 4, None, None),
        ),
        ({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}, (9, 4, None, None)),
        ({"prompt_tokens": 9, "prompt_cache_miss_tokens": 5}, (9, 4, None, None)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, (9, 4, None, None)),
        ({"prompt_tokens": 9, "cached_tokens": 4}, (9, 4, None, None)),
        ({"prompt_tokens": 9, "num_cached_tokens": 4}, (9, 4, None, None)),
        ({"prompt_tokens": 9, "cache_write_tokens": 3}, (9, None, 3, None)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cache_creation_input_tokens": 3}},
            (9, None, 3, None),
        ),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}, (9, 0, None, None)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}},
            (9, None, None, None),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": None, "cached_tokens": "4"},
            (9, None, None, None),
        ),
        ({}, (None, None, None, None)),
    ],
)
def test_usage_in_its_spellings(usage: Json, expected: tuple[int | None, ...]) -> None:
    last = {**chunk(), "choices": [], "usage": usage}
    found = [
        read([chunk(finish="stop"), last, DONE])[0].finish().usage,
        read([chunk(finish="stop", usage=usage)])[0].finish().usage,
        parse_body(
            json.dumps({"choices": [{"message": {"content": "a"}}], "usage": usage}).encode()
        ).usage,
    ]
    in_choice = chunk(finish="stop")
    in_choice["choices"][0]["usage"] = usage
    found.append(read([in_choice])[0].finish().usage)
    for counted in found:
        assert (counted.prompt, counted.cache_read, counted.cache_write, counted.output) == expected
        assert counted.raw == Raw(json.dumps(usage).encode())


def test_no_usage_is_unknown_and_the_latest_counts() -> None:
    assert answer(chunk({"content": "a"})).usage == Usage()
    found = answer(chunk(usage={"prompt_tokens": 1}), chunk(usage={"prompt_tokens": 2}), chunk())
    assert found.usage.prompt == 2


def test_a_cut_stream_gives_what_arrived() -> None:
    events: list[Json | bytes] = [
        chunk({"content": "a"}),
        calls(piece(0, "c", "f", '{"q":')),
        calls(piece(1, "d")),
    ]
    for count in range(len(events) + 1):
        parser, _ = read(events[:count])
        with pytest.raises(StreamBroken, match="cut before its finish_reason"):
            parser.finish()
        partial = parser.partial()
        assert (partial.complete, partial.native) == (False, ())
    assert (partial.text, partial.calls) == ("a", (Call("c", "f", '{"q":'),))
    with pytest.raises(StreamBroken, match="cut before its finish_reason"):
        read([DONE])[0].finish()


def test_the_end_may_come_without_done() -> None:
    assert read([chunk({"content": "a"}), chunk(finish="length")])[0].finish().stop == "length"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"code": 429, "message": "m"}}, ProviderBusy),
        ({"error": {"code": "400", "message": "m"}}, ProviderRefused),
        ({"error": {"type": "server_error", "message": "m"}}, ProviderBusy),
        ({"error": {"type": "invalid_request_error", "message": "m"}}, ProviderRefused),
        ({"error": "m"}, ProviderBusy),
        ({"object": "error", "message": "m", "code": 400}, ProviderRefused),
    ],
)
def test_an_error_in_the_stream(error: Json, kind: type[Exception]) -> None:
    parser, _ = read([chunk({"content": "a"})])
    event = {**chunk(finish="error"), **error}
    with pytest.raises(kind, match=": m; "):
        parser.feed(SseEvent(None, json.dumps(event).encode()))
    assert parser.partial().text == "a"
    with pytest.raises(kind, match=": m; "):
        parse_body(json.dumps(error).encode())


def test_an_end_in_error_without_an_error() -> None:
    with pytest.raises(StreamBroken, match="ended its answer with an error"):
        answer(finish="error")


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"x":NaN}',
        b'{"x":1e999}',
        b'{"x":"\xff"}',
        b'{"x":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_unreadable_events_break_the_stream(data: bytes) -> None:
    with pytest.raises(StreamBroken):
        ChatParser().feed(SseEvent(None, data))


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    found = answer(
        chunk({"content": "a\ud800", "reasoning_details": [{"type": "new", "x": "\udfff"}]}),
        calls(piece(0, "c", "f", '{"q":"\udc00\\ud800"}')),
    )
    assert found.text == "a\ufffd"
    assert found.calls[0].arguments == '{"q":"\ufffd\\ud800"}'
    message = msgspec.json.decode(found.native[0])
    assert message["reasoning_details"] == [{"type": "new", "x": "\ufffd"}]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"q":"\ufffd\\ud800"}'


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b'{"choices":[{"message":null}]}', b"<p>"],
)
def test_a_body_that_is_no_completion(body: bytes) -> None:
    with pytest.raises(StreamBroken):
        parse_body(body)
