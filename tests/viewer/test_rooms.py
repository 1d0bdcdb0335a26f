"""Conversations as a page drives them, and the event stream that tells of them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from tests.viewer.staged import OPUS, Stage, canned, long_log, spec, stage, stored, until

from addendum.agent.calls.approval import KINDS, pending
from addendum.lab.mcp_servers import CannedTool
from addendum.log.approvals import ApprovalAsked, AskedCall
from addendum.log.events import (
    AssistantMessage,
    Rewind,
    StepStart,
    ToolResult,
    ToolSwitch,
    TurnStart,
    UserMessage,
)
from addendum.log.values import Call
from addendum.stores import MemoryStore
from addendum.tell.words import words
from addendum.viewer import feed
from addendum.viewer.chat import items
from addendum.viewer.index import Index
from addendum.viewer.render import item_html
from addendum.viewer.watch import Watched

pytestmark = pytest.mark.anyio
CHAT = "openai-chat:gpt-4.1"


def session(url: str) -> str:
    return url.removeprefix("/s/")


def parsed(raw: bytes) -> tuple[int | None, str, Any]:
    """Take a server-sent event apart."""
    fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\n") if ": " in line)
    seq = fields.get("id")
    return (
        None if seq is None else int(seq.partition(".")[0]),
        fields.get("event", ""),
        json.loads(fields["data"]) if "data" in fields else None,
    )


class Tab:
    """A page of Chat as a browser has it: turns made of items, and what else it was told."""

    def __init__(self) -> None:
        self.turns: dict[int, dict[str, str]] = {}
        self.last = -1
        self.live = ""
        self.panel = ""
        self.closed = ""
        self.state: dict[str, bool] = {}
        self.heard: list[str] = []

    def hear(self, raw: bytes) -> None:
        seq, kind, data = parsed(raw)
        self.heard.append(kind)
        if seq is not None:
            self.last = seq
        if kind == "turn":
            old = self.turns.get(data["turn"], {})
            fresh = {key: html for key, (_, html) in data["items"].items()}
            self.turns[data["turn"]] = {key: (old | fresh)[key] for key in data["order"]}
        elif kind == "live":
            self.live = data["html"]
        elif kind == "panel":
            self.panel = data["html"]
        elif kind == "state":
            self.state = data
        elif kind == "closed":
            self.closed = data["why"]

    @property
    def text(self) -> str:
        return "".join(html for turn in sorted(self.turns) for html in self.turns[turn].values())


async def listen(tab: Tab, events: AsyncGenerator[bytes]) -> None:
    async with aclosing(events):
        async for raw in events:
            tab.hear(raw)


async def watched(staged: Stage, url: str) -> Watched:
    return await staged.house.watch.open(session(url))


# -- talking ------------------------------------------------------------------------------------


async def test_a_page_hears_a_conversation_and_goes_on_where_it_was() -> None:
    async with stage(spec("docs", [canned("find")])) as staged, anyio.create_task_group() as tasks:
        url = await staged.begin("hello " * 50)
        tab, seen = Tab(), await watched(staged, url)
        with anyio.CancelScope() as first:
            tasks.start_soon(listen, tab, feed.chat(staged.house, seen, -1, words("en")))
            await until(lambda: tab.state == {"busy": False, "waits": False, "open": True})
            await until(lambda: "docs" in tab.panel)
        assert "I heard" in tab.text and not first.cancel_called
        await staged.post(f"{url}/send", {"text": "and again"})
        await until(lambda: ("and again" in tab.text and "e" in tab.live) or tab.state["busy"])
        await staged.quiet(url)
        await until(lambda: 2 in tab.turns and "t2-bar" in tab.turns[2])
        assert "from cache" in tab.turns[2]["t2-bar"]
        # Another page comes back with what it saw last, and misses nothing.
        late = Tab()
        late.turns, late.last = dict(tab.turns), tab.last
        await staged.post(f"{url}/send", {"text": "third"})
        await staged.quiet(url)
        tasks.start_soon(listen, late, feed.chat(staged.house, seen, late.last, words("en")))
        await until(lambda: 3 in late.turns and "t3-bar" in late.turns[3])
        assert 1 not in {k for k in late.turns if late.turns[k] is not tab.turns.get(k)}
        tasks.cancel_scope.cancel()


async def test_a_switch_says_what_it_costs_before_it_is_made() -> None:
    async with stage(spec("docs", [canned("find"), canned("open")])) as staged:
        url = await staged.begin("hello " * 900)
        room = await staged.house.room(session(url))
        panel = await feed.panel_html(staged.house, room, words("en"))
        assert 'aria-checked="false"' in panel and "If switched on:" in panel
        assert "0 of" in panel and "a new tool list would cost $" in panel
        await staged.post(f"{url}/switch", {"server": "docs", "on": True})
        panel = await feed.panel_html(staged.house, room, words("zh"))
        assert 'aria-checked="true"' in panel and "2 个工具" in panel and "若关闭" in panel
        assert [e.data.on for e in room.session.log.events if isinstance(e.data, ToolSwitch)] == [
            True
        ]
        await staged.post(f"{url}/send", {"text": "and now?"})
        await staged.quiet(url)
        page = await staged.get(url)
        assert "Tools updated" in page and "Added: docs__find, docs__open" in page
        failed = await staged.post(f"{url}/switch", {"server": "nothing", "on": True}, 409)
        assert "docs" in failed["error"]


async def test_where_a_removal_breaks_the_panel_says_so_before() -> None:
    async with stage(
        spec("docs", [canned("find")]), route="anthropic:claude-opus-5-5+addition-only"
    ) as staged:
        url = await staged.begin("hello " * 900, "anthropic:claude-opus-5-5+addition-only")
        await staged.post(f"{url}/switch", {"server": "docs", "on": True})
        for text in ("what is there? " * 60, "and?", "more"):
            await staged.post(f"{url}/send", {"text": text})
            await staged.quiet(url)
        room = await staged.house.room(session(url))
        panel = await feed.panel_html(staged.house, room, words("en"))
        assert "If switched off:" in panel and "cost small free" not in panel
        await staged.post(f"{url}/switch", {"server": "docs", "on": False})
        await staged.post(f"{url}/send", {"text": "thanks"})
        await staged.quiet(url)
        page = await staged.get(url)
        assert "Cache break declared: a tool was removed" in page
        index = (await watched(staged, url)).index
        look = await staged.get(f"{url}/requests/{index.requests[-1].request.number}")
        assert "It read less than it could have" in look and "declared before it was sent" in look


async def test_a_dispatched_call_is_approved_in_place() -> None:
    servers = spec("docs", [canned("find", "found it")])
    async with stage(servers, route=CHAT) as staged, anyio.create_task_group() as tasks:
        url = await staged.begin("hello", CHAT)
        await staged.post(f"{url}/switch", {"server": "docs", "on": True})
        tab, seen = Tab(), await watched(staged, url)
        tasks.start_soon(listen, tab, feed.chat(staged.house, seen, -1, words("en")))
        await staged.post(f"{url}/send", {"text": '/call docs__find {"q": "x"}'})
        await until(lambda: 'class="ask"' in tab.text and tab.state.get("waits"))
        assert "docs__find" in tab.text and "call_tool" not in tab.text.split("ask", 1)[1]
        room = await staged.house.room(session(url))
        for path, body in (("send", {"text": "wait"}), ("again", {"turn": 1})):
            refused = await staged.post(f"{url}/{path}", body, 409)
            assert "decide them first" in refused["error"] and room.error == ""
        (pending,) = room.session.pending()
        bad = await staged.post(f"{url}/decide", {"decisions": []}, 409)
        assert "no object" in bad["error"]
        await staged.post(f"{url}/decide", {"decisions": {pending.call_id: {"kind": "approve"}}})
        await until(lambda: "found it" in tab.text)
        await staged.quiet(url)
        await until(lambda: "through call_tool" in tab.text and 'class="ask"' not in tab.text)
        assert "Approved" in tab.text
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("decision", "result"),
    [
        ({"kind": "deny", "text": "not now"}, "not now"),
        ({"kind": "respond", "text": "by hand"}, "by hand"),
        ({"kind": "edit", "arguments": '{"q": "other"}'}, "found it"),
    ],
    ids=["deny", "respond", "edit"],
)
async def test_a_call_is_decided_otherwise(decision: dict[str, str], result: str) -> None:
    async with stage(spec("docs", [canned("find", "found it")])) as staged:
        url = await staged.begin("hello")
        await staged.post(f"{url}/switch", {"server": "docs", "on": True})
        await staged.post(f"{url}/send", {"text": '/call docs__find {"q": "x"}'})
        await staged.quiet(url)
        room = await staged.house.room(session(url))
        (pending,) = room.session.pending()
        await staged.post(f"{url}/decide", {"decisions": {pending.call_id: decision}})
        await staged.quiet(url)
        results = [e.data for e in room.session.log.events if isinstance(e.data, ToolResult)]
        assert result in results[-1].text


async def test_an_answer_is_stopped_and_the_turn_tried_again() -> None:
    async with stage() as staged, anyio.create_task_group() as tasks:
        url = await staged.begin("hello")
        lab, room = staged.house.lab, await staged.house.room(session(url))
        assert lab is not None
        lab.stall_next("anthropic", after_events=4)
        tab, seen = Tab(), await watched(staged, url)
        tasks.start_soon(listen, tab, feed.chat(staged.house, seen, -1, words("en")))
        await staged.post(f"{url}/send", {"text": "something long"})
        await lab.until_stalled()
        await until(lambda: (tab.state.get("busy", False) and "answering" in tab.live) or tab.live)
        busy = await staged.post(f"{url}/send", {"text": "more"}, 409)
        assert "running" in busy["error"]
        await staged.post(f"{url}/stop", {})
        lab.release()
        await room.quiet.wait()
        await until(lambda: "The turn was stopped." in tab.text)
        await staged.post(f"{url}/again", {"turn": 2})
        await staged.quiet(url)
        await until(lambda: 3 in tab.turns and "I heard" in "".join(tab.turns[3].values()))
        said = [e.data.text for e in room.session.log.events if isinstance(e.data, UserMessage)]
        assert said == ["hello", "something long", "something long"]
        assert "Turns were cut here" in tab.text
        tasks.cancel_scope.cancel()


async def test_a_failure_is_told_and_leaves_the_conversation_usable() -> None:
    async with stage() as staged:
        url = await staged.begin("hello")
        room = await staged.house.room(session(url))
        assert staged.house.lab is not None
        staged.house.lab.fail_next("anthropic", status=400)
        await staged.post(f"{url}/send", {"text": "fails"})
        await staged.quiet(url)
        assert "400" in room.error or "fail" in room.error
        assert "The turn failed." in await staged.get(url)
        await staged.post(f"{url}/send", {"text": "works"})
        await staged.quiet(url)
        assert room.error == ""


async def test_a_message_is_edited_and_the_later_ones_go() -> None:
    async with stage() as staged:
        url = await staged.begin("one")
        for text in ("two", "three"):
            await staged.post(f"{url}/send", {"text": text})
            await staged.quiet(url)
        await staged.post(f"{url}/again", {"turn": 2, "text": "two, otherwise"})
        await staged.quiet(url)
        room = await staged.house.room(session(url))
        live = [
            n.data.text for n in room.session.log.surface.nodes if isinstance(n.data, UserMessage)
        ]
        assert live == ["one", "two, otherwise"]
        page = await staged.get(url)
        assert "two, otherwise" in page and "three" not in page
        for body in ({"turn": 2}, {"turn": 99}, {"turn": True}, {"turn": "1"}, {}):
            assert await staged.post(f"{url}/again", body, 409)
        rewinds = [e for e in room.session.log.events if isinstance(e.data, Rewind)]
        assert len(rewinds) == 1
        await staged.post(f"{url}/again", {"turn": 4})
        await staged.quiet(url)
        reasons = [e.data.reason for e in room.session.log.events if isinstance(e.data, Rewind)]
        assert reasons == ["edit", "retry"]


async def test_a_conversation_is_forked_at_a_turn() -> None:
    async with stage() as staged:
        url = await staged.begin("one")
        for text in ("two", "three"):
            await staged.post(f"{url}/send", {"text": text})
            await staged.quiet(url)
        child = (await staged.post(f"{url}/fork", {"turn": 2}))["url"]
        page = await staged.get(child)
        assert "two" in page and "Everything above was taken over from" in page
        await staged.post(f"{child}/send", {"text": "another way"})
        await staged.quiet(child)
        room = await staged.house.room(session(child))
        live = [
            n.data.text for n in room.session.log.surface.nodes if isinstance(n.data, UserMessage)
        ]
        assert live == ["one", "two", "another way"]
        parent = await staged.house.room(session(url))
        assert parent.session.log.turns == 3


async def test_another_route_is_taken_from_the_next_message_on() -> None:
    async with stage() as staged:
        url = await staged.begin("one")
        assert await staged.post(f"{url}/route", {"route": CHAT}) == {"route": CHAT}
        await staged.post(f"{url}/send", {"text": "two"})
        await staged.quiet(url)
        assert f"From here on {CHAT}" in await staged.get(url)
        wrong = await staged.post(f"{url}/route", {"route": "nobody:nothing"}, 409)
        assert "nobody" in wrong["error"]
        seen = await watched(staged, url)
        assert [each.request.route for each in seen.index.requests] == [OPUS, CHAT]


async def test_a_fork_goes_on_with_the_route_that_was_chosen_last() -> None:
    async with stage() as staged:
        url = await staged.begin("one")
        await staged.post(f"{url}/route", {"route": CHAT})
        child = (await staged.post(f"{url}/fork", {}))["url"]
        await staged.post(f"{child}/send", {"text": "two"})
        await staged.quiet(child)
        seen = await watched(staged, child)
        assert [each.request.route for each in seen.index.requests] == [OPUS, CHAT]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "  "},
        {"text": 7},
        {"text": "hi", "route": ["x"]},
        {"text": "hi", "route": "x:y"},
    ],
    ids=["nothing", "blank", "number", "list", "unknown"],
)
async def test_what_cannot_begin_says_why_and_leaves_nothing(body: dict[str, Any]) -> None:
    async with stage() as staged:
        assert (await staged.post("/new", body, 409))["error"]
        assert await staged.house.store.sessions() == []


async def test_a_session_goes_on_with_its_own_prompt_and_its_prefix() -> None:
    store = MemoryStore()
    async with stage(store=store, instructions="The first prompt. " * 200) as staged:
        url = await staged.begin("one")
    async with stage(store=store, instructions="Another prompt. " * 200) as staged:
        await staged.post(f"{url}/send", {"text": "two"})
        await staged.quiet(url)
        last = (await watched(staged, url)).index.requests[-1]
        assert last.request.number == 2 and last.request.breaks == ()
        assert "begins with all of request 1" in await staged.get(f"{url}/diff/1/2")
        other = await staged.begin("three")
        assert "Another prompt." in await staged.get(f"{other}/trajectory")


async def test_hostile_servers_and_tools_are_names_in_the_panel() -> None:
    evil = '<img src=x onerror="hit()">'
    said = evil + "\u202e</p><script>hit()</script>"
    tool = CannedTool("t", said, {"type": "object"}, said)
    async with stage(spec(evil, [tool])) as staged:
        url = await staged.begin("hello")
        await staged.post(f"{url}/switch", {"server": evil, "on": True})
        room = await staged.house.room(session(url))
        panel = await feed.panel_html(staged.house, room, words("en"))
        assert "<img" not in panel and "<script" not in panel
        assert "\u202e" not in re.sub(r"<[^>]*>", "", panel)
        assert "&lt;img src=x" in panel and 'aria-checked="true"' in panel


async def test_what_comes_in_is_shown_as_it_comes() -> None:
    async with stage() as staged, anyio.create_task_group() as tasks:
        url = await staged.begin("hello")
        lab, room = staged.house.lab, await staged.house.room(session(url))
        assert lab is not None
        lab.stall_next("anthropic", after_events=4)
        await staged.post(f"{url}/send", {"text": "something **long**"})
        await lab.until_stalled()
        tab, seen = Tab(), await watched(staged, url)
        tasks.start_soon(listen, tab, feed.chat(staged.house, seen, -1, words("en")))
        await until(lambda: "I heard" in tab.live and tab.state.get("busy"))
        assert "I heard" not in "".join(tab.turns[2].values())
        lab.release()
        await room.quiet.wait()
        await until(lambda: "I heard" in "".join(tab.turns[2].values()) and tab.live == "")
        assert "<strong>long</strong>" in "".join(tab.turns[2].values())
        tasks.cancel_scope.cancel()


# -- looking ------------------------------------------------------------------------------------


async def test_what_another_process_adds_is_followed() -> None:
    store = MemoryStore()
    log = long_log(2)
    await stored(store, log)
    async with stage(store=store) as staged, anyio.create_task_group() as tasks:
        seen = await staged.house.watch.open("long")
        rows: list[str] = []
        last = len(log) - 1

        async def follow() -> None:
            async for raw in feed.ledger(staged.house, seen, last, words("en")):
                _, kind, data = parsed(raw)
                if kind == "rows":
                    rows.append(data["html"])

        tasks.start_soon(follow)
        turn = log.append(TurnStart(3))
        log.append(UserMessage(turn.data.turn, "from elsewhere"))  # type: ignore[union-attr]
        await stored(store, log)
        await until(lambda: any("from elsewhere" in html for html in rows))
        tasks.cancel_scope.cancel()


async def test_a_session_that_another_process_holds_can_be_read_only() -> None:
    store = MemoryStore()
    await stored(store, long_log(2))
    await store.acquire("long")
    async with stage(store=store) as staged, anyio.create_task_group() as tasks:
        seen, tab = await staged.house.watch.open("long"), Tab()
        tasks.start_soon(listen, tab, feed.chat(staged.house, seen, -1, words("en")))
        await until(lambda: tab.closed != "" and 2 in tab.turns)
        assert "long" in tab.closed
        assert await staged.post("/s/long/send", {"text": "hi"}, 409)
        tasks.cancel_scope.cancel()


async def test_rooms_close_when_the_house_does_and_leave_no_lease() -> None:
    store = MemoryStore()
    async with stage(store=store) as staged:
        url = await staged.begin("hello")
    lease = await store.acquire(session(url), create=False)
    await store.release(lease)


async def test_only_so_many_streams_are_open() -> None:
    store = MemoryStore()
    await stored(store, long_log(1))
    async with stage(store=store) as staged:
        staged.house.streams = 256
        answer = await staged.client.get("/s/long/events?view=ledger")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")


async def test_calls_that_wait_together_are_decided_together() -> None:
    log = long_log(1)
    log.append(TurnStart(2))
    log.append(StepStart(2, 1))
    log.append(UserMessage(2, "both"))
    calls = tuple(Call(f"w{at}", "look", '{"q": "x"}') for at in range(2))
    log.append(AssistantMessage(2, 1, OPUS, "anthropic_messages", calls=calls))
    asked = tuple(AskedCall(each.id, each.name, each.arguments, reason="why") for each in calls)
    log.append(ApprovalAsked(2, 1, asked))
    index = Index()
    index.read(log.events)
    waiting = pending(log.asked, KINDS)
    found = items(log.events, index, 2, words("en"), waiting)
    kinds = [item.kind for item in found]
    assert kinds == ["user", "ask", "ask", "ask_all"]
    html = "".join(item_html(item, "/s/x", words("en"), True) for item in found)
    assert html.count('value="approve"') == 2 and "Approve all 2" in html
    # Whoever only looks sees the calls, and no buttons.
    read = "".join(item_html(item, "", words("en"), False) for item in found)
    assert "look" in read and "<button" not in read
