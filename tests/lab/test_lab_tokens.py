"""The counting rule, the prefixes and the facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.lab import facts
from addendum.lab.prefix import running
from addendum.lab.token_history import TokenHistory
from addendum.lab.tokens import count, filler, segment, stream

MARK = {"type": "ephemeral"}


def test_a_segment_is_its_place_and_its_compact_json() -> None:
    made = segment("user", {"type": "text", "text": "grüß"})
    assert made.text == 'user{"text":"grüß","type":"text"}'.encode()
    assert len(made.text) == 35
    assert made.tokens == 9  # ceil(35 / 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "text", "text": "x", "cache_control": MARK}, {"text": "x", "type": "text"}),
        (
            {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "text", "text": "x"},
        ),
        (
            {"type": "tool_result", "content": [{"type": "text", "cache_control": MARK}]},
            {"type": "tool_result", "content": [{"type": "text"}]},
        ),
        (
            {"tool": {"type": "d", "definition": {"name": "a", "cache_control": MARK}}},
            {"tool": {"type": "d", "definition": {"name": "a"}}},
        ),
    ],
)
def test_marks_and_the_outermost_key_order_do_not_count(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert segment("user", one) == segment("user", other)


def test_a_mark_inside_arguments_is_data() -> None:
    call = {"type": "tool_use", "input": {"cache_control": MARK, "a": 1}}
    assert segment("assistant", call).text.endswith(
        b'{"input":{"cache_control":{"type":"ephemeral"},"a":1},"type":"tool_use"}'
    )


@given(st.lists(st.text(max_size=30), max_size=6))
def test_tokens_add_up_over_segments(texts: list[str]) -> None:
    row = [segment("user", {"text": text}) for text in texts]
    assert count(row) == sum(each.tokens for each in row)
    assert len(stream(row)) == 4 * count(row)
    for each in row:
        assert 4 * each.tokens - 3 <= len(each.text) <= 4 * each.tokens


def test_hidden_text_has_the_tokens_it_is_given() -> None:
    assert filler("hidden", 200).tokens == 200


def test_a_prefix_depends_on_its_key_its_parts_and_their_boundaries() -> None:
    base = running(b"k", [b"ab", b"c"])
    assert base[0] == running(b"k", [b"ab"])[0]
    assert base[1] != running(b"k", [b"a", b"bc"])[1]
    assert base[0] != running(b"x", [b"ab"])[0]


def test_a_history_forgets_what_a_later_stream_holds_and_what_has_expired() -> None:
    history = TokenHistory()
    history.add(b"k", b"aaaabbbb", 10.0)
    history.add(b"k", b"aaaabbbbcccc", 20.0)
    assert history.common(b"k", b"aaaabbbbxxxx", 15.0) == 2
    assert history.common(b"k", b"aaaabbbbccccdddd", 15.0) == 3
    assert history.common(b"k", b"aaxx", 15.0) == 0
    assert history.common(b"other", b"aaaabbbb", 15.0) == 0
    assert history.common(b"k", b"aaaabbbb", 20.0) == 0


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_the_common_tokens_are_those_of_the_longest_common_beginning(
    front: bytes, one: bytes, other: bytes
) -> None:
    history = TokenHistory()
    first, second = front + one, front + other
    history.add(b"k", first, 1.0)
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert history.common(b"k", second, 0.0) == expected // 4


def test_every_fact_has_a_source_and_a_date() -> None:
    found = [value for value in vars(facts).values() if isinstance(value, facts.Fact)]
    assert len(found) > 15
    for fact in found:
        assert fact.source
        assert msgspec.convert(fact.checked, str).startswith("2026-")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("claude-opus-5-5", True),
        ("claude-opus-5-5-20260801", True),
        ("claude-opus-5-5-latest", True),
        ("claude-opus-5-5-fast", False),
    ],
)
def test_claude_models_by_name(name: str, known: bool) -> None:
    assert (facts.claude_model(name) is not None) is known


@pytest.mark.parametrize(
    ("name", "exact", "step"),
    [
        ("gpt-4o-mini", False, 128),
        ("gpt-4.1", False, 128),
        ("gpt-5", False, 128),
        ("gpt-5.4-nano", False, 128),
        ("gpt-5.5", False, 2048),
        ("gpt-5.6-luna", True, 128),
        ("gpt-6", True, 128),
        ("gpt-6.1-sol-2026-10-01", True, 128),
        ("o4-mini", False, 128),
    ],
)
def test_openai_models_by_name(name: str, exact: bool, step: int) -> None:
    model = facts.chat_model(name)
    assert model is not None
    assert (model.exact, model.step) == (exact, step)


def test_an_unknown_openai_model() -> None:
    assert facts.chat_model("llama-4") is None
