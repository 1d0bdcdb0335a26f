"""Servers over HTTP that were started anew and no longer know the session.

Each row is what a server was reported to answer then. It is dialled anew, once; what was asked is
asked again if it surely did not run, and is told of otherwise.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tests.tools.test_mcp_http import connected, web

from addendum.tools.mcp.connection import Connection
from addendum.tools.mcp.sessions import Verdict, judge
from addendum.tools.mcp.values import CallOutcome

pytestmark = pytest.mark.anyio


def rpc(code: int, words: str, ident: Any = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": words}})


def bare(words: str) -> str:
    return json.dumps({"error": words})


# What is said, at which status, in which body; the report.
STALE: dict[str, tuple[int, str]] = {
    "modelcontextprotocol/python-sdk#3556": (404, rpc(-32600, "Session not found")),
    "punkpeye/mcp-remote#106": (404, rpc(-32001, "Session not found")),
    "modelcontextprotocol/rust-sdk#733": (404, ""),
    "anthropics/claude-code#62008": (404, bare("Session not found")),
    "diegosouzapw/OmniRoute#5957": (
        404,
        '{"error":{"code":-32000,"message":"Not Found: Unknown Mcp-Session-Id header"}}',
    ),
    "anthropics/claude-code#27425": (400, "Bad Request: No valid session ID provided"),
    "PrefectHQ/fastmcp#3073": (400, rpc(-32600, "Bad Request: Missing session ID")),
    "DAWNCR0W/affine-mcp-server#301": (
        400,
        rpc(-32000, "Bad Request: No valid session ID or not an initialize request"),
    ),
    "samanhappy/mcphub#405": (400, rpc(-32000, "Bad Request: No valid session ID provided")),
    "mastra-ai/mastra#15160": (400, ""),
    "modelcontextprotocol/rust-sdk#559": (401, "Unauthorized: Session not found"),
    "sparfenyuk/mcp-proxy#149, 401": (401, ""),
    "sparfenyuk/mcp-proxy#149, 410": (410, "gone"),
    "markmhendrickson/neotoma#1923": (503, rpc(-32000, "Session expired")),
    "punkpeye/fastmcp#121": (
        500,
        bare('Error POSTing to endpoint (HTTP 400): {"error":{"message":"No valid session ID"}}'),
    ),
    "actionhero/keryx#503": (200, bare("Session not found")),
    "onyx-dot-app/agent-wiki#158": (200, rpc(-32600, "missing or invalid Mcp-Session-Id")),
    "UsefulSoftwareCo/executor#1449": (200, rpc(-32000, "Bad Request: Server not initialized")),
}

# It may have run: the server is dialled anew, and the call is not repeated.
UNSURE: dict[str, tuple[int, str]] = {
    "sparfenyuk/mcp-proxy#149, 500": (500, ""),
    "sparfenyuk/mcp-proxy#149, 503": (503, "Service Unavailable"),
    "bad gateway": (502, "<html>bad gateway</html>"),
    "gateway timeout": (504, "upstream timed out"),
    "crashed": (500, "Internal Server Error"),
}


@pytest.mark.parametrize(
    ("status", "session", "code", "words", "verdict"),
    [
        *(
            (status if status >= 400 else None, True, None, body, "anew")
            for status, body in STALE.values()
        ),
        *((status, True, None, words, "unsure") for status, words in UNSURE.values()),
        # Words that servers use, whatever they use them with.
        (None, True, -32000, "Your session has been terminated", "anew"),
        (None, True, -32000, "session is closed", "anew"),
        (None, True, -32001, "No such session", "anew"),
        (None, True, -32000, "Session does not exist", "anew"),
        (None, True, -32600, "A valid MCP-Session-Id is required", "anew"),
        (None, True, -32000, "no transport found for sessionId", "anew"),
        (None, False, -32002, "Server not initialized", "anew"),
        (None, False, -32602, "Received request before initialization was complete", "anew"),
        (None, False, 0, "The client must initialize first", "anew"),
        (None, False, -32000, "connection was not yet initialized", "anew"),
        # What a tool says of its own sessions, and what speaks of the request, is the answer.
        (None, True, -32602, "Session abc not found", "answer"),
        (None, True, -32603, "browser session expired", "answer"),
        (None, False, -32000, "Session not found", "answer"),
        (None, False, -32000, "Browser not initialized", "answer"),
        (None, True, -32000, "no such file", "answer"),
        (400, True, -32602, "Invalid params", "answer"),
        (404, True, -32601, "Method not found", "answer"),
        (404, True, -32002, "Resource not found", "answer"),
        (500, True, -32603, "the tool failed", "answer"),
        (404, False, None, "HTTP status 404", "answer"),
        (401, False, None, "HTTP status 401", "answer"),
        (503, False, None, "HTTP status 503", "answer"),
        (429, True, None, "HTTP status 429", "answer"),
        (413, True, None, "HTTP status 413", "answer"),
        (408, True, None, "HTTP status 408", "answer"),
        (403, True, None, "HTTP status 403", "anew"),
        (421, True, None, "HTTP status 421", "anew"),
    ],
)
def test_what_a_refusal_says_of_the_session(
    status: int | None, session: bool, code: int | None, words: str, verdict: Verdict
) -> None:
    assert judge(status=status, session=session, code=code, words=words) == verdict


class Deployed:
    """A classic server over HTTP that can be deployed anew: it then has another session."""

    def __init__(self, stale: tuple[int, str] = (404, "")) -> None:
        self.stale = stale
        self.number = 0
        self.known: str | None = None
        self.tools = ["echo"]
        self.ran: list[str] = []
        self.always = ""
        self.listens = False
        self.closed = False
        self.asked = 0
        self.gone = anyio.Event()
        self.app = Starlette(routes=[Route("/mcp", self.answer, methods=["POST", "GET", "DELETE"])])

    def deploy(self) -> None:
        self.known = None
        self.gone.set()
        self.gone = anyio.Event()

    async def answer(self, request: Request) -> Response:
        self.asked += 1
        if self.closed:
            return Response(status_code=401)
        if request.method == "DELETE":
            return Response(status_code=204)
        stale = request.headers.get("mcp-session-id") != self.known or self.known is None
        if request.method == "GET":
            if not self.listens:
                return Response(status_code=405)
            return (
                self.refused(None)
                if stale
                else StreamingResponse(self.stream(), media_type="text/event-stream")
            )
        message = json.loads(await request.body())
        method, ident = message["method"], message.get("id")
        if method == "server/discover":
            return Response(rpc(-32601, "no", ident), media_type="application/json")
        if method == "initialize":
            self.number += 1
            self.known = f"session {self.number}"
            version = message["params"]["protocolVersion"]
            result: dict[str, Any] = {
                "protocolVersion": version,
                "capabilities": {},
                "serverInfo": {"name": "deployed", "version": "1"},
            }
            return self.json(ident, result, {"mcp-session-id": self.known})
        if stale:
            return self.refused(ident)
        if ident is None:
            return Response(status_code=202)
        if method == "tools/call":
            self.ran.append(message["params"]["name"])
            if self.always:
                return Response(rpc(-32000, self.always, ident), media_type="application/json")
        return self.json(ident, self.results()[method])

    async def stream(self) -> AsyncGenerator[bytes]:
        yield b": here\n\n"
        await self.gone.wait()

    def results(self) -> dict[str, Any]:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
        said = {"type": "text", "text": "heard"}
        return {
            "tools/list": {"tools": tools},
            "tools/call": {"content": [said]},
            "prompts/list": {"prompts": [{"name": "p"}]},
            "prompts/get": {"messages": [{"role": "user", "content": said}]},
            "resources/list": {"resources": [{"uri": "mem://a"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": [{"uri": "mem://a", "text": "heard"}]},
            "ping": {},
        }

    def refused(self, ident: Any) -> Response:
        status, body = self.stale
        kind = "application/json" if body.startswith("{") else "text/plain"
        return Response(body, status_code=status, media_type=kind)

    def json(self, ident: Any, result: Any, headers: dict[str, str] | None = None) -> Response:
        text = json.dumps({"jsonrpc": "2.0", "id": ident, "result": result})
        return Response(text, media_type="application/json", headers=headers)


@asynccontextmanager
async def reached(server: Deployed) -> AsyncGenerator[Connection]:
    async with web() as site, connected(await site.up(server.app)) as connection:
        assert (await connection.ready(10)).status == "ready"
        yield connection


ASKED: dict[str, Callable[[Connection], Awaitable[Any]]] = {
    "call": lambda each: each.call("echo", b"{}", timeout=10),
    "prompts": lambda each: each.ask(lambda link: link.prompts(), 10),
    "prompt": lambda each: each.ask(lambda link: link.prompt("p", {}), 10),
    "resources": lambda each: each.ask(lambda link: link.resources(), 10),
    "resource": lambda each: each.ask(lambda link: link.resource("mem://a"), 10),
}


@pytest.mark.parametrize("report", STALE)
async def test_a_server_that_no_longer_knows_us_is_dialled_anew(report: str) -> None:
    server = Deployed(STALE[report])
    others = list(ASKED)[1:]
    other = others[list(STALE).index(report) % len(others)]
    async with reached(server) as connection:
        for count, asked in enumerate(("call", other, "call"), 2):
            server.deploy()
            found = await ASKED[asked](connection)
            assert not isinstance(found, CallOutcome) or not found.is_error, (asked, found)
            assert server.number == count, asked
        # Each call ran once: what was refused did not.
        assert server.ran == ["echo", "echo"]


@pytest.mark.parametrize("report", [*list(STALE)[::4], *list(UNSURE)[::2]])
async def test_a_list_that_is_read_again_begins_anew_as_well(report: str) -> None:
    server = Deployed((STALE | UNSURE)[report])
    async with reached(server) as connection:
        server.deploy()
        server.tools.append("more")
        connection._note_change()  # as a notification would
        state = await connection.until(lambda each: each.revision == 2, 10)
        assert [tool.name for tool in state.tools] == ["echo", "more"]
        assert (state.status, state.error, server.number) == ("ready", None, 2)


@pytest.mark.parametrize("report", UNSURE)
async def test_what_may_have_run_is_not_repeated(report: str) -> None:
    status, _ = UNSURE[report]
    server = Deployed(UNSURE[report])
    async with reached(server) as connection:
        server.deploy()
        found = await connection.call("echo", b"{}", timeout=10)
        assert (found.is_error, found.code, server.ran) == (True, "lost", [])
        assert f"HTTP status {status}" in found.text
        assert "may or may not" in found.text
        assert (await connection.call("echo", b"{}", timeout=10)).text == "heard"
        assert (server.number, server.ran) == (2, ["echo"])


async def test_a_server_that_refuses_again_is_not_asked_a_third_time() -> None:
    server = Deployed()
    server.always = "Session not found"
    async with reached(server) as connection:
        for count in (2, 3, 4):
            found = await connection.call("echo", b"{}", timeout=10)
            assert (found.is_error, found.code) == (True, "refused")
            assert found.text == "server s refused the call: Session not found"
            # Its own words, as the first time showed: nothing is dialled for them any more.
            assert (server.number, len(server.ran)) == (2, count)
        assert connection.state.status == "ready"


async def test_a_call_while_nobody_listens_did_not_run_and_says_so() -> None:
    server = Deployed()
    async with web() as site:
        port = await site.up(server.app)
        async with connected(port) as connection:
            await connection.ready(10)
            await site.down()
            for _ in range(2):
                found = await connection.call("echo", b"{}", timeout=10)
                assert (found.is_error, found.code) == (True, "unreachable")
                assert "may or may not" not in found.text
            server.deploy()
            await site.up(server.app)
            assert (await connection.call("echo", b"{}", timeout=10)).text == "heard"
            assert server.ran == ["echo"]


@pytest.mark.parametrize("status", [404, 400])
async def test_a_stream_that_is_refused_after_it_was_open_tells_of_the_deployment(
    status: int,
) -> None:
    server = Deployed((status, ""))
    server.listens = True
    async with reached(server) as connection:
        server.tools.append("more")
        server.deploy()
        # Nobody asks anything: the stream alone shows that the server is another one.
        state = await connection.until(lambda each: each.revision == 2, 10)
        assert [tool.name for tool in state.tools] == ["echo", "more"]
        assert server.number == 2


async def test_a_key_that_no_longer_opens_is_told_and_asked_with_once_only() -> None:
    server = Deployed((401, ""))
    async with reached(server) as connection:
        server.closed = True
        asked = server.asked
        found = await connection.call("echo", b"{}", timeout=10)
        assert (found.is_error, found.code, server.ran) == (True, "refused", [])
        assert "401" in found.text
        # The call, and the greeting that was to begin anew.
        assert server.asked - asked <= 4
        server.closed = False
        assert (await connection.call("echo", b"{}", timeout=10)).text == "heard"
