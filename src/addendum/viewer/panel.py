"""The panel of tools: each server's tools, whether they are on, and what a switch would cost."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.lowlevel
from msgspec import Struct

from addendum.agent.context.preview import shown_only, unknown_tool
from addendum.agent.context.switch_cost import SwitchCost, switch_cost
from addendum.agent.session import runtime_of
from addendum.cache.compare import BYTES_A_TOKEN
from addendum.errors import AddendumError, ContentError
from addendum.log.events import ToolLeftOut
from addendum.log.store import Store
from addendum.log.values import ToolSchema
from addendum.tell.figures import money
from addendum.tell.left_out import left_out
from addendum.tell.words import Words
from addendum.tools.catalogue import KIND, decode_pin
from addendum.tools.mcp.values import ServerSpec
from addendum.tools.names import model_name
from addendum.tools.registry import Snapshot
from addendum.viewer.room import Room
from addendum.viewer.text import visible

SHOWN = 200
"""Tools of one server that the panel lists; the rest is a number. Many servers share twice that."""

LOST = 20
"""Tools that are not offered, or not in full, that are told of one server."""

MAX_LOG = 20_000
"""Events of a session up to which the cost of a switch is told: it costs a copy of the log."""


class Tool(Struct, frozen=True):
    """A tool in the panel.

    Attributes:
        name: Its name.
        description: What it does.
        tokens: What its definition weighs, estimated.
        refused: Whether calls of it are refused.
    """

    name: str
    description: str
    tokens: int
    refused: bool


class Group(Struct, frozen=True):
    """A server in the panel, or the agent's own tools.

    Attributes:
        name: The server; None for the agent's own tools.
        on: Whether it is switched on.
        status: Key of the text that says how its connection is; empty where the switch says it all.
        error: Why it cannot be reached, or empty.
        tools: Its tools, as far as they are known.
        count: How many; None if that is not known yet.
        tokens: What they weigh together, estimated.
        cost: What switching it costs, in words; empty where it cannot be told.
        free: Whether that is nothing.
        left_out: What it has that is not offered, or not told in full, and why: a line each.
    """

    name: str | None
    on: bool
    status: str
    error: str
    tools: tuple[Tool, ...]
    count: int | None
    tokens: int
    cost: str = ""
    free: bool = False
    left_out: tuple[str, ...] = ()


def weight(tool: ToolSchema) -> int:
    """Return the tokens of a definition, estimated by its bytes."""
    size = len(tool.name) + len(tool.description.encode()) + len(bytes(tool.parameters))
    return -(-size // BYTES_A_TOKEN)


async def groups(room: Room, store: Store, words: Words) -> list[Group]:
    """Return the panel of a session.

    Args:
        room: The session.
        store: Where what servers listed before is kept.
        words: The reader's language.
    """
    session = room.session
    # A turn may begin while the store is asked; what is told is of one moment.
    idle = not room.busy and session.log.turn is None
    limit = min(SHOWN, max(8, 2 * SHOWN // max(1, len(session.agent.servers))))
    if not room.busy:
        await session.registry.settle(0)
    snapshot = session.registry.snapshot()
    by_server: dict[str | None, list[ToolSchema]] = {}
    for entry in snapshot.entries.values():
        by_server.setdefault(entry.server, []).append(entry.schema)
    refused = frozenset(session.disabled)
    lost = left_out(session.log.events)
    found: list[Group] = []
    if own := by_server.get(None, []):
        names = {tool.name for tool in own}
        said = _left_out([each for each in lost if each.name in names], words)
        found.append(_group(None, True, "", "", own, refused, limit, left_out=said))
    for spec in session.agent.servers:
        name = spec.name
        on = session.tools.on(name)
        state = session.registry.state(name)
        # That it is on or off the switch says.
        status = f"panel.{state.status}" if on and state.status != "ready" else ""
        listed = by_server.get(name) if on else await _pinned(spec, snapshot, store)
        key = name, words.language
        # Each cost takes a moment; other pages go on meanwhile.
        await anyio.lowlevel.checkpoint()
        if idle:
            room.costs[key] = on, *_cost(room, name, on, listed, snapshot, words)
        # While a turn runs nothing can be switched: what was told last stays, so nothing jumps.
        was_on, cost, free = room.costs.get(key, (on, "", False))
        if was_on != on:
            cost, free = "", False
        error = state.error or ""
        names = {tool.name for tool in listed or ()}
        said = _left_out(
            [each for each in lost if on and (each.server == name or each.name in names)], words
        )
        found.append(
            _group(
                name,
                on,
                status,
                error,
                listed,
                refused,
                limit,
                cost=cost,
                free=free,
                left_out=said,
            )
        )
    return found


def _group(
    name: str | None,
    on: bool,
    status: str,
    error: str,
    tools: Sequence[ToolSchema] | None,
    refused: frozenset[str],
    limit: int,
    *,
    cost: str = "",
    free: bool = False,
    left_out: tuple[str, ...] = (),
) -> Group:
    shown = tuple(
        Tool(each.name, each.description, weight(each), each.name in refused)
        for each in (tools or ())[:limit]
    )
    total = sum(map(weight, tools or ()))
    count = None if tools is None else len(tools)
    return Group(name, on, status, visible(error), shown, count, total, cost, free, left_out)


def _left_out(found: Sequence[ToolLeftOut], words: Words) -> tuple[str, ...]:
    """Return a line for each tool that is not offered, or not told in full; a few of them."""
    return tuple(
        words(
            "turn.left_out_partly" if each.partly else "turn.left_out",
            name=visible(each.name),
            why=visible(each.why),
        )
        for each in found[:LOST]
    )


async def _pinned(spec: ServerSpec, snapshot: Snapshot, store: Store) -> list[ToolSchema] | None:
    """Return the tools that a server listed when it was last asked, or None."""
    if spec.server is not None:
        return None
    stored = await store.get(KIND, spec.key())
    if stored is None:
        return None
    try:
        pin = decode_pin(stored)
    except ContentError:
        return None
    taken = set(snapshot.entries)
    tool_schemas: list[ToolSchema] = []
    for tool in pin.tools:
        name = model_name(spec.name, tool.name, taken)
        taken.add(name)
        tool_schemas.append(ToolSchema(name, tool.description, tool.parameters))
    return tool_schemas


def switched(
    snapshot: Snapshot, server: str, on: bool, tools: Sequence[ToolSchema] | None
) -> Snapshot:
    """Return what would be active if a server were switched the other way.

    Args:
        snapshot: What is active.
        server: The server.
        on: Whether it is on now.
        tools: What it would bring; one unknown tool if None.
    """
    entries = {k: v for k, v in snapshot.entries.items() if v.server != server}
    if not on:
        unknown = unknown_tool(server, entries)
        for tool in [unknown] if tools is None else tools:
            entries[tool.name] = shown_only(tool, server)
    instructions = {k: v for k, v in snapshot.instructions.items() if k != server}
    return Snapshot(entries, instructions, tuple(entry.schema for entry in entries.values()))


def _cost(
    room: Room,
    server: str,
    on: bool,
    tools: Sequence[ToolSchema] | None,
    snapshot: Snapshot,
    words: Words,
) -> tuple[str, bool]:
    if len(room.session.log) > MAX_LOG:
        return words("cost.long"), False
    if on and not tools:
        # Nothing of it is offered yet, so nothing goes.
        return words("cost.nothing_offered"), True
    try:
        cost = switch_cost(runtime_of(room.session), switched(snapshot, server, on, tools))
    except AddendumError as error:
        return words("cost.unknown_because", why=str(error)), False
    return told(cost, words), not cost.again and not cost.reasons


def told(cost: SwitchCost, words: Words) -> str:
    """Return what a switch costs, in a sentence."""
    if cost.prompt == 0:
        return words("cost.nothing_sent")
    if cost.held is None or cost.again is None or cost.rebinding is None:
        return words("cost.not_reported" if not cost.reasons else "cost.breaks_unknown")
    held = cost.held or cost.prompt or 0
    about = "~" if cost.estimated else ""
    parts = [words("cost.again", again=f"{about}{cost.again:,}", held=f"{held:,}")]
    if cost.again and cost.cost is not None:
        parts.append(words("cost.for", money=money(cost.cost)))
    if cost.rebinding and cost.rebinding_cost is not None:
        parts.append(words("cost.rebinding", money=money(cost.rebinding_cost)))
    elif cost.rebinding:
        parts.append(words("cost.rebinding_tokens", count=cost.rebinding))
    return words("cost.join").join(parts)
