"""The one helper: what annotations say, in words, and what it costs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from addendum.allowed import MOST
from addendum.checked import (
    SECRET,
    SHALLOW,
    AtLeastNone,
    AtLeastOne,
    Attribute,
    Location,
    Seconds,
    Word,
    check_fields,
    check_value,
    check_word,
    checks_arguments,
    nearest,
)
from addendum.errors import ConfigurationError

pytestmark = pytest.mark.anyio


class Inner(Struct, frozen=True):
    word: Word = "x"

    def __post_init__(self) -> None:
        check_fields(self)


class Thing(Struct, frozen=True):
    kind: Literal["a", "b", "c"] = "a"
    names: tuple[Word, ...] = ()
    one_or_many: Word | tuple[Word, ...] = "x"
    pairs: Annotated[tuple[tuple[str, str], ...], SECRET] = ()
    share: Annotated[float, Meta(gt=0, le=1)] | None = None
    inner: Inner | None = None

    def __post_init__(self) -> None:
        check_fields(self)


class Broken(list[Any]):
    """A list that fails when it is looked at."""

    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        return "<broken>"


FAULTS: list[tuple[Any, Any, str]] = [
    (Literal["a", "b"], "A", "W(x='A'): must be 'a' or 'b'"),
    (Literal["a", "b"] | None, 1, "W(x=1): must be 'a', 'b' or None"),
    (Literal["a", "b"] | None, ["a"], "W(x=['a']): must be 'a', 'b' or None"),
    (bool, 1, "W(x=1): must be True or False"),
    (AtLeastOne, 0, "W(x=0): must be a whole number of 1 or more"),
    (AtLeastNone, True, "W(x=True): must be a whole number of 0 or more"),
    (AtLeastNone, 1.0, "W(x=1.0): must be a whole number of 0 or more"),
    (Annotated[int, Meta(ge=1, le=9)], 10, "W(x=10): must be a whole number from 1 to 9"),
    (int, MOST + 1, f"W(x={MOST + 1}): must be a whole number and at most {MOST:,}"),
    (Seconds, 0, "W(x=0): must be a number above 0"),
    (Seconds, math.nan, "W(x=nan): must be a number above 0"),
    (Seconds | None, math.inf, "W(x=inf): must be a number above 0 or None"),
    (Seconds, 10**5000, f"W(x=a int): must be a number above 0 and at most {MOST:,}"),
    (
        AtLeastOne,
        -(10**5000),
        f"W(x=a int): must be a whole number of 1 or more and at most {MOST:,}",
    ),
    (Literal["a"], Broken(), "W(x=<broken>): must be 'a'"),
    (Sequence[Inner], Broken([Inner()]), "W(x=<broken>): must be a list of Inner(...)"),
    (
        Annotated[tuple[Word, ...], SECRET],
        Broken(["x"]),
        "W(x=...): must be a list of text, not a Broken",
    ),
    (str, None, "W(x=None): must be text"),
    (Word, "", "W(x=''): must be text that is not empty"),
    (Collection[str], "drop", "W(x='drop'): must be a list of text, such as ['drop']"),
    (Sequence[Inner], [Inner(), 5], "W(x[1]=5): must be Inner(...)"),
    (
        Sequence[Inner],
        Inner,
        "W(x=<class 'tests.test_checked.Inner'>): must be a list of Inner(...)",
    ),
    (Mapping[str, int], {"a": "b"}, "W(x['a']='b'): must be a whole number"),
    (Mapping[str, int], {1: 1}, "W(x[key]=1): must be text"),
    (Mapping[str, Any], [("a", 1)], "W(x=[('a', 1)]): must be a dict"),
    (Callable[[int], str], "f", "W(x='f'): must be a function"),
    (Inner | None, {}, "W(x={}): must be Inner(...) or None"),
    (Location, 5, "W(x=5): must be text or a path"),
    (tuple[int, str], (1,), "W(x=(1,)): must be (a whole number, text)"),
    (tuple[int, str], (1, 2), "W(x[1]=2): must be text"),
    (Annotated[str, SECRET], 5, "W(x=...): must be text, not an int"),
]


@pytest.mark.parametrize(("annotation", "value", "says"), FAULTS, ids=[says for *_, says in FAULTS])
def test_what_is_wrong_is_told_in_words(annotation: Any, value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_value("W", "x", value, annotation)
    assert str(caught.value) == says


class Texts(str):
    """What an enumeration of texts is, and a library's own text."""


