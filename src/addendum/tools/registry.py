"""What may be called in one session: function tools, tools added by hand, servers' tools.

The registry is live; a step takes one settled snapshot of it and works with nothing else. A lost
connection changes no snapshot: only a switch, or a server's settled list, does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import anyio
from msgspec import Raw

from addendum.errors import ConfigurationError, ContentError
from addendum.log.known import KnownTool
from addendum.log.store import Store
from addendum.log.values import ToolSchema
from addendum.tools.catalogue import KIND, Pin, decode_pin, encode_pin
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.entries import (
    Snapshot,
    ToolEntry,
    hints_known,
    is_excluded,
)
from addendum.tools.functions import FunctionTool, ToolContext
from addendum.tools.held import Held
from addendum.tools.mcp.pool import Connection, ServerPool
from addendum.tools.mcp.values import ServerSpec, ServerState
from addendum.tools.names import check_function_names, model_name, namer
from addendum.tools.resources import reached, resource_run
from addendum.tools.search import TOOL_SEARCH, TOOL_SEARCH_NAME
from addendum.tools.servers import (
    Outcome,
    Run,
    Server,
    absent,
    as_logged,
    remote,
    remote_by_name,
)

AnyTool: TypeAlias = FunctionTool[..., Any]
"""A function tool of any signature."""


class Registry:
    """The tools of one session.

    Args:
        functions: The agent's own function tools, in order.
        servers: The configured servers, in order.
        pool: The process's connections.
        store: Where pins are kept.
        pins: Pins from a catalogue file, by server name; they win over the store's.
        exclude: Tools that do not exist in this session, as names or glob patterns.

    Attributes:
        excluded: The same.
    """

    def __init__(
        self,
        functions: Sequence[AnyTool],
        servers: Sequence[ServerSpec],
        *,
        pool: ServerPool,
        store: Store,
        pins: Mapping[str, Pin] | None = None,
        exclude: Collection[str] = (),
    ) -> None:
        self.excluded = tuple(exclude)
        names = [tool.schema.name for tool in functions]
        check_function_names(names, (TOOL_DISPATCHER_NAME, TOOL_SEARCH_NAME))
        if len({spec.name for spec in servers}) != len(servers):
            raise ConfigurationError("two MCP servers have the same name; rename one of them")
        self._functions = {tool.schema.name: tool for tool in functions}
        self._added: dict[str, AnyTool | ToolSchema] = {}
        self._by_hand: dict[tuple[str, str], AnyTool] = {}
        self._off: set[str] = set()
        self._servers = {spec.name: Server(spec) for spec in servers}
        self._order: list[str] = []
        self._pool = pool
        self._store = store
        self._pins = dict(pins or {})
        self._search: Run | None = None
        self._held = Held()
        self._known: Mapping[str, KnownTool] = {}
        self._logged: Mapping[str, ToolSchema] = {}
        self._active: tuple[ToolSchema, ...] = ()
        self._snapshot: Snapshot | None = None

    # -- configuration and restore ----------------------------------------------------------

    @property
    def server_names(self) -> tuple[str, ...]:
        """The configured servers."""
        return tuple(self._servers)

    def is_on(self, server: str) -> bool:
        """Say whether a server is switched on in this session."""
        return self._server(server).on

    def state(self, server: str) -> ServerState:
        """Return what is known of a server's connection."""
        connection = self._server(server).connection
        return ServerState() if connection is None else connection.state

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The servers whose tools are not known now: off, or on and not heard of yet."""
        return tuple(
            name
            for name, server in self._servers.items()
            if not (server.on and (server.known or server.restored or server.revision))
        )

    @property
    def searches(self) -> bool:
        """Whether `tool_search` is an active tool."""
        return self._search is not None

    def troubles(self) -> dict[str, str]:
        """Return why tools of servers that are on are not there, or that they are again (empty).

        By server, and only what was not told before.
        """
        found = {server.spec.name: server.trouble() for server in self._on()}
        return {name: wrong for name, wrong in found.items() if wrong is not None}

    def dropped(self) -> tuple[tuple[str, str], ...]:
        """Return what servers list that cannot be offered, and why: by server, once for a list."""
        return tuple((server.spec.name, note) for server in self._on() for note in server.dropped())

    def bind_search(self, run: Run) -> None:
        """Say what runs `tool_search`; from then on it is an active tool."""
        self._search = run
        self._snapshot = None

    def hold(self, held: Held) -> None:
        """Say which tools stay as they are, whatever becomes of them later."""
        self._held = held
        self._snapshot = None

    async def start(self, wait: float) -> None:
        """Switch on the servers that are on by configuration, from their pins where there are any.

        Args:
            wait: Seconds to wait for a server without a pin.
        """
        self._snapshot = None
        started = [server for server in self._servers.values() if server.spec.on]
        try:
            async with anyio.create_task_group() as tasks:
                for server in started:
                    server.on = True
                    self._order.append(server.spec.name)
                    tasks.start_soon(self._first_list, server, wait)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _first_list(self, server: Server, wait: float) -> None:
        pin = await self._pin(server)
        if pin is not None:
            self._take_pin(server, pin)
            return
        connection = await self._connect(server)
        server.awaited = True
        await self._adopt(server, await connection.ready(wait))

    async def hand_over(self, other: Registry, added: Mapping[str, ToolSchema]) -> None:
        """Take over from the registry of a session forked from what the log cannot hold.

        Args:
            other: The parent's registry. What its servers list now counts here too.
            added: Functions that were added by hand, by the child's log; the parent's own run here.
        """
        self._snapshot = None
        self._by_hand.update(other._by_hand)
        for name, schema in added.items():
            tool = self._by_hand.get((name, schema.identity()))
            if tool is not None:
                (self._functions if name in self._functions else self._added)[name] = tool
        for name, server in other._servers.items():
            own = self._servers[name]
            if own.on and server.on and server.connection is not None:
                await self._connect(own)
                own.take_over(server)

    def restore(
        self,
        tools: Sequence[ToolSchema],
        on: Sequence[str],
        added: Mapping[str, ToolSchema],
        removed: Collection[str],
        *,
        known: Mapping[str, KnownTool] = {},
        instructions: Mapping[str, str] = {},
        away: Mapping[str, str] = {},
    ) -> None:
        """Start from what a log says was active.

        Args:
            tools: The latest header's tools.
            on: Servers that are on, in order.
            added: Tools that were added by hand and are there, by name. One that the agent has a
                function for is the agent's own again.
            removed: Tools that were removed by hand.
            known: What is known of tools beside their definitions, by name.
            instructions: What servers said of themselves last, by server.
            away: What a person was told of servers that are not there, by server.
        """
        self._snapshot = None
        self._known = dict(known)
        for server in self._servers.values():
            server.told = away.get(server.spec.name, "")
        self._logged = {tool.name: tool for tool in tools}
        for name in on:
            server = self._servers.get(name)
            if server is None:
                continue
            server.on = True
            self._order.append(name)
            own = [tool for tool in tools if self._restored_owner(tool.name) is server]
            server.restored = tuple(
                tool for tool in own if tool.name not in self._functions and tool.name not in added
            )
            server.instructions = instructions.get(name)
            for tool in server.restored:
                record = self._known.get(tool.name)
                if record is not None and record.own is not None:
                    # Once given, a name stays the tool's own.
                    server.names[record.own] = tool.name
            if not server.restored:
                # It was switched on and had not listed yet: nothing else would ever dial it.
                server.restored, server.unlisted = None, True
        self._added.update({n: tool for n, tool in added.items() if n not in self._functions})
        self._off.update(name for name in removed if name in self._functions)

    def _restored_owner(self, name: str) -> Server | None:
        """Return the server that a tool of the log came from; what the log does not say, its name.

        A function may be named like a server's tool.
        """
        record = self._known.get(name)
        if record is None:
            return self._owner(name)
        return None if record.server is None else self._servers.get(record.server)

    def _owner(self, name: str) -> Server | None:
        """Return the server whose tool has this name."""
        found = namer(self._servers, name)
        return None if found is None else self._servers[found]

    # -- switches ---------------------------------------------------------------------------

    async def enable(self, name: str) -> bool:
        """Switch a server on; it is dialled, and its settled list joins a later snapshot.

        Returns:
            Whether it was off.
        """
        server = self._server(name)
        if server.on:
            return False
        await self._connect(server)
        self._snapshot = None
        server.on = True
        server.awaited = False
        self._order.append(name)
        return True

    async def disable(self, name: str) -> bool:
        """Switch a server off; its tools leave the next snapshot and are refused at once."""
        server = self._server(name)
        if not server.on:
            return False
        self._snapshot = None
        server.on = False
        self._order.remove(name)
        if server.connection is not None:
            connection, server.connection = server.connection, None
            server.revision = 0
            await self._pool.release(connection)
        return True

    def add(self, tool: AnyTool) -> None:
        """Add a tool by hand, or replace one of that name.

        Raises:
            ConfigurationError: The name is reserved or belongs to a server.
        """
        name = tool.schema.name
        check_function_names([name], (TOOL_DISPATCHER_NAME, TOOL_SEARCH_NAME))
        if self._owner(name) is not None:
            raise ConfigurationError(f"{name!r} belongs to a server; name the tool otherwise")
        self._snapshot = None
        self._by_hand[name, tool.schema.identity()] = tool
        self._off.discard(name)
        if name in self._functions:
            self._functions[name] = tool
        else:
            self._added[name] = tool

    def remove(self, name: str) -> bool:
        """Remove a function tool or one added by hand; say whether it was there."""
        self._snapshot = None
        if name in self._added:
            del self._added[name]
            return True
        if name in self._functions and name not in self._off:
            self._off.add(name)
            return True
        return False

    def _server(self, name: str) -> Server:
        try:
            return self._servers[name]
        except KeyError:
            there = ", ".join(self._servers) or "none"
            raise ConfigurationError(
                f"no MCP server named {name!r} is configured; there are: {there}"
            ) from None

    # -- snapshots --------------------------------------------------------------------------

    async def settle(self, wait: float) -> Snapshot:
        """Take in what has settled and return what is active now.

        Args:
            wait: Seconds to wait for servers that were switched on and have not listed yet. Each
                is waited for once; a slower one joins a later step.
        """
        for server in self._on():
            if server.unlisted:
                await self._connect(server)
                server.unlisted = False
        waiting = [
            server for server in self._on() if server.connection is not None and not server.awaited
        ]
        if waiting:
            async with anyio.create_task_group() as tasks:
                for server in waiting:
                    assert server.connection is not None
                    server.awaited = True
                    tasks.start_soon(server.connection.ready, wait)
        for server in self._on():
            if server.connection is not None:
                await self._adopt(server, server.connection.state)
                if not server.known and server.restored is None and not server.revision:
                    pin = await self._pin(server)
                    if pin is not None:
                        self._take_pin(server, pin)
        return self.snapshot()

    async def confirm(self, names: Collection[str], wait: float) -> Snapshot:
        """Have servers list their tools now, so that what is shown is what they have.

        Args:
            names: The servers; one that is off is left alone.
            wait: Seconds that one of them may take; a slower one keeps the list that is known.
        """
        chosen = [server for server in self._on() if server.spec.name in names]
        connections = [await self._connect(server) for server in chosen]
        async with anyio.create_task_group() as tasks:
            for connection in connections:
                tasks.start_soon(connection.ready, wait)
        for server, connection in zip(chosen, connections, strict=True):
            await self._adopt(server, connection.state)
        return self.snapshot()

    def current(self) -> Snapshot:
        """Take in what servers have listed by now, without a wait; return what is active."""
        for server in self._on():
            if server.connection is not None:
                self._take_list(server, server.connection.state)
        return self.snapshot()

    def unheard(self, names: Collection[str]) -> set[str]:
        """Return the servers of these tools whose lists this process has not heard yet."""
        entries = self.snapshot().entries
        servers = {entry.server for name in names if (entry := entries.get(name)) is not None}
        return {name for name in servers if name is not None and not self._server(name).revision}

    def snapshot(self) -> Snapshot:
        """Return what is active now; the same object until a switch or a server's list."""
        if self._snapshot is None:
            self._snapshot = self._assemble()
        return self._snapshot

    def _assemble(self) -> Snapshot:
        entries: dict[str, ToolEntry] = {}
        for name, tool in self._functions.items():
            if name not in self._off:
                entries[name] = self._function(tool)
        head_servers = [s for s in self._servers.values() if s.spec.on and s.on]
        later = [self._servers[name] for name in self._order if not self._servers[name].spec.on]
        instructions: dict[str, str] = {}
        for server in head_servers:
            self._offer(server, entries, instructions)
        if self._search is not None:
            entries[TOOL_SEARCH_NAME] = ToolEntry(TOOL_SEARCH, self._search)
        for name, tool in self._added.items():
            entries[name] = (
                self._absent(tool) if isinstance(tool, ToolSchema) else self._function(tool)
            )
        for server in later:
            self._offer(server, entries, instructions)
        for name in [name for name in entries if is_excluded(name, self.excluded)]:
            del entries[name]
        unused: dict[str, ToolEntry] = {}
        for name in self._held.definitions:
            entry = entries.get(name)
            if entry is not None and (kept := self._held.kept(entry)) is not entry:
                unused[name] = entry
                if kept is None:
                    del entries[name]
                else:
                    entries[name] = kept
        last = {tool.name: tool for tool in self._active}
        active = tuple(
            last[name] if last.get(name) == entry.schema else entry.schema
            for name, entry in entries.items()
        )
        if active != self._active:
            self._active = active
        return Snapshot(entries, instructions, self._active, unused)

    def _absent(self, tool: ToolSchema) -> ToolEntry:
        record = self._known.get(tool.name)
        hints = None if record is None else hints_known(record).annotations()
        return ToolEntry(tool, absent, annotations=hints)

    def _on(self) -> list[Server]:
        return [server for server in self._servers.values() if server.on]

    def _offer(
        self, server: Server, entries: dict[str, ToolEntry], instructions: dict[str, str]
    ) -> None:
        # A server that is switched on later is offered by that; the flag counts in the head.
        flag = True if server.spec.defer and server.spec.on else None
        if server.restored is not None:
            for schema in server.restored:
                record = self._known.get(schema.name)
                hints = None if record is None else hints_known(record).annotations()
                same = self._held.same(schema, hints)
                run = remote_by_name(server, self._connect, schema.name, same)
                own = None if record is None else record.own
                entries[schema.name] = ToolEntry(
                    schema, run, server.spec.name, annotations=hints, own=own
                )
        else:
            self._give_names(server, entries)
            for tool in server.known:
                name = server.names[tool.name]
                schema = ToolSchema(name, tool.description, tool.parameters, flag)
                same = self._held.same(schema, tool.annotations)
                run = remote(server, self._connect, tool.name, same)
                entries[name] = ToolEntry(
                    as_logged(schema, self._logged.get(name)),
                    run,
                    server.spec.name,
                    annotations=tool.annotations,
                    own=tool.name,
                )
        if server.instructions and (server.known or server.restored):
            instructions[server.spec.name] = server.instructions

    def _give_names(self, server: Server, entries: Mapping[str, ToolEntry]) -> None:
        # Once given, a name stays the tool's own.
        fresh = [tool.name for tool in server.known if tool.name not in server.names]
        if fresh:
            taken = {name for other in self._servers.values() for name in other.names.values()}
            taken.update(entries)
            for tool in fresh:
                server.names[tool] = model_name(server.spec.name, tool, taken)
                taken.add(server.names[tool])

    # -- servers ----------------------------------------------------------------------------

    async def connection(self, name: str) -> Connection:
        """Return a server's connection; it is dialled when it is first asked something."""
        return await self._connect(self._server(name))

    async def _connect(self, server: Server) -> Connection:
        if server.connection is None:
            server.connection = await self._pool.acquire(server.spec)
        return server.connection

    def _take_list(self, server: Server, state: ServerState) -> None:
        if server.adopt(state):
            self._snapshot = None
            server.unpinned = server.spec.server is None and server.spec.name not in self._pins

    async def _adopt(self, server: Server, state: ServerState) -> None:
        self._take_list(server, state)
        if server.unpinned:
            pin = Pin.of(state)
            await self._store.put(
                KIND, server.spec.key(), encode_pin(pin), keep=not server.pin_damaged
            )
            server.unpinned = server.pin_damaged = False

    async def _pin(self, server: Server) -> Pin | None:
        if server.spec.name in self._pins:
            return self._pins[server.spec.name]
        if server.spec.server is not None:
            return None
        stored = await self._store.get(KIND, server.spec.key())
        try:
            return None if stored is None else decode_pin(stored)
        except ContentError:
            server.pin_damaged = True
            return None

    def _take_pin(self, server: Server, pin: Pin) -> None:
        self._snapshot = None
        server.known, server.instructions = pin.remote(), pin.instructions

    def _function(self, tool: AnyTool) -> ToolEntry:
        name = tool.schema.name

        async def run(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
            if name in self._off or not (name in self._functions or name in self._added):
                return Outcome(f"{name} was removed; do without it", True, "removed")
            with anyio.move_on_after(seconds):
                return Outcome(await tool.invoke(arguments, context))
            return Outcome(
                f"{name} did not finish within {seconds:g} s and was stopped", True, "timeout"
            )

        own = resource_run(tool, self._on, self._connect)
        hints = Raw(b'{"readOnlyHint":true}') if tool.read_only else None
        return ToolEntry(
            tool.schema,
            own or run,
            timeout=tool.timeout,
            annotations=hints,
            reaches=None if own is None else partial(reached, self._on),
        )

    async def aclose(self) -> None:
        """Give all connections back."""
        for server in self._servers.values():
            if server.connection is not None:
                connection, server.connection = server.connection, None
                await self._pool.release(connection)
