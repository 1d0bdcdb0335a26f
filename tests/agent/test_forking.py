"""A fork: the child has what its parent has, of what the log holds and of what it cannot hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.stage import CHAT, CLAUDE, fn, results, server, stage

from addendum.agent.session import Session, runtime_of
from addendum.errors import StoreError
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.log.store import Lease
from addendum.routes import resolve
from addendum.stores import MemoryStore, SqliteStore, open_store
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

Change = Callable[[Session], Awaitable[Any]]


async def _redefined(session: Session) -> None:
    await session.tools.add(fn("web", 1))
    await session.tools.add(fn("web", 2))


async def _redefined_and_removed(session: Session) -> None:
    await session.tools.add(fn("web", 1))
    await session.tools.remove("web")


async def _removed_and_redefined(session: Session) -> None:
    await session.tools.remove("web")
    await session.tools.add(fn("web", 1))


async def _added(session: Session) -> None:
    await session.tools.add(fn("mine"))
    await session.tools.add(fn("mine", 1))


async def _added_in_another_order(session: Session) -> None:
    for name in ("one", "two", "three"):
        await session.tools.add(fn(name))
    await session.tools.remove("one")
    await session.tools.add(fn("two", 1))
    await session.tools.add(fn("one", 1))


async def _removed(session: Session) -> None:
    await session.tools.remove("web")


async def _refused(session: Session) -> None:
    await session.tools.refuse("web")


async def _lifted(session: Session) -> None:
    await session.tools.refuse()


async def _on(session: Session) -> None:
    await session.tools.enable("github")


async def _off(session: Session) -> None:
    await session.tools.disable("always")


async def _off_and_on(session: Session) -> None:
    await session.tools.enable("github")
    await session.tools.disable("always")
    await session.tools.enable("always")


async def _texts(session: Session) -> None:
    session.instructions = "Mine. " * 300
    session.conversation_instructions = "B. " * 50


async def _tail(session: Session) -> None:
    session.turn_instructions = "Be brief."


CHANGES: list[Change] = [
    _redefined,
    _redefined_and_removed,
    _removed_and_redefined,
    _added,
    _added_in_another_order,
    _removed,
    _refused,
    _lifted,
    _on,
    _off,
    _off_and_on,
    _texts,
    _tail,
]


def _always_on() -> ServerSpec:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    made = in_process("always", [CannedTool("t", "A tool.", schema, "ok")])
    return ServerSpec(name="always", server=made, on=True)


def _live(session: Session) -> tuple[object, ...]:
    snapshot = session.registry.snapshot()
    return (
        [tool.identity() for tool in snapshot.active],
        list(snapshot.entries),
        session.disabled,
        {name: session.tools.on(name) for name in session.registry.server_names},
        session.route,
        session.instructions,
        session.conversation_instructions,
        session.turn_instructions,
    )


@pytest.mark.parametrize("sent", [0, 1, 2], ids=["at_once", "behind_a_turn", "told"])
@pytest.mark.parametrize("mode", ["auto", "rebind"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__.strip("_"))
async def test_a_child_has_what_its_parent_has(change: Change, mode: str, sent: int) -> None:
    async with stage() as here:
        agent = here.agent(
            CLAUDE,
            tools=[fn("web"), fn("other")],
            disabled=["other"],
            mcp_servers=[_always_on(), server()],
            tool_changes=mode,
        )
        async with here.open(agent) as session:
            if sent:
                await session.run("one")
            await change(session)
            if sent == 2:
                await session.run("two")
            async with session.fork("child") as child, child.fork("grandchild") as grandchild:
                await runtime_of(session).settle()
                own = _live(session)
                for each in (child, grandchild):
                    await runtime_of(each).settle()
                    assert _live(each) == own
                for each in (grandchild, child, session):
                    await each.run("/call web {}")
                bodies = [each.sent[-2:] for each in (grandchild, child, session)]
                for first, second in zip(bodies[0], bodies[2], strict=True):
                    assert first.body == second.body
                for first, second in zip(bodies[1], bodies[2], strict=True):
                    assert first.body == second.body
                assert results(child)[-1].text == results(session)[-1].text
        assert here.refused() == []


async def test_a_child_goes_on_with_its_parents_route() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run("one")
            session.use(resolve(CHAT, base_url=here.lab.base_url("openai-chat")))
            async with session.fork("child") as child:
                assert child.route == session.route
                await child.run("two")
                assert child.sent[-1].context.route == CHAT


async def test_a_child_from_an_earlier_turn_has_the_function_of_that_time() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.tools.add(fn("mine", 1))
            await session.run("two")
            await session.tools.add(fn("web", 2))
            await session.tools.remove("mine")
            await session.run("three")
            for turn, web, mine in ((1, 1, "mine v1 result"), (2, 2, None), (3, 2, None)):
                async with session.fork(turn=turn) as child:
                    await child.run("/call web {}")
                    assert results(child)[-1].text == f"web v{web} result"
                    assert ("mine" in child.registry.snapshot().entries) == (mine is not None)
                    if mine:
                        await child.run("/call mine {}")
                        assert results(child)[-1].text == mine


async def test_a_child_has_what_a_server_lists_by_now() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    made = in_process("files", [CannedTool("read", "Read a file.", schema, "text")])
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[ServerSpec(name="files", server=made)])
        async with here.open(agent) as session:
            await session.tools.enable("files")
            await session.run("one")
            before = session.registry.state("files").revision
            await made.add(CannedTool("write", "Write a file.", schema, "done"))
            with anyio.fail_after(10):
                while session.registry.state("files").revision == before:
                    await anyio.lowlevel.checkpoint()
            async with session.fork("child") as child:
                await child.run("/call files__write {}")
                await session.run("/call files__write {}")
                assert [each.body for each in child.sent[:2]] == [
                    each.body for each in session.sent[-2:]
                ]
                assert results(child)[-1].text == "done"


class _Full(MemoryStore):
    """A store that takes nothing more from some moment on."""

    full = False

    async def acquire(self, session: str, **more: Any) -> Lease:
        if self.full and more.get("events"):
            raise StoreError("the disk is full")
        return await super().acquire(session, **more)

    async def append(self, lease: Lease, expected: int, events: Sequence[bytes]) -> None:
        if self.full:
            raise StoreError("the disk is full")
        await super().append(lease, expected, events)


async def test_a_fork_that_cannot_be_written_leaves_nothing() -> None:
    async with stage() as here:
        here.store = store = _Full()
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            store.full = True
            with pytest.raises(StoreError, match="full"):
                async with session.fork("child"):
                    pass
            assert [row.id for row in await store.sessions()] == ["s"]
            store.full = False
            async with session.fork("child") as child:
                await child.run("two")


async def test_a_fork_is_in_the_file_whole_or_not_at_all(tmp_path: Path) -> None:
    async with stage() as here:
        store = await open_store(f"sqlite:///{tmp_path}/kept.db")
        assert isinstance(store, SqliteStore) and store._db is not None
        async with here.agent(CLAUDE).open("s", store=store) as session:
            await session.run("one")
            # Room for the line of the session, and not for its events.
            pages = store._db.execute("PRAGMA page_count").fetchone()[0]
            store._db.execute(f"PRAGMA max_page_count = {pages}")
            await store.release(await store.acquire("line alone"))
            with pytest.raises(StoreError, match="no room"):
                async with session.fork("child"):
                    pass
            store._db.execute("PRAGMA max_page_count = 1000000")  # somebody has made room
            assert {row.id for row in await store.sessions()} == {"s", "line alone"}
            async with session.fork("child") as child:
                await child.run("two")
            assert {row.id: row.parent for row in await store.sessions()} == {
                "child": "s",
                "line alone": None,
                "s": None,
            }
        await store.aclose()
