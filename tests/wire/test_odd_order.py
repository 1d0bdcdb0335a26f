"""Usage in odd places, and events that are missing, repeated or in another order.

Reports: BerriAI/litellm#17136 (usage of zeros).
"""

from __future__ import annotations

import json

import pytest
from tests.wire.odd_streams import PARTS, WANTED, Json, by_wire, calls, changed, chat
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
    chat_chunk,
    read,
    said,
)

from addendum.wire.answer import TextDelta

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

    def spend_nothing(value: Json) -> None:
        counts = [key for key, number in value.items() if "oken" in key and type(number) is int]
        value.update(dict.fromkeys(counts, 0))

    zeros = changed(events, spend_nothing)
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
