"""Cases 14 to 29: when a header is written, what starts a series, and where the prompt goes."""

from __future__ import annotations

import pytest
from tests.cases.helpers import (
    ADDITION_ONLY,
    BY_VALUE,
    CHAT,
    PLAIN,
    Talk,
    blocks,
    of,
    switch,
    talking,
    types,
    words,
)

from addendum.agent.session import Session
from addendum.lab.server import open_lab
from addendum.log.events import (
    DeveloperMessage,
    Event,
    RequestHeader,
    RequestSent,
    SystemMessage,
)
from addendum.routes import resolve
from addendum.stores import MemoryStore
from addendum.tools.history import ToolHistory

pytestmark = pytest.mark.anyio

ORDER = ("system/message", "user/message", "request/header", "developer/message", "request/context")


def headers(events: list[Event]) -> list[str]:
    """Write headers as `reason tools`, `+series` behind a reason that also starts one."""
    found: list[str] = []
    for event in of(events, RequestHeader):
        data = event.data
        assert isinstance(data, RequestHeader)
        series = " +series" if data.starts_series else ""
        found.append(f"{data.reason}{series} {words(data.header.tools)}".rstrip())
    return found


def messages(events: list[Event]) -> list[str]:
    """Write developer messages as their blocks."""
    found: list[str] = []
    for event in of(events, DeveloperMessage):
        assert isinstance(event.data, DeveloperMessage)
        found.append(blocks(event.data))
    return found


def folded(history: ToolHistory) -> tuple[str, list[str]]:
    return words(history.tools), [words(update.additions) for update in history.updates]


def prompts(session: Session) -> list[str]:
    """Return the prompt nodes of the surface, in order."""
    return [n.data.static for n in session.log.surface.nodes if isinstance(n.data, SystemMessage)]


def system(talk: Talk) -> tuple[str, list[str]]:
    """Return the system texts of the last request: in front, and in its messages."""
    body = talk.bodies[-1]
    later = [
        block["text"]
        for message in body["messages"]
        if message["role"] == "system"
        for block in message["content"]
        if block["type"] == "text"
    ]
    return "".join(block["text"] for block in body.get("system", [])), later


async def test_case_14_identical_requests() -> None:
    async with talking(BY_VALUE) as talk:
        assert headers(await talk.say("one")) == ["initial a"]
        assert headers(await talk.say("two")) == []


async def test_case_15_model_changed() -> None:
    async with talking(BY_VALUE, "a b") as talk:
        await talk.say("one")
        await talk.say("two", "a")
        before = talk.session.tool_history()
        talk.session.use("anthropic:claude-opus-5")
        events = await talk.say("three")
        assert (headers(events), messages(events)) == (["change a"], [])
        assert talk.session.tool_history() is before


async def test_case_16_tools_added() -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        # Another route at the same time, so that the context is logged too.
        talk.session.use("anthropic:claude-opus-5")
        talk.session.instructions = "You help in another way."
        events = await talk.say("two", "a b")
        assert (headers(events), messages(events)) == (["change a b"], ["+b"])
        assert types(events, *ORDER) == [*ORDER]
        developer = of(events, DeveloperMessage)[0].data
        assert isinstance(developer, DeveloperMessage)
        assert developer.header_seq == of(events, RequestHeader)[0].seq


async def test_case_17_one_message_additions_first() -> None:
    async with talking(BY_VALUE, "a b") as talk:
        await talk.say("one")
        events = await talk.say("two", "b c")
        assert (headers(events), messages(events)) == (["change b c"], ["+c -a"])


async def test_case_18_order_only() -> None:
    async with talking(BY_VALUE, "") as talk:
        await switch(talk.session, "a b")
        await talk.say("one")
        await switch(talk.session, "b")
        events = await talk.say("two", "b a")
        assert (headers(events), messages(events)) == (["change b a"], [])
        assert folded(talk.session.tool_history()) == ("", ["a b"])


@pytest.mark.parametrize("route", [BY_VALUE, PLAIN])
async def test_case_19_redefined(route: str) -> None:
    async with talking(route, "a b") as talk:
        await talk.say("one")
        events = await talk.say("two", "a' b")
        assert (headers(events), messages(events)) == (["change a' b"], [])
        assert folded(talk.session.tool_history()) == ("a' b", [])


async def test_case_20_explicit_series() -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        await talk.say("two", "a b")
        talk.session.start_series()
        events = await talk.say("three")
        assert (headers(events), messages(events)) == (["series a b"], [])
        assert folded(talk.session.tool_history()) == ("a b", [])
        talk.session.start_series()
        events = await talk.say("four", "b c")
        assert (headers(events), messages(events)) == (["change +series b c"], ["+c -a"])
        assert folded(talk.session.tool_history()) == ("b c", ["c"])
        assert headers(await talk.say("five")) == []


async def test_case_21_series_is_for_the_first_attempt() -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        talk.lab.fail_next("anthropic", status=529, retry_after=0, times=2)
        talk.session.start_series()
        events = await talk.say("two")
        assert [capture.status for capture in talk.lab.captures] == [200, 529, 529, 200]
        assert headers(events) == ["series a"]
        assert len(of(events, RequestSent)) == 1
        # The retries sent the very same bytes.
        assert len({capture.body for capture in talk.lab.captures[1:]}) == 1


