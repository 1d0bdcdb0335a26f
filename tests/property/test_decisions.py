"""A session that is opened again before every move decides as one that was kept open."""

from __future__ import annotations

import os
import zlib
from typing import Any, cast, get_args

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.property.deciding import CALLS, DECISIONS, HINTS, HOOKS, RULES, deciding
from tests.property.driver import NAMES, OWN, Home, Move

from addendum.agent.calls.approval import OnRedefinition

HOMES = [
    Home("by-value", "anthropic:claude-opus-5-5", "openai-chat:gpt-4.1"),
    Home("deepseek", "deepseek:deepseek-flash", "anthropic:claude-opus-5-5"),
    Home("dispatch", "openai-chat:gpt-4.1", "anthropic:claude-opus-5-5"),
    Home("rebind", "anthropic:claude-opus-4-8", "openai-chat:gpt-4.1", tool_changes="rebind"),
    Home("responses", "openai:gpt-6.1-sol", "gemini:gemini-3.8-flash"),
]

# ADDENDUM_EXAMPLES asks for that many other histories; ADDENDUM_DECISIONS for more of the same.
EXAMPLES = int(os.environ.get("ADDENDUM_EXAMPLES") or os.environ.get("ADDENDUM_DECISIONS") or "15")
PER_HOME = -(-EXAMPLES // len(HOMES))

TOOLS = ("look", "wipe", "safe")


def one_of(*moves: Move) -> st.SearchStrategy[Move]:
    return st.sampled_from(moves)


says = st.tuples(st.just("say"), st.sampled_from(TOOLS), st.sampled_from(list(HINTS)))
happens: st.SearchStrategy[Move] = st.one_of(
    says,
    says,
    st.tuples(st.just("reword"), st.sampled_from(TOOLS)),
    st.tuples(st.just("rules"), st.sampled_from(list(RULES))),
    st.tuples(st.just("hooks"), st.sampled_from(list(HOOKS))),
    st.tuples(st.just("refuse"), st.sampled_from(["disk__look", "disk__wipe", OWN, None])),
    st.tuples(st.just("disk"), st.booleans()),
    st.tuples(st.just("add"), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("redefine"), st.sampled_from([*NAMES, OWN])),
    one_of(("on",), ("off",), ("drop",), ("back",)),
)
"""What may happen at any time, also while a call waits for a person."""

between: st.SearchStrategy[Move] = st.one_of(
    happens,
    happens,
    one_of(("fork",), ("rewind",), ("retry",), ("compact",), ("wait",), ("weaken",)),
    one_of(("go", True), ("go", False), ("rehead",), ("series",), ("settings",)),
    one_of(("tail", "Be brief."), ("prompt", 0), ("fail",)),
)
decides = st.tuples(st.just("decide"), st.sampled_from(list(DECISIONS)))
thinking = st.lists(happens, max_size=2).flatmap(lambda moves: decides.map(lambda d: [*moves, d]))
turn = st.tuples(
    st.just("turn"),
    st.lists(st.sampled_from([*CALLS, *CALLS, "helper", "find", "hidden"]), min_size=1, max_size=2),
    st.lists(thinking, min_size=2, max_size=2).map(lambda rounds: rounds[0] + rounds[1]),
)
# What a server lists when a session is opened first is its head, so nothing changes it before.
first = st.lists(happens.filter(lambda move: move[0] not in ("say", "reword")), max_size=2)
histories = st.tuples(
    first, turn, st.lists(st.tuples(st.lists(between, max_size=2), turn), min_size=2, max_size=4)
).map(
    lambda parts: [
        *parts[0],
        parts[1],
        *(move for moves, said in parts[2] for move in [*moves, said]),
    ]
)


async def played(home: Home, action: OnRedefinition, history: list[Move]) -> list[list[Any]]:
    """Play a history twice."""
    found: list[list[Any]] = []
    for again in (False, True):
        async with deciding(home, action, again=again) as driver:
            found.append(await driver.decide(history))
    return found


def check(home: Home, action: OnRedefinition, history: list[Move]) -> list[Any]:
    kept, again = anyio.run(played, home, action, history)
    for place, (one, other) in enumerate(zip(kept, again, strict=False)):
        assert one == other, f"{place}: {difference(str(one), str(other))}"
    assert len(kept) == len(again)
    return kept


def difference(one: str, other: str) -> str:
    """Where two texts part."""
    place = next((p for p, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, place - 300)
    return f"...{one[start : place + 300]} and, opened again, ...{other[start : place + 300]}"


@pytest.mark.parametrize("action", get_args(OnRedefinition))
@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
@pytest.mark.timeout(3_600)
def test_a_session_that_is_opened_again_decides_alike(home: Home, action: str) -> None:
    @settings(
        max_examples=PER_HOME,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
        print_blob=True,
    )
    @given(histories)
    def alike(history: list[Move]) -> None:
        check(home, cast(OnRedefinition, action), history)

    if "ADDENDUM_EXAMPLES" not in os.environ:
        alike = seed(zlib.crc32(f"{home.name} {action}".encode()))(alike)
    alike()
