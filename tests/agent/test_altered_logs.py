"""A stored log that somebody changed by hand, in a way that it can still be read.

What was sent long ago is then rendered otherwise. The session goes on, and says that its prefix
breaks: once on each route that has sent something of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.stage import CHAT, CLAUDE, Stage, breaks, fn, stage, storing, thinking
from tests.cli.commands import call, told

from addendum.agent.session import Session
from addendum.stores import open_store

pytestmark = pytest.mark.anyio

ROUTES = (CLAUDE, CHAT, "openai:gpt-6.2-sol", "deepseek:deepseek-flash", "gemini:gemini-4-argon")
TEXTS = ("one", "two", "three", "four", "five", "six")
CHANGED = [("rendering changed", "tools")]


def redacted(event: dict[str, Any]) -> None:
    if event["type"] == "user/message" and event["text"] == "one":
        event["text"] = "[redacted]"


async def altered(here: Stage, name: str) -> None:
    """Change the session in its store."""
    rows = storing(await here.store.read(name), redacted)
    here.store._sessions[name].events[:] = rows  # pyright: ignore[reportPrivateUsage]


async def ran(session: Session, *texts: str) -> list[tuple[str, str]]:
    for text in texts:
        await session.run(text)
    return breaks(session)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_changed_log_breaks_its_prefix_once_and_says_so(route: str) -> None:
    async with stage(thinking(*TEXTS)) as here:
        async with here.open(here.agent(route)) as session:
            assert await ran(session, "one", "two") == []
        await altered(here, "s")
        async with here.open(here.agent(route)) as session:
            assert await ran(session, "three", "four") == CHANGED
            assert b"[redacted]" in session.sent[-1].body
        async with here.open(here.agent(route)) as session:
            assert await ran(session, "five") == CHANGED
        # No reasoning is sent that was signed for what stood there before.
        assert here.refused() == []
        totals = here.judged(route).totals
        assert (totals.undeclared_misses, totals.ceiling_share) == (0, 1.0)


async def test_each_route_says_so_for_itself() -> None:
    async with stage(thinking(*TEXTS)) as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            session.use(here.agent(CHAT).setup.route)
            assert await ran(session, "two") == [("route changed", "messages")]
        await altered(here, "s")
        async with here.open(here.agent(CHAT)) as session:
            assert (await ran(session, "three"))[1:] == CHANGED
        async with here.open(here.agent(CLAUDE)) as session:
            assert (await ran(session, "four", "five"))[1:] == CHANGED * 2
        assert here.refused() == []
        assert here.judged(CLAUDE).totals.undeclared_misses == 0
        assert here.judged(CHAT).totals.undeclared_misses == 0


async def test_a_fork_of_a_changed_log_says_so() -> None:
    async with stage(thinking(*TEXTS)) as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await ran(session, "one", "two")
        await altered(here, "s")
        async with here.open(here.agent(CLAUDE)) as session, session.fork("child") as child:
            assert await ran(child, "three", "four") == CHANGED


async def test_what_stands_behind_the_last_request_was_never_sent() -> None:
    def answered(event: dict[str, Any]) -> None:
        if event["type"] == "assistant/message":
            event["text"] = "Changed."

    async with stage() as here:
        async with here.open(here.agent(CHAT, tools=[fn("web")])) as session:
            await session.run("one")
        rows = await here.store.read("s")
        last = max(at for at, raw in enumerate(rows) if b'"type":"request/sent"' in raw)
        changed = [*rows[: last + 1], *storing(rows[last + 1 :], answered)]
        assert changed != rows
        here.store._sessions["s"].events[:] = changed  # pyright: ignore[reportPrivateUsage]
        async with here.open(here.agent(CHAT, tools=[fn("web")])) as session:
            assert await ran(session, "two") == []


def test_the_commands_say_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"

    async def make() -> None:
        async with stage(thinking(*TEXTS)) as here:
            async with here.open(here.agent(CHAT)) as session:
                await ran(session, "one", "two")
            rows = await here.store.read("s")
        store = await open_store(url)
        for name, kept in (("as-it-was", rows), ("changed", storing(rows, redacted))):
            lease = await store.acquire(name)
            await store.append(lease, 0, kept)
            await store.release(lease)
        await store.aclose()

    anyio.run(make)
    for command in (["show"], ["why"], ["diff"]):
        last = ["1", "2"] if command == ["diff"] else []
        for name, numbers in (("as-it-was", []), ("changed", [1, 2])):
            told_of = told(*command, name, *last, "--store", url)
            assert told_of["altered"] == numbers
            shown = call(*command, name, *last, "--store", url).stdout
            assert ("was changed since request 2 was sent" in shown) == bool(numbers)
