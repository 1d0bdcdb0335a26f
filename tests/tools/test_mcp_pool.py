"""Sharing, lists and lost connections, with real servers over an in-memory transport."""

from __future__ import annotations

import contextvars
import importlib.util
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import msgspec
import pytest
from mcp.server.mcpserver import MCPServer

from addendum.errors import ConfigurationError, MissingExtra
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.tools.mcp import link
from addendum.tools.mcp.pool import Connection, ServerPool, Timings, default_pool
from addendum.tools.mcp.values import ServerSpec, ServerState

pytestmark = pytest.mark.anyio

FAST = Timings(first_pause=0.02, longest_pause=0.1, quiet=0.01, confirm=0.2, demand=5, probe=0.3)


def canned(name: str, description: str = "d") -> CannedTool:
    return CannedTool(name, description, {"type": "object", "properties": {}}, f"{name} ran")


def names(state: ServerState) -> list[str]:
    return [tool.name for tool in state.tools]


@asynccontextmanager
async def pool_of(timings: Timings = FAST) -> AsyncGenerator[ServerPool]:
    pool = ServerPool(timings=timings)
    try:
        yield pool
    finally:
        with anyio.CancelScope(shield=True), anyio.fail_after(20):
            await pool.aclose()


@asynccontextmanager
async def connected(
    server: object, timings: Timings = FAST
) -> AsyncGenerator[tuple[Connection, list[ServerState]]]:
    async with pool_of(timings) as pool:
        connection = await pool.acquire(ServerSpec(name="s", server=server))
        seen: list[ServerState] = []
        connection.subscribe(seen.append)
        yield connection, seen


async def test_a_list_settles_once_and_a_call_is_answered() -> None:
    server = in_process("s", [canned("b"), canned("a", "first")], instructions="be kind")
    async with connected(server) as (connection, seen):
        assert connection.state == ServerState()
        state = await connection.ready(5)
        assert (state.status, state.revision, state.instructions) == ("ready", 1, "be kind")
        assert names(state) == ["a", "b"]
        assert state.tools[0].description == "first"
        assert bytes(state.tools[0].parameters) == b'{"type":"object","properties":{}}'
        assert [s.status for s in seen] == ["starting", "ready"]
        outcome = await connection.call("a", b'{"x": [1, null]}', timeout=5)
        assert (outcome.text, outcome.is_error, outcome.code) == ("a ran", False, None)
        assert server.calls == [("a", {"x": [1, None]})]


async def test_errors_of_tools_and_servers_are_answers() -> None:
    server = in_process("s", [CannedTool("bad", "d", {"type": "object"}, "did not work", True)])
    async with connected(server) as (connection, _):
        outcome = await connection.call("bad", b"{}", timeout=5)
        assert (outcome.text, outcome.is_error, outcome.code) == ("did not work", True, None)
        outcome = await connection.call("none", b"{}", timeout=5)
        assert (outcome.is_error, outcome.code) == (True, "refused")
        assert outcome.text == "server s refused the call: unknown tool none"


@pytest.mark.parametrize("arguments", [b"", b"[]", b"{", b'{"a": NaN}', b"1"])
async def test_arguments_that_are_no_object_never_leave(arguments: bytes) -> None:
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, _):
        outcome = await connection.call("a", arguments, timeout=5)
        assert (outcome.is_error, outcome.code) == (True, "invalid_arguments")
        assert server.calls == []


async def test_additions_removals_and_redefinitions_are_followed() -> None:
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, _):
        before = await connection.ready(5)
        await server.add(canned("b"))
        state = await connection.until(lambda s: s.revision == 2, 5)
        assert names(state) == ["a", "b"]
        assert state.tools[0] is before.tools[0]
        await server.add(canned("a", "redefined"))
        state = await connection.until(lambda s: s.revision == 3, 5)
        assert state.tools[0].description == "redefined"
        assert state.tools[0].digest != before.tools[0].digest
        await server.remove("b")
        state = await connection.until(lambda s: s.revision == 4, 5)
        assert names(state) == ["a"]


