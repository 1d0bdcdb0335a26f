"""Time of a step, from its entry to the bytes at the transport, as a conversation grows.

A step is measured twice in each turn: from the call of `session.run` (one new user message), and
from the return of the tool (one tool result). Both take in all that happens until the transport
has the bytes: events appended and made durable, tools settled, header and prompt compared, the
request projected, compared with the last one, and joined. The garbage collector is on.

Beside it, in the same run and on the same body: encoding it once with the same encoder, with
`json.dumps`, and what the vendor's own SDK needs to make that request.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
from _live import QUESTION, ROUTES, TOOLS, Stub, agent

from addendum import encoding
from addendum.agent.session import Session
from addendum.stores import MemoryStore

LENGTHS = (0, 50, 200, 1_000, 5_000)
SCALING = 1_000
"""Turns from which on a row is no usual conversation: it shows what grows."""

RUNS = 30
PATIENCE = 3.0
"""Seconds after which a slow comparison stops early, with three runs at least."""

COLUMNS = (6, 9, 9, 9, 9, 9, 12, 18)


class Sdk:
    """A vendor's SDK, up to its HTTP transport.

    Attributes:
        name: The SDK and its version.
    """

    def __init__(self, route: str) -> None:
        self._arrived = 0.0
        self._create: Callable[..., Any] | None = None
        package, maker = (
            ("anthropic", "Anthropic") if "anthropic" in route else ("openai", "OpenAI")
        )
        self.name = package
        try:
            module = importlib.import_module(package)
        except ImportError:
            print(f"{package} is not installed; pip install {package} fills its column")
            return
        self.name = f"{package} {module.__version__}"
        client = getattr(module, maker)(
            api_key="none",
            max_retries=0,
            http_client=httpx2.Client(transport=httpx2.MockTransport(self._arrive)),
        )
        place = client.messages if package == "anthropic" else client.chat.completions
        self._create = place.create

    def _arrive(self, request: httpx2.Request) -> httpx2.Response:
        self._arrived = time.perf_counter()
        assert request.content
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"")

    def column(self, body: dict[str, Any]) -> str:
        """Return the time to make this request, from the call to the transport."""
        create = self._create
        if create is None:
            return "-"

        def once() -> float:
            start = time.perf_counter()
            create(**body)
            return self._arrived - start

        return median(once)[1]


def median(once: Callable[[], float]) -> tuple[float, str]:
    """Return the median of up to 30 results of `once`, in ms and written."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < RUNS and (len(times) < 3 or time.perf_counter() - began < PATIENCE):
        times.append(once())
    middle = statistics.median(times) * 1e3
    return middle, f"{middle:.3f}"


def timed(call: Callable[[Any], object], given: Any) -> tuple[float, str]:
    """Return the median time of `call(given)`."""

    def once() -> float:
        start = time.perf_counter()
        call(given)
        return time.perf_counter() - start

    return median(once)


async def turn(session: Session, stub: Stub) -> tuple[float, float]:
    """Run a turn and return the seconds that its two steps took to reach the transport."""
    stub.entered = time.perf_counter()
    await session.run(QUESTION.format(turn=session.log.turns + 1))
    user, result = stub.spans
    return user, result


async def last_body(session: Session, stub: Stub) -> bytes:
    """Run one more turn and return the body of its first request."""
    stub.wanted = True
    await turn(session, stub)
    return stub.body


def row(turns: int, times: list[tuple[float, float]], body: bytes, sdk: Sdk) -> None:
    """Print one length."""
    user, result = (statistics.median(of) * 1e3 for of in zip(*times, strict=True))
    value = encoding.decode(body)
    ours, written = timed(encoding.encode, value)
    cells = (
        f"{turns:,}",
        f"{len(body) / 1e6:.2f} MB",
        f"{user:.3f}",
        f"{result:.3f}",
        f"{max(user, result) / ours:.2f}",
        written,
        timed(json.dumps, value)[1],
        sdk.column(value),
    )
    kind = "  scaling test" if turns >= SCALING else ""
    print(*(cell.rjust(width) for cell, width in zip(cells, COLUMNS, strict=True)), kind)


async def measure(route: str) -> None:
    """Print the table of one route."""
    sdk = Sdk(route)
    names = ("turns", "body", "user", "result", "ratio", "msgspec", "json.dumps", sdk.name)
    print(f"{route}, {TOOLS} tools: ms until the transport has the bytes, median of {RUNS}")
    print(*(name.rjust(width) for name, width in zip(names, COLUMNS, strict=True)))
    stub = Stub(route)
    times: list[tuple[float, float]] = []
    for _ in range(RUNS):
        async with agent(route, stub).open(store=MemoryStore()) as session:
            stub.wanted = True
            times.append(await turn(session, stub))
    row(0, times, stub.body, sdk)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(agent(route, stub).open(store=MemoryStore()))
        for length in LENGTHS[1:]:
            while session.log.turns < length:
                await turn(session, stub)
            times = [await turn(session, stub) for _ in range(RUNS)]
            row(length, times, await last_body(session, stub), sdk)
    print()


async def main() -> None:
    """Print all tables."""
    assert gc.isenabled()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; user: one new user message;")
    print("result: one tool result; ratio: the slower of the two over msgspec, at most 1 from")
    print("200 turns on is the goal. At 0 turns each session is new and says everything.")
    print(f"A column slower than {PATIENCE:.0f} s in all is the median of 3 runs or more.\n")
    for route in ROUTES:
        await measure(route)


anyio.run(main)
