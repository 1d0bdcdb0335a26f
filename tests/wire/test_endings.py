"""How an answer ended, on every wire, and which of its calls may have been cut.

Reports: 2389-research/tracker#507, jaseci-labs/jac#6766, ahwurm/localharness#77,
OpenRouterTeam/typescript-agent#125, vllm-project/vllm#46303, vllm-project/vllm#58228,
vllm-project/vllm#57082, MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#55,
agentjido/req_llm#935, huggingface/chat-ui#2385, microsoft/PyRIT#2166.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.wire.wires import (
    CHAT,
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
    event,
    read,
    said,
    thought,
)

from addendum.errors import StreamBroken
from addendum.wire.answer import Answer
from addendum.wire.endings import STOPS, Ending, graver, stopped, told

EVERY_WORD: list[Any] = [
    pytest.param(speaker, word, ending, id=f"{speaker.wire}-{word}")
    for speaker in SPEAKERS
    for ending, words in (
        ("whole", speaker.whole),
        ("cut", speaker.cut),
        ("withheld", speaker.withheld),
        ("trouble", speaker.trouble),
        ("unknown", ("a_new_word",)),
    )
    for word in dict.fromkeys(words)
]
by_wire = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.wire)


@pytest.mark.parametrize(("speaker", "word", "ending"), EVERY_WORD)
@pytest.mark.parametrize("streamed", [True, False])
def test_each_stop_word_says_how_an_answer_ended(
    speaker: Speaker, word: str, ending: Ending, streamed: bool
) -> None:
    parts = [said("half an ans")]
    events = speaker.stream(parts, word) if streamed else [(None, speaker.body(parts, word))]
    found = read(speaker, events)[0]
    assert (found.text, found.stop, found.ending) == ("half an ans", word, ending)
    line = told(found.stop, found.ending, found.details)
    assert (line == "") is (ending == "whole")
    assert ending == "whole" or word in line


@pytest.mark.parametrize(("speaker", "word", "ending"), EVERY_WORD)
def test_a_stop_word_of_another_case_says_the_same(
    speaker: Speaker, word: str, ending: Ending
) -> None:
    for written in (word.upper(), word.lower(), f" {word.title()} "):
        assert stopped(written).ending == ending


# -- which calls may have been cut --------------------------------------------------------------

WRITTEN = {
    "nothing": ((), True),
    "an empty piece": (("",), True),
    "blanks": ((" ", "\n"), True),
    "an empty object": (("{}",), True),
    "half an object": (('{"folder": "/ho',), True),
    "a string that holds half an object": (('"{\\"folder\\": ',), True),
}
"""What came of the arguments of a call behind which an answer was cut."""


def cut_words(speaker: Speaker) -> list[str]:
    return [*speaker.cut, *speaker.withheld, *speaker.trouble]


UNWRITTEN = [
    pytest.param(speaker, written, id=f"{speaker.wire}-{written}")
    for speaker in SPEAKERS
    for written in WRITTEN
    # There arguments are an object, or nothing.
    if speaker is not GEMINI or written in ("nothing", "an empty object")
]


@pytest.mark.parametrize(("speaker", "written"), UNWRITTEN)
def test_a_call_whose_arguments_did_not_come_may_be_cut(speaker: Speaker, written: str) -> None:
    pieces, cut = WRITTEN[written]
    for word in cut_words(speaker):
        found = speaker.answer(
            said("I will"),
            called("wipe", '{"a": 1}', id="c1"),
            called("wipe", *pieces, id="c2"),
            stop=word,
        )
        assert [call.id for call in found.calls] == ["c1", "c2"]
        # What came whole, and was not the last, may run.
        assert found.cut == (("c2",) if cut else ()), word


@by_wire
@pytest.mark.parametrize("word", ["a_new_word", None])
def test_where_nobody_says_how_it_ended_a_call_needs_arguments(
    speaker: Speaker, word: str | None
) -> None:
    parts = [called("wipe", id="c1"), called("wipe", '{"a": 1}', id="c2")]
    events = speaker.stream(parts, word or speaker.whole[0])
    if word is None:
        events = [*_unstopped(events), (None, b"[DONE]")]
    found = read(speaker, events)[0]
    assert found.ending == "unknown"
    if speaker is GEMINI:
        # A call without arguments is whole there: it is an object of its own.
        assert found.cut == ()
    else:
        assert found.cut == ("c1",)


def _unstopped(events: list[Event]) -> list[Event]:
    """Return events without the word of how they ended."""
    changed: list[Event] = []
    for name, data in copy.deepcopy(events):
        if isinstance(data, bytes):
            continue
        if name in ("message_delta", "message_stop", "messageStop") or "response" in data:
            continue
        for listed in ("choices", "candidates"):
            for each in data.get(listed, ()):
                each.pop("finish_reason", None)
                each.pop("finishReason", None)
        changed.append((name, data))
    return changed


@by_wire
def test_a_whole_answer_may_have_calls_without_arguments(speaker: Speaker) -> None:
    for pieces in ((), ("",), ("{}",), ("{", "}"), (' {"a": 1}\n',)):
        found = speaker.answer(called("ping", *pieces))
        assert (found.ending, found.cut) == ("whole", ())
        assert json.loads(found.calls[0].arguments) == json.loads("".join(pieces) or "{}")


def test_the_last_call_of_a_cut_chat_answer_is_open_whatever_it_holds() -> None:
    """A server that mends JSON closes what the limit cut (jaseci-labs/jac#6766)."""
    for word in cut_words(CHAT):
        mended = CHAT.answer(called("write", '{"file": "x.jac"}'), stop=word)
        assert mended.cut == ("call_1",), word
    given = chat_chunk(
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    )
    found = read(CHAT, [(None, given), (None, chat_chunk({}, "length"))])[0]
    assert found.cut == ("a",)


@pytest.mark.parametrize("speaker", [MESSAGES, CONVERSE, CHAT], ids=lambda each: each.wire)
def test_the_last_call_of_a_cut_body_is_open_too(speaker: Speaker) -> None:
    parts = [called("write", '{"file": "a"}', id="c1"), called("write", '{"file": "b"}', id="c2")]
    for word in speaker.cut:
        assert read(speaker, [(None, speaker.body(parts, word))])[0].cut == ("c2",)
    assert read(speaker, [(None, speaker.body(parts, speaker.whole[0]))])[0].cut == ()


@by_wire
def test_an_answer_that_used_all_it_was_allowed_is_no_whole_one(speaker: Speaker) -> None:
    """vllm-project/vllm#58228: `tool_calls` where the limit ended it."""
    parts = [called("wipe", '{"a": 1}', id="c1"), called("wipe", "{}", id="c2")]
    for most, ending, cut in ((None, "whole", ()), (8, "whole", ()), (7, "cut", ("c2",))):
        parser = speaker.parser()
        for name, data in speaker.stream(parts, speaker.whole[0]):
            parser.feed(event(name, data))
        found = parser.finish(most)
        assert (found.ending, found.cut) == (ending, cut)


def test_a_stop_sequence_may_stand_in_the_arguments_of_a_call() -> None:
    for pieces, cut in (((), True), (('{"a": "x',), True), (('{"a": 1}',), False)):
        found = MESSAGES.answer(called("wipe", *pieces), stop="stop_sequence")
        assert (found.ending, found.cut) == ("whole", ("call_1",) if cut else ())


def test_an_item_that_says_it_is_not_whole_is_cut_in_a_whole_answer_too() -> None:
    events = RESPONSES.stream([called("wipe", '{"a": 1}')], "completed")
    for _, data in events:
        for item in (data.get("item"), *data.get("response", {}).get("output", ())):
            if item:
                item["status"] = "incomplete"
    assert read(RESPONSES, events)[0].cut == ("call_1",)


@pytest.mark.parametrize("speaker", [MESSAGES, CONVERSE, RESPONSES], ids=lambda each: each.wire)
def test_a_call_that_was_never_closed_needs_whole_arguments(speaker: Speaker) -> None:
    for pieces, cut in (((), True), (('{"a"',), True), (('{"a": 1}',), False)):
        events = [
            each
            for each in speaker.stream([called("wipe", *pieces)], speaker.whole[0])
            if each[0]
            not in ("content_block_stop", "contentBlockStop", "response.output_item.done")
        ]
        for _, data in events:
            if "response" in data:
                data["response"]["output"] = []
        assert read(speaker, events)[0].cut == (("call_1",) if cut else ())


@by_wire
def test_what_may_be_cut_is_never_settled(speaker: Speaker) -> None:
    for word in (*cut_words(speaker), speaker.whole[0]):
        for pieces in ((), ("{}",), ('{"a": 1}',), ('{"a"',)):
            if speaker is GEMINI and pieces == ('{"a"',):
                continue
            parts = [called("look", '{"q": 1}', id="c1"), called("look", *pieces, id="c2")]
            parser, settled = speaker.parser(), set[str]()
            for name, data in speaker.stream(parts, word):
                parser.feed(event(name, data))
                settled |= {call.id for call in parser.settled()}
            found = parser.finish()
            assert not settled & set(found.cut)
            if word == speaker.whole[0]:
                assert "c1" in settled


# -- of several words, and of none --------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("length", "stop"), "cut"),
        (("stop", "length"), "cut"),
        (("tool_calls", "stop"), "whole"),
        (("stop", "content_filter", "stop"), "withheld"),
        (("stop", "abort"), "trouble"),
        (("error", "length"), "cut"),
        (("new_word", "stop"), "unknown"),
        (("stop", "null"), "whole"),
        (("stop", "stop"), "whole"),
    ],
)
def test_of_two_stop_words_the_graver_one_counts(words: tuple[str, ...], ending: Ending) -> None:
    events = [(None, chat_chunk({"content": "x"}, word)) for word in words]
    found = read(CHAT, [*events, (None, b"[DONE]")])[0]
    assert (found.ending, found.text) == (ending, "x" * len(words))
    assert graver(words[0], words[1]) in words


