"""Streams as servers really send them, on every wire where the kind can occur.

Reports: anomalyco/opencode#12585, anomalyco/opencode#25925, vercel/ai#7834,
openai/openai-dotnet#428 (no id); n8n-io/n8n#37352, simonw/llm-mistral#39, BerriAI/litellm#16434,
BerriAI/litellm#16272, symfony/ai#2422 (content in chunks); ggml-org/llama.cpp#20198,
huggingface/text-generation-inference#2136 (arguments as an object); can1357/oh-my-pi#2055,
openclaw/openclaw#40996, HKUDS/nanobot#4059, xorbitsai/inference#4237 (one id for two calls);
LibreChat-AI/agents#260 (all at index 0); mnfst/llm-gateway#2053, ztjhz/BetterChatGPT#538,
waylaidwanderer/node-chatgpt-api#100 (keep-alives as data); 1jehuang/jcode#225,
vllm-project/vllm#19419, tailcallhq/forgecode#2764, huggingface/smolagents#1003 (argument texts);
BerriAI/litellm#17136 (usage of zeros).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.wire.wires import (
    CHAT,
    CHAT_USAGE,
    CONVERSE,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEAKERS,
    Event,
    Speaker,
    called,
    chat_chunk,
    chat_piece,
    encoded,
    read,
    said,
    thought,
)

from addendum.errors import StreamBroken
from addendum.wire.answer import Answer, CallArguments, CallStarted, TextDelta
from addendum.wire.openai_chat.reasoning import without_reasoning
from addendum.wire.sse import SseParser

Json = dict[str, Any]
by_wire = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.wire)
PARTS = [
    thought("let me ", "see"),
    said("I ", "look"),
    called("add", '{"a": 1, ', '"b": 2}', id="c1"),
    called("add", '{"a": 3, "b": 4}', id="c2"),
]
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


# -- ids ----------------------------------------------------------------------------------------

ID_KEYS = {MESSAGES: "id", CHAT: "id", RESPONSES: "call_id", CONVERSE: "toolUseId", GEMINI: "id"}


def with_ids(speaker: Speaker, change: Callable[[Any], Any]) -> list[Event]:
    """Return a good stream whose calls have other ids."""
    key = ID_KEYS[speaker]

    def each(value: Json) -> None:
        if value.get(key) in ("c1", "c2"):
            given = change(value[key])
            if given is KeyError:
                del value[key]
            else:
                value[key] = given

    return changed(speaker.stream(PARTS, speaker.whole[0]), each)


@by_wire
@pytest.mark.parametrize(
    "change",
    [
        lambda _: "",
        lambda _: None,
        lambda _: KeyError,
        lambda _: 7,
        lambda _: {"id": "x"},
        lambda _: "call_0",
        lambda given: given if given == "c1" else "",
        lambda given: given if given == "c2" else None,
    ],
    ids=["empty", "null", "absent", "number", "object", "same", "second empty", "first null"],
)
def test_calls_without_ids_of_their_own_get_some(
    speaker: Speaker, change: Callable[[Any], Any]
) -> None:
    events = with_ids(speaker, change)
    found = read(speaker, events)[0]
    assert calls(found) == WANTED
    assert (found.text, found.ending, found.cut) == ("I look", "whole", ())
    # The same answer has the same ids, while it streams too; and they fit everywhere.
    assert read(speaker, events)[0] == found
    own = [call.id for call in found.calls if call.id not in ("c1", "c2", "call_0")]
    assert all(len(each) == 9 and each.isalnum() and each.isascii() for each in own)


@by_wire
def test_an_id_that_is_good_stays(speaker: Speaker) -> None:
    for ident in ("c1", "functions.add:0", "x" * 200, "tool ä"):
        found = speaker.answer(called("add", "{}", id=ident))
        assert [call.id for call in found.calls] == [ident]


@by_wire
def test_what_is_told_while_it_streams_is_what_stays(speaker: Speaker) -> None:
    for change in (lambda _: "", lambda _: "call_0"):
        found, deltas = read(speaker, with_ids(speaker, change))
        begun = [each for each in deltas if isinstance(each, CallStarted)]
        assert [(each.id, each.name) for each in begun] == [
            (call.id, call.name) for call in found.calls
        ]
        for number, call in enumerate(found.calls):
            told = [d.text for d in deltas if isinstance(d, CallArguments) and d.index == number]
            assert json.loads("".join(told)) == json.loads(call.arguments)


# -- which call a piece belongs to --------------------------------------------------------------

ONE, TWO = '{"a": 1, "b": 2}', '{"a": 3, "b": 4}'
HALVES = (ONE[:9], ONE[9:])
PIECES: dict[str, tuple[int, list[Json]]] = {
    "no id, numbered": (2, [piece(index=0, function=fn(ONE)), piece(index=1, function=fn(TWO))]),
    "no id, all at 0": (2, [piece(index=0, function=fn(ONE)), piece(index=0, function=fn(TWO))]),
    "no id, no index": (2, [piece(function=fn(ONE)), piece(function=fn(TWO))]),
    "no id, all at 0, in pieces": (
        2,
        [
            piece(index=0, function=fn("")),
            *(piece(index=0, function=fn(half, None)) for half in HALVES),
            piece(index=0, function=fn("")),
            piece(index=0, function=fn(TWO, None)),
        ],
    ),
    "one id, numbered": (
        2,
        [piece(index=n, id="c", function=fn(args)) for n, args in enumerate((ONE, TWO))],
    ),
    "one id, all at 0": (2, [piece(index=0, id="c", function=fn(args)) for args in (ONE, TWO)]),
    "one id, no index": (2, [piece(id="c", function=fn(args)) for args in (ONE, TWO)]),
    "all at 0, pieces by id": (
        2,
        [
            piece(index=0, id="a", function=fn("")),
            piece(index=0, id="b", function=fn("")),
            piece(index=0, id="a", function=fn(ONE, None)),
            piece(index=0, id="b", function=fn(TWO, None)),
        ],
    ),
    "no index, pieces by id in turn": (
        2,
        [
            piece(id="a", function=fn("")),
            piece(id="b", function=fn(TWO[:5])),
            piece(id="a", function=fn(ONE, None)),
            piece(id="b", function=fn(TWO[5:], None)),
        ],
    ),
    "pieces in turn by number": (
        2,
        [
            chat_piece(0, "a", "add", ONE[:4]),
            chat_piece(1, "b", "add", TWO[:7]),
            chat_piece(0, None, None, ONE[4:]),
            chat_piece(1, None, None, TWO[7:]),
        ],
    ),
    "numbers that begin at 1": (
        2,
        [chat_piece(n, f"c{n}", "add", args) for n, args in ((1, ONE), (2, TWO))],
    ),
    "numbers as text": (
        2,
        [piece(index=f"{n}", id=f"c{n}", function=fn(a)) for n, a in enumerate((ONE, TWO))],
    ),
    "numbers as floats": (
        2,
        [piece(index=float(n), id=f"c{n}", function=fn(a)) for n, a in enumerate((ONE, TWO))],
    ),
    "numbers of another kind": (
        2,
        [piece(index=[n], id=f"c{n}", function=fn(a)) for n, a in enumerate((ONE, TWO))],
    ),
    "a number that grows with each piece": (
        1,
        [
            piece(index=0, id="a", function=fn(ONE[:4])),
            piece(index=1, function=fn(ONE[4:8], None)),
            piece(index=2, function=fn(ONE[8:], None)),
        ],
    ),
    "a first piece without its number": (
        1,
        [piece(id="a", function=fn("")), piece(index=0, function=fn(ONE, None))],
    ),
    "both in one chunk": (
        2,
        [
            chat_chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "a", "function": fn(ONE)},
                        {"index": 1, "id": "b", "function": fn(TWO)},
                    ]
                }
            )
        ],
    ),
    "the whole call told twice": (
        1,
        [piece(index=0, id="a", function=fn(ONE)), piece(index=0, id="a", function=fn(ONE))],
    ),
    "the name again at the end": (
        1,
        [chat_piece(0, "a", "add", ONE), piece(index=0, id="a", function=fn(""))],
    ),
    "the name in each piece": (
        1,
        [piece(index=0, id="a", function=fn(part)) for part in (ONE[:3], ONE[3:9], ONE[9:])],
    ),
    "the name in pieces": (
        1,
        [
            piece(index=0, id="a", function={"name": "a"}),
            piece(index=0, function={"name": "d"}),
            piece(index=0, function={"name": "d", "arguments": ONE}),
        ],
    ),
    "the name as it grows": (
        1,
        [
            piece(index=0, id="a", function={"name": "a"}),
            piece(index=0, id="a", function={"name": "ad"}),
            piece(index=0, id="a", function={"name": "add", "arguments": ONE}),
        ],
    ),
    "id behind the name": (
        1,
        [piece(index=0, function=fn("")), piece(index=0, id="a", function=fn(ONE))],
    ),
    "an empty object in front": (
        1,
        [chat_piece(0, "a", "add", "{}"), chat_piece(0, None, None, ONE)],
    ),
    "an empty object in front, the name again": (
        1,
        [piece(index=0, id="a", function=fn(part)) for part in ("{}", ONE)],
    ),
    "an object": (
        2,
        [piece(index=n, id=f"c{n}", function=fn(json.loads(a))) for n, a in enumerate((ONE, TWO))],
    ),
    "an object, all at 0": (2, [piece(index=0, function=fn(json.loads(a))) for a in (ONE, TWO)]),
    "an object in front of text": (
        1,
        [piece(index=0, id="a", function=fn({})), chat_piece(0, None, None, ONE)],
    ),
    "an object, in turn with nothing": (
        1,
        [piece(index=0, id="a", function=fn(json.loads(ONE))), chat_piece(0, None, None, "")],
    ),
    "one call that stands alone": (
        1,
        [chat_chunk({"tool_calls": {"id": "a", "function": fn(ONE)}})],
    ),
    "the form of before": (
        1,
        [
            chat_chunk({"function_call": {"name": "add", "arguments": ""}}),
            chat_chunk({"function_call": {"arguments": ONE}}),
        ],
    ),
    "pieces that are none": (
        1,
        [
            chat_chunk({"tool_calls": [None, {}, 7, []]}),
            piece(index=0, id="a", function=fn(ONE)),
            chat_chunk({"tool_calls": [None]}),
            piece(index=0, function=None),
            piece(index=0, id=None, type=None, function={"name": None, "arguments": None}),
        ],
    ),
    "the role in each chunk": (
        1,
        [
            chat_chunk(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"index": 0, "id": "a", "function": fn(part, name)}],
                }
            )
            for part, name in ((ONE[:5], "add"), (ONE[5:], None))
        ],
    ),
}


@pytest.mark.parametrize("case", PIECES)
def test_pieces_of_calls_find_their_call(case: str) -> None:
    count, chunks = PIECES[case]
    found = chat(*chunks)
    assert calls(found) == WANTED[:count]
    assert found.cut == ()


def test_two_reasons_to_end_and_pieces_behind_the_first() -> None:
    events = [
        chat_piece(0, "a", "add", ONE[:5]),
        chat_chunk({}, "tool_calls"),
        chat_piece(0, None, None, ONE[5:]),
        chat_chunk({}, "stop"),
    ]
    assert calls(chat(*events)) == WANTED[:1]


@pytest.mark.parametrize("speaker", [MESSAGES, CONVERSE], ids=lambda each: each.wire)
@pytest.mark.parametrize("change", ["all 0", "absent", "null", "text", "float"])
def test_blocks_without_numbers_of_their_own(speaker: Speaker, change: str) -> None:
    key = "index" if speaker is MESSAGES else "contentBlockIndex"

    def each(value: Json) -> None:
        if key in value:
            given = value.pop(key)
            if change != "absent":
                value[key] = {"all 0": 0, "null": None, "text": f"{given}", "float": given + 0.0}[
                    change
                ]

    events = changed(speaker.stream(PARTS, speaker.whole[0]), each)
    found = read(speaker, events)[0]
    assert calls(found) == WANTED
    assert (found.text, found.reasoning) == ("I look", "let me see")
    good = speaker.answer(*PARTS)
    if not (speaker is CONVERSE and change in ("all 0", "absent", "null")):
        assert found == good
    assert len(found.native) == len(good.native)


@pytest.mark.parametrize("key", ["output_index", "item_id", "id"])
@pytest.mark.parametrize("change", ["0", "absent", "null", "same"])
def test_items_without_numbers_or_ids_of_their_own(key: str, change: str) -> None:
    def each(value: Json) -> None:
        if key in value and value.get("object") != "response":
            value.pop(key)
            if change != "absent":
                value[key] = {"0": 0, "null": None, "same": 0 if key == "output_index" else "x"}[
                    change
                ]

    found = read(RESPONSES, changed(RESPONSES.stream(PARTS, "completed"), each))[0]
    assert calls(found) == WANTED
    assert (found.text, found.reasoning) == ("I look", "let me see")
    assert len(found.native) == 4


# -- arguments ----------------------------------------------------------------------------------

MEANT = {
    "": {},
    " \n": {},
    "null": {},
    " null ": {},
    '""': {},
    '"{}"': {},
    '"null"': {},
    '"{\\"a\\": 1}"': {"a": 1},
    '"\\"{\\\\\\"a\\\\\\": 1}\\""': {"a": 1},
    '{"a": 1}\n': {"a": 1},
    '{}{"a": 1}': {"a": 1},
    '{} {"a": "{}"}': {"a": "{}"},
}


@by_wire
@pytest.mark.parametrize("text", MEANT)
def test_what_argument_texts_mean(speaker: Speaker, text: str) -> None:
    if speaker is GEMINI:
        events = speaker.stream([called("f", "{}")], "STOP")
        events = changed(events, lambda value: value.update(args=text) if "args" in value else None)
        found = read(speaker, events)[0]
    else:
        found = speaker.answer(called("f", text))
    assert calls(found) == [("f", MEANT[text])]
    # What goes back is an object, too.
    assert json.loads(_sent_back(speaker, found)) == MEANT[text]


def _sent_back(speaker: Speaker, found: Answer) -> str:
    item = json.loads(bytes(found.native[-1]))
    match speaker.wire:
        case "openai_chat":
            return item["tool_calls"][0]["function"]["arguments"]
        case "openai_responses":
            return item["arguments"] or "{}"
        case "anthropic_messages":
            return json.dumps(item["input"])
        case "gemini":
            return json.dumps(item["functionCall"].get("args", {}))
        case _:
            return json.dumps(item["toolUse"]["input"])


@pytest.mark.parametrize(
    "text", ['"x"', "[1]", "7", '"[1]"', '{"a": ', '{}{"a": ', "{}[]", '"{\\"a\\"', "{}x"]
)
def test_what_means_no_object_stays_as_it_came(text: str) -> None:
    for speaker in (MESSAGES, CHAT, RESPONSES, CONVERSE):
        assert speaker.answer(called("f", text)).calls[0].arguments == text


@pytest.mark.parametrize(
    "speaker", [MESSAGES, CONVERSE, RESPONSES, GEMINI], ids=lambda each: each.wire
)
@pytest.mark.parametrize("given", [{"a": 1}, '{"a": 1}', '"{\\"a\\": 1}"'])
def test_arguments_of_another_kind_than_the_wires(speaker: Speaker, given: Any) -> None:
    key = {MESSAGES: "partial_json", CONVERSE: "input", RESPONSES: "arguments", GEMINI: "args"}[
        speaker
    ]

    def each(value: Json) -> None:
        if value.get(key) and (speaker is not CONVERSE or "name" not in value):
            value[key] = given
        if "function_call_arguments" in str(value.get("type")):
            value.pop("delta", None)

    found = read(
        speaker, changed(speaker.stream([called("f", '{"x": 0}')], speaker.whole[0]), each)
    )[0]
    assert calls(found) == [("f", {"a": 1})]
    assert json.loads(_sent_back(speaker, found)) == {"a": 1}


@by_wire
def test_a_call_without_a_name_costs_only_itself(speaker: Speaker) -> None:
    for name in ("", None, 7, []):

        def each(value: Json, name: Any = name) -> None:
            if value.get("name") == "lost":
                value["name"] = name

        parts = [said("I "), called("lost", '{"a": 1}', id="c1"), called("add", ONE, id="c2")]
        found = read(speaker, changed(speaker.stream(parts, speaker.whole[0]), each))[0]
        assert calls(found) == [("", {"a": 1}), WANTED[0]]
        assert found.text == "I "


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


# -- usage --------------------------------------------------------------------------------------

ZEROS: Json = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
USAGES: dict[str, list[Json]] = {
    "in every chunk": [chat_chunk({"content": "x"}, usage=CHAT_USAGE)] * 2,
    "in the last but one": [
        chat_chunk({"content": "x"}, usage=CHAT_USAGE),
        chat_chunk(None, usage=ZEROS),
    ],
    "overwritten by nulls": [
        chat_chunk({"content": "x"}, usage=CHAT_USAGE),
        chat_chunk(None, usage=None),
    ],
    "overwritten by nothing": [
        chat_chunk({"content": "x"}, usage=CHAT_USAGE),
        chat_chunk(None, usage={}),
    ],
    "of nulls behind it": [
        chat_chunk({"content": "x"}, usage=CHAT_USAGE),
        chat_chunk(None, usage=dict.fromkeys(CHAT_USAGE)),
    ],
    "zeros in front": [
        chat_chunk({"content": "x"}, usage=ZEROS),
        chat_chunk(None, usage=CHAT_USAGE),
    ],
    "in parts": [
        chat_chunk(
            {"content": "x"},
            usage={"prompt_tokens": 140, "prompt_tokens_details": {"cached_tokens": 40}},
        ),
        chat_chunk(None, usage={"completion_tokens": 7}),
    ],
    "details of zeros behind it": [
        chat_chunk({"content": "x"}, usage=CHAT_USAGE),
        chat_chunk(None, usage={**CHAT_USAGE, "prompt_tokens_details": {"cached_tokens": 0}}),
    ],
    "beside the choices": [{"choices": [], "usage": CHAT_USAGE}, chat_chunk({"content": "x"})],
    "in the choice": [{"choices": [{"index": 0, "delta": {"content": "x"}, "usage": CHAT_USAGE}]}],
    "beside, at groq's": [chat_chunk({"content": "x"}, x_groq={"usage": CHAT_USAGE})],
    "of another kind behind it": [
        chat_chunk({"content": "x"}, usage=CHAT_USAGE),
        chat_chunk(None, usage=[7]),
    ],
}


@pytest.mark.parametrize("case", USAGES)
def test_usage_in_odd_places(case: str) -> None:
    usage = chat(*USAGES[case], stop="stop").usage
    assert (usage.prompt, usage.cache_read, usage.output) == (140, 40, 7)


@by_wire
def test_usage_that_ends_in_zeros(speaker: Speaker) -> None:
    events = speaker.stream(PARTS, speaker.whole[0])
    good = read(speaker, events)[0].usage
    zeros = changed(
        events,
        lambda value: (
            [value.update({k: 0}) for k, v in value.items() if "oken" in k and isinstance(v, int)]
            and None
        ),
    )
    last = [
        each for each in zeros if "sage" in json.dumps(each[1] if isinstance(each[1], dict) else "")
    ][-1:]
    found = read(speaker, [*events, *last])[0].usage
    assert (found.prompt, found.cache_read, found.output) == (
        good.prompt,
        good.cache_read,
        good.output,
    )


def test_zeros_that_stand_alone_are_what_was_counted() -> None:
    assert chat(chat_chunk({"content": "x"}, usage=ZEROS), stop="stop").usage.prompt == 0
    events = MESSAGES.stream([said("x")], "end_turn")
    events = changed(
        events,
        lambda value: value.update(cache_read_input_tokens=0) if "input_tokens" in value else None,
    )
    assert read(MESSAGES, events)[0].usage.cache_read == 0


# -- order, and what is missing -----------------------------------------------------------------


@pytest.mark.parametrize("speaker", [MESSAGES, CONVERSE, RESPONSES], ids=lambda each: each.wire)
@pytest.mark.parametrize(
    "lost", ["beginnings", "ends", "both", "the first event", "names of events", "types of events"]
)
def test_events_that_are_missing(speaker: Speaker, lost: str) -> None:
    events = changed(speaker.stream(PARTS, speaker.whole[0]), lambda _: None)
    begins = ("content_block_start", "contentBlockStart", "response.output_item.added")
    ends = ("content_block_stop", "contentBlockStop", "response.output_item.done")
    match lost:
        case "beginnings":
            # Where a call begins, its name stands.
            events = [e for e in events if e[0] not in begins or "name" in json.dumps(e[1])]
        case "ends":
            events = [e for e in events if e[0] not in ends]
        case "both":
            events = [
                e
                for e in events
                if e[0] not in ends and (e[0] not in begins or "name" in json.dumps(e[1]))
            ]
        case "the first event":
            events = events[1:]
        case "names of events":
            if speaker is CONVERSE:
                events = [(None if name != "messageStop" else name, data) for name, data in events]
            else:
                events = [(None, data) for _, data in events]
        case _:
            for _, data in events:
                data.pop("type", None)
    found = read(speaker, events)[0]
    assert calls(found) == WANTED
    assert (found.text, found.reasoning, found.ending, found.cut) == (
        "I look",
        "let me see",
        "whole",
        (),
    )
    assert len(found.native) >= 3 if speaker is RESPONSES else 4


@by_wire
def test_neighbours_in_another_order(speaker: Speaker) -> None:
    events = speaker.stream(PARTS, speaker.whole[0])
    for place in range(len(events) - 1):
        swapped = [*events[:place], events[place + 1], events[place], *events[place + 2 :]]
        found = read(speaker, swapped)[0]
        assert sorted(found.text) == sorted("I look"), place
        assert sorted(found.reasoning) == sorted("let me see"), place
        assert len(found.calls) == 2, place


@by_wire
def test_events_told_twice(speaker: Speaker) -> None:
    events = speaker.stream(PARTS, speaker.whole[0])
    for place, event in enumerate(events):
        found = read(speaker, [*events[: place + 1], event, *events[place + 1 :]])[0]
        assert len(found.calls) in ((2, 3) if speaker is GEMINI else (2,)), place
        assert "look" in found.text and "see" in found.reasoning, place


@by_wire
def test_a_second_answer_beside_the_first_is_left_out_and_told(speaker: Speaker) -> None:
    if speaker not in (CHAT, GEMINI):
        return
    key, name = ("choices", "delta") if speaker is CHAT else ("candidates", "content")
    inner = {"content": "other"} if speaker is CHAT else {"parts": [{"text": "other"}]}
    other = {key: [{"index": 1, name: inner}]}
    events = speaker.stream(PARTS, speaker.whole[0])
    found = read(speaker, [*events[:2], (None, other), *events[2:]])[0]
    assert found.text == "I look" and found.left_out
    assert not speaker.answer(*PARTS).left_out


def test_a_block_that_cannot_be_put_together_is_told() -> None:
    events = CONVERSE.stream(PARTS, "tool_use")
    odd: list[Event] = [
        ("contentBlockStart", {"contentBlockIndex": 9, "start": {"image": {"format": "png"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 9, "delta": {"image": {"source": {}}}}),
        ("contentBlockStop", {"contentBlockIndex": 9}),
    ]
    found = read(CONVERSE, [*events[:2], *odd, *events[2:]])[0]
    assert found.left_out == ("image",)
    assert calls(found) == WANTED
    untyped: list[Event] = [
        (None, {"type": "content_block_start", "index": 9, "content_block": {"x": 1}})
    ]
    events = MESSAGES.stream(PARTS, "tool_use")
    assert read(MESSAGES, [*events[:1], *untyped, *events[1:]])[0].left_out


def test_a_call_of_gemini_in_pieces_does_not_run() -> None:
    parts = [
        {
            "functionCall": {
                "name": "f",
                "id": "a",
                "partialArgs": [{"jsonPath": "$.x"}],
                "willContinue": True,
            }
        },
        {"functionCall": {"partialArgs": [{"jsonPath": "$.y"}], "willContinue": True}},
        {"functionCall": {}},
        {"functionCall": {"name": "g", "id": "b", "args": {"z": 1}}},
    ]
    events: list[Event] = [
        (None, {"candidates": [{"content": {"parts": [each]}}]}) for each in parts
    ]
    found = read(GEMINI, [*events, (None, {"candidates": [{"finishReason": "STOP"}]})])[0]
    assert calls(found) == [("f", {}), ("g", {"z": 1})]
    assert found.cut == ("a",)
    assert b"partialArgs" not in bytes(found.native[0])


def test_deltas_say_what_the_answer_says() -> None:
    for speaker in SPEAKERS:
        found, deltas = read(speaker, speaker.stream(PARTS, speaker.whole[0]))
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == found.text