@pytest.mark.parametrize("summary", ["what was said", None])
async def test_case_22_compaction(summary: str | None) -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        await talk.session.compact(summary)
        assert headers(await talk.say("two")) == ["series a"]
        assert headers(await talk.say("three")) == []


@pytest.mark.parametrize(
    ("active", "header", "message"),
    [("a b", "resume a b", []), ("a b c", "resume a b c", ["+c"])],
)
async def test_case_23_restart(active: str, header: str, message: list[str]) -> None:
    store = MemoryStore()
    async with open_lab() as lab:
        async with talking(BY_VALUE, lab=lab, store=store) as talk:
            await talk.say("one")
            await talk.say("two", "a b")
        async with talking(BY_VALUE, lab=lab, store=store) as talk:
            events = await talk.say("three", active)
            assert (headers(events), messages(events)) == ([header], message)
            added = ["b", *(["c"] if message else [])]
            assert folded(talk.session.tool_history()) == ("a", added)
            assert headers(await talk.say("four")) == []


async def test_case_24_compaction_before_the_first_resumed_request() -> None:
    store = MemoryStore()
    async with open_lab() as lab:
        async with talking(BY_VALUE, lab=lab, store=store) as talk:
            await talk.say("one")
            await talk.say("two", "a b")
        async with talking(BY_VALUE, lab=lab, store=store) as talk:
            await talk.session.compact("what was said")
            events = await talk.say("three")
            assert (headers(events), messages(events)) == (["resume +series a b"], [])
            assert folded(talk.session.tool_history()) == ("a b", [])


@pytest.mark.parametrize("route", [BY_VALUE, ADDITION_ONLY, PLAIN, CHAT])
async def test_case_25_first_request(route: str) -> None:
    async with talking(route, "a b* c") as talk:
        events = await talk.say("one")
        named = ["initial a b* c", "initial a b* c tool_search"]
        assert headers(events)[0] in named
        assert (len(headers(events)), messages(events)) == (1, [])
    # More than the head is active: head first, then what was switched on.
    async with talking(route) as talk:
        events = await talk.say("one", "a b")
        assert (headers(events), messages(events)) == (["initial a", "change a b"], ["+b"])
        assert folded(talk.session.tool_history()) == ("a", ["b"])


async def test_case_26_prompt_appended() -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        talk.session.instructions = "You help more."
        events = await talk.say("two")
        assert types(events, *ORDER) == ["system/message", "user/message"]
        assert prompts(talk.session) == ["You help.", "You help more."]
        assert system(talk) == ("You help.", ["You help more."])
        first, second = (body["system"] for body in talk.bodies)
        assert first == second


@pytest.mark.parametrize("later", [BY_VALUE, PLAIN, CHAT])
async def test_case_27_series_start_with_a_later_prompt(later: str) -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        talk.session.instructions = "You help more."
        await talk.say("two")
        talk.session.start_series()
        events = await talk.say("three")
        assert of(events, SystemMessage) == []
        assert prompts(talk.session) == ["You help.", "You help more."]
        talk.session.start_series()
        talk.session.instructions = "You help most."
        events = await talk.say("four")
        assert len(of(events, SystemMessage)) == 2
        assert prompts(talk.session) == ["You help most.", ""]
        assert system(talk) == ("You help most.", [])
        # A route that reads one prompt reads the same one.
        talk.session.use(resolve(later, base_url=talk.lab.base_url(later.split(":")[0])))
        events = await talk.say("five")
        assert of(events, SystemMessage) == []
        if later == CHAT:
            assert talk.bodies[-1]["messages"][0] == {"role": "system", "content": "You help most."}
        else:
            assert system(talk) == ("You help most.", [])


@pytest.mark.parametrize("route", [BY_VALUE, PLAIN])
async def test_case_28_empty_prompt(route: str) -> None:
    async with talking(BY_VALUE) as talk:
        await talk.say("one")
        talk.session.instructions = "You help more."
        await talk.say("two")
        talk.session.use(route)
        talk.session.instructions = ""
        events = await talk.say("three")
        assert len(of(events, SystemMessage)) == 2
        assert prompts(talk.session) == ["", ""]
        assert headers(events) == [
            "series a" if route == BY_VALUE else "change +series a",
        ]
        assert "system" not in talk.bodies[-1]
        assert system(talk) == ("", [])
        assert of(await talk.say("four"), SystemMessage) == []


@pytest.mark.parametrize("route", [PLAIN, CHAT])
async def test_case_29_route_without_updates(route: str) -> None:
    async with talking(route, tool_changes="rebind") as talk:
        await talk.say("one")
        events = await talk.say("two", "a b")
        assert (headers(events), messages(events)) == (["change a b"], ["+b"])
        assert prompts(talk.session) == ["You help."]
        assert folded(talk.session.tool_history()) == ("a", ["b"])
        # With another prompt the series starts, as the prompt is rewritten in place.
        talk.session.instructions = "You help more."
        events = await talk.say("three", "a")
        assert (headers(events), messages(events)) == (["change +series a"], ["-b"])
        assert prompts(talk.session) == ["You help more."]