@by_wire
def test_an_end_without_a_word_is_not_known_to_be_whole(speaker: Speaker) -> None:
    """anomalyco/opencode#43882: text, usage and `[DONE]`."""
    events = _unstopped(speaker.stream([said("ok")], speaker.whole[1]))
    with pytest.raises(StreamBroken, match="was cut before") as caught:
        read(speaker, events)
    assert caught.value.again
    found = read(speaker, [*events, (None, b"[DONE]")])[0]
    assert (found.text, found.stop, found.ending) == ("ok", None, "unknown")
    # With nothing in front of it, it is no answer.
    with pytest.raises(StreamBroken):
        read(speaker, [(None, b"[DONE]")])


@by_wire
def test_trouble_with_nothing_said_is_an_error_that_may_be_tried_again(speaker: Speaker) -> None:
    for word in speaker.trouble:
        with pytest.raises(StreamBroken, match=word) as caught:
            read(speaker, speaker.stream([], word))
        assert caught.value.again
        for part in (said("so far"), thought("hm"), called("f", '{"a": 1}')):
            assert read(speaker, speaker.stream([part], word))[0].ending == "trouble"


# -- what else the provider says ----------------------------------------------------------------


def _claude_refusal(**details: Any) -> Answer:
    events = MESSAGES.stream([said("I")], "refusal")
    for name, data in events:
        if name == "message_delta":
            data["delta"]["stop_details"] = {"type": "refusal", **details}
    return read(MESSAGES, events)[0]