async def test_an_equal_list_changes_nothing_and_many_notices_are_one_reading() -> None:
    server = CountingServer("s", [canned("a"), canned("b")])
    async with connected(server) as (connection, seen):
        state = await connection.ready(5)
        server.tools.reverse()
        lists = server.lists
        for _ in range(50):
            await server.announce()
        await server.listed(lists + 1)
        # What is published after a real change shows that the equal lists were read before it.
        await server.add(canned("c"))
        assert (await connection.until(lambda s: s.revision == 2, 5)).revision == 2
        assert [s.revision for s in seen if s.status == "ready"] == [1, 2]
        assert seen[-2] is state
        assert server.lists - lists < 10


async def test_tools_added_one_after_another_are_one_change() -> None:
    server = in_process("s", [canned("a")])
    async with connected(server, Timings(quiet=0.3)) as (connection, _):
        await connection.ready(5)
        for number in range(10):
            await server.add(canned(f"b{number}"))
            # Enough turns of the loop for a list to be read between two of them.
            for _ in range(300):
                await anyio.lowlevel.checkpoint()
        state = await connection.until(lambda s: s.revision > 1, 5)
        assert (state.revision, len(state.tools)) == (2, 11)


class CountingServer(CannedServer):
    """Counts the lists it gave, and can give a prepared one instead of its own."""

    def __init__(self, name: str, tools: list[CannedTool]) -> None:
        super().__init__(name, tools)
        self.lists = 0
        self.next: list[list[CannedTool]] = []
        self._more = anyio.Event()

    async def listed(self, count: int) -> None:
        with anyio.fail_after(5):
            while self.lists < count:
                await self._more.wait()

    async def _list(self, context: Any, params: Any) -> Any:
        self.lists += 1
        more, self._more = self._more, anyio.Event()
        more.set()
        kept = self.tools
        if self.next:
            self.tools = self.next.pop(0)
        try:
            return await super()._list(context, params)
        finally:
            self.tools = kept


async def test_a_lost_connection_keeps_the_tools_and_comes_back_by_itself() -> None:
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, seen):
        await connection.ready(5)
        await server.drop()
        state = await connection.until(lambda s: s.status == "lost", 5)
        assert (names(state), state.revision) == (["a"], 1)
        outcome = await connection.call("a", b"{}", timeout=5)
        assert (outcome.is_error, outcome.code) == (True, "unreachable")
        assert outcome.text.startswith("server s is not reachable; ")
        assert server.calls == []
        await server.back()
        state = await connection.until(lambda s: s.status == "ready", 5)
        assert (names(state), state.revision, state.error) == (["a"], 1, None)
        assert {tuple(names(s)) for s in seen if s.revision} == {("a",)}


async def test_the_pauses_between_attempts_double() -> None:
    class Absent:
        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[Any]:
            attempts.append(anyio.current_time())
            if len(attempts) == 6:
                enough.set()
            raise ConnectionError("absent")
            yield

    attempts: list[float] = []
    enough = anyio.Event()
    async with connected(Absent(), Timings(first_pause=0.01, longest_pause=0.08)) as (
        connection,
        _,
    ):
        await connection.ready(5)
        with anyio.fail_after(10):
            await enough.wait()
    gaps = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    for gap, pause in zip(gaps, [0.01, 0.02, 0.04, 0.08, 0.08], strict=True):
        assert gap > pause * 0.9


async def test_a_call_brings_a_server_back_before_its_pause_is_over() -> None:
    server = in_process("s", [canned("a")])
    slow = Timings(first_pause=0.01, longest_pause=1000, demand=5)
    async with connected(server, slow) as (connection, _):
        await connection.ready(5)
        await server.drop()
        for _ in range(20):
            # Each call is an attempt that fails, so the pause has grown to hours.
            assert (await connection.call("a", b"{}", timeout=5)).code == "unreachable"
        await server.back()
        assert (await connection.call("a", b"{}", timeout=5)).text == "a ran"


