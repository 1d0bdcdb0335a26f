"""What stands between the events of an answer, how it is framed, and content in chunks.

Reports: mnfst/llm-gateway#2053, ztjhz/BetterChatGPT#538, waylaidwanderer/node-chatgpt-api#100
(keep-alives as data); n8n-io/n8n#37352, simonw/llm-mistral#39, BerriAI/litellm#16434,
BerriAI/litellm#16272, symfony/ai#2422 (content in chunks).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.wire.odd_streams import ONE, PARTS, WANTED, Json, by_wire, calls, changed, chat
from tests.wire.wires import (
    CHAT,
    RESPONSES,
    SPEAKERS,
    Event,
    Speaker,
    called,
    chat_chunk,
    encoded,
    read,
    said,
)

from addendum.errors import StreamBroken
from addendum.wire.gemini.parse import parse_body
from addendum.wire.openai_chat.reasoning import without_reasoning
from addendum.wire.sse import SseParser

# -- what stands between ------------------------------------------------------------------------

NOISE: list[tuple[str | None, Any]] = [
    (None, b"null"),
    (None, b"[PING]"),
    (None, b"[]"),
    (None, b'"ping"'),
    (None, b"true"),
    (None, b"7"),
    (None, b"2026-01-01 00:00:00"),
    (None, b": OPENROUTER PROCESSING"),
    (None, b"keep-alive"),
    (None, b""),
    (None, b" \n "),
    (None, b"\xff\xfe"),
    (None, b"[1, 2"),
    (None, b"<p>hello</p>"),
    (None, b"NaN"),
    (None, b"{}"),
    ("ping", b"2026-01-01"),
    ("ping", {"type": "ping"}),
    (None, {"type": "ping"}),
    (None, {"type": "keepalive", "sequence_number": 3}),
    (None, {"object": "keep.alive"}),
    (None, {"status": "queued", "position": 3}),
    (None, {"type": "status", "message": "queued"}),
    ("new.event", {"type": "new.event", "value": {"text": "no part of it"}}),
    (None, {"choices": []}),
    (None, {"choices": None}),
    (None, {"candidates": []}),
    (None, {"usage": None}),
    (None, {"error": None}),
    (None, {"error": {}}),
    (None, {"response": None}),
    (None, {"item": None, "output_index": 1}),
    (None, {"x_groq": {"id": "r"}}),
    (None, {"id": "other", "model": "other"}),
]


@by_wire
@pytest.mark.parametrize("noise", NOISE, ids=lambda each: repr(each)[:50])
def test_what_says_nothing_changes_nothing(speaker: Speaker, noise: Event) -> None:
    events = speaker.stream(PARTS, speaker.whole[0])
    good = read(speaker, events)[0]
    for place in (0, 1, len(events) // 2, len(events) - 1, len(events)):
        found = read(speaker, [*events[:place], noise, *events[place:]])[0]
        if place == 0 and isinstance(noise[1], dict) and "model" in noise[1]:
            assert found.text == good.text
        else:
            assert found == good, place


def test_an_object_that_cannot_be_read_may_have_held_something() -> None:
    for data in (b"{", b'{"a": NaN}', b'{"choices": [{"delta"', b'{"a":"\xff"}'):
        for speaker in SPEAKERS:
            with pytest.raises(StreamBroken, match="unreadable JSON"):
                read(speaker, [*speaker.stream(PARTS, None), (None, data)])


@by_wire
def test_what_comes_behind_the_end_cannot_spoil_it(speaker: Speaker) -> None:
    events = [*speaker.stream(PARTS, speaker.whole[0]), (None, b"[DONE]")]
    good = read(speaker, events)[0]
    for late in (
        (None, b"{"),
        speaker.error("server_error", "late"),
        (None, b"[DONE]"),
        (None, b"{}"),
    ):
        assert read(speaker, [*events, late, late])[0] == good


# -- framing ------------------------------------------------------------------------------------

FRAMINGS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "no blank behind the colon": lambda data: data.replace(b"data: ", b"data:"),
    "no blank line between": lambda data: data.replace(b"\n\ndata", b"\ndata"),
    "two blank lines between": lambda data: data.replace(b"\n\n", b"\n\n\n\n"),
    "no blank line at the end": lambda data: data.rstrip(b"\n"),
    "comments between": lambda data: data.replace(b"\n\n", b"\n\n: OPENROUTER PROCESSING\n\n"),
    "a comment in each event": lambda data: data.replace(b"data: ", b": hi\ndata: "),
    "fields nobody knows": lambda data: data.replace(b"data: ", b"foo: 1\nid: 7\nretry: 9\ndata: "),
    "empty events between": lambda data: data.replace(b"\n\n", b"\n\ndata: \n\n"),
    "lines of JSON": lambda data: data.replace(b"data: ", b""),
    "lines of JSON, close": lambda data: data.replace(b"data: ", b"").replace(b"\n\n", b"\n"),
    "blank lines in front": lambda data: b"\n\n\n" + data,
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_framings(framing: str) -> None:
    good = CHAT.answer(*PARTS)
    data = FRAMINGS[framing](encoded(CHAT.stream(PARTS, "tool_calls")))
    for size in (len(data), 1, 7):
        parser, framer = CHAT.parser(), SseParser()
        for start in range(0, len(data), size):
            for event in framer.feed(data[start : start + size]):
                parser.feed(event)
        for event in framer.close():
            parser.feed(event)
        assert parser.finish() == good


@pytest.mark.parametrize(
    "data",
    [
        b'{"error": {"message": "m"}}',
        b'{\n  "error": {\n    "message": "m"\n  }\n}\n',
        b': wait\n\n{"error": {"message": "m"}}\n\n',
        b'data: {"choices": []}\n\n{"error": {"message": "m"}}',
        b'data: {"choices": []}\n{"error": {"message": "m"}}\n',
        b'event: x\ndata: {"choices": []}\n\n\n{"error": {"message": "m"}}\n\ndata: [DONE]\n\n',
        b'{"error": {"message": "m"}}\ndata: [DONE]\n\n',
    ],
)
def test_json_that_stands_in_a_stream_as_it_is(data: bytes) -> None:
    framer = SseParser()
    events = [
        json.loads(each.data)
        for each in (*framer.feed(data), *framer.close())
        if b"DONE" not in each.data
    ]
    assert events[-1] == {"error": {"message": "m"}}


# -- content in chunks --------------------------------------------------------------------------


def think(text: Any) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


CONTENTS: dict[str, tuple[list[Any], str, str, Any]] = {
    "text": ([[{"type": "text", "text": "o"}], [{"type": "text", "text": "k"}]], "ok", "", "ok"),
    "text and strings": ([[{"type": "text", "text": "o"}], "k"], "ok", "", "ok"),
    "several at once": (
        [[{"type": "text", "text": "o"}, {"type": "text", "text": "k"}]],
        "ok",
        "",
        "ok",
    ),
    "one alone": ([{"type": "text", "text": "ok"}], "ok", "", "ok"),
    "strings in a list": ([["o", "k"]], "ok", "", "ok"),
    "without a type": ([[{"text": "ok"}]], "ok", "", "ok"),
    "thinking": (
        [[think("h")], [think("m")], "ok"],
        "ok",
        "hm",
        [think("hm"), {"type": "text", "text": "ok"}],
    ),
    "thinking that closes": (
        [[think("hm")], [{**think(""), "closed": True}], "ok"],
        "ok",
        "hm",
        [{**think("hm"), "closed": True}, {"type": "text", "text": "ok"}],
    ),
    "thinking as text": (
        [[{"type": "thinking", "thinking": "hm"}], "ok"],
        "ok",
        "hm",
        [think("hm"), {"type": "text", "text": "ok"}],
    ),
    "a reference": (
        ["o", [{"type": "reference", "reference_ids": [1]}], "k"],
        "ok",
        "",
        [
            {"type": "text", "text": "o"},
            {"type": "reference", "reference_ids": [1]},
            {"type": "text", "text": "k"},
        ],
    ),
    "a refusal": ([[{"type": "refusal", "refusal": "no"}]], "no", "", ""),
    "nothing": ([[], None, "", {}], "", "", ""),
    "of another kind": ([7, [None, 7, [], {}], True, "ok"], "ok", "", "ok"),
}


@pytest.mark.parametrize("case", CONTENTS)
@pytest.mark.parametrize("streamed", [True, False])
def test_content_in_chunks(case: str, streamed: bool) -> None:
    contents, text, reasoning, back = CONTENTS[case]
    if streamed:
        found = chat(*(chat_chunk({"content": each}) for each in contents), stop="stop")
    else:
        merged: list[Any] = []
        for each in contents:
            merged += each if isinstance(each, list) else [each]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": merged},
            "finish_reason": "stop",
        }
        found = read(CHAT, [(None, {"choices": [choice]})])[0]
    assert (found.text, found.reasoning) == (text, reasoning)
    (native,) = (json.loads(bytes(raw)) for raw in found.native)
    assert native["content"] == back


def test_thinking_in_the_content_leaves_with_other_reasoning() -> None:
    found = chat(chat_chunk({"content": [think("hm")]}), chat_chunk({"content": "ok"}), stop="stop")
    bare = without_reasoning(found.native[0])
    assert json.loads(bytes(bare))["content"] == [{"type": "text", "text": "ok"}]
    plain = chat(chat_chunk({"content": 'a "thinking" word'}), stop="stop").native[0]
    assert without_reasoning(plain) is plain
    only = chat(chat_chunk({"content": [think("hm")]}), stop="stop").native[0]
    assert json.loads(bytes(without_reasoning(only)))["content"] == ""


@by_wire
@pytest.mark.parametrize("wrong", [None, 7, True, [], {}, ["x"], {"text": "x"}])
def test_text_of_another_kind_costs_only_itself(speaker: Speaker, wrong: Any) -> None:
    parts = [said("one ", "lost", "two"), called("add", ONE)]

    def each(value: Json) -> None:
        for key in ("text", "content", "delta"):
            if value.get(key) == "lost":
                value[key] = wrong
        if "output" in value or "content" in value:
            value.pop("output", None)
        if value.get("type") == "output_text":
            value.pop("text")

    found = read(speaker, changed(speaker.stream(parts, speaker.whole[0]), each))[0]
    assert found.text.replace("x", "") == "one two"
    assert calls(found) == WANTED[:1]


@pytest.mark.parametrize("wrong", ["odd", "", 7, None, True, {}, [], ["odd"]])
def test_a_whole_content_of_another_kind_does_not_undo_its_pieces(wrong: Any) -> None:
    def spoil(value: Json) -> None:
        if value.get("type") == "message" and value.get("content"):
            value["content"] = wrong

    events = changed(RESPONSES.stream([said("one ", "two")], RESPONSES.whole[0]), spoil)
    found = read(RESPONSES, events)[0]
    assert found.text == "one two"
    assert b"one two" in b"".join(map(bytes, found.native))


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"thoughtSignature": "s"},
        {"thought": True},
        {"thought": True, "thoughtSignature": "s"},
        {"text": ""},
    ],
)
def test_a_part_that_holds_nothing_does_not_go_back(part: Json) -> None:
    content = {"role": "model", "parts": [part]}
    chunk = {"candidates": [{"content": content, "finishReason": "STOP"}], "responseId": "r"}
    assert parse_body(json.dumps(chunk).encode()).native == ()