RIGHT: list[tuple[Any, Any]] = [
    (Literal["a"], Texts("a")),
    (Seconds, 1),
    (Seconds, 0.001),
    (Collection[str], {"a"}),
    (Collection[str], {"a": 1}.keys()),
    (Sequence[str], ("a",)),
    (tuple[str, ...], ["a"]),
    (Mapping[str, int], {}),
    (Location, Path("x")),
    (Callable[..., Any], print),
    (Callable[..., Any], Path),
    (Annotated[Mapping[str, int], SHALLOW], {"a": "b"}),
    (Any, object()),
    (object, 5),
]


@pytest.mark.parametrize(("annotation", "value"), RIGHT, ids=range(len(RIGHT)))
def test_what_fits_is_taken(annotation: Any, value: Any) -> None:
    check_value("W", "x", value, annotation)


def test_lists_of_a_frozen_value_become_tuples() -> None:
    given = ["a", "b"]
    made = Thing(names=given, one_or_many=given, pairs=[["K", "v"]])  # type: ignore[arg-type]
    assert made == Thing(names=("a", "b"), one_or_many=("a", "b"), pairs=(("K", "v"),))
    given.append("c")
    assert made.names == ("a", "b")
    hash(made)


def test_a_secret_is_never_shown_and_nothing_is_long() -> None:
    for wrong in ({"KEY": "s3cret"}, [("KEY", "s3cret", 1)], "s3cret", [("KEY", b"s3cret")]):
        with pytest.raises(ConfigurationError) as caught:
            Thing(pairs=wrong)  # type: ignore[arg-type]
        assert "s3cret" not in str(caught.value)

    class Broken:
        def __repr__(self) -> str:
            raise ValueError

    for wrong in (
        "x" * 10**6,
        ["x"] * 10**6,
        {"a": ["x" * 10**6]},
        10**5000,
        Broken(),
        "a\n\x1b\ud800",
    ):
        with pytest.raises(ConfigurationError) as caught:
            Thing(kind=wrong)  # type: ignore[arg-type]
        said = str(caught.value)
        assert len(said) < 300 and said.isprintable() and said == " ".join(said.split())


@checks_arguments
def plain(kind: Literal["a"], *names: Word, many: Sequence[str] = ()) -> str:
    """Say it."""
    return f"{kind} {names} {many}"


@checks_arguments
async def later(kind: Literal["a"]) -> str:
    return kind


async def test_a_function_checks_before_it_does_anything() -> None:
    assert plain("a", "b", many=["c"]) == "a ('b',) ['c']"
    assert (plain.__name__, plain.__doc__) == ("plain", "Say it.")
    assert list(inspect.signature(plain).parameters) == ["kind", "names", "many"]
    for wrong in (lambda: plain("b"), lambda: plain("a", ""), lambda: plain("a", many="c")):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=r"^plain\("):
            wrong()
    with pytest.raises(TypeError, match="nothing"):
        plain("a", nothing=5)  # type: ignore[call-arg]
    assert inspect.iscoroutinefunction(later) and await later("a") == "a"
    with pytest.raises(ConfigurationError, match=r"^later\(kind='b'\)"):
        await later("b")  # type: ignore[arg-type]


def test_an_attribute_is_checked_whenever_it_is_set() -> None:
    class Holder:
        text = Attribute[str](str)

    one, other = Holder(), Holder()
    one.text, other.text = "a", "b"
    with pytest.raises(ConfigurationError, match=r"^Holder\(text=5\): must be text$"):
        one.text = 5  # type: ignore[assignment]
    assert (one.text, other.text) == ("a", "b")


def test_the_nearest_word_is_told_if_there_is_one() -> None:
    assert nearest("dorp", ["drop", "read"]) == "; did you mean 'drop'?"
    assert nearest("DROP", ["drop", "read"]) == "; did you mean 'drop'?"
    assert nearest("xyz", ["drop", "read"]) == ""
    with pytest.raises(ConfigurationError, match="must be 'a' or 'b'"):
        check_word("W", "x", "c", ("a", "b"))
