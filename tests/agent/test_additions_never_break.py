"""A step that only adds new names breaks nothing, whatever was removed before it."""

from __future__ import annotations

import random

import pytest
from tests.cases.helpers import BY_REFERENCE, BY_VALUE, DEEPSEEK, declared, talking

from addendum.log.events import CacheBreak

pytestmark = pytest.mark.anyio

ADDITIONS = "anthropic:claude-opus-5-5+addition-only"
NATIVE = [DEEPSEEK, ADDITIONS, BY_REFERENCE, BY_VALUE, "openai:gpt-6.1-sol", "moonshot:kimi-k3"]
NAMES = "abcdefghijklmnopqrstuvwxyz"


def lives(seed: int, steps: int = 9) -> list[tuple[str, bool]]:
    """Return lists of active tools, each with whether it only adds names that are new."""
    chance = random.Random(seed)
    active, fresh = ["a"], 1
    found = [("a", False)]
    for _ in range(steps):
        what = chance.choice(("add", "add", "remove", "order", "both"))
        removes = what in ("remove", "both") and len(active) > 1
        if removes:
            for name in chance.sample(active, chance.randint(1, len(active) - 1)):
                active.remove(name)
        if what in ("add", "both"):
            for _ in range(chance.randint(1, 2)):
                active.append(NAMES[fresh])
                fresh += 1
        if what == "order":
            chance.shuffle(active)
        found.append((" ".join(active), not removes))
    return found


async def broken(route: str, said: list[tuple[str, bool]]) -> list[tuple[str, str, bool]]:
    """Return what broke: the tools, the reason, and whether nothing had been removed."""
    found: list[tuple[str, str, bool]] = []
    async with talking(route) as talk:
        for number, (active, adds) in enumerate(said):
            before = len(talk.session.log.events)
            await talk.say(f"turn {number}", active)
            found += [
                (active, event.data.reason, adds)
                for event in talk.session.log.events[before:]
                if isinstance(event.data, CacheBreak)
            ]
    return found


@pytest.mark.parametrize("route", NATIVE)
@pytest.mark.parametrize("seed", range(4))
async def test_new_names_break_nothing(route: str, seed: int) -> None:
    found = await broken(route, lives(seed))
    assert not [each for each in found if each[2]]
    # Removals break only where they are left out, and then they are the reason.
    leaves_out = route in (DEEPSEEK, ADDITIONS)
    assert {reason for _, reason, _ in found} <= ({"removal"} if leaves_out else set())


@pytest.mark.parametrize("route", [DEEPSEEK, ADDITIONS])
async def test_where_nothing_is_left_in_front_a_series_begins_once(route: str) -> None:
    said = [(each, True) for each in ("a", "a b", "b", "b c", "b c d", "d c b", "d", "d e")]
    found = await broken(route, said)
    assert [(active, reason) for active, reason, _ in found] == [("b", "removal"), ("d", "removal")]


async def test_what_stands_in_front_after_it_is_immediate_and_the_rest_deferred() -> None:
    async with talking(DEEPSEEK) as talk:
        for number, active in enumerate(("a", "a b", "b", "b c")):
            await talk.say(f"turn {number}", active)
        assert [declared(body) for body in talk.bodies] == [["a"], ["a", "b*"], ["b"], ["b", "c*"]]
