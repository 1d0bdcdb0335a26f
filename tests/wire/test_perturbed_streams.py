"""One thing changed in a good stream costs only itself: 10,000 streams here, more in `make`."""

from __future__ import annotations

import random

import pytest
from scripts.perturb import Case, answered, case, judge, run
from tests.wire.wires import CHAT, MESSAGES, SPEAKERS, Speaker, called, said

from scripts import perturb

pytestmark = pytest.mark.anyio

EACH = 1_000
SESSIONS = 60


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.wire)
async def test_one_change_costs_only_itself(speaker: Speaker, seed: int) -> None:
    report = await run(EACH, seed, speaker=speaker, sessions=SESSIONS)
    assert report.wrong == []
    assert (report.cases, report.sessions) == (EACH, SESSIONS)
    # Few changes take the end away, and an answer without one is none.
    assert report.errors < EACH // 10
    assert len(report.kinds) == 7


# -- that it would be noticed -------------------------------------------------------------------


def _made(events: list[perturb.Event], touched: int) -> Case:
    parts = [said("one ", "two "), called("look", '{"q": "x"}', id="c0")]
    good = CHAT.stream(parts, "tool_calls")
    return Case(CHAT, parts, good, events or good, frozenset({touched}), "kind", "kind x")


def test_what_is_lost_is_noticed() -> None:
    good = _made([], 99)
    found = answered(good, random.Random(1))
    assert list(judge(good, found)) == []
    less = _made([each for each in good.good if b"two" not in str(each).encode()], 99)
    assert "lost text" in "".join(judge(less, answered(less, random.Random(1))))
    without = _made([each for each in good.good if "tool_calls" not in str(each[1])], 99)
    assert "call c0 is not there" in "".join(judge(without, answered(without, random.Random(1))))
    cut = _made(list(good.good[:3]), 99)
    assert "an error where nothing of the end changed" in "".join(
        judge(cut, answered(cut, random.Random(1)))
    )


async def test_what_is_refused_later_is_noticed() -> None:
    played = perturb.Sessions()
    parts = [called("look", '{"q": "x"}', id="an id that Claude does not take")]
    made = Case(
        MESSAGES, parts, [], MESSAGES.stream(parts, "tool_use"), frozenset(), "kind", "kind x"
    )
    assert "pattern" in "".join(await played.play(made))
    await played.aclose()


def test_the_same_seed_gives_the_same_cases() -> None:
    for number in range(50):
        one, other = (case(random.Random(f"7 {number}")) for _ in range(2))
        assert one == other
