"""The conversations of `addendum demo --live`: rehearsed in the lab, then paid for.

The model answers as it likes: the scenario asks in plain words, and nothing depends on which calls
are made. Each conversation has a marker of its own in every text, so that nothing which was sent
before can be read from the cache. A request is sent once: a second attempt would find what the
first one wrote. None leaves once what was reported has passed the limit.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, structs

from addendum import encoding
from addendum.cache.cost import Cost, price, summed
from addendum.cache.spending import Spending, SpendingStopped
from addendum.errors import AddendumError, LimitReached
from addendum.log.values import ToolSchema, Usage
from addendum.routes import Route, ToolChanges, resolve
from addendum.routes.prices import prices

if TYPE_CHECKING:
    from addendum.agent.context.requests import Sent
    from addendum.lab.report import Run
    from addendum.lab.scenario import CannedFunction, Scenario, ScenarioServer
    from addendum.tools.functions import FunctionTool
    from addendum.tools.mcp.values import ServerSpec
    from addendum.wire.transport import Reply, Retries, Retry, Transport, WireRequest

SCENARIO = "g2-live"
"""Name of the scenario that is made for real models."""

WAYS: tuple[ToolChanges, ...] = ("auto", "rebind")
"""How changes are told, one conversation each."""

MAX_STEPS = 8
"""Requests that one turn may take; a longer one is ended, and the next begins."""

_WORD = 7
"""Bytes that a token of common English words may have, at most; the filler counts four."""
_LEAST = 512
_UNKNOWN_MINIMUM = 1024
_SERVER_WAIT = 30.0


class Estimate(Struct, frozen=True):
    """What both conversations take, as far as that can be told beforehand.

    Attributes:
        requests: Requests.
        prompt: Prompt tokens, by four bytes a token.
        output: Output tokens, likewise.
        cost: US dollars by the published cache rules; None if the price is not known.
        uncached: The same if nothing were read from the cache.
    """

    requests: int
    prompt: int
    output: int
    cost: Decimal | None
    uncached: Decimal | None


class Meter:
    """Sums up what was reported, and lets no request pass once that is too much.

    It stands in for the transport of the conversations.

    Args:
        route: The route that is paid.
        limit: US dollars; None where nothing is paid or the price is not known.
        transport: Carries the requests.
    """

    def __init__(self, route: Route, limit: Decimal | None, transport: Transport) -> None:
        self._route = route
        self._limit = limit
        self._transport = transport
        self._sent: list[Sequence[Sent]] = []

    def watch(self, sent: Sequence[Sent]) -> None:
        """Count the requests of one more conversation."""
        self._sent.append(sent)

    def check(self) -> None:
        """Look at the sum.

        Raises:
            SpendingStopped: It is over the limit, or cannot be told.
        """
        spending = Spending(self._route, self._limit, unknown_stops=True)
        for request in (each for sent in self._sent for each in sent):
            if request.answered is not None:
                spending.add(request.usage, request.sent)
        spending.check()

    def stream(
        self,
        request: WireRequest,
        *,
        on_retry: Callable[[Retry], None] | None = None,
        retries: Retries | None = None,
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request as the transport does.

        Raises:
            SpendingStopped: As `check`; nothing was sent.
        """
        self.check()
        return self._transport.stream(request, on_retry=on_retry, retries=retries)


class Outcome(Struct, frozen=True):
    """What was measured.

    Attributes:
        runs: One a way, in the order of `WAYS`; those in which a request was answered.
        stopped: Why it ended early, or was too dear.
    """

    runs: tuple[Run, ...]
    stopped: AddendumError | None


def new_marker() -> str:
    """Return a random text that no conversation had before."""
    return secrets.token_hex(6)


