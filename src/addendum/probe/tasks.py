"""Tool-use tasks in each way of offering tools: what a way costs in correctness (D14).

The same tools are bound from the start, added natively in the midst, or reached through the
dispatcher. A task succeeds if its calls, and no others, ran with the arguments that its text gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeAlias

from msgspec import Raw, Struct

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.session import Session
from addendum.agent.setup import Limits
from addendum.cache.spending import Spending
from addendum.errors import LimitReached
from addendum.log.events import ToolResult
from addendum.log.values import ToolSchema
from addendum.routes import Route
from addendum.stores import open_store
from addendum.tools.functions import FunctionTool
from addendum.wire.transport import Transport, TransportSettings

Way: TypeAlias = Literal["bind", "native", "dispatch"]
Calls: TypeAlias = tuple[tuple[str, dict[str, Any]], ...]


class Task(Struct, frozen=True):
    """One task.

    Attributes:
        text: What the person asks.
        calls: Calls that it needs, in any order.
        rounds: Requests that it needs: one for each round of calls, one for the answer.
    """

    text: str
    calls: Calls
    rounds: int = 2


class Score(Struct, frozen=True):
    """What the tasks led to in one way.

    Attributes:
        way: How the tools were offered.
        tasks: Tasks that were run.
        succeeded: Those whose calls all ran, with the right arguments, and no others.
        wrong_arguments: Calls that were refused, or ran with other arguments than the task gives.
        extra_requests: Requests beyond those that the tasks need.
        failed: Texts of the tasks that did not succeed.
    """

    way: Way
    tasks: int
    succeeded: int
    wrong_arguments: int
    extra_requests: int
    failed: tuple[str, ...] = ()


TASKS = (
    Task(
        "What is the weather in Oslo on 2027-03-05, in celsius?",
        (("get_weather", {"city": "Oslo", "date": "2027-03-05", "unit": "celsius"}),),
    ),
    Task(
        "Compare the weather of Lima and Quito on 2027-04-01, in fahrenheit.",
        (
            ("get_weather", {"city": "Lima", "date": "2027-04-01", "unit": "fahrenheit"}),
            ("get_weather", {"city": "Quito", "date": "2027-04-01", "unit": "fahrenheit"}),
        ),
    ),
    Task(
        "How much are 12.5 EUR in JPY?",
        (("convert_money", {"amount": 12.5, "source": "EUR", "target": "JPY"}),),
    ),
    Task(
        "Put a meeting named Review at 2027-02-01T10:00 into the calendar, with ann@example.org "
        "and bob@example.org; remind us 15 minutes before.",
        (
            (
                "add_event",
                {
                    "title": "Review",
                    "start": "2027-02-01T10:00",
                    "guests": [{"email": "ann@example.org"}, {"email": "bob@example.org"}],
                    "reminder": {"minutes": 15},
                },
            ),
        ),
    ),
    Task(
        '/call convert_money {"amount":3,"source":"USD","target":"CHF"}',
        (("convert_money", {"amount": 3, "source": "USD", "target": "CHF"}),),
    ),
    Task(
        '/call get_weather {"city":"Malm\\u00f6","date":"2027-05-06","unit":"celsius"}',
        (("get_weather", {"city": "Malmö", "date": "2027-05-06", "unit": "celsius"}),),
    ),
)
"""Plain ones, two calls at once, numbers, nested values; and two that leave no choice."""

_INSTRUCTIONS = """\
Use the tools that you have; never ask back. A message of the form `/call NAME JSON` asks you to \
call the tool NAME with exactly the arguments JSON. When you have the result, answer briefly."""

_TEXT: Mapping[str, Any] = {"type": "string"}
_SCHEMAS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "get_weather": (
        "Tells the weather in a city on a day (YYYY-MM-DD).",
        {
            "city": _TEXT,
            "date": _TEXT,
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
    ),
    "convert_money": (
        "Converts an amount between currencies, given by their three letters.",
        {"amount": {"type": "number"}, "source": _TEXT, "target": _TEXT},
    ),
    "add_event": (
        "Adds an event to the calendar; `start` is a local time such as 2027-01-31T09:30.",
        {
            "title": _TEXT,
            "start": _TEXT,
            "guests": {
                "type": "array",
                "items": {"type": "object", "properties": {"email": _TEXT}, "required": ["email"]},
            },
            "reminder": {
                "type": "object",
                "properties": {"minutes": {"type": "integer"}},
                "required": ["minutes"],
            },
        },
    ),
}


async def run_tasks(
    route: Route, spending: Spending, *, say: Callable[[str], None] = lambda _: None
) -> tuple[Score, ...]:
    """Run the tasks in each way that the route has.

    Args:
        route: The route, with what was probed of it; native only where it can be told so.
        spending: Counts what it costs.
        say: Told what is tried next.

    Raises:
        ProviderError: The endpoint failed.
        LimitReached: It became too dear.
    """
    ways: tuple[Way, ...] = ("bind", "native", "dispatch")
    if route.capabilities.tool_update is None:
        ways = ("bind", "dispatch")
    scores: list[Score] = []
    for way in ways:
        say(f"tasks by {way}")
        scores.append(await _run(route, way, spending))
    return tuple(scores)


async def _run(route: Route, way: Way, spending: Spending) -> Score:
    ran: list[tuple[str, dict[str, Any]]] = []
    tools = [_tool(name, ran) for name in _SCHEMAS]
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(Transport(TransportSettings(retries=0)))
        agent = Agent(
            route,
            instructions=_INSTRUCTIONS,
            tools=tools if way == "bind" else [],
            tool_changes="rebind" if way == "bind" else way,
            tool_dispatch=way != "bind",
            limits=Limits(steps=8),
            transport=transport,
        )
        session = await stack.enter_async_context(agent.open(store=await open_store("memory://")))
        await _say(session, "Hello.", spending)
        for tool in tools if way != "bind" else ():
            await session.tools.add(tool)
        wrong = extra = 0
        failed: list[str] = []
        for task in TASKS:
            ran.clear()
            before = len(session.log)
            requests = await _say(session, task.text, spending)
            refused = sum(
                1
                for event in session.log.events[before:]
                if isinstance(event.data, ToolResult) and event.data.code is not None
            )
            left, other = _compared(task.calls, ran)
            wrong += refused + other
            extra += max(0, requests - task.rounds)
            if left or other or refused:
                failed.append(task.text)
    return Score(way, len(TASKS), len(TASKS) - len(failed), wrong, extra, tuple(failed))


async def _say(session: Session, text: str, spending: Spending) -> int:
    """Run a turn, to its limit of steps if need be, and return its requests."""
    spending.check()
    before = session.log.turns
    try:
        result = await session.run(text)
    except LimitReached:
        assert session.log.turns > before
        return session.agent.limits.steps
    for each in result.requests:
        spending.add(each.usage, time.time())
    return len(result.requests)


def _compared(wanted: Calls, ran: Sequence[tuple[str, dict[str, Any]]]) -> tuple[int, int]:
    """Return how many calls are missing, and how many others ran."""
    left = [(name, encoding.canonical(arguments)) for name, arguments in wanted]
    other = 0
    for name, arguments in ran:
        call = (name, encoding.canonical(arguments))
        if call in left:
            left.remove(call)
        else:
            other += 1
    return len(left), other


def _tool(name: str, ran: list[tuple[str, dict[str, Any]]]) -> FunctionTool[..., Any]:
    async def run(arguments: dict[str, Any]) -> str:
        ran.append((name, arguments))
        return "done"

    description, properties = _SCHEMAS[name]
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    raw = Raw(encoding.encode(schema))
    return FunctionTool.from_schema(ToolSchema(name, description, raw), run)


__all__ = ["TASKS", "Score", "Task", "run_tasks"]
