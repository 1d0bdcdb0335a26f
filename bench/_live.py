"""What the measurements share: an agent with 42 tools, and a transport that answers by itself.

The session is a real one, from `Agent.open` to the last byte of a request. In place of HTTP it
gets a transport that notes when it was handed which bytes and answers from memory: in each turn
first with one call, then with a line of text.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from addendum import Agent, encoding
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.log.values import ToolSchema
from addendum.tools.functions import FunctionTool
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.sse import SseEvent
from addendum.wire.transport import Reply, WireRequest

ROUTES = ("anthropic:claude-opus-5-5", "openai-chat:gpt-4.1")
"""One route a wire."""

FUNCTIONS, OF_SERVER = 22, 20
TOOLS = FUNCTIONS + OF_SERVER
CALLED = "tool_3"
ARGUMENTS = "{}"
QUESTION = "Where does the figure in paragraph {turn} come from, and is it still right? " * 2
ANSWER = "It comes from the report of last spring. A newer one gives nearly the same value. " * 2
RESULT = "A line of what was found, with a name, a date and a figure of 12,345.67. " * 22
"""About 400 tokens."""


class Stub:
    """A transport that answers at once.

    Args:
        route: The route whose wire it speaks.
        clock: Seconds by which it measures.

    Attributes:
        entered: When the step began that is measured.
        spans: Seconds from there until the request was handed over, of the last two requests.
        called: The tool that the answers call.
        wanted: Whether to keep the next body. Else nothing of it stays, as with a real transport.
        body: The body that was kept.
    """

    def __init__(self, route: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._events = _messages if route.startswith("anthropic:") else _chat
        self._requests = 0
        self.entered = 0.0
        self.spans: deque[float] = deque(maxlen=2)
        self.called = CALLED
        self.wanted = False
        self.body = b""

    @asynccontextmanager
    async def stream(self, request: WireRequest, **_: Any) -> AsyncGenerator[Reply]:
        """Take a request and answer it."""
        self.spans.append(self._clock() - self.entered)
        if self.wanted:
            self.wanted, self.body = False, request.body
        self._requests += 1
        call = f"toolu_{self._requests}" if self._requests % 2 else None
        yield Reply(200, {}, _each(self._events(call, self.called)))


async def _each(events: list[bytes]) -> AsyncIterator[SseEvent]:
    for data in events:
        yield SseEvent(None, data)


def _messages(call: str | None, name: str) -> list[bytes]:
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": ANSWER}
    if call is not None:
        block = {"type": "tool_use", "id": call, "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    usage = {"input_tokens": 9, "output_tokens": 9}
    stop = {"stop_reason": "end_turn" if call is None else "tool_use"}
    message = {"id": "msg_1", "type": "message", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]
    return [encoding.encode(event) for event in events]


def _chat(call: str | None, name: str) -> list[bytes]:
    delta: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    if call is not None:
        function = {"name": name, "arguments": ARGUMENTS}
        made = {"index": 0, "id": call, "type": "function", "function": function}
        delta = {"role": "assistant", "tool_calls": [made]}
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
    finish = "stop" if call is None else "tool_calls"
    chunks = [
        {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
    ]
    return [*(encoding.encode(chunk) for chunk in chunks), b"[DONE]"]


def schema() -> dict[str, Any]:
    """Return a schema of usual size: five described properties."""
    described = {"type": "string", "description": "What is meant, in a word or a short sentence."}
    return {"type": "object", "properties": {f"p{i}": described for i in range(5)}}


def agent(route: str, stub: Stub) -> Agent:
    """Return the agent: 22 functions, and a server of 20 tools that is on from the start."""

    async def run(arguments: dict[str, Any]) -> str:
        # Another string each time: sessions share no results.
        text = f"Found at {time.perf_counter_ns()}. {RESULT}"
        stub.entered = time.perf_counter()
        return text

    text = "Does one of the things that this agent can do, and says what came of it. " * 2
    functions = [
        FunctionTool.from_schema(ToolSchema(f"tool_{i}", text, Raw(encoding.encode(schema()))), run)
        for i in range(FUNCTIONS)
    ]
    canned = [CannedTool(f"tool_{i}", text, schema(), "ok") for i in range(OF_SERVER)]
    return Agent(
        route,
        instructions="You answer from the files of the archive and name where it stands. " * 60,
        conversation_instructions="The person works on the edition of 1911. " * 5,
        tools=functions,
        mcp_servers=[ServerSpec(name="archive", server=in_process("archive", canned), on=True)],
        base_url="http://127.0.0.1:9",
        transport=stub,  # type: ignore[arg-type]
    )
