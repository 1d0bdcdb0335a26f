from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.wire.responses_events import (
    SEALED,
    USAGE,
    Json,
    added,
    answer,
    called,
    completed,
    delta,
    done,
    event,
    natives,
    read,
    response,
    said,
)

from addendum import encoding
from addendum.errors import ProviderBusy, ProviderRefused, StreamBroken
from addendum.log.values import Call, Usage
from addendum.tools.envelope import meant
from addendum.wire.answer import CallArguments, CallStarted, ReasoningDelta, TextDelta
from addendum.wire.openai_responses.build import rewrite
from addendum.wire.openai_responses.parse import parse_body


def test_items_go_back_as_their_own_text_in_order() -> None:
    raw = b'{ "id":"msg_9", "type":"message",\n"role":"assistant","content":[],"phase":"x" }'
    first = b'{"type":"response.output_item.done","output_index":1,"item":%s}' % raw
    parser, _ = read(first, done(0, SEALED), completed())
    found = parser.finish()
    assert bytes(found.native[1]) == raw
    assert [item["id"] for item in natives(found)] == ["rs_1", "msg_9"]
    assert (found.message_id, found.model, found.stop) == ("resp_1", "m-1", "completed")


def test_what_was_read_and_written_lies_inside_the_prompt() -> None:
    usage = answer(said("a")).usage
    assert (usage.prompt, usage.cache_read, usage.cache_write, usage.output) == (30, 20, 8, 4)
    silent = read(done(0, said("a")), event("completed", response=response()))[0].finish()
    assert silent.usage == Usage()
    older = {"input_tokens": 5, "output_tokens": 1}
    told = read(event("completed", response=response(usage=older)))[0].finish().usage
    assert (told.prompt, told.cache_read, told.cache_write) == (5, None, None)


def test_deltas_of_every_kind() -> None:
    parser, deltas = read(
        event("created", response=response("in_progress")),
        added(0, {**SEALED, "encrypted_content": "early"}),
        delta("reasoning_summary_text", 0, "hm"),
        done(0, {**SEALED, "summary": [{"type": "summary_text", "text": "hm"}]}),
        added(1, {**said(""), "content": []}),
        delta("output_text", 1, "he"),
        delta("output_text", 1, "y"),
        done(1, said("hey")),
        added(2, called("c1", "look", "")),
        delta("function_call_arguments", 2, '{"q"'),
        delta("function_call_arguments", 2, ":1}"),
        done(2, called("c1", "look", '{"q":1}')),
        completed(),
        b"[DONE]",
    )
    assert deltas == [
        ReasoningDelta("hm"),
        TextDelta("he"),
        TextDelta("y"),
        CallStarted(0, "c1", "look"),
        CallArguments(0, '{"q"'),
        CallArguments(0, ":1}"),
    ]
    found = parser.finish()
    assert (found.text, found.reasoning) == ("hey", "hm")
    assert found.calls == (Call("c1", "look", '{"q":1}'),)
    assert natives(found)[0]["encrypted_content"] == "xyz"


def test_what_no_delta_told_is_told_with_the_item() -> None:
    refused = {**said(""), "content": [{"type": "refusal", "refusal": "no"}]}
    _, deltas = read(done(0, refused), done(1, called("c1", "look", "")), completed())
    assert deltas == [TextDelta("no"), CallStarted(0, "c1", "look"), CallArguments(0, "{}")]


def test_an_item_that_was_never_done_is_in_the_last_event() -> None:
    output = [SEALED, called("c1", "look")]
    parser, deltas = read(done(0, SEALED), completed(output=output))
    assert natives(parser.finish()) == output
    assert deltas == [CallStarted(0, "c1", "look"), CallArguments(0, "{}")]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    ended = response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    parser, _ = read(
        done(0, said("a", "msg_0")), done(1, SEALED), event("incomplete", response=ended)
    )
    found = parser.finish()
    assert natives(found) == [said("a", "msg_0")]
    assert found.stop == "max_output_tokens"


def test_reasoning_that_cannot_be_sent_back_goes_with_the_ids_it_led_to() -> None:
    bare = {"id": "rs_1", "type": "reasoning", "summary": []}
    kept = natives(answer(bare, called("c1", "look"), said("a")))
    assert kept == [
        {name: value for name, value in item.items() if name != "id"}
        for item in (called("c1", "look"), said("a"))
    ]


