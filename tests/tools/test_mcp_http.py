"""Servers over streamable HTTP on loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.tools.mcp.pool import Connection, ServerPool, Timings
from addendum.tools.mcp.values import ServerSpec, ServerState

pytestmark = pytest.mark.anyio

FAST = Timings(
    first_pause=0.02, longest_pause=0.1, quiet=0.01, confirm=0.2, demand=5, probe=0.5, grace=0.5
)


def names(state: ServerState) -> list[str]:
    return [tool.name for tool in state.tools]


def canned(name: str) -> CannedTool:
    return CannedTool(name, "d", {"type": "object"}, f"{name} ran")


class Web:
    """One web server at a time on one port, which can go down and come back."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._server: uvicorn.Server | None = None
        self._stopped = anyio.Event()
        self.port = 0

    async def up(self, app: Any) -> int:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port))
        # From here on connections wait in line, so nobody need wait for the server to start.
        sock.listen()
        self.port = sock.getsockname()[1]
        self._stopped = anyio.Event()
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._tasks.start_soon(self._serve, self._server, sock)
        return self.port

    async def _serve(self, server: uvicorn.Server, sock: socket.socket) -> None:
        with sock:
            await server.serve([sock])
        self._stopped.set()

    async def down(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
            await self._stopped.wait()


@asynccontextmanager
async def web() -> AsyncGenerator[Web]:
    async with anyio.create_task_group() as tasks:
        server = Web(tasks)
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(10):
                await server.down()


@asynccontextmanager
async def connected(port: int, **more: Any) -> AsyncGenerator[Connection]:
    pool = ServerPool(timings=FAST)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        yield await pool.acquire(ServerSpec(name="s", url=url, **more))
    finally:
        with anyio.CancelScope(shield=True), anyio.fail_after(20):
            await pool.aclose()


async def test_a_server_over_http_is_listed_called_and_followed() -> None:
    server = in_process("s", [canned("a")], instructions="hello")
    async with web() as site:
        port = await site.up(server.mcp.streamable_http_app())
        async with connected(port) as connection:
            state = await connection.ready(10)
            assert (names(state), state.instructions) == (["a"], "hello")
            assert (await connection.call("a", b'{"x":1}', timeout=10)).text == "a ran"
            await server.add(canned("b"))
            state = await connection.until(lambda s: s.revision == 2, 10)
            assert names(state) == ["a", "b"]


async def test_a_server_over_http_goes_down_and_comes_back() -> None:
    server = in_process("s", [canned("a")])
    async with web() as site:
        port = await site.up(server.mcp.streamable_http_app())
        async with connected(port) as connection:
            await connection.ready(10)
            await site.down()
            state = await connection.until(lambda s: s.status == "lost", 10)
            assert (names(state), state.revision) == (["a"], 1)
            with anyio.fail_after(3):
                outcome = await connection.call("a", b"{}", timeout=10)
            assert (outcome.is_error, outcome.code) == (True, "unreachable")
            await site.up(server.mcp.streamable_http_app())
            state = await connection.until(lambda s: s.status == "ready", 10)
            assert (names(state), state.revision) == (["a"], 1)
            assert (await connection.call("a", b"{}", timeout=10)).text == "a ran"


class Raw:
    """A classic server over HTTP by hand, so that it may also break the protocol."""

    def __init__(self) -> None:
        self.tools = '[{"name":"a","inputSchema":{"type":"object"}}]'
        self.result = '{"content":[{"type":"text","text":"ok"}]}'
        self.status = 200
        self.session = "one"
        self.slow = 0.0
        self.ended: list[str] = []
        self.headers: list[str | None] = []
        self.cancelled = anyio.Event()
        self.app = Starlette(routes=[Route("/mcp", self.answer, methods=["POST", "GET", "DELETE"])])

    async def answer(self, request: Request) -> Response:
        self.headers.append(request.headers.get("authorization"))
        if request.method == "DELETE":
            with anyio.move_on_after(self.slow):
                await anyio.sleep_forever()
            self.ended.append(request.headers["mcp-session-id"])
            return Response(status_code=204)
        if request.method == "GET":
            return Response(status_code=405)
        if self.status != 200:
            return Response(status_code=self.status)
        message = json.loads(await request.body())
        method, ident = message["method"], message.get("id")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            result = (
                f'{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},'
                '"serverInfo":{"name":"raw","version":"1"}}'
            )
            return self.json(ident, result, {"mcp-session-id": self.session})
        if method == "server/discover":
            return Response(status_code=404)
        if ident is None:
            if method == "notifications/cancelled":
                self.cancelled.set()
            return Response(status_code=202)
        if request.headers.get("mcp-session-id") != self.session:
            return Response(status_code=404)
        if method == "tools/list":
            return self.json(ident, f'{{"tools":{self.tools}}}')
        if method == "tools/call" and message["params"]["name"] == "hang":
            with anyio.move_on_after(10):
                await self.cancelled.wait()
        return self.json(ident, self.result)

    def json(self, ident: int, result: str, headers: dict[str, str] | None = None) -> Response:
        text = f'{{"jsonrpc":"2.0","id":{ident},"result":{result}}}'
        return Response(text, media_type="application/json", headers=headers)


async def test_surrogates_over_http_cost_nothing_else() -> None:
    raw = Raw()
    raw.tools = r"""[{"name":"a","description":"half \ud83d","inputSchema":{"type":"object"}}]"""
    raw.result = r"""{"content":[{"type":"text","text":"\ud83d\ude00 \udc00"}]}"""
    async with web() as site, connected(await site.up(raw.app)) as connection:
        state = await connection.ready(10)
        assert state.tools[0].description == "half \ufffd"
        outcome = await connection.call("a", b"{}", timeout=10)
        assert outcome.text == "\U0001f600 \ufffd"


async def test_headers_are_sent_and_the_session_is_ended() -> None:
    raw = Raw()
    async with web() as site:
        port = await site.up(raw.app)
        async with connected(port, headers=(("Authorization", "Bearer t0ken"),)) as connection:
            await connection.ready(10)
        assert raw.ended == ["one"]
        assert set(raw.headers) == {"Bearer t0ken"}


async def test_a_server_that_does_not_let_go_is_left() -> None:
    raw = Raw()
    raw.slow = 60
    async with web() as site:
        port = await site.up(raw.app)
        async with connected(port) as connection:
            await connection.ready(10)
            began = anyio.current_time()
        assert anyio.current_time() - began < 5


async def test_an_expired_authorisation_is_an_error_and_no_removal() -> None:
    raw = Raw()
    async with web() as site, connected(await site.up(raw.app)) as connection:
        await connection.ready(10)
        raw.status = 401
        outcome = await connection.call("a", b"{}", timeout=10)
        assert (outcome.is_error, outcome.code) == (True, "refused")
        assert outcome.text == "server s refused the call: HTTP status 401"
        assert (names(connection.state), connection.state.revision) == (["a"], 1)
        raw.status = 200
        assert (await connection.call("a", b"{}", timeout=10)).text == "ok"


async def test_a_server_that_refuses_from_the_start_is_told_and_joins_later() -> None:
    raw = Raw()
    raw.status = 403
    async with web() as site, connected(await site.up(raw.app)) as connection:
        state = await connection.ready(10)
        assert (state.status, state.error) == ("failed", "HTTP status 403")
        raw.status = 200
        state = await connection.until(lambda s: s.status == "ready", 10)
        assert names(state) == ["a"]


async def test_a_server_that_forgot_the_session_gets_a_new_one() -> None:
    raw = Raw()
    async with web() as site, connected(await site.up(raw.app)) as connection:
        await connection.ready(10)
        raw.session = "two"
        assert (await connection.call("a", b"{}", timeout=10)).text == "ok"
        assert connection.state.revision == 1


async def test_a_call_over_http_times_out_and_is_cancelled() -> None:
    raw = Raw()
    async with web() as site, connected(await site.up(raw.app)) as connection:
        await connection.ready(10)
        outcome = await connection.call("hang", b"{}", timeout=0.1)
        assert (outcome.is_error, outcome.code) == (True, "timeout")
        with anyio.fail_after(10):
            await raw.cancelled.wait()
        assert (await connection.call("a", b"{}", timeout=10)).text == "ok"


async def test_a_classic_server_over_http_goes_down_and_comes_back() -> None:
    raw = Raw()
    async with web() as site, connected(await site.up(raw.app)) as connection:
        await connection.ready(10)
        await site.down()
        outcome = await connection.call("a", b"{}", timeout=10)
        assert (outcome.is_error, outcome.code) == (True, "unreachable")
        assert (connection.state.status, names(connection.state)) == ("lost", ["a"])
        await site.up(raw.app)
        assert (await connection.call("a", b"{}", timeout=10)).text == "ok"
        assert connection.state.revision == 1


async def test_nobody_listens_there() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        async with connected(sock.getsockname()[1]) as connection:
            state = await connection.ready(10)
            assert state.status == "failed"
            assert state.error
            assert state.error.isprintable()