def test_the_reason_of_a_refusal_and_the_model_it_recommends_are_told() -> None:
    found = _claude_refusal(category="cyber", explanation="no exploits", recommended_model="c-4")
    line = told(found.stop, found.ending, found.details)
    assert all(each in line for each in ("cyber", "no exploits", "it recommends c-4", "withheld"))
    assert found.details is not None
    kept = json.loads(bytes(found.details))["stop_details"]
    assert kept["recommended_model"] == "c-4"
    assert _claude_refusal(category=None, explanation=None).details is not None


@pytest.mark.parametrize(
    ("speaker", "word", "place", "more", "says"),
    [
        (
            GEMINI,
            "MALFORMED_RESPONSE",
            "candidates",
            {"finishMessage": "it is empty"},
            "it is empty",
        ),
        (CHAT, "content_filter", "choices", {"native_finish_reason": "refusal"}, "content_filter"),
        (CHAT, "content_filter", "choices", {"stop_details": {"explanation": "why"}}, "why"),
        (RESPONSES, "max_output_tokens", "", {}, "max_output_tokens"),
        (CONVERSE, "guardrail_intervened", "", {"trace": {"reason": "topic"}}, "topic"),
    ],
)
def test_details_are_kept_and_told(
    speaker: Speaker, word: str, place: str, more: dict[str, Any], says: str
) -> None:
    events = speaker.stream([said("x")], word)
    for name, data in events:
        if place and isinstance(data, dict) and any(_ends(each) for each in data.get(place, ())):
            data[place][0] |= more
        elif not place and name == "messageStop":
            data |= more
    found = read(speaker, events)[0]
    assert found.details is not None
    assert says in told(found.stop, found.ending, found.details)