async def test_a_list_that_changed_while_away_is_a_difference() -> None:
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, _):
        await connection.ready(5)
        await server.drop()
        server.tools.append(canned("b"))
        await server.back()
        state = await connection.until(lambda s: s.revision == 2, 5)
        assert (state.status, names(state)) == ("ready", ["a", "b"])


@pytest.mark.parametrize("first", [[], ["a"]])
async def test_a_list_that_is_incomplete_while_a_server_comes_back_changes_nothing(
    first: list[str],
) -> None:
    server = CountingServer("s", [canned("a"), canned("b")])
    patient = msgspec.structs.replace(FAST, confirm=60)
    async with connected(server, patient) as (connection, seen):
        await connection.ready(5)
        await server.drop()
        server.next = [[canned(name) for name in first]] * 5
        await server.back()
        await connection.until(lambda s: s.status == "ready", 5)
        assert (await connection.call("b", b"{}", timeout=5)).text == "b ran"
        while server.next:
            lists = server.lists
            await server.announce()
            await server.listed(lists + 1)
        await server.add(canned("c"))
        await connection.until(lambda s: s.revision == 2, 5)
        assert {tuple(names(s)) for s in seen if s.revision} == {("a", "b"), ("a", "b", "c")}


async def test_an_empty_list_for_a_moment_changes_nothing() -> None:
    server = CountingServer("s", [canned("a")])
    async with connected(server) as (connection, seen):
        await connection.ready(5)
        server.next = [[]]
        lists = server.lists
        await server.announce()
        await server.listed(lists + 2)
        await server.add(canned("b"))
        await connection.until(lambda s: s.revision == 2, 5)
        assert [names(s) for s in seen if s.revision] == [["a"], ["a", "b"]]


async def test_a_list_that_stays_empty_is_believed_after_a_while() -> None:
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, _):
        await connection.ready(5)
        began = anyio.current_time()
        await server.remove("a")
        state = await connection.until(lambda s: s.revision == 2, 5)
        assert (state.status, state.tools) == ("ready", ())
        assert anyio.current_time() - began >= FAST.confirm


async def test_what_a_server_lost_while_away_is_believed_after_a_while() -> None:
    server = in_process("s", [canned("a"), canned("b")])
    async with connected(server) as (connection, _):
        await connection.ready(5)
        await server.drop()
        server.tools.pop()
        await server.back()
        state = await connection.until(lambda s: s.revision == 2, 5)
        assert names(state) == ["a"]


async def test_a_list_over_the_limits_keeps_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(link, "MAX_TOOLS", 2)
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, _):
        await connection.ready(5)
        server.tools += [canned("b"), canned("c")]
        await server.announce()
        state = await connection.until(lambda s: s.error is not None, 5)
        assert (state.status, names(state), state.revision) == ("ready", ["a"], 1)
        assert state.error is not None
        assert "over 2 tools" in state.error
        assert (await connection.call("c", b"{}", timeout=5)).text == "c ran"
        await server.remove("c")
        state = await connection.until(lambda s: s.revision == 2, 5)
        assert (names(state), state.error) == (["a", "b"], None)


async def test_a_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:

    class Endless(CannedServer):
        async def _list(self, context: Any, params: Any) -> Any:
            page = await super()._list(context, params)
            return page.model_copy(update={"next_cursor": f"page {next(numbers)}"})

    numbers = itertools.count()
    monkeypatch.setattr(link, "MAX_PAGES", 5)
    async with connected(Endless("s", [])) as (connection, _):
        state = await connection.ready(5)
        assert state.status == "failed"
        assert state.error is not None
        assert "more than 5 pages" in state.error


async def test_a_list_that_goes_round_in_a_circle_is_read_once() -> None:
    class Circle(CannedServer):
        async def _list(self, context: Any, params: Any) -> Any:
            page = await super()._list(context, params)
            cursor = "b" if params and params.cursor == "a" else "a"
            return page.model_copy(update={"next_cursor": cursor})

    async with connected(Circle("s", [canned("x")])) as (connection, _):
        state = await connection.ready(5)
        assert (state.status, names(state)) == ("ready", ["x"])
        assert state.notes[-1] == "the list goes round in a circle; what was read of it counts"


