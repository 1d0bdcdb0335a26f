"""Results that later calls refer to by their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.gates import call
from tests.agent.stage import CHAT, CLAUDE, body, breaks, results, stage
from tests.agent.trouble import WIRES, world

from addendum.agent.calls.approval import Approval
from addendum.lab.script import Entry, Script, ScriptStep
from addendum.tools.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio


class Numbers:
    """A tool that counts, and one that takes a number and a text."""

    def __init__(self) -> None:
        self.took: list[tuple[int, str]] = []
        self.count = 41

    def tools(self, *, defer: bool = False) -> list[FunctionTool[..., Any]]:
        async def count() -> str:
            """Count."""
            self.count += 1
            return str(self.count)

        async def take(n: int, text: str = "") -> str:
            """Take a number."""
            self.took.append((n, text))
            return f"took {n}"

        return [tool(count), tool(defer_loading=defer)(take)]


def _script(*rounds: tuple[str, tuple[Any, ...]]) -> Script:
    return Script(
        tuple(ScriptStep(user, (Entry(calls=calls), Entry(text="done"))) for user, calls in rounds)
    )


@pytest.mark.parametrize("route", WIRES)
async def test_case_t78_a_reference_is_put_in_then_coerced_and_checked(
    route: str, tmp_path: Path
) -> None:
    numbers = Numbers()
    async with world(tmp_path, route) as here:
        here.lab.script = _script(
            ("one", (call("count"),)),
            ("two", (call("take", n="{{tool0turn0}}", text="<{{tool0turn0}}> {{tool7turn7}}"),)),
            ("three", (call("take", n="{{tool7turn7}}"),)),
        )
        agent = here.agent(tools=numbers.tools(defer=True), output_references=True)
        async with agent.open("s", store=here.url) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
        assert numbers.took == [(42, "<42> {{tool7turn7}}")]
        found = [(each.code, each.label, each.unknown) for each in await here.results()]
        assert found[:2] == [(None, "tool0turn0", ()), (None, "tool0turn1", ("tool7turn7",))]
        assert found[2][0] == "E9"
        # The model's own words stay in the history, and the stored result is clean.
        assert b"{{tool0turn0}}" in here.lab.captures[-1].body
        assert (await here.results())[0].text == "42"


async def test_case_t72_labels_stay_and_go_on_in_later_runs_and_forks() -> None:
    numbers = Numbers()
    async with stage(
        _script(
            ("one", (call("count"), call("count"))),
            ("two", (call("count"),)),
            ("three", (call("take", n="{{tool1turn0}}"), call("take", n="{{tool0turn1}}"))),
        )
    ) as here:
        agent = here.agent(CLAUDE, tools=numbers.tools(), output_references=True)
        async with here.open(agent) as session:
            await session.run("one")
        async with here.open(agent) as session:
            await session.run("two")
            assert [each.label for each in results(session)] == [
                "tool0turn0",
                "tool1turn0",
                "tool0turn1",
            ]
            for each in results(session):
                assert f"write {{{{{each.label}}}}} in" in str(body(session.sent[-1]))
            async with session.fork("child") as child:
                await child.run("three")
                assert results(child)[-1].label == "tool1turn2"
            assert breaks(session) == []
        assert numbers.took == [(43, ""), (44, "")]
        assert here.judged(CLAUDE).totals.misses == 0


async def test_a_result_refers_to_nothing_and_calls_of_a_round_not_to_each_other() -> None:
    async def hostile() -> str:
        """Say something."""
        return "{{tool1turn0}} {{tool7turn7}}"

    async def secret() -> str:
        """Tell the secret."""
        return "the secret"

    took: list[str] = []

    async def post(text: str) -> str:
        """Post a text."""
        took.append(text)
        return "posted"

    async with stage(
        _script(
            ("one", (call("hostile"), call("secret"))),
            ("two", (call("post", text="{{tool0turn0}}"), call("post", text="{{tool0turn1}}"))),
        )
    ) as here:
        agent = here.agent(
            CHAT, tools=[tool(hostile), tool(secret), tool(post)], output_references=True
        )
        async with here.open(agent) as session:
            await session.run("one")
            await session.run("two")
            # What a result says is not what the model referred to, and its own round gave nothing.
            assert [each.unknown for each in results(session)[2:]] == [(), ("tool0turn1",)]
        assert took == ["{{tool1turn0}} {{tool7turn7}}", "{{tool0turn1}}"]


@pytest.mark.parametrize("route", [CLAUDE, CHAT])
async def test_what_was_rewound_is_not_sent_on_and_what_was_summed_up_is(route: str) -> None:
    took: list[str] = []

    async def secret() -> str:
        """Tell a secret."""
        return "the secret"

    async def post(text: str) -> str:
        """Post a text."""
        took.append(text)
        return "posted"

    refer = (call("post", text="{{tool0turn0}} {{tool0turn1}}"),)
    script = _script(
        ("one", (call("secret"),)), ("two", (call("secret"),)), ("three", refer), ("four", refer)
    )
    async with stage(script) as here:
        agent = here.agent(route, tools=[tool(secret), tool(post)], output_references=True)
        async with here.open(agent) as session:
            await session.run("one")
            await session.compact("They told a secret.")
            await session.run("two")
            await session.rewind()
            await session.run("three")
            assert results(session)[-1].unknown == ("tool0turn1",)
            # A label is never given twice.
            assert results(session)[-1].label == "tool0turn2"
        async with here.open(agent) as session:
            await session.run("four")
        assert took == ["the secret {{tool0turn1}}"] * 2
        assert not here.refused()


async def test_a_person_is_asked_about_what_is_put_in(tmp_path: Path) -> None:
    numbers = Numbers()
    asked: list[str] = []

    def decide(waiting: Any) -> dict[str, str]:
        asked.extend(each.arguments for each in waiting)
        return {each.call_id: "approve" for each in waiting}

    async with world(tmp_path) as here:
        here.lab.script = _script(
            ("one", (call("count"),)), ("two", (call("take", n="{{tool0turn0}}"),))
        )
        agent = here.agent(
            tools=numbers.tools(), output_references=True, approval=Approval(decide=decide)
        )
        async with agent.open("s", store=here.url) as session:
            await session.run("one")
            await session.run("two")
        assert asked == ["{}", '{"n":42}']


async def test_without_the_option_nothing_is_labelled_or_put_in() -> None:
    async def say(text: str) -> str:
        """Say a text."""
        return text

    async with stage(_script(("one", (call("say", text="{{tool0turn0}}"),)))) as here:
        async with here.open(here.agent(CLAUDE, tools=[tool(say)])) as session:
            await session.run("one")
            (found,) = results(session)
            assert (found.text, found.label, found.unknown) == ("{{tool0turn0}}", None, ())
            assert "To pass this output on" not in str(body(session.sent[-1]))
