"""What a turn shows is in the store by then: results one by one, decisions before they act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.agent.stage import CHAT, CLAUDE, Stage, stage

from addendum import Approval
from addendum.agent.results import ToolFinished, ToolStarted
from addendum.errors import StoreError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log import codec
from addendum.log.approvals import ApprovalDecided
from addendum.log.events import ToolCall, ToolResult
from addendum.log.store import Lease
from addendum.stores import MemoryStore

pytestmark = pytest.mark.anyio


def asking(*names: str) -> Script:
    calls = tuple(ScriptCall(name, {}) for name in names)
    return Script((ScriptStep("go", (Entry(calls=calls), Entry(text="Done."))),))


class Counted(MemoryStore):
    """Counts its writes; fails some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[list[str]] = []
        self.fails = 0

    async def append(self, lease: Lease, expected: int, events: Sequence[bytes]) -> None:
        await anyio.lowlevel.checkpoint()  # as a real one, it takes a while
        kinds = [codec.decode_event(raw).type for raw in events]
        if self.fails and "tool/result" in kinds:
            self.fails -= 1
            raise StoreError("there is no room; free disk space")
        await super().append(lease, expected, events)
        self.kinds.append(kinds)

    async def stored(self, kind: type[Any]) -> list[Any]:
        data = [codec.decode_event(raw).data for raw in await self.read("s")]
        return [each for each in data if isinstance(each, kind)]


class Tools:
    """Two that end at once, one that waits for a word, one that fails."""

    def __init__(self) -> None:
        self.word = anyio.Event()

    async def quick(self) -> str:
        """End at once."""
        return "quick result"

    async def slow(self) -> str:
        """Wait for a word."""
        await self.word.wait()
        return "slow result"

    async def fails(self) -> str:
        """Fail."""
        raise ValueError("no")

    @property
    def all(self) -> list[Any]:
        return [self.quick, self.slow, self.fails]


def counted(here: Stage) -> Counted:
    store = here.store = Counted()
    return store


@pytest.mark.parametrize("route", [CLAUDE, CHAT])
@pytest.mark.parametrize(
    "names",
    [
        ("quick",),
        ("quick", "quick"),
        ("quick", "slow"),
        ("slow", "quick"),
        ("fails", "slow"),
        ("nobody", "slow"),
        ("nobody", "quick", "slow", "fails"),
    ],
    ids="-".join,
)
async def test_a_result_is_in_the_store_when_it_is_shown(
    names: tuple[str, ...], route: str
) -> None:
    async with stage(asking(*names)) as here:
        store, tools = counted(here), Tools()
        async with here.open(here.agent(route, tools=tools.all)) as session:
            shown: list[str] = []
            async for event in session.stream("go"):
                if isinstance(event, ToolStarted):
                    assert event.call_id in {c.call_id for c in await store.stored(ToolCall)}
                if isinstance(event, ToolFinished):
                    shown.append(event.text)
                    kept = await store.stored(ToolResult)
                    assert [each.text for each in kept[: len(shown)]] == shown
                # Nothing else runs any more: what is shown now does not wait for it.
                before = names[: names.index("slow")] if "slow" in names else names
                if len(shown) == len(before):
                    tools.word.set()
            assert len(shown) == len(names)


async def test_results_that_come_together_share_a_write() -> None:
    async with stage(asking(*["quick"] * 8)) as here:
        store = counted(here)
        async with here.open(here.agent(CLAUDE, tools=Tools().all)) as session:
            await session.run("go")
        written = [kinds for kinds in store.kinds if "tool/result" in kinds]
        assert written == [["tool/result"] * 8]
        turn = [kinds for kinds in store.kinds if "session/start" not in kinds]
        # The request, the calls, the results, the step; the second request, the end.
        assert len(turn) == 6


async def test_a_store_that_fails_stops_no_call_and_shows_nothing_that_it_lost() -> None:
    async with stage(asking("quick", "slow")) as here:
        store, tools = counted(here), Tools()
        async with here.open(here.agent(CLAUDE, tools=tools.all)) as session:
            store.fails = 1_000

            async def later() -> None:
                while store.fails == 1_000:
                    await anyio.lowlevel.checkpoint()
                tools.word.set()

            seen: list[Any] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(later)
                with pytest.raises(StoreError, match="free disk space"):
                    async for event in session.stream("go"):
                        seen.append(event)
            assert not [each for each in seen if isinstance(each, ToolFinished)]
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            assert [each.text for each in results] == ["quick result", "slow result"]
            store.fails = 0
        assert [each.text for each in await store.stored(ToolResult)] == [
            "quick result",
            "slow result",
        ]


async def test_what_was_missed_is_shown_once_the_store_takes_it() -> None:
    async with stage(asking("quick", "quick")) as here:
        store = counted(here)
        async with here.open(here.agent(CLAUDE, tools=Tools().all)) as session:
            store.fails = 1
            events = [event async for event in session.stream("go")]
        assert len([each for each in events if isinstance(each, ToolFinished)]) == 2


async def test_a_decision_is_in_the_store_before_its_call_starts() -> None:
    async with stage(asking("quick")) as here:
        store, tools = counted(here), Tools()
        agent = here.agent(CLAUDE, tools=tools.all, approval=Approval())
        async with here.open(agent) as session:
            result = await session.run("go")
            (waits,) = result.waiting
            async for event in session.stream_decide({waits.call_id: "approve"}):
                if isinstance(event, ToolStarted):
                    (decided,) = await store.stored(ApprovalDecided)
                    assert decided.decisions[0].kind == "approve"