async def test_a_connection_lost_while_listing_is_no_fault_of_the_list() -> None:
    class Stuck(CountingServer):
        async def _list(self, context: Any, params: Any) -> Any:
            result = await super()._list(context, params)
            if stuck:
                reading.set()
                await anyio.sleep_forever()
            return result

    stuck: list[bool] = []
    reading = anyio.Event()
    server = Stuck("s", [canned("a")])
    async with connected(server) as (connection, seen):
        await connection.ready(5)
        stuck.append(True)
        await server.announce()
        with anyio.fail_after(5):
            await reading.wait()
        await server.drop()
        stuck.clear()
        await server.back()
        await connection.until(lambda s: s.status == "ready", 5)
        assert "lost" in [state.status for state in seen]
        assert not [state for state in seen if "list of tools" in (state.error or "")]


async def test_what_belongs_to_a_caller_goes_with_its_calls_only() -> None:
    class Looking(CannedServer):
        async def _list(self, context: Any, params: Any) -> Any:
            listed.append(mark.get())
            return await super()._list(context, params)

        async def _call(self, context: Any, params: Any) -> Any:
            called.append(mark.get())
            return await super()._call(context, params)

    mark = contextvars.ContextVar("mark", default="nobody's")
    listed: list[str] = []
    called: list[str] = []
    async with connected(Looking("s", [canned("a")])) as (connection, _):
        mark.set("first")
        await connection.ready(5)
        await connection.call("a", b"{}", timeout=5)
        mark.set("second")
        await connection.call("a", b"{}", timeout=5)
    assert set(listed) == {"nobody's"}
    assert called == ["first", "second"]


async def test_a_first_list_over_the_limits_fails_and_joins_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    monkeypatch.setattr(link, "MAX_LIST_BYTES", 100)
    server = in_process("s", [canned("a", "x" * 200)])
    async with connected(server) as (connection, _):
        state = await connection.ready(5)
        assert (state.status, state.tools, state.revision) == ("failed", (), 0)
        await server.add(canned("a"))
        state = await connection.until(lambda s: s.status == "ready", 5)
        assert (names(state), state.revision) == (["a"], 1)


async def test_a_server_that_is_down_at_first_joins_later() -> None:
    server = in_process("s", [canned("a")])
    await server.drop()
    async with connected(server) as (connection, seen):
        state = await connection.ready(5)
        assert (state.status, state.error) == ("failed", "s is down")
        await server.back()
        state = await connection.until(lambda s: s.status == "ready", 5)
        assert names(state) == ["a"]
        assert [s.status for s in seen] == ["starting", "failed", "ready"]


async def test_a_subscriber_that_fails_or_left_disturbs_nobody() -> None:
    server = in_process("s", [canned("a")])
    async with connected(server) as (connection, seen):
        gone: list[ServerState] = []
        connection.subscribe(lambda state: 1 / 0)
        connection.subscribe(gone.append)()
        late: list[ServerState] = []
        connection.subscribe(late.append)
        await connection.ready(5)
        assert gone == []
        assert late == seen != []


async def test_equal_specs_share_a_connection_and_it_is_closed_when_idle() -> None:
    server = in_process("s", [canned("a")])
    spec = ServerSpec(name="s", server=server)
    async with pool_of(Timings(idle=0.05)) as pool:
        first = await pool.acquire(spec)
        second = await pool.acquire(ServerSpec(name="s", server=server, on=True, defer=True))
        other = await pool.acquire(ServerSpec(name="t", server=server))
        assert first is second is not other
        await first.ready(5)
        await pool.release(first)
        assert (await first.call("a", b"{}", timeout=5)).text == "a ran"
        await pool.release(second)
        assert await pool.acquire(spec) is first
        await pool.release(first)
        state = await first.until(lambda s: s.status == "idle", 5)
        assert names(state) == ["a"]
        assert (await first.call("a", b"{}", timeout=5)).code == "unreachable"
        again = await pool.acquire(spec)
        assert again is not first
        assert (await again.call("a", b"{}", timeout=5)).text == "a ran"


