from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.encoding import digest
from addendum.errors import ConfigurationError
from addendum.tools.names import check_function_names, model_name


def suffixed(full: str, stem: str) -> str:
    return f"{stem[:55]}_{digest(full)[:8]}"


@pytest.mark.parametrize(
    ("server", "tool", "stem"),
    [
        ("my server", "a.b/c", "my_server__a_b_c"),
        ("github", "größe", "github__gr__e"),
        ("a__b", "c", "a__b__c"),
        ("s", "x" * 62, "s__" + "x" * 52),
        ("s", "x" * 200, "s__" + "x" * 52),
        ("7zip", "list", "_7zip__list"),
        ("-", "x", "_-__x"),
        ("", "x\ud800", "__x_"),
    ],
)
def test_a_name_that_no_provider_takes_gets_a_digest(server: str, tool: str, stem: str) -> None:
    full = f"{server}__{tool}".replace("\ud800", "\ufffd")
    assert model_name(server, tool, ()) == suffixed(full, stem)


@pytest.mark.parametrize(
    ("server", "tool"), [("github", "search"), ("_x", "a-b"), ("s", "x" * 61), ("s", "a__b")]
)
def test_a_good_name_stays_as_it_is(server: str, tool: str) -> None:
    assert model_name(server, tool, ()) == f"{server}__{tool}"


def test_a_taken_name_gets_a_digest_and_two_of_one_full_name_differ() -> None:
    first = model_name("a", "b__c", set())
    second = model_name("a__b", "c", {first})
    third = model_name("a", "b__c", {first, second})
    assert first == "a__b__c"
    assert second == suffixed("a__b__c", "a__b__c")
    assert len({first, second, third}) == 3


@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=20))
def test_any_names_become_different_good_ones(pairs: list[tuple[str, str]]) -> None:
    taken: set[str] = set()
    for server, tool in pairs:
        name = model_name(server, tool, taken)
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name)
        assert name not in taken
        assert name == model_name(server, tool, taken)
        taken.add(name)


@pytest.mark.parametrize("name", ["", "1x", "a b", "x" * 65, "é"])
def test_function_names_must_be_taken_by_every_provider(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not usable"):
        check_function_names([name])


def test_function_names_must_differ_and_not_be_ours() -> None:
    check_function_names(["a", "b"], ["call_tool"])
    with pytest.raises(ConfigurationError, match="reserved"):
        check_function_names(["call_tool"], ["call_tool"])
    with pytest.raises(ConfigurationError, match="two function tools"):
        check_function_names(["a", "a"])
