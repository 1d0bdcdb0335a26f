"""Calls as servers really send them: without ids, with one id for two, in pieces of any order.

Reports: anomalyco/opencode#12585, anomalyco/opencode#25925, vercel/ai#7834,
openai/openai-dotnet#428 (no id); can1357/oh-my-pi#2055, openclaw/openclaw#40996,
HKUDS/nanobot#4059, xorbitsai/inference#4237 (one id for two calls); LibreChat-AI/agents#260 (all at
index 0).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.wire.odd_streams import (
    ONE,
    PARTS,
    TWO,
    WANTED,
    Json,
    by_wire,
    calls,
    changed,
    chat,
    fn,
    piece,
)
from tests.wire.wires import (
    CHAT,
    CONVERSE,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Event,
    Speaker,
    called,
    chat_chunk,
    chat_piece,
    read,
)

from addendum.wire.answer import CallArguments, CallStarted

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