def test_a_rewritten_call_loses_its_id_and_the_reasoning_that_led_to_it() -> None:
    native = answer(
        SEALED, called("c1", "look", '{"q" : 1}'), called("c2", "a", "{}", "fc_2")
    ).native
    envelope = '{"name":"look","arguments":{"q" : 1}}'
    changed, other = map(json.loads, map(bytes, rewrite(native, {"c1": envelope}, "call_tool")))
    assert (changed["name"], changed["arguments"]) == ("call_tool", envelope)
    assert (other["name"], other["call_id"]) == ("a", "c2")
    assert "id" not in changed and "id" not in other


@pytest.mark.parametrize(
    "events",
    [
        [done(0, said("a"))],
        [{"type": "response.output_item.done", "item": said("a")}],
        [event("output_item.done", output_index=0)],
        [b"{"],
        [b"[]"],
    ],
)
def test_what_is_no_answer_breaks_the_stream(events: list[Json | bytes]) -> None:
    with pytest.raises(StreamBroken):
        read(*events)[0].finish()


def test_a_call_without_an_id_or_a_name_costs_only_itself() -> None:
    events = [done(0, {**called("c1", "look"), "call_id": ""}), done(1, called("c2", "see", "{}"))]
    found = read(*events, completed())[0].finish()
    own, other = found.calls
    assert (own.name, other) == ("look", Call("c2", "see", "{}"))
    assert [item["call_id"] for item in natives(found)] == [own.id, "c2"]
    nameless = read(done(0, {**called("c1", "look"), "name": None}), completed())[0].finish()
    assert [(call.id, call.name) for call in nameless.calls] == [("c1", "")]


def test_errors_in_the_stream() -> None:
    with pytest.raises(ProviderBusy, match="overloaded"):
        read({"type": "error", "code": "server_error", "message": "overloaded", "param": None})
    blamed = {"type": "invalid_request_error", "message": "too long"}
    with pytest.raises(ProviderRefused, match="too long"):
        read({"type": "error", "error": blamed})
    failed = response("failed", error={"code": "server_error", "message": "no luck"})
    with pytest.raises(ProviderBusy, match="no luck"):
        read(event("failed", response=failed))
    with pytest.raises(ProviderBusy, match="no luck"):
        parse_body(encoding.encode(failed))


def test_nothing_of_a_partial_answer_is_sent_back() -> None:
    parser, _ = read(done(0, said("a", "m")), delta("output_text", 1, "b"))
    partial = parser.partial()
    assert (partial.text, partial.native, partial.complete) == ("ab", (), False)


@given(st.data())
def test_a_stream_split_anyhow_is_the_body(data: st.DataObject) -> None:
    draw = data.draw
    items: list[Json] = []
    events: list[Json] = []
    for index in range(draw(st.integers(0, 4))):
        text = draw(st.text(max_size=12))
        kind = draw(st.sampled_from(["message", "function_call", "reasoning"]))
        if kind == "message":
            item, stream = said(text, f"m{index}"), "output_text"
        elif kind == "function_call":
            item, stream = called(f"c{index}", "t", text, f"f{index}"), "function_call_arguments"
        else:
            item = {**SEALED, "id": f"r{index}"}
            item["summary"] = [{"type": "summary_text", "text": text}]
            stream = "reasoning_summary_text"
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
        pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
        begun = {**item, **({"arguments": ""} if kind == "function_call" else {})}
        events += [added(index, begun), *(delta(stream, index, piece) for piece in pieces)]
        events.append(done(index, item))
        items.append(item)
    whole = response(usage=USAGE, output=items)
    parser, deltas = read(*events, event("completed", response=whole))
    found = parser.finish()
    assert found == parse_body(encoding.encode(whole))
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == found.text
    for place, call in enumerate(found.calls):
        told = [e for e in deltas if isinstance(e, CallArguments) and e.index == place]
        assert meant("".join(each.text for each in told)) == call.arguments


def test_raw_text_stays_the_models_own() -> None:
    item = Raw(
        b'{"type":"function_call","id":"f","call_id":"c","name":"t","arguments":"{\\"a\\" : 1}"}'
    )
    parser, _ = read(
        b'{"type":"response.output_item.done","output_index":0,"item":' + bytes(item) + b"}",
        completed(),
    )
    found = parser.finish()
    assert found.native == (item,)
    assert found.calls[0].arguments == '{"a" : 1}'