def live_scenario(route: Route, marker: str) -> Scenario:
    """Return the scenario, its prompt just long enough for the route's cache.

    Args:
        route: The route.
        marker: What makes the conversation's texts its own.
    """
    from addendum.lab.scenario_file import find

    cache = route.cache
    least = max(_LEAST, cache.minimum or _UNKNOWN_MINIMUM, cache.step)
    return find(SCENARIO, {"marker": marker, "tokens": -(-least * _WORD // 4)})


async def estimated(route: Route, scenarios: Sequence[Scenario]) -> Estimate:
    """Return what the conversations take, by playing them in the lab.

    Args:
        route: The route that is to be paid.
        scenarios: One a way.

    Raises:
        AddendumError: They cannot be played.
    """
    from addendum.lab.server import PROVIDERS

    runs: list[Run] = []
    cached = route.provider in PROVIDERS
    if cached:
        runs = await _rehearsed(route, route.provider, scenarios)
        cached = len(runs) == len(scenarios)
    if not cached:
        # The lab does not know the model. Any server's sizes will do, without a cache.
        plain = resolve(f"compatible:{route.model}", base_url="http://127.0.0.1")
        runs = await _rehearsed(plain, plain.provider, scenarios)
    usages = [record.usage for run in runs for _, record in run.rows()]
    now = time.time()
    bare = [Usage(each.prompt, 0, each.prompt, each.output) for each in usages]
    uncached = total_cost(price(route, each, now) for each in bare)
    return Estimate(
        len(usages),
        sum(each.prompt or 0 for each in usages),
        sum(each.output or 0 for each in usages),
        total_cost(price(route, each, now) for each in usages) if cached else uncached,
        uncached,
    )


async def _rehearsed(route: Route, provider: str, scenarios: Sequence[Scenario]) -> list[Run]:
    """Play the scenarios in the lab as the route would be told; those that it takes to the end."""
    from addendum.lab.server import open_lab
    from addendum.wire.transport import Transport

    runs: list[Run] = []
    for scenario, way in zip(scenarios, WAYS, strict=True):
        async with open_lab(scenario.script()) as lab, Transport() as transport:
            # No key leaves for a rehearsal.
            endpoint = structs.replace(
                route.endpoint, base_url=lab.base_url(provider), key_variables=()
            )
            there = structs.replace(route, endpoint=endpoint)
            run, stopped = await _play(scenario, there, way, Meter(there, None, transport))
            if stopped is None:
                runs.append(run)
    return runs


async def measured(route: Route, scenarios: Sequence[Scenario], limit: Decimal) -> Outcome:
    """Play the conversations at the route's own address, one after the other.

    Args:
        route: The route.
        scenarios: One a way.
        limit: US dollars; without effect where the price is not known.

    Raises:
        AddendumError: What ended it, if no request was answered.
    """
    from addendum.wire.transport import Transport, TransportSettings

    runs: list[Run] = []
    stopped: AddendumError | None = None
    async with Transport(TransportSettings(retries=0)) as transport:
        meter = Meter(route, limit if prices(route, time.time()) else None, transport)
        for scenario, way in zip(scenarios, WAYS, strict=True):
            run, stopped = await _play(scenario, route, way, meter)
            if run.report.requests:
                runs.append(run)
            if stopped is not None:
                break
        if stopped is None:
            try:
                meter.check()
            except SpendingStopped as error:
                stopped = error
    if not runs:
        assert stopped is not None
        raise stopped
    return Outcome(tuple(runs), stopped)


async def _play(
    scenario: Scenario, route: Route, way: ToolChanges, meter: Meter
) -> tuple[Run, AddendumError | None]:
    """Play one conversation as far as it goes; return it judged, and what ended it early."""
    from addendum.agent.agent import Agent
    from addendum.agent.setup import Limits
    from addendum.cache.record import RequestRecord
    from addendum.lab.records import Said, record_of
    from addendum.lab.report import judged
    from addendum.lab.scenario import Say, Toggle
    from addendum.stores import open_store
    from addendum.tools.mcp.pool import ServerPool

    records: list[RequestRecord] = []
    stopped: AddendumError | None = None
    async with AsyncExitStack() as stack:
        pool = ServerPool()
        stack.push_async_callback(pool.aclose)
        agent = Agent(
            route,
            instructions=scenario.instructions,
            conversation_instructions=scenario.conversation_instructions,
            tools=[_function(tool) for tool in scenario.tools],
            mcp_servers=[_server(each) for each in scenario.servers],
            tool_changes=way,
            limits=Limits(steps=MAX_STEPS, server_wait=_SERVER_WAIT),
            record=True,
            # It is asked for nothing but `stream`.
            transport=cast("Transport", meter),
            pool=pool,
        )
        opening = agent.open(f"{scenario.name}-{way}", store=await open_store("memory://"))
        session = await stack.enter_async_context(opening)
        meter.watch(session.sent)
        for step in scenario.steps:
            try:
                if isinstance(step, Toggle):
                    switch = session.tools.enable if step.on else session.tools.disable
                    await switch(step.server)
                elif isinstance(step, Say):
                    await session.run(step.user)
            except SpendingStopped as error:
                stopped = error
            except LimitReached:
                pass  # The turn took too many steps and is closed; the next one can begin.
            except AddendumError as error:
                # What was measured so far is kept, whatever this is.
                stopped = error
            said = Said(session)
            for sent in session.sent[len(records) :]:
                records.append(record_of(session, sent, len(records) + 1, said))
            if stopped is not None:
                break
        routes = {route.name: route}
        run = judged(scenario.name, route, way, records, (session.log,), (), routes)
    return run, stopped


def _function(tool: CannedFunction) -> FunctionTool[..., Any]:
    from addendum.tools.functions import FunctionTool

    async def answer(arguments: dict[str, object]) -> str:
        return tool.result

    return FunctionTool.from_schema(
        ToolSchema(tool.name, tool.description, tool.parameters, None), answer
    )


def _server(server: ScenarioServer) -> ServerSpec:
    from addendum.lab.mcp_servers import CannedTool, in_process
    from addendum.tools.mcp.values import ServerSpec

    tools = [
        CannedTool(
            each.name, each.description, encoding.decode(bytes(each.parameters)), each.result
        )
        for each in server.tools
    ]
    return ServerSpec(name=server.name, server=in_process(server.name, tools, server.instructions))


def total_cost(costs: Iterable[Cost | None]) -> Decimal | None:
    """Return the sum of what requests cost: nothing without any, None if one is not known."""
    found = list(costs)
    whole = summed(found)
    return Decimal(0) if not found else None if whole is None else whole.amount
