"""The pinned catalogue: one head in every process, and a first request with every server down."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from addendum import Agent, ServerSpec
from addendum.lab.server import open_lab
from addendum.stores import open_store
from addendum.tools.catalogue import Pin, write_catalogue
from addendum.tools.mcp.pool import ServerPool

pytestmark = pytest.mark.anyio

SERVERS = (
    ServerSpec(name="clock", command=(sys.executable, "-m", "mcp_server_time"), on=True),
    ServerSpec(
        name="growing",
        command=(sys.executable, "-m", "addendum.lab.mcp_servers", "--changing"),
        on=True,
    ),
)
DOWN = tuple(
    msgspec.structs.replace(spec, command=(sys.executable, "-c", "raise SystemExit(1)"))
    for spec in SERVERS
)


async def first_body(servers: tuple[ServerSpec, ...], catalogue: Path | None, store: str) -> bytes:
    pool = ServerPool()
    async with open_lab() as lab:
        agent = Agent(
            "anthropic:claude-opus-5-5",
            instructions="Be brief.",
            mcp_servers=servers,
            catalogue=catalogue,
            base_url=lab.base_url("anthropic"),
            pool=pool,
        )
        async with agent.open("s", store=store) as session:
            await session.run("hello")
    await pool.aclose()
    return lab.captures[0].body


async def test_d11_with_every_server_down_the_first_request_is_the_same_bytes(
    tmp_path: Path,
) -> None:
    pool = ServerPool()
    pins: dict[str, Pin] = {}
    for spec in SERVERS:
        connection = await pool.acquire(spec)
        pins[spec.name] = Pin.of(await connection.ready(30.0))
        await pool.release(connection)
    await pool.aclose()
    file = tmp_path / "catalogue.json"
    write_catalogue(file, pins)

    healthy = await first_body(SERVERS, file, "memory://")
    down = await first_body(DOWN, file, "memory://")
    without = await first_body(SERVERS, None, "memory://")
    assert down == healthy == without
    assert b"clock__get_current_time" in down
    assert b"growing__grow" in down


async def test_c9_a_store_pins_the_list_that_settled_first(tmp_path: Path) -> None:
    """A second session of the store has the same head although the server has changed since."""
    url = f"sqlite:///{tmp_path / 'one.db'}"
    first = await first_body(SERVERS, None, url)
    store = await open_store(url)
    pinned = [await store.get("catalogue", spec.key()) for spec in SERVERS]
    await store.aclose()
    assert all(pinned)
    pool = ServerPool()
    async with open_lab() as lab:
        agent = Agent(
            "anthropic:claude-opus-5-5",
            instructions="Be brief.",
            mcp_servers=SERVERS,
            base_url=lab.base_url("anthropic"),
            pool=pool,
        )
        async with agent.open("other", store=url) as session:
            # Nothing was dialled for it.
            assert all(session.registry.state(spec.name).revision == 0 for spec in SERVERS)
            await session.run("hello")
            # A list that changes later is news to this session, and moves no pin.
            connection = await session.registry.connection("growing")
            before = connection.state.revision
            await session.run("/call growing__grow {}")
            await connection.until(lambda state: state.revision > max(before, 1), 10)
            await session.run("again")
            assert session.tool_history().updates
        async with agent.open("third", store=url) as session:
            await session.run("hello")
    await pool.aclose()
    assert lab.captures[0].body == lab.captures[-1].body == first
    store = await open_store(url)
    assert [await store.get("catalogue", spec.key()) for spec in SERVERS] == pinned
    await store.aclose()
