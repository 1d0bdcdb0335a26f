"""Sessions that this process drives: open while somebody talks or looks, closed soon after."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Decision
from addendum.agent.rewinding import numbered
from addendum.agent.session import runtime_of
from addendum.cache.spent import Totals
from addendum.errors import AddendumError, ConfigurationError
from addendum.host.asking import AskMode, on_redefinition, rules
from addendum.host.faults import complain, fault
from addendum.host.opening import instructions_of, keep_prompt, last_route
from addendum.lab.server import PROVIDERS, Lab, open_lab
from addendum.log.session_log import SessionLog
from addendum.log.store import Store, new_id
from addendum.routes import Route, credentials, describe, resolve
from addendum.stores import DEFAULT_URL, open_store
from addendum.tools.mcp.file import server_specs
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.viewer.room import Room
from addendum.viewer.watch import Watch, Watched

IDLE_SECONDS = 60.0
"""How long a session stays open that nobody looks at."""

MAX_ROOMS = 32
"""Sessions that may be open at once."""


class Setup(Struct, frozen=True):
    """What the command line asks for.

    Attributes:
        route: The route of new conversations; None if each one has to name its own.
        store: Address of the store.
        lab: Whether the lab answers.
        mcp: A file of MCP servers.
        instructions: The prompt of new conversations.
        ask: Which calls a person is asked about.
    """

    route: str | None = None
    store: str | None = None
    lab: bool = False
    mcp: Path | None = None
    instructions: str | None = None
    ask: AskMode = "changes"


class House:
    """Everything that pages are made of: the store, what is watched, and the rooms.

    Attributes:
        setup: What was asked for.
        store: The store.
        watch: Sessions that pages look at.
        servers: The configured MCP servers.
        closing: Set when the process ends: whoever streams stops then.
        lab: What answers in place of providers, if that is so.
        titles: First messages of sessions that were looked at, by id and when each was made.
        sums: What sessions cost, each with when it was made and the events that it had then.
        streams: Event streams that are open.
    """

    def __init__(
        self,
        setup: Setup,
        store: Store,
        servers: Sequence[ServerSpec],
        pool: ServerPool,
        find: Callable[[str], Route],
        tasks: TaskGroup,
    ) -> None:
        self.setup = setup
        self.store = store
        self.servers = tuple(servers)
        self.watch = Watch(store)
        self.closing = anyio.Event()
        self.lab: Lab | None = None
        self.titles: dict[tuple[str, int], str] = {}
        self.sums: dict[str, tuple[tuple[int, int], Totals | None]] = {}
        self.streams = 0
        self.resolve = find
        self.tasks = tasks
        self._instructions = instructions_of(setup.instructions) if setup.instructions else ""
        self._pool = pool
        self._rooms: dict[str, Room] = {}
        self._opening = anyio.Lock()

    @property
    def routes(self) -> list[str]:
        """Names of routes that a conversation can go on with here."""
        return [
            each["route"]
            for each in describe()
            if not each["route"].endswith(":MODEL")
            and (not self.setup.lab or each["route"].partition(":")[0] in PROVIDERS)
        ]

    def close(self) -> None:
        """Have everything that waits end soon."""
        self.closing.set()
        self.watch.notify()

    async def emptied(self) -> None:
        """Wait until every room is closed."""
        for room in list(self._rooms.values()):
            await room.closed.wait()

    async def room(self, session: str, *, route: str | None = None, create: bool = False) -> Room:
        """Return the room of a session, opening it if need be.

        Args:
            session: Its id.
            route: The route to go on with; its last one, or that of new conversations, if None.
            create: Whether a session that is not there is made.

        Raises:
            AddendumError: It cannot be opened; the message says what to do.
        """
        async with self._opening:
            room = self._rooms.get(session)
            if room is None or room.closing.is_set():
                room = await self._open(session, route, create)
            room.used = anyio.current_time()
            return room

    async def _open(self, session: str, route: str | None, create: bool) -> Room:
        if len(self._rooms) >= MAX_ROOMS:
            raise ConfigurationError(
                f"{MAX_ROOMS} conversations are open; close the page of one and wait a minute"
            )
        if create:
            watched, log = Watched(session), SessionLog(session)
        else:
            watched = await self.watch.open(session)
            log = watched.log
        name = route or last_route(log) or self.setup.route
        if name is None:
            raise ConfigurationError("which route? start with --route, or choose one here")
        found = self.resolve(name)
        credentials(found)
        agent = Agent(
            found,
            instructions=self._instructions,
            mcp_servers=self.servers,
            pool=self._pool,
            approval=rules(self.setup.ask),
            on_redefinition=on_redefinition(self.setup.ask),
        )
        opened: list[Room | Exception] = []
        ready = anyio.Event()
        self.tasks.start_soon(self._hold, agent, session, watched, opened, ready)
        await ready.wait()
        if not isinstance(opened[0], Room):
            raise opened[0]
        if create:
            await runtime_of(opened[0].session).flush()
            opened[0].watched = watched = await self.watch.open(session)
            await watched.drive(opened[0])
        return opened[0]

    async def _hold(
        self,
        agent: Agent,
        session: str,
        watched: Watched,
        opened: list[Room | Exception],
        ready: anyio.Event,
    ) -> None:
        """Keep a session open until nobody needs it."""
        try:
            async with agent.open(session, store=self.store) as own:
                keep_prompt(own)
                room = self._rooms[session] = Room(own, watched)
                await watched.drive(room)
                opened.append(room)
                ready.set()
                await self._unused(room)
                room.closing.set()
                room.stop()
                await room.quiet.wait()
        except Exception as error:
            if not opened:
                opened.append(error)
            elif not isinstance(error, AddendumError):
                complain(fault(error))
        finally:
            ready.set()
            held = self._rooms.pop(session, None)
            if held is not None:
                with anyio.CancelScope(shield=True):
                    await held.watched.drive(None)
                held.closed.set()

    async def _unused(self, room: Room) -> None:
        """Wait until nobody looks at a room, or the house closes."""
        while True:
            with anyio.move_on_after(1.0):
                await self.closing.wait()
                return
            waited = anyio.current_time() - room.used
            if not room.busy and not room.watched.viewers and waited > IDLE_SECONDS:
                return

    # -- what people do ---------------------------------------------------------------------

    async def begin(self, text: str, route: str | None) -> str:
        """Start a conversation with a first message; return its id."""
        session = new_id()
        room = await self.room(session, route=route, create=True)
        self.say(room, text)
        return session

    def say(self, room: Room, text: str) -> None:
        """Run a turn with a message."""
        if not text.strip():
            raise ConfigurationError("the message is empty; write something")
        room.start(self.tasks, lambda: room.session.stream(text))

    async def decide(self, room: Room, decisions: Mapping[str, Decision]) -> None:
        """Decide calls that wait, and go on with the turn."""
        room.start(self.tasks, lambda: room.session.stream_decide(decisions))

    async def again(self, room: Room, turn: int, text: str | None) -> None:
        """Cut the conversation in front of a turn's message, and send it again or another one.

        Args:
            room: The room.
            turn: The turn whose message is replaced.
            text: What to send; the same message if None.
        """
        numbered(room.session.log, turn)
        if text is not None and not text.strip():
            raise ConfigurationError("the message is empty; write something")
        room.start(self.tasks, lambda: room.session.stream_again(turn, text))

    async def fork(self, room: Room, turn: int | None) -> str:
        """Open a child of a conversation, up to and including a turn; return its id."""
        async with room.session.fork(turn=turn) as child:
            session, route = child.id, child.route.full_name
        # Nothing was sent on that route yet, so the log need not say it.
        await self.room(session, route=route)
        return session


@asynccontextmanager
async def open_house(
    setup: Setup, *, store: Store | None = None, servers: Sequence[ServerSpec] = ()
) -> AsyncGenerator[House]:
    """Open the store, the lab if it is to answer, and everything around them.

    Args:
        setup: What is asked for.
        store: An open store, in place of the one that `setup` names.
        servers: MCP servers beside those of the file.

    Raises:
        AddendumError: Something of it cannot be set up.
    """
    if setup.mcp is not None:
        servers = (*servers, *server_specs(setup.mcp))
    async with AsyncExitStack() as stack:
        if store is None:
            store = await open_store(setup.store or DEFAULT_URL)
            stack.push_async_callback(store.aclose)
        lab = await stack.enter_async_context(open_lab()) if setup.lab else None

        def find(name: str) -> Route:
            address = None if lab is None else lab.base_url(name.partition(":")[0])
            return resolve(name, base_url=address)

        if setup.route is not None:
            credentials(find(setup.route))
        pool = ServerPool()
        stack.push_async_callback(pool.aclose)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            house = House(setup, store, servers, pool, find, tasks)
            house.lab = lab
            try:
                yield house
            except Exception as error:
                # Told as it is, not in a group of one.
                failure = error
            finally:
                house.close()
                with anyio.move_on_after(5.0, shield=True):
                    await house.emptied()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