async def test_a_connection_in_use_is_not_closed_when_idle() -> None:
    server = in_process("s", [canned("a")])
    async with pool_of(Timings(idle=0)) as pool:
        used = await pool.acquire(ServerSpec(name="used", server=server))
        unused = await pool.acquire(ServerSpec(name="unused", server=server))
        await used.ready(5)
        await unused.ready(5)
        await pool.release(unused)
        await unused.until(lambda s: s.status == "idle", 5)
        assert used.state.status == "ready"


async def test_closing_the_pool_ends_what_runs() -> None:
    class Hanging(CannedServer):
        async def _call(self, context: Any, params: Any) -> Any:
            started.set()
            await anyio.sleep_forever()

    started = anyio.Event()
    pool = ServerPool(timings=FAST)
    connection = await pool.acquire(ServerSpec(name="s", server=Hanging("s", [canned("a")])))
    outcomes: list[Any] = []

    async def call() -> None:
        outcomes.append(await connection.call("a", b"{}", timeout=60))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await started.wait()
            await pool.aclose()
    assert outcomes[0].code == "lost"
    assert connection.is_closed
    with pytest.raises(ConfigurationError, match="closed"):
        await pool.acquire(connection.spec)


class Nothing:
    pass


class Mute:
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        await anyio.sleep_forever()
        yield


async def test_closing_while_a_server_starts_does_not_wait_for_it() -> None:
    async with connected(Mute(), Timings()) as (connection, _):
        state = await connection.ready(0.05)
        assert state.status == "starting"
        outcome = await connection.call("a", b"{}", timeout=0.05)
        assert outcome.code == "unreachable"
        assert "it has not answered yet" in outcome.text
    assert connection.is_closed


async def test_connecting_takes_no_longer_than_its_limit() -> None:
    async with connected(Mute(), Timings(connect=0.05)) as (connection, _):
        state = await connection.ready(5)
        assert (state.status, state.error) == ("failed", "no answer in time")


async def test_the_sdk_s_own_servers_can_be_given() -> None:
    high = MCPServer("high")

    @high.tool()
    def add(a: int, b: int) -> int:  # pyright: ignore[reportUnusedFunction]
        """Add two numbers."""
        return a + b

    async with connected(high) as (connection, _):
        state = await connection.ready(5)
        assert names(state) == ["add"]
        assert (await connection.call("add", b'{"a":2,"b":3}', timeout=5)).text == "5"
        outcome = await connection.call("add", b'{"a":"x"}', timeout=5)
        assert outcome.is_error


async def test_a_question_in_the_middle_of_a_call_is_an_error() -> None:
    class Asking(CannedServer):
        async def _call(self, context: Any, params: Any) -> Any:
            return types.InputRequiredResult(request_state="x")

    async with connected(Asking("s", [canned("a")])) as (connection, _):
        outcome = await connection.call("a", b"{}", timeout=5)
        assert (outcome.is_error, outcome.code) == (True, "input_required")


async def test_a_spec_must_say_one_way_and_a_real_server() -> None:
    async with pool_of() as pool:
        for ways in ({}, {"command": ("a",), "url": "http://x"}):
            with pytest.raises(ConfigurationError, match="exactly one"):
                ServerSpec(name="none or two", **ways)
        connection = await pool.acquire(ServerSpec(name="odd", server=Nothing()))
        state = await connection.ready(5)
        assert state.status == "failed"
        assert state.error is not None
        assert "Nothing is no MCP server" in state.error


async def test_without_the_sdk_the_advice_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mcp" else found(name)
    )
    async with pool_of() as pool:
        with pytest.raises(MissingExtra, match=r'pip install "addendum\[mcp\]"'):
            await pool.acquire(ServerSpec(name="a", command=("x",)))


async def test_the_default_pool_is_one_and_comes_back_after_closing() -> None:
    pool = default_pool()
    assert default_pool() is pool
    await pool.aclose()
    assert default_pool() is not pool
    await default_pool().aclose()
