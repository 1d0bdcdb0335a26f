"""What a probe finds out about endpoints of the lab that do otherwise than published."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from addendum import Agent
from addendum.cache.spending import Spending, SpendingStopped
from addendum.errors import LimitReached, ProviderRefused
from addendum.lab.exchange import Switches
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import open_lab
from addendum.log.events import RequestContext
from addendum.log.values import Usage
from addendum.probe.conversation import CONTROL, Check, refused
from addendum.probe.endpoint import Form, facts, forms, probe
from addendum.probe.tasks import TASKS, run_tasks
from addendum.routes import resolve
from addendum.routes.probed import FOLDER_VARIABLE, Probed, keep
from addendum.stores import MemoryStore

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic:claude-opus-5-5"
DEEPSEEK = "deepseek:deepseek-flash"
OPENAI = "openai:gpt-6.1-sol"
TOLD = ("tool_update", "definitions", "removals", "readd", "redefine", "placeholder")

AS_PUBLISHED = ["add taken", "redefine taken", "remove taken", "readd taken"]


async def probed(name: str, switches: Switches | None = None) -> tuple[tuple[Form, ...], int]:
    async with open_lab(switches=switches) as lab:
        route = resolve(name, base_url=lab.base_url(name.partition(":")[0]), environ={})
        spending = Spending(route, None)
        found = await probe(route, spending)
        answered = [each for each in lab.captures if each.status == 200]
        assert spending.requests == len(answered)
        # Everything was asked once, and no two conversations begin alike.
        bodies = [each.body for each in lab.captures]
        assert len(set(bodies)) == len(bodies)
        return found, len(answered)


def verdicts(form: Form) -> list[str]:
    return [f"{check.what} {check.verdict}" for check in form.checks]


@pytest.mark.parametrize("name", [CLAUDE, DEEPSEEK, OPENAI])
async def test_an_endpoint_as_published_is_found_to_be_what_its_route_says(name: str) -> None:
    found, _ = await probed(name)
    route = resolve(name, environ={})
    told = facts(route, found)
    assert told is not None
    assert [getattr(told, field) for field in TOLD] == [
        getattr(route.capabilities, field) for field in TOLD
    ]
    taken = next(form for form in found if verdicts(form)[-1] != "add refused")
    assert taken.caches
    for check in taken.checks:
        if check.verdict == "taken" and check.what != "defer":
            assert (check.cache, check.control, check.called) == ("kept", "refused", True)


async def test_each_change_is_asked_for_in_each_form_of_the_wire() -> None:
    found, _ = await probed(CLAUDE)
    assert [form.form for form in found] == ["by-value", "by-reference"]
    assert verdicts(found[0]) == AS_PUBLISHED
    assert verdicts(found[1]) == ["defer taken", "add taken", "remove taken", "readd taken"]
    # The lab's Claude has a hidden preamble that a first deferred tool alters.
    assert [form.preamble for form in found] == [True, True]


async def test_a_refused_form_leaves_the_weaker_one() -> None:
    found, _ = await probed(CLAUDE, Switches(claude_tool_changes="by-reference"))
    assert verdicts(found[0]) == ["add refused"]
    assert found[0].checks[0].said == "tool_definition"
    told = facts(resolve(CLAUDE, environ={}), found)
    assert told is not None
    assert (told.tool_update, told.definitions, told.redefine) == (
        *("in-history", "by-reference"),
        False,
    )


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        pytest.param(CLAUDE, Switches(claude_tool_changes="none"), id="claude"),
        pytest.param(DEEPSEEK, Switches(deepseek_tool_changes=False), id="deepseek"),
        pytest.param(OPENAI, Switches(openai_additional_tools=False), id="openai"),
    ],
)
async def test_an_endpoint_that_refuses_every_form_takes_none(
    name: str, switches: Switches
) -> None:
    found, _ = await probed(name, switches)
    assert all(form.checks[-1].verdict == "refused" for form in found)
    told = facts(resolve(name, environ={}), found)
    assert told is not None and told.tool_update is None


@pytest.mark.parametrize("name", [CLAUDE, OPENAI])
async def test_an_endpoint_that_drops_what_it_does_not_know_is_found_out(name: str) -> None:
    found, _ = await probed(name, Switches(drops_unknown=True))
    for form in found:
        add = form.check("add")
        assert add is not None
        # The model obeys in any case, and the request was accepted: only the tokens tell.
        assert (add.verdict, add.control, add.called) == ("dropped", "accepted", True)
        assert add.prompt == add.control_prompt
        # A deferred entry is in the prompt all the same.
        assert form.check("defer") is None or form.checks[0].verdict == "dropped"
    told = facts(resolve(name, environ={}), found)
    assert told is not None and told.tool_update is None


async def test_a_wire_without_tool_changes_is_not_asked() -> None:
    assert forms(resolve("gemini:gemini-4-argon", environ={})) == ()
    assert await probed("gemini:gemini-4-argon") == ((), 0)


async def test_kimi_takes_tools_in_system_messages_and_other_chat_endpoints_refuse_them() -> None:
    found, _ = await probed("moonshot:kimi-k3")
    assert verdicts(found[0])[:2] == ["add taken", "remove in words"]
    told = facts(resolve("moonshot:kimi-k3", environ={}), found)
    assert told is not None
    assert (told.tool_update, told.definitions, told.removals) == (
        *("addition-only", "by-value"),
        "text",
    )
    found, _ = await probed("openai-chat:gpt-4.1")
    assert verdicts(found[0]) == ["add refused"]


async def test_the_control_differs_in_one_word() -> None:
    async with open_lab() as lab:
        route = resolve(OPENAI, base_url=lab.base_url("openai"), environ={})
        await probe(route, Spending(route, None))
        controls = [each for each in lab.captures if CONTROL.encode() in each.body]
        assert [each.status for each in controls] == [400, 400, 400]
        real = {each.body for each in lab.captures if each.status == 200}
        for control in controls:
            assert control.body.replace(CONTROL.encode(), b"additional_tools") in real


def form(**fields: object) -> Form:
    return Form("by-value", True, False, (Check("add", **fields),))  # type: ignore[arg-type]


def test_what_was_not_reported_decides_nothing() -> None:
    route = resolve(CLAUDE, environ={})
    assert facts(route, (form(verdict="unsure", called=True),)) is None
    # It was understood, and the model did not call it: that may be the model's mood.
    assert facts(route, (form(verdict="taken", called=False, cache="kept"),)) is None
    # A change that costs the cache is worth nothing.
    lost = facts(route, (form(verdict="taken", called=True, cache="lost"),))
    assert lost is not None and lost.tool_update is None
    assert facts(route, ()) is None


async def test_it_stops_once_it_is_too_dear() -> None:
    async with open_lab() as lab:
        route = resolve(CLAUDE, base_url=lab.base_url("anthropic"), environ={})
        spending = Spending(route, Decimal("0.001"))
        with pytest.raises(LimitReached, match="--max-cost"):
            await probe(route, spending)
        assert spending.requests == 1
    spending = Spending(route, Decimal(0))
    spending.add(Usage(), 0.0)
    spending.check()
    assert spending.spent is None
    strict = Spending(route, Decimal(0), unknown_stops=True)
    strict.check()
    strict.add(Usage(), 0.0)
    with pytest.raises(SpendingStopped, match="not known") as caught:
        strict.check()
    assert caught.value.code == "usage unknown"


async def test_a_new_session_goes_by_what_was_probed_and_an_old_one_as_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    store = MemoryStore()
    async with open_lab(switches=Switches(drops_unknown=True)) as lab:
        address = lab.base_url("anthropic")

        async def projection(session: str) -> list[str]:
            agent = Agent(CLAUDE, base_url=address, tool_dispatch=True)
            async with agent.open(session, store=store) as opened:
                await opened.run("hello")
                data = [event.data for event in opened.log.events]
            return [each.projection for each in data if isinstance(each, RequestContext)]

        assert await projection("old") == ["in-history"]
        route = resolve(CLAUDE, base_url=address, environ={})
        found = await probe(route, Spending(route, None))
        keep(route, Probed(route.name, address, "2026-11-30", "1", facts(route, found)))
        assert await projection("new") == ["dispatch"]
        assert await projection("old") == ["in-history"]


# -- tasks ----------------------------------------------------------------------------------


def tasks_script(*, wrong: str = "") -> Script:
    steps = [ScriptStep("Hello.", (Entry(text="Hi."),))]
    for task in TASKS:
        calls = tuple(ScriptCall(name, arguments) for name, arguments in task.calls)
        entries = (Entry(calls=calls), Entry(text="Done."))
        if task.text == wrong:
            # Refused first, then with other arguments than were asked for.
            first = ScriptCall("convert_money", {"amount": "much"})
            other = ScriptCall("convert_money", {"amount": 1, "source": "EUR", "target": "JPY"})
            entries = (Entry(calls=(first,)), Entry(calls=(other,)), Entry(text="Done."))
        steps.append(ScriptStep(task.text, entries))
    return Script(tuple(steps))


@pytest.mark.parametrize("name", [CLAUDE, OPENAI, "openai-chat:gpt-4.1"])
async def test_d14_tasks_are_scored_in_each_way(name: str) -> None:
    async with open_lab(tasks_script()) as lab:
        route = resolve(name, base_url=lab.base_url(name.partition(":")[0]), environ={})
        scores = await run_tasks(route, Spending(route, None))
    native = () if route.capabilities.tool_update is None else ("native",)
    assert [score.way for score in scores] == ["bind", *native, "dispatch"]
    for score in scores:
        assert (score.tasks, score.succeeded) == (len(TASKS), len(TASKS))
        assert (score.wrong_arguments, score.extra_requests, score.failed) == (0, 0, ())


async def test_d14_wrong_arguments_and_extra_requests_are_counted() -> None:
    wrong = TASKS[2].text
    async with open_lab(tasks_script(wrong=wrong)) as lab:
        route = resolve(CLAUDE, base_url=lab.base_url("anthropic"), environ={})
        scores = await run_tasks(route, Spending(route, None))
    for score in scores:
        assert (score.succeeded, score.failed) == (len(TASKS) - 1, (wrong,))
        assert (score.wrong_arguments, score.extra_requests) == (2, 1)


def test_the_tasks_are_told_apart_by_their_texts() -> None:
    assert len({task.text for task in TASKS}) == len(TASKS)


def test_a_refusal_that_is_about_something_else_says_nothing_of_tool_changes() -> None:
    assert refused("add", ProviderRefused("no", status=400)).verdict == "refused"
    for status in (401, 403, 404, 413):
        with pytest.raises(ProviderRefused):
            refused("add", ProviderRefused("no", status=status))
