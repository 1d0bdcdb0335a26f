"""The rules for JSON and text from outside, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from addendum import encoding
from addendum.encoding import MAX_DEPTH
from addendum.errors import ContentError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('[]{}"\\,:aä\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\a'), inner),
)


def levels(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(levels, value.values()), default=0)
        case list():
            return 1 + max(map(levels, value), default=0)
        case _:
            return 0


def wrapped(value: Any, times: int) -> Any:
    for number in range(times):
        value = [value] if number % 2 else {'"]}\\': value}
    return value


DEEPEST = wrapped([], MAX_DEPTH - 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\ud800b"', "a\ufffdb"),
        ('"a\udfffb"', "a\ufffdb"),
        (r'"\ud83d\ude00 \\ud800"', "😀 \\ud800"),
        ("1" * 400, int("1" * 400)),
        ('{"a": 1, "a": 2}', {"a": 2}),
        (json.dumps(DEEPEST), DEEPEST),
    ],
    ids=["escaped surrogate", "bare surrogate", "a pair", "huge", "double key", "just so deep"],
)
def test_what_is_taken(text: str, value: Any) -> None:
    assert encoding.decode(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NaN", "not valid JSON"),
        ("[-Infinity]", "not valid JSON"),
        ("1e999", "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper than 200 levels"),
        ("[" * 1_000_000, "nested deeper than 200 levels"),
        ("1" * 101, "101 bytes is over the limit of 100"),
    ],
    ids=["nan", "infinity", "1e999", "no text", "cut off", "nothing", "deep", "deeper", "long"],
)
def test_what_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(ContentError, match=why):
        encoding.decode(text, limit=100 if why.endswith("100") else encoding.MAX_TEXT)


@given(values, st.integers(MAX_DEPTH - 5, MAX_DEPTH + 2))
def test_depth_is_counted_outside_strings(value: Any, times: int) -> None:
    # Brackets enough beside it: below 201 of them nothing is counted.
    deep = [wrapped(value, times), [[]] * MAX_DEPTH]
    assert encoding.too_deep(json.dumps(deep).encode()) == (levels(deep) > MAX_DEPTH)


def test_json_text_is_carried_as_it_is() -> None:
    raw = Raw(b'{ "b" : 1e2,"a":"\\u00e4" }')
    assert encoding.encode({"x": raw}) == b'{"x":' + bytes(raw) + b"}"


def test_compact_keeps_the_order_of_keys_and_canonical_does_not() -> None:
    assert bytes(encoding.compact('{ "b": 1, "a": [ 2 ] }')) == b'{"b":1,"a":[2]}'
    assert encoding.canonical(Raw(b'{ "b": 1, "a": [ 2 ] }')) == b'{"a":[2],"b":1}'


def test_a_lone_surrogate_is_refused_where_we_write() -> None:
    with pytest.raises(ContentError, match="lone surrogate"):
        encoding.encode({"a": "\ud800"})
    assert encoding.clean("a\ud800😀") == "a\ufffd😀"


class Marked(str):
    """As `markupsafe.Markup` or `numpy.str_`."""


class Count(int):
    """A whole number of somebody's own."""


class Share(float):
    """As `numpy.float64`."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Marked("ä"), '"ä"'),
        (Count(3), "3"),
        (Share(0.5), "0.5"),
        ({Marked("k"): [Marked("v"), Count(1)]}, '{"k":["v",1]}'),
    ],
)
def test_text_and_numbers_of_other_classes_are_text_and_numbers(value: Any, text: str) -> None:
    assert encoding.encode(value).decode() == encoding.canonical(value).decode() == text


@pytest.mark.parametrize("value", [object(), 1j, {"a": object()}, b"".join])
def test_what_is_no_json_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        encoding.encode(value)
