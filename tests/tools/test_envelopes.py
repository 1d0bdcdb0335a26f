"""Random envelopes: the short form of `scripts/envelopes.py`, and what hypothesis makes up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts.envelopes import FORBIDDEN, ROUND, Envelopes, judge, play

from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME

pytestmark = pytest.mark.anyio

SEEDS = st.integers(0, 2**32)


@settings(max_examples=10_000)
@given(SEEDS, st.text(max_size=40))
def test_10_000_random_envelopes(seed: int, text: str) -> None:
    """Those that the script makes, and any text at all."""
    name, arguments = Envelopes(random.Random(seed)).call()
    judge(name, arguments)
    judge(TOOL_DISPATCHER_NAME, text)
    judge(text or "?", arguments)


@pytest.mark.parametrize("seed", range(4))
async def test_a_round_of_random_calls_in_a_session(seed: int) -> None:
    envelopes = Envelopes(random.Random(seed))
    found = await play([envelopes.call() for _ in range(ROUND)])
    assert found.codes["ran"] and found.codes["BLOCKED"] and found.codes["DENIED"]
    assert found.codes.total() == ROUND
    assert not FORBIDDEN & {name for name, _ in found.ran}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("call_tool", '{"name":"switched_off"}'),
        ("call_tool", '{"name":"not_dispatchable","arguments":{}}'),
        ("removed", "{}"),
    ],
)
def test_the_judge_sees_what_is_forbidden(
    name: str, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts import envelopes

    judge(name, arguments)
    everything = {each.name: each for each in (*envelopes.ALLOWED, *envelopes.REFUSED)}
    monkeypatch.setattr(envelopes, "RULES", {"registry": everything, "bound": ()})
    with pytest.raises(AssertionError):
        judge(name, arguments)
