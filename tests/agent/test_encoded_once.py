"""D6: a block is encoded once, and a request's cost follows what is new.

Free of noise: blocks are counted, and lines of our own code that run, never seconds.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, NamedTuple

import pytest
from msgspec import Raw
from tests.property.reference import blocks

import addendum
from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.context.epochs import coming
from addendum.agent.session import Session, runtime_of
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.log.values import ToolSchema
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.sse import SseEvent
from addendum.wire.transport import Reply, WireRequest

pytestmark = pytest.mark.anyio

OURS = addendum.__path__[0]
FAN_OUT = 24

SLACK = 60
"""Lines that a step may vary by; one line a turn would be 350."""

PLACES = [
    ("anthropic:claude-opus-5-5", "auto", "scoped"),
    ("anthropic:claude-opus-5-5", "auto", "kept"),
    ("anthropic:claude-opus-5-5", "auto", "moved"),
    ("anthropic:claude-opus-5-5+by-reference", "auto", "scoped"),
    ("anthropic:claude-sonnet-4-6", "dispatch", "moved"),
    ("deepseek:deepseek-flash", "native", "kept"),
    ("deepseek:deepseek-flash", "dispatch", "moved"),
    ("openai-chat:gpt-4.1", "auto", "moved"),
    ("openai-chat:gpt-4.1", "auto", "kept"),
]
every_place = pytest.mark.parametrize(
    ("route", "changes", "tail"), PLACES, ids=[" ".join(place) for place in PLACES]
)


class Request(NamedTuple):
    """A request as the transport got it.

    Attributes:
        body: Its bytes.
        encoded: What was encoded so far.
        lines: Lines of our code that ran for it; 0 where they were not counted.
        broken: Whether a break was declared for it.
    """

    body: bytes
    encoded: int
    lines: int
    broken: bool


class Stub:
    """A transport that answers from memory: first with calls, then with text."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.session: Session | None = None
        self.requests: list[Request] = []
        self.calls = 1
        self.counter: Lines | None = None
        self._made = 0

    @asynccontextmanager
    async def stream(self, request: WireRequest, **_: Any) -> AsyncGenerator[Reply]:
        lines = self.counter.stop() if self.counter else 0
        assert self.session is not None
        context = coming(runtime_of(self.session))
        self.requests.append(
            Request(
                request.body,
                runtime_of(self.session).requests.encoded(context.route),
                lines,
                bool(self.session.sent[-1].breaks),
            )
        )
        calls, self.calls = self.calls, 0
        answer = _messages if self.wire == "anthropic_messages" else _chat
        yield Reply(200, {}, _each(answer([self._id() for _ in range(calls)])))

    def _id(self) -> str:
        self._made += 1
        return f"toolu_{self._made}"


async def _each(events: list[bytes]) -> AsyncIterator[SseEvent]:
    for data in events:
        yield SseEvent(None, data)


def _messages(calls: list[str]) -> list[bytes]:
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    deltas: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (thought, {"type": "signature_delta", "signature": f"signed {len(calls)}"}),
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": "I look."}),
    ]
    for call in calls:
        block = {"type": "tool_use", "id": call, "name": "look", "input": {}}
        deltas.append((block, {"type": "input_json_delta", "partial_json": '{"q":"x"}'}))
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, (block, delta) in enumerate(deltas):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    stop = {"stop_reason": "tool_use" if calls else "end_turn"}
    events += [
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]
    return [encoding.encode(event) for event in events]


def _chat(calls: list[str]) -> list[bytes]:
    function = {"name": "look", "arguments": '{"q":"x"}'}
    made = [
        {"index": index, "id": call, "type": "function", "function": function}
        for index, call in enumerate(calls)
    ]
    delta = {"role": "assistant", "content": "I look.", **({"tool_calls": made} if made else {})}
    finish = "tool_calls" if calls else "stop"
    about = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    chunks = [
        {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
    ]
    return [*(encoding.encode(chunk) for chunk in chunks), b"[DONE]"]


def tool(name: str, more: str = "") -> FunctionTool[..., Any]:
    async def run(arguments: dict[str, Any]) -> str:
        return f"{name} found it"

    schema = Raw(b'{"type":"object","properties":{"q":{"type":"string"}}}')
    return FunctionTool.from_schema(ToolSchema(name, f"Does {name}. " * 5 + more, schema), run)


@asynccontextmanager
async def conversation(route: str, changes: str, tail: str) -> AsyncGenerator[tuple[Session, Stub]]:
    """Open a session of an agent with function tools and a server's tools."""
    stub = Stub("openai_chat" if route.startswith("openai-chat") else "anthropic_messages")
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}}
    canned = [CannedTool(f"tool_{n}", "Does that. " * 5, parameters, "ok") for n in range(20)]
    agent = Agent(
        route,
        instructions="You look things up. " * 50,
        conversation_instructions="This is about the archive. " * 10,
        tools=[tool("look"), tool("second"), tool("third")],
        mcp_servers=[
            ServerSpec(
                name="archive",
                server=in_process("archive", canned, instructions="Paths are relative."),
                on=True,
            )
        ],
        tool_changes=changes,  # type: ignore[arg-type]
        tail=tail,  # type: ignore[arg-type]
        base_url="http://127.0.0.1:9",
        record=True,
        transport=stub,  # type: ignore[arg-type]
    )
    async with agent.open("s", store=MemoryStore()) as session:
        stub.session = session
        yield session, stub


