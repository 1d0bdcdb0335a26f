"""A call that fails again and again is told to stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.gates import DISPATCH, Tools, agent, call
from tests.agent.trouble import world

from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep

pytestmark = pytest.mark.anyio


async def _told(tmp_path: Path, *rounds: tuple[ScriptCall, ...]) -> list[tuple[str | None, str]]:
    tools = Tools()
    async with world(tmp_path, DISPATCH) as here:
        entries = (*(Entry(calls=calls) for calls in rounds), Entry(text="done"))
        here.lab.script = Script((ScriptStep("go", entries), ScriptStep("again", entries)))
        async with agent(here, tools).open("s", store=here.url) as session:
            await session.run("go")
            first = len(await here.results())
            await session.run("again")
            results = await here.results()
            # A new turn begins to count anew.
            assert [each.text for each in results[first:]] == [
                each.text for each in results[:first]
            ]
        return [(each.code, each.text) for each in results[:first]]


@pytest.mark.parametrize(
    ("made", "code", "move"),
    [
        pytest.param(call("clock", "dispatch"), "E6", "call it directly", id="bound"),
        pytest.param(call("nothing", "dispatch"), "E4", "use another tool", id="unknown"),
        pytest.param(call("weather", days="x"), "E9", "change the arguments", id="arguments"),
        pytest.param(
            ScriptCall("call_tool", {"name": "call_tool", "arguments": {}}, "direct"),
            "E3",
            "put the name",
            id="nested",
        ),
    ],
)
async def test_the_third_same_failure_is_short_and_says_what_to_do(
    made: ScriptCall, code: str, move: str, tmp_path: Path
) -> None:
    told = await _told(tmp_path, (made,), (made,), (made,), (made,))
    assert {each for each, _ in told} == {code}
    assert told[0] == told[1]
    assert told[2][1].startswith("Stop:") and "3 times" in told[2][1] and move in told[2][1]
    assert "4 times" in told[3][1]
    if code == "E9":
        assert len(told[2][1]) < len(told[0][1])


async def test_another_call_or_another_failure_does_not_count(tmp_path: Path) -> None:
    told = await _told(
        tmp_path,
        (call("weather", days="x"),),
        (call("weather", days="y"),),
        (call("nothing", "dispatch"),),
        (call("weather", days="x"), call("weather", days="z")),
        (call("weather", city="Atlantis"),),
        (call("weather", city="Atlantis"),),
        (call("weather", city="Atlantis"),),
    )
    # What a tool itself gives may be another thing next time: only wrong calls are counted.
    assert not any(text.startswith("Stop:") for _, text in told)


async def test_the_same_call_three_times_at_once(tmp_path: Path) -> None:
    made = call("weather", days="x")
    told = await _told(tmp_path, (made, made, made))
    assert [text.startswith("Stop:") for _, text in told] == [False, False, True]
