"""What a switch would cost, told of a stored session before anybody makes the switch.

The log is copied into a store in memory and opened there by a throw-away agent, and the switch is
looked at as of the moment after the last answer, while the cache still lives. Nothing is sent, no
server is dialled, and the session itself is not touched.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

from msgspec import Struct

from addendum.agent.agent import Agent
from addendum.agent.context.epochs import coming
from addendum.agent.context.preview import shown_only, unknown_tool
from addendum.agent.context.switch_cost import SwitchCost, switch_cost
from addendum.agent.session import Session, runtime_of
from addendum.cache.compare import BYTES_A_TOKEN
from addendum.cache.cost import again as price_again
from addendum.encoding import encode
from addendum.errors import ConfigurationError
from addendum.log import codec
from addendum.log.events import (
    AssistantMessage,
    RequestContext,
    RequestHeader,
    SystemMessage,
    ToolSwitch,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.routes import resolve
from addendum.stores.memory import MemoryStore
from addendum.tools.registry import Snapshot


class WhatIf(Struct, frozen=True):
    """A switch that nobody has made.

    Attributes:
        server: The server.
        on: Whether it would be switched on.
        route: The route on which it is looked at.
        strategy: How the change would be told there.
        tools: Tools that would come or go; 0 where the log never saw them.
        weight: Tokens of their definitions, estimated by bytes.
        cost: What is read again at the next request.
    """

    server: str
    on: bool
    route: str
    strategy: str
    tools: int
    weight: int
    cost: SwitchCost


async def what_if(
    log: SessionLog, switch: str, route: str | None, servers: Collection[str] = ()
) -> WhatIf:
    """Return what a switch would cost.

    Args:
        log: The session.
        switch: `enable:SERVER` or `disable:SERVER`.
        route: The route, or None for the one that answered last.
        servers: Names of servers that may be asked about although the log never saw them.

    Raises:
        ConfigurationError: There is no such switch to make.
        UnknownRoute: There is no such route.
    """
    verb, _, server = switch.partition(":")
    if verb not in ("enable", "disable") or not server:
        raise ConfigurationError(f"{switch!r} is no switch; write enable:SERVER or disable:SERVER")
    answers = [each for each in log.events if isinstance(each.data, AssistantMessage)]
    if not answers or log.header is None:
        raise ConfigurationError(f"session {log.session} has no answer yet; a switch costs nothing")
    latest = answers[-1]
    assert isinstance(latest.data, AssistantMessage)
    active = log.header.header.tools
    moved = _tools_of(log, server)
    there = [tool for tool in active if tool.name in {each.name for each in moved}]
    if (verb == "enable") == bool(there):
        state = "on" if there else "off"
        raise ConfigurationError(f"server {server} is {state} already in session {log.session}")
    if not moved and server not in servers and server not in _servers(log):
        raise ConfigurationError(
            f"session {log.session} never had a server {server!r}; correct the name, or name the "
            "file that has it with --mcp"
        )
    snapshot = _after(active, server, moved, on=verb == "enable")
    # An address of this machine: nothing is sent, and so no key is asked for.
    where = resolve(route or latest.data.route, base_url="http://127.0.0.1", environ={})
    contexts = [each.data for each in log.events if isinstance(each.data, RequestContext)]
    rebinds = route is None and contexts[-1].projection == "rebind"
    agent = Agent(
        where,
        tool_changes="rebind" if rebinds else "auto",
        clock=lambda: latest.time / 1000 + 1,
    )
    store = MemoryStore()
    lease = await store.acquire(log.session)
    await store.append(lease, 0, [codec.encode_event(event) for event in log.events])
    await store.release(lease)
    async with agent.open(log.session, store=store) as session:
        _as_it_was(session)
        cost = switch_cost(runtime_of(session), snapshot)
        context = coming(runtime_of(session))
        if not cost.prompt:
            broken = context.projection == "rebind" or (
                verb == "disable" and context.removals == "omit"
            )
            cost = _elsewhere(session, latest.data.usage.prompt, broken)
        weight = sum(-(-len(encode(tool)) // BYTES_A_TOKEN) for tool in moved)
        return WhatIf(
            server,
            verb == "enable",
            session.route.full_name,
            context.projection,
            len(moved),
            weight,
            cost,
        )


def _as_it_was(session: Session) -> None:
    """Give a session the prompt of its log, so that only the switch is new."""
    for node in session.log.surface.nodes:
        if isinstance(node.data, SystemMessage) and not node.data.empty:
            session.instructions = node.data.static
            session.conversation_instructions = node.data.conversation


def _tools_of(log: SessionLog, server: str) -> tuple[ToolSchema, ...]:
    """Return the definitions that a server had when the log last saw it on."""
    for event in reversed(log.events):
        if isinstance(event.data, RequestHeader):
            tools = event.data.header.tools
            own = tuple(tool for tool in tools if tool.name.startswith(f"{server}__"))
            if own:
                return own
    return ()


def _servers(log: SessionLog) -> set[str]:
    """Return the servers that were switched in a session, also those that listed no tool."""
    switches = (each.data for each in log.events if isinstance(each.data, ToolSwitch))
    return {each.name for each in switches if each.kind == "server"}


def _after(
    active: tuple[ToolSchema, ...], server: str, moved: tuple[ToolSchema, ...], *, on: bool
) -> Snapshot:
    names = {tool.name for tool in moved}
    kept = [tool for tool in active if on or tool.name not in names]
    if on:
        # What a server that never was on would bring is not known; that something comes is.
        kept += moved or [unknown_tool(server, names)]
    entries = {tool.name: shown_only(tool) for tool in kept}
    return Snapshot(entries, {}, tuple(kept))


def _elsewhere(session: Session, prompt: int | None, broken: bool) -> SwitchCost:
    """Return the cost on a route that has not answered yet, as if it had answered all along.

    The prompt's length is what another route counted, so all of it is an estimate.
    """
    again = prompt if broken else 0

    def dollars(tokens: int | None) -> Decimal | None:
        if not tokens:
            return None if tokens is None else Decimal(0)
        return price_again(session.route, tokens, prompt or 0, session.agent.clock())

    return SwitchCost(
        prompt,
        prompt,
        again,
        True,
        prompt,
        dollars(again),
        dollars(prompt),
        ("rebinding",) if broken else (),
        "as if this route had answered so far",
    )