async def turn(session: Session, stub: Stub) -> None:
    """Run a turn: every fifth sets other instructions, some switch a tool, some fan out."""
    number = session.log.turns + 1
    if number % 5 == 0:
        session.turn_instructions = None if number % 20 == 0 else f"Be brief ({number})."
    if number % 7 == 0:
        await switch(session)
    stub.calls = FAN_OUT if number % 10 == 0 else 1
    await session.run(f"Where does figure {number} come from?")


_versions = itertools.count()
"""A definition is encoded once in a process: one that an earlier test made would cost less here."""


async def switch(session: Session) -> None:
    """Add a tool of a new name, or remove the one that was added where that breaks nothing."""
    names = [each.name for each in session.registry.snapshot().active]
    extra = [name for name in names if name.startswith("extra_")]
    if extra and coming(runtime_of(session)).projection != "addition-only":
        await session.tools.remove(extra[0])
    else:
        version = f"Version {next(_versions):06}. "
        await session.tools.add(tool(f"extra_{session.log.turns}", version))


@every_place
async def test_a_request_encodes_what_is_new(route: str, changes: str, tail: str) -> None:
    async with conversation(route, changes, tail) as (session, stub):
        while session.log.turns < 60:
            await turn(session, stub)
        context = coming(runtime_of(session))
    assert (context.projection == "dispatch") == (changes == "dispatch" or "chat" in route)
    before = Request(b"{}", 0, 0, False)
    told: list[tuple[str, str]] = []
    for number, request in enumerate(stub.requests):
        now = blocks(request.body, context)
        assert not request.broken
        assert now[: len(told)] == told
        fresh = len(now) - len(told) + outside(request.body) - outside(before.body)
        encoded = request.encoded - before.encoded
        if tail == "moved":
            # What lasts for its turn only is no block of the prefix: the tail, which is new in the
            # first of a turn's two requests, and reasoning bound to it, in the second.
            fresh += 1
        assert encoded <= fresh, f"request {number}: {encoded} encoded, {fresh} new"
        before, told = request, now
    assert len(stub.requests) == 120
    assert sum(b"cache_control" in request.body for request in stub.requests) in (0, 120)


def outside(body: bytes) -> int:
    """Count what stands outside the prefix: deferred declarations."""
    tools = encoding.decode(body).get("tools", [])
    return sum(bool(each.get("defer_loading")) for each in tools)


class Lines:
    """Counts the lines of our own code that run, so that loops show as well as calls."""

    def __init__(self) -> None:
        self._count = 0

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self._count += 1
        return self._line

    def start(self) -> None:
        self._count = 0
        sys.settrace(self._call)

    def stop(self) -> int:
        sys.settrace(None)
        return self._count


@contextmanager
def counting(stub: Stub) -> Generator[Lines]:
    """Count from here to the next request."""
    before, lines = sys.gettrace(), Lines()
    stub.counter = lines
    lines.start()
    try:
        yield lines
    finally:
        stub.counter = None
        sys.settrace(before)


async def cost(session: Session, stub: Stub, *, switched: bool) -> int:
    """Return the lines run from a new user message to the transport."""
    if switched:
        await switch(session)
    stub.calls = 1
    first = len(stub.requests)
    with counting(stub):
        await session.run("Where does the figure come from?")
    return stub.requests[first].lines


async def costs(session: Session, stub: Stub, until: int) -> tuple[int, int]:
    """Go on to a turn, then return what a plain step costs and one that tells a switch."""
    while session.log.turns < until:
        await turn(session, stub)
    # The least of a few: now and then one fills a chunk.
    plain = min([await cost(session, stub, switched=False) for _ in range(4)])
    return plain, min([await cost(session, stub, switched=True) for _ in range(4)])


async def test_an_unchanged_header_is_known_without_looking_at_its_tools() -> None:
    async with conversation(*PLACES[0]) as (session, stub):
        await turn(session, stub)
        header, first = session.log.header, session.registry.snapshot()
        await turn(session, stub)
        assert header is not None and session.log.header is header
        assert session.registry.snapshot() is first and first.active is header.header.tools
        await session.tools.add(tool("extra"))
        now = session.registry.snapshot()
        assert now is not first and len(now.active) == len(first.active) + 1


@every_place
async def test_nothing_grows_but_the_join(route: str, changes: str, tail: str) -> None:
    async with conversation(route, changes, tail) as (session, stub):
        plain, switched = await costs(session, stub, 50)
        later, later_switched = await costs(session, stub, 400)
        context = coming(runtime_of(session))
    assert 100 < later <= plain + SLACK
    # The note's own projection looks at all updates of the series, when there is a new one.
    if context.definitions == "by-value":
        assert plain < later_switched <= switched + SLACK
