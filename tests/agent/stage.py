"""A lab in this process, and sessions on it: no sockets, a clock that stands until it is moved."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from msgspec import Raw
from tests.property.judging import count, rules

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.context.requests import Sent
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.cache.figures import Report, judge
from addendum.cache.invariants import check
from addendum.cache.record import Declared, RequestRecord
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptStep
from addendum.lab.server import Clock, Lab
from addendum.log.events import CacheBreak, EventData, ToolResult
from addendum.log.values import ToolSchema
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.transport import Transport, TransportSettings

CLAUDE = "anthropic:claude-opus-5-5"
CHAT = "openai-chat:gpt-4.1"
DEEPSEEK = "deepseek:deepseek-flash"
LONG = "You are helpful. " * 300


def fn(name: str, version: int = 0, *, deferred: bool = False) -> FunctionTool[..., Any]:
    """A tool whose result says which version ran."""

    async def run(arguments: dict[str, Any]) -> str:
        return f"{name} v{version} result"

    schema = {"type": "object", "properties": {f"q{version}": {"type": "string"}}}
    text = f"Tool {name} version {version}. " + "More. " * 4
    flag = True if deferred else None
    return FunctionTool.from_schema(ToolSchema(name, text, Raw(encoding.encode(schema)), flag), run)


def server(*, instructions: str | None = None) -> ServerSpec:
    """A server `github` with the tools `t0` and `t1`."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tools = [CannedTool(f"t{number}", f"Tool {number}.", schema, "ok") for number in range(2)]
    made = in_process("github", tools, instructions=instructions)
    return ServerSpec(name="github", server=made)


def thinking(*texts: str) -> Script:
    """A model that thinks before each answer to one of these messages."""
    return Script(
        tuple(
            ScriptStep(text, (Entry(text=f"answer to {text}", thinking=f"about {text}"),))
            for text in texts
        )
    )


def refusal(message: str) -> bytes:
    """A refusal in Anthropic's shape."""
    error = {"type": "invalid_request_error", "message": message}
    return json.dumps({"type": "error", "error": error}).encode()


class Stage:
    """One lab and one store for the agents of a test.

    Attributes:
        sent: All requests of closed and open sessions, in order.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.clock = Clock(1_800_000_000.0)
        self.lab = Lab(script, clock=self.clock)
        self.lab.url = "http://127.0.0.1:9"
        self.store = MemoryStore()
        self.pool = ServerPool(idle_seconds=0.05)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.lab.app))
        self.transport = Transport(TransportSettings(retries=0), client=self.client)
        self.sent: list[Sent] = []

    def agent(self, route: str, **more: Any) -> Agent:
        options: dict[str, Any] = {
            "instructions": LONG,
            "tools": [fn("web")],
            "base_url": self.lab.base_url(route.split(":")[0]),
            "transport": self.transport,
            "pool": self.pool,
            "record": True,
            "clock": self.clock.now,
            "limits": Limits(server_wait=3.0, tool_timeout=2),
        }
        return Agent(route, **options | more)

    @asynccontextmanager
    async def open(self, agent: Agent, name: str = "s") -> AsyncGenerator[Session]:
        async with agent.open(name, store=self.store) as session:
            try:
                yield session
            finally:
                self.sent += session.sent

    def refused(self) -> list[str | None]:
        """What the lab refused of its own accord."""
        return [each.refusal for each in self.lab.captures if each.status == 400]

    def judged(self, route: str, session: str = "s") -> Report:
        """The figures of a session on a route; fails if an invariant does not hold."""
        route = route.partition("+")[0]
        everything = [_record(each) for each in self.sent if each.session == session]
        own = [record for record in everything if record.route == route]
        assert own, f"nothing was sent on {route}"
        broken = check(own, rules(route), among=everything)
        assert not broken, broken
        return judge(own, rules(route), count)


def _record(sent: Sent) -> RequestRecord:
    context = sent.context
    return RequestRecord(
        sent.number,
        sent.turn,
        sent.session,
        context.route,
        context.wire,
        sent.body,
        sent.usage,
        sent.sent,
        sent.answered,
        "answered" if sent.answered else "failed",
        context.projection,
        context.definitions,
        context.removals,
        context.tail,
        bound=context.reasoning_bound,
        declared=tuple(Declared(each.reason, each.at) for each in sent.breaks),
        purpose="turn" if sent.purpose == "turn" else "compaction",
    )


@asynccontextmanager
async def stage(script: Script | None = None) -> AsyncGenerator[Stage]:
    made = Stage(script)
    try:
        yield made
    finally:
        await made.pool.aclose()
        await made.client.aclose()


def body(sent: Sent) -> dict[str, Any]:
    return json.loads(sent.body)


def names(sent: Sent) -> list[str]:
    """The declared tools of a request."""
    return [tool.get("name") or tool["function"]["name"] for tool in body(sent).get("tools", [])]


def data(session: Session) -> list[EventData]:
    return [event.data for event in session.log.events]  # type: ignore[misc]


def breaks(session: Session) -> list[tuple[str, str]]:
    """Reason and place of every break that was declared."""
    return [(each.reason, each.at) for each in data(session) if isinstance(each, CacheBreak)]


def results(session: Session) -> list[ToolResult]:
    return [each for each in data(session) if isinstance(each, ToolResult)]


def texts(sent: Sent) -> list[tuple[str, str]]:
    """Role and text of every text in the messages of a request."""
    found: list[tuple[str, str]] = []
    for message in body(sent)["messages"]:
        content = message.get("content")
        if isinstance(content, str):
            found.append((message["role"], content))
        for block in content if isinstance(content, list) else ():
            if block["type"] == "text":
                found.append((message["role"], block["text"]))
    return found


def storing(stored: Any, change: Any) -> list[bytes]:
    """Stored events with their `data` changed by a function."""
    changed: list[bytes] = []
    for raw in stored:
        event = msgspec.json.decode(raw)
        change(event["data"])
        changed.append(msgspec.json.encode(event))
    return changed
