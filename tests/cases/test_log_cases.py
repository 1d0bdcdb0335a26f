"""Cases 1 to 13: what the log takes, and what comes back from the store."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw
from tests.cases.helpers import CONFIG, PARAMETERS, Story, open_log, reloaded, talking, tools, words

from addendum.agent.agent import Agent
from addendum.errors import AppendRefused, ConfigurationError, LogError, UnknownEvent
from addendum.log import codec
from addendum.log.events import (
    CompactionSummary,
    DeveloperMessage,
    EndSeed,
    EventData,
    RequestHeader,
    StepEnd,
    StepStart,
    SystemMessage,
    TurnEnd,
    TurnStart,
    Unknown,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import Header, ToolAddition, ToolRemoval, ToolSchema
from addendum.stores import MemoryStore, open_store
from addendum.tools.history import HistoryFold

B = ToolAddition("b")


def header(*schemas: ToolSchema) -> RequestHeader:
    return RequestHeader(Header(CONFIG, schemas), "initial")


def message(
    *content: ToolAddition | ToolRemoval, seq: int | None = None, turn: int = 1, step: int = 1
) -> DeveloperMessage:
    return DeveloperMessage(turn, step, content, seq)


def refused(log: SessionLog, data: EventData, why: str, **options: Any) -> None:
    """Check that an append is refused for a reason and leaves the log as it was."""
    events, nodes = list(log.events), list(log.surface.nodes)
    with pytest.raises(AppendRefused, match=why):
        log.append(data, **options)
    assert list(log.events) == events
    assert log.surface.nodes == nodes


def stored(log: SessionLog) -> list[bytes]:
    return [codec.encode_event(event) for event in log.events]


def test_case_01_append_numbers_and_freezes() -> None:
    log = open_log()
    length = len(log)
    given = header(*tools("a"))
    event = log.append(given)
    assert (event.seq, len(log)) == (length, length + 1)
    assert [each.seq for each in log.events] == list(range(len(log)))
    frozen: list[tuple[Any, str]] = [
        (event, "seq"),
        (event.data, "reason"),
        (given.header, "tools"),
        (given.header.tools[0], "description"),
    ]
    for value, name in frozen:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(value, name, "other")
    assert isinstance(given.header.tools, tuple)
    assert isinstance(given.header.tools[0].parameters, Raw)


def test_case_02_addition_with_an_earlier_header() -> None:
    log = open_log()
    seq = log.append(header(*tools("a b"))).seq
    event = log.append(message(B, seq=seq))
    assert event.surface_op == "append"
    assert log.surface.nodes[-1] is event


@pytest.mark.parametrize("offset", [0, 1, 5, -1])
def test_case_03_header_seq_is_no_earlier_header(offset: int) -> None:
    log = open_log()
    log.append(header(*tools("a b")))
    log.append(UserMessage(1, "hi"))
    # Its own seq, a later one, and the user message's.
    refused(log, message(B, seq=len(log) + offset), "no earlier header")


def test_case_04_header_seq_exactly_with_an_addition() -> None:
    log = open_log()
    seq = log.append(header(*tools("a b"))).seq
    refused(log, message(B), "with an addition, and only then")
    refused(log, message(ToolRemoval("b"), seq=seq), "with an addition, and only then")


@pytest.mark.parametrize("names", ["a", "a b b'"])
def test_case_05_header_defines_the_name_not_once(names: str) -> None:
    log = open_log()
    seq = log.append(header(*tools(names))).seq
    refused(log, message(B, seq=seq), rf"has {names.count('b')} tools named 'b'")


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        (ToolSchema("b", "Does b.", Raw(b'["q"]')), "parameters that are no object"),
        (ToolSchema("b", "Does b.", Raw(b"")), "parameters that are no JSON"),
        (ToolSchema("b", "Does b.", PARAMETERS, False), "deferral flag that is false"),
    ],
)
def test_case_06_definition_is_not_whole(definition: ToolSchema, why: str) -> None:
    log = open_log()
    seq = log.append(header(definition)).seq
    refused(log, message(B, seq=seq), why)
    # A definition without a description is no definition, and so no header.
    with pytest.raises(TypeError, match="description"):
        ToolSchema("b", parameters=PARAMETERS)  # type: ignore[call-arg]
    whole = open_log()
    whole.append(header(*tools("b")))
    lacking = stored(whole)
    lacking[-1] = lacking[-1].replace(b'"description":"Does b.",', b"")
    assert lacking != stored(whole)
    with pytest.raises(LogError, match="description"):
        SessionLog.load("s1", lacking)


@pytest.mark.anyio
async def test_case_07_tool_blocks_stand_in_developer_messages_only() -> None:
    log = open_log()
    log.append(UserMessage(1, "hi"))
    log.append(SystemMessage("You help."))
    block = b'[{"type":"tool-addition","tool_name":"b"}]'
    for place, member in ((-2, b'"text":"hi"'), (-1, b'"static":"You help."')):
        whole = stored(log)
        assert len(SessionLog.load("s1", whole)) == len(log)
        name = member.partition(b":")[0]
        for forged in (name + b":" + block, member + b',"content":' + block):
            changed = [*whole]
            changed[place] = whole[place].replace(member, forged)
            assert changed[place] != whole[place]
            with pytest.raises(LogError):
                SessionLog.load("s1", changed)
    # A definition inside a block is reserved.
    seq = log.append(header(*tools("b"))).seq
    log.append(message(B, seq=seq))
    inline = stored(log)
    inline[-1] = inline[-1].replace(b'"tool_name":"b"', b'"tool_name":"b","tool":{}')
    assert inline != stored(log)
    with pytest.raises(LogError):
        SessionLog.load("s1", inline)
    # The one way in from outside takes text alone.
    async with talking("anthropic:claude-opus-5-5") as talk:
        before = len(talk.session.log)
        with pytest.raises(ConfigurationError, match="must be text"):
            await talk.session.run(message(B, seq=seq))  # type: ignore[arg-type]
        assert len(talk.session.log) == before
        assert talk.lab.captures == []


@pytest.mark.parametrize(("turn", "step"), [(2, 1), (1, 2), (0, 1)])
def test_case_08_not_the_open_step(turn: int, step: int) -> None:
    log = open_log()
    seq = log.append(header(*tools("a b"))).seq
    refused(log, message(B, seq=seq, turn=turn, step=step), "is not open")
    log.append(StepEnd(1, 1))
    refused(log, message(B, seq=seq), "is not open")


def test_case_09_empty_message() -> None:
    story = Story("a")
    event = story.log.append(message())
    assert story.log.surface.nodes[-1] is event
    assert [story.told(letter) for letter in ("N", "A", "H")] == ["a", "a", "a"]
    head = story.log.surface.nodes[0].seq
    refused(story.log, message(), "may not replace the system head", replace=(head, head))
    assert reloaded(story.log).surface.nodes == story.log.surface.nodes
    story.compact()
    kinds = [type(node.data) for node in story.log.surface.nodes]
    assert kinds == [SystemMessage, CompactionSummary]
    assert event in story.log.events


def test_case_10_unknown_types() -> None:
    log = open_log()
    whole = stored(log)
    unknown = b'{"seq":%d,"time":7,"data":{"type":"weather/report","sky":"grey"}%s}'
    with pytest.raises(UnknownEvent, match=r"weather/report.*newer addendum"):
        SessionLog.load("s1", [*whole, unknown % (len(log), b"")])
    ignorable = unknown % (len(log), b',"ignorable":true')
    loaded = SessionLog.load("s1", [*whole, ignorable])
    assert isinstance(loaded.events[-1].data, Unknown)
    assert loaded.surface.nodes == []
    loaded.append(UserMessage(1, "hi"))
    assert loaded.events[-1].seq == len(whole) + 1
    # It goes on to a fork as it is.
    assert stored(loaded.fork("s2"))[len(whole)] == ignorable


KILLED = """
import os, signal, sys, anyio
from addendum.log.events import SessionStart, StepStart, TurnStart, UserMessage
from addendum.log.session_log import SessionLog
from addendum.stores import open_store

