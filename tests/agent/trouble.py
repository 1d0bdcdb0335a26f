"""Surroundings for sessions that meet trouble, and the check that they get over it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from addendum.agent.agent import Agent
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.errors import AddendumError
from addendum.lab.server import Lab, open_lab
from addendum.log.events import EventData, ToolResult, TurnEnd
from addendum.log.session_log import SessionLog
from addendum.stores import SqliteStore
from addendum.tools.mcp.pool import ServerPool, Timings
from addendum.wire.transport import Transport, TransportSettings

ROUTES = ("anthropic:claude-opus-5-5", "deepseek:deepseek-flash", "openai-chat:gpt-4.1")
"""In-history by value, addition-only by reference, dispatch."""

WIRES = (
    *ROUTES,
    "openai:gpt-6.2-sol",
    "bedrock:anthropic.claude-sonnet-4-6",
    "gemini:gemini-4-argon",
)
"""One of each wire, and of each way of telling a change."""

QUICK = Timings(
    first_pause=0.02, longest_pause=0.1, quiet=0.01, confirm=0.1, demand=2, probe=0.3, grace=0.3
)


class World:
    """A lab, a store on disk and connections, for agents that share them."""

    def __init__(self, lab: Lab, place: Path, route: str = ROUTES[0]) -> None:
        self.lab = lab
        self.place = place
        self.route = route
        self.provider = route.split(":")[0]
        self.url = f"sqlite:///{place}/sessions.db"
        self.pool = ServerPool(timings=QUICK)
        self.transport = Transport(TransportSettings(retries=0))

    def agent(self, **more: Any) -> Agent:
        options: dict[str, Any] = {
            "instructions": "Be brief.",
            "base_url": self.lab.base_url(self.provider),
            "limits": Limits(tool_timeout=0.5, server_wait=3.0),
            "transport": self.transport,
            "pool": self.pool,
        }
        route = more.pop("route", self.route)
        return Agent(route, **options | more)

    async def log(self, session: str = "s") -> SessionLog:
        """The log as a new process would read it."""
        store = await SqliteStore.open(self.url)
        try:
            return SessionLog.load(session, await store.read(session))
        finally:
            await store.aclose()

    async def data(self, session: str = "s") -> list[EventData]:
        return [event.data for event in (await self.log(session)).events]  # type: ignore[misc]

    async def results(self) -> list[ToolResult]:
        return [data for data in await self.data() if isinstance(data, ToolResult)]

    async def usable(self, agent: Agent | None = None, session: str = "s") -> None:
        """The session opens, takes two more turns, and the strict lab refuses nothing of them."""
        first = len(self.lab.captures)
        async with (agent or self.agent()).open(session, store=self.url) as opened:
            for text in ("are you there?", "and still?"):
                assert (await opened.run(text)).text.startswith("I heard")
        refused = [each.refusal for each in self.lab.captures[first:] if each.status != 200]
        assert not refused
        log = await self.log(session)
        assert (log.turn, log.step, log.unanswered) == (None, None, ())
        assert isinstance(log.events[-1].data, TurnEnd)


@asynccontextmanager
async def world(place: Path, route: str = ROUTES[0]) -> AsyncGenerator[World]:
    async with open_lab() as lab:
        made = World(lab, place, route)
        try:
            yield made
        finally:
            await made.pool.aclose()
            await made.transport.aclose()


def one_line(error: BaseException, kind: type[AddendumError] = AddendumError) -> str:
    """Fail unless it is one error of ours that says one line; return the line."""
    assert isinstance(error, kind), repr(error)
    said = str(error)
    assert said == " ".join(said.split()), said
    assert 20 <= len(said) <= 800, said
    said.encode()
    return said


def answering(*bodies: bytes, status: int = 200, media: str = "text/event-stream") -> Transport:
    """A provider that gives these answers, the last one for ever, whatever it is asked."""
    left = list(bodies)

    def handler(request: httpx2.Request) -> httpx2.Response:
        body = left.pop(0) if len(left) > 1 else left[0]
        return httpx2.Response(status, headers={"content-type": media}, content=body)

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return Transport(TransportSettings(retries=0), client=client)


@contextmanager
def endpoint(status: int, body: bytes, media: str = "application/json") -> Generator[str]:
    """An endpoint that answers everything alike."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(status)
            self.send_header("content-type", media)
            self.send_header("content-length", str(len(body)))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def attempt(session: Session, text: str = "hello") -> AddendumError | None:
    """Run a turn that may fail in our own way; any other exception goes through."""
    try:
        await session.run(text)
    except AddendumError as error:
        return error
    return None
