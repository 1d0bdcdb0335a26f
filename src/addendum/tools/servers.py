"""One MCP server in one session: what is known of it, and what runs its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.log.values import Media, ToolSchema
from addendum.tools.functions import ToolContext
from addendum.tools.mcp.pool import Connection
from addendum.tools.mcp.values import RemoteTool, ServerSpec, ServerState
from addendum.tools.names import model_name


class Outcome(Struct, frozen=True):
    """What a call gave.

    Attributes:
        text: What the model reads.
        is_error: Whether it says that the call failed.
        code: Why, for programs.
        media: Files that the text names by number.
    """

    text: str
    is_error: bool = False
    code: str | None = None
    media: tuple[Media, ...] = ()


_ONCE_LEFT_OUT = ("oneOf", "anyOf", "allOf", "enum", "not")
"""Keywords that the first releases left out at the top of a server's schemas."""

Run = Callable[[bytes, ToolContext, float], Awaitable[Outcome]]
"""Arguments (JSON object), context, seconds allowed."""


class Server:
    """One configured server in this session.

    Attributes:
        spec: How it is reached.
        on: Whether it is switched on.
        connection: The process's connection, while it is held.
        known: Its settled tools.
        instructions: Its own text.
        restored: Its tools as a log says, until it has listed.
        revision: Number of the list that was taken over.
        names: The names that the model knows its tools by.
        awaited: Whether a step has waited for its first list.
        unlisted: Whether it was on in a log that has none of its tools.
        unpinned: Whether its list is newer than what the store has of it.
        pin_damaged: Whether the store's pin of it cannot be read.
        noted: Notes of its list that were told.
        told: What a person was told of its not being there; empty while it is.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.on = False
        self.connection: Connection | None = None
        self.known: tuple[RemoteTool, ...] = ()
        self.instructions: str | None = None
        self.restored: tuple[ToolSchema, ...] | None = None
        self.revision = 0
        self.names: dict[str, str] = {}
        self.awaited = False
        self.unlisted = False
        self.unpinned = False
        self.pin_damaged = False
        self.noted: tuple[str, ...] = ()
        self.told = ""

    def trouble(self) -> str | None:
        """Return why its tools are not there, empty if they are; None if that was told before."""
        wrong = ""
        if self.connection is not None and not (self.known or self.restored):
            # Else its tools are there, and each call says that it cannot be reached.
            state = self.connection.state
            if state.status == "failed":
                wrong = f"cannot be reached ({state.error or 'it does not answer'})"
            elif self.awaited and not state.revision:
                wrong = "has not listed its tools yet"
        told, self.told = self.told, wrong
        return None if wrong == told else wrong

    def dropped(self) -> tuple[str, ...]:
        """Return a note for each tool of its list that was dropped; nothing if it was told."""
        state = None if self.connection is None else self.connection.state
        if state is None or state.notes == self.noted:
            return ()
        self.noted = state.notes
        return state.notes

    def adopt(self, state: ServerState) -> bool:
        """Take over a settled list that is newer; say whether anything was taken."""
        if state.revision == self.revision or not state.revision:
            return False
        self.revision = state.revision
        self.known = state.tools
        self.instructions = state.instructions
        self.restored = None
        return True

    def take_over(self, other: Server) -> None:
        """Know what another session of this process knows of the same server."""
        self.known, self.instructions = other.known, other.instructions
        self.restored, self.unlisted = other.restored, other.unlisted
        self.revision, self.awaited = other.revision, other.awaited
        self.names = dict(other.names)


def as_logged(schema: ToolSchema, logged: ToolSchema | None) -> ToolSchema:
    """Return a server's tool as a log has it, if that is what an earlier release made of it.

    The first ones left out what no provider takes at the top of a schema. A session that was begun
    so goes on so: its tool was not defined anew.

    Args:
        schema: The tool as its server lists it.
        logged: As the log's latest header has it; None if it does not.
    """
    if logged is None or logged.definition() == schema.definition():
        return schema
    listed: Any = encoding.decode(bytes(schema.parameters))
    left = {name: part for name, part in listed.items() if name not in _ONCE_LEFT_OUT}
    if len(left) == len(listed):
        return schema
    once = msgspec.structs.replace(schema, parameters=Raw(encoding.encode(left)))
    same = once.definition() == logged.definition()
    return msgspec.structs.replace(schema, parameters=logged.parameters) if same else schema


Connect: TypeAlias = Callable[[Server], Awaitable[Connection]]
"""Gives the connection of a server, dialling it if need be."""

Same: TypeAlias = Callable[[RemoteTool], bool]
"""Says whether a tool that a server lists is still the one that calls were judged by."""


def remote(server: Server, connect: Connect, tool: str, same: Same) -> Run:
    """Return what runs a tool of a server by the server's own name for it.

    Args:
        server: The server.
        connect: Gives its connection.
        tool: The server's own name.
        same: Whether what is listed under that name is what a call was judged by.
    """

    async def run(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
        if not server.on:
            return _switched_off(server.spec.name)
        connection = await connect(server)
        limit = server.spec.timeout or seconds
        answer = await connection.call(
            tool, arguments, timeout=limit, report=context.report, same=same
        )
        return Outcome(answer.text, answer.is_error, answer.code, answer.media)

    return run


def remote_by_name(server: Server, connect: Connect, name: str, same: Same) -> Run:
    """Run a tool known from the log by its full name: the list says its own name."""

    async def run(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
        if not server.on:
            return _switched_off(server.spec.name)
        connection = await connect(server)
        seconds = server.spec.timeout or seconds
        state = await connection.ready(seconds)
        for tool in state.tools:
            first = model_name(server.spec.name, tool.name, ())
            # The second is its name where the first was taken.
            if name in (
                server.names.get(tool.name),
                first,
                model_name(server.spec.name, tool.name, (first,)),
            ):
                answer = await connection.call(
                    tool.name, arguments, timeout=seconds, report=context.report, same=same
                )
                return Outcome(answer.text, answer.is_error, answer.code, answer.media)
        if state.revision:
            return Outcome(f"server {server.spec.name} no longer has {name}", True, "gone")
        return Outcome(
            f"server {server.spec.name} is not reachable; its tools work again when it is back"
            f" ({state.error or 'it has not answered yet'})",
            True,
            "unreachable",
        )

    return run


def _switched_off(server: str) -> Outcome:
    # Between the request and the call: the next request will say so.
    return Outcome(f"server {server} was switched off; do without it", True, "switched_off")


async def absent(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
    """Answer for a tool that a log knows and this process does not."""
    return Outcome(
        "this tool was added in another process and cannot run here until it is added again",
        True,
        "absent",
    )