async def main():
    store = await open_store(sys.argv[1])
    lease = await store.acquire("s1")
    log = SessionLog("s1")
    for data in (SessionStart("s1"), TurnStart(1), StepStart(1, 1), UserMessage(1, "kept")):
        log.append(data)
    await log.flush(store, lease)
    log.append(UserMessage(1, "lost"))
    os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


@pytest.mark.anyio
async def test_case_11_killed_before_the_flush(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sessions.db'}"
    done = await anyio.run_process([sys.executable, "-c", KILLED, url], check=False)
    assert done.returncode == -signal.SIGKILL
    async with Agent("anthropic:claude-opus-5-5").open("s1", store=url) as session:
        events = session.log.events
        assert [event.seq for event in events] == list(range(len(events)))
        kinds = [type(event.data) for event in events[1:]]
        assert kinds == [TurnStart, StepStart, UserMessage, StepEnd, TurnEnd]
        end = events[-1].data
        assert isinstance(end, TurnEnd)
        assert end.reason == "interrupted"
        kept = events[3].data
        assert isinstance(kept, UserMessage)
        assert kept.text == "kept"
    store = await open_store(url)
    assert len(await store.read("s1")) == len(events)
    await store.aclose()


@pytest.mark.anyio
async def test_case_12_fork() -> None:
    story = Story("a", "a b", "a")
    log = story.log
    cut = story.messages[0].seq
    child = log.fork("s2", cut)
    assert list(child.events[: cut + 1]) == list(log.events[: cut + 1])
    marker = child.events[cut + 1].data
    assert marker == EndSeed("s2", "s1", cut + 1)
    assert child.inherited == cut + 1
    # The cut went through an open turn.
    assert [type(event.data) for event in child.events[cut + 2 :]] == [StepEnd, TurnEnd]
    folded = HistoryFold().read(child.events)
    assert words(folded.tools) == "a"
    assert [words(update.additions) for update in folded.updates] == ["b"]
    store = MemoryStore()
    async with talking("anthropic:claude-opus-5-5", store=store) as talk:
        await talk.say("hi")
        async with talk.session.fork("s2"):
            pass
    parents = {row.id: row.parent for row in await store.sessions()}
    assert parents == {"s1": None, "s2": "s1"}


@pytest.mark.parametrize("through", [lambda log: log, reloaded])
def test_case_13_empty_tools_are_absent(through: Callable[[SessionLog], SessionLog]) -> None:
    log = open_log()
    log.append(header())
    event = through(log).events[-1]
    assert b'"tools"' not in codec.encode_event(event)
    assert isinstance(event.data, RequestHeader)
    assert event.data.header.tools == ()
    log.append(header(*tools("a")))
    assert b'"tools"' in stored(through(log))[-1]