def _ends(choice: dict[str, Any]) -> bool:
    return bool(choice.get("finish_reason") or choice.get("finishReason"))


def test_what_groq_says_beside_is_read() -> None:
    """Usage that comes there only; and why a stream was ended early."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    last = chat_chunk({}, "stop", x_groq={"id": "r", "usage": usage})
    found = read(CHAT, [(None, chat_chunk({"content": "x"})), (None, last)])[0]
    assert (found.usage.prompt, found.usage.output, found.ending) == (9, 2, "whole")
    last = chat_chunk({}, "stop", x_groq={"error": "over capacity", "usage": usage})
    found = read(CHAT, [(None, chat_chunk({"content": "x"})), (None, last)])[0]
    assert (found.text, found.ending, found.usage.prompt) == ("x", "trouble", 9)
    assert "over capacity" in told(found.stop, found.ending, found.details)


@pytest.mark.parametrize("speaker", [CHAT, RESPONSES], ids=lambda each: each.wire)
def test_a_refusal_of_the_model_itself_is_text_and_told(speaker: Speaker) -> None:
    if speaker is CHAT:
        events: list[Event] = [(None, chat_chunk({"refusal": p})) for p in ("I will ", "not")]
        events.append((None, chat_chunk({}, "stop")))
    else:
        part = {"type": "refusal", "refusal": "I will not"}
        item = {"id": "m", "type": "message", "role": "assistant", "content": [part]}
        last = {"id": "r", "status": "completed", "output": [item]}
        events = [(None, {"type": "response.completed", "response": last})]
    found = read(speaker, events)[0]
    assert (found.text, found.ending) == ("I will not", "withheld")


def test_thinking_that_was_cut_before_its_signature_is_not_sent_back() -> None:
    events = [
        each
        for each in MESSAGES.stream([said("a"), thought("hm")], "max_tokens")
        if "signature_delta" not in json.dumps(each[1])
    ]
    found = read(MESSAGES, events)[0]
    assert found.reasoning == "hm"
    assert [json.loads(bytes(raw))["type"] for raw in found.native] == ["text"]


@by_wire
def test_a_piece_of_a_name_is_no_whole_call(speaker: Speaker) -> None:
    """The name may be what was cut."""
    assert speaker.answer(called("wi"), stop=speaker.cut[0]).cut == ("call_1",)


def test_every_word_of_the_table_is_in_lower_case_and_says_what_to_do() -> None:
    assert all(word == word.casefold().strip() for word in STOPS)
    for word, stop in STOPS.items():
        assert (stop.advice == "") is (stop.ending == "whole"), word


def test_calls_that_were_interleaved_are_cut_by_what_came_of_each() -> None:
    events = [
        chat_piece(0, "a", "f", ""),
        chat_piece(1, "b", "f", ""),
        chat_piece(0, None, None, '{"x": '),
        chat_piece(1, None, None, '{"x": 2}'),
        chat_chunk({}, "length"),
    ]
    assert read(CHAT, [(None, each) for each in events])[0].cut == ("a", "b")
