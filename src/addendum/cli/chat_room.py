"""What a chat is about: an open session, its servers and routes, and the lab if that answers."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from addendum.agent.agent import Agent
from addendum.agent.session import Session
from addendum.cli.stored import read_log
from addendum.cli.terminal import LAB_ROUTE
from addendum.errors import ConfigurationError, SessionMissing
from addendum.host.asking import AskMode, on_redefinition, rules
from addendum.host.opening import instructions_of, keep_prompt, last_route
from addendum.routes import Route, credentials, resolve
from addendum.routes.probed import overlaid, read
from addendum.tools.mcp.file import server_specs
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.resources import RESOURCE_TOOLS


class Wanted(Struct, frozen=True):
    """What the command line asks for."""

    route: str | None = None
    mcp: Path | None = None
    session: str | None = None
    lab: bool = False
    base_url: str | None = None
    instructions: str | None = None
    store: str | None = None
    ask: AskMode | None = None
    resources: bool = False

    def again(self, session: str) -> str:
        """Return the command that goes on with a session."""
        parts = ["addendum", "chat", "--session", session]
        if self.lab:
            parts.append("--lab")
        if self.resources:
            parts.append("--resources")
        for option, value in (
            ("--mcp", None if self.mcp is None else str(self.mcp)),
            ("--base-url", self.base_url),
            ("--store", self.store),
            ("--ask", self.ask),
        ):
            if value is not None:
                parts += [option, value]
        return shlex.join(parts)


class Room:
    """An open session, with what the chat around it needs.

    Attributes:
        wanted: What was asked for.
        session: The session.
        resolve: Gives the route that a name means here.
        loop: The event loop that all of it lives in.
        resumed: Turns that the session had when it was opened.
    """

    def __init__(self, wanted: Wanted, session: Session, resolve: Callable[[str], Route]) -> None:
        self.wanted = wanted
        self.session = session
        self.resolve = resolve
        self.loop = asyncio.get_running_loop()
        self.resumed = session.log.turns

    @property
    def obeys_calls(self) -> bool:
        """Whether the model may be one that obeys `/call`: a stand-in on this machine."""
        return self.session.route.endpoint.loopback


@asynccontextmanager
async def opened(wanted: Wanted) -> AsyncGenerator[Room]:
    """Open the session that a chat is about, and the lab if that is to answer.

    Raises:
        AddendumError: Something of it cannot be set up.
    """
    text = None if wanted.instructions is None else instructions_of(wanted.instructions)
    servers = () if wanted.mcp is None else server_specs(wanted.mcp)
    name, session_id = wanted.route, wanted.session
    if name is None:
        session_id, name = await _last_route(wanted)
    async with AsyncExitStack() as stack:
        find = await _resolver(wanted, name, stack)
        route = find(name)
        credentials(route)
        pool = ServerPool()
        stack.push_async_callback(pool.aclose)
        mode = wanted.ask or default_mode(route)
        agent = Agent(
            route,
            instructions=text or "",
            tools=RESOURCE_TOOLS if wanted.resources else (),
            mcp_servers=servers,
            pool=pool,
            approval=rules(mode),
            on_redefinition=on_redefinition(mode),
        )
        session = await stack.enter_async_context(agent.open(session_id, store=wanted.store))
        if text is None:
            keep_prompt(session)
        yield Room(wanted, session, find)


def default_mode(route: Route) -> AskMode:
    """Return what is asked about where nobody said: a person, and a model with a will of its own.

    A provider's route at an address of this machine leads to a stand-in.
    """
    stand_in = route.endpoint.loopback and route.provider != "compatible"
    return "changes" if sys.stdin.isatty() and not stand_in else "never"


async def _resolver(wanted: Wanted, first: str, stack: AsyncExitStack) -> Callable[[str], Route]:
    """Return what gives the route of a name: in the lab, or at the address that was given.

    The address is that of the first route's provider; other providers keep their own.
    """
    if wanted.lab:
        # Only here: a chat on a real route needs no server.
        from addendum.lab.server import open_lab

        lab = await stack.enter_async_context(open_lab())
        return lambda name: resolve(name, base_url=lab.base_url(name.partition(":")[0]))
    provider = first.partition(":")[0]

    def find(name: str) -> Route:
        own = name.partition(":")[0] == provider
        route = resolve(name, base_url=wanted.base_url if own else None)
        return overlaid(route, read(route))

    return find


async def _last_route(wanted: Wanted) -> tuple[str, str]:
    """Return the id of the session that is meant, and the route that it was on."""
    if wanted.session is None:
        raise ConfigurationError(
            "which route? give --route, such as anthropic:claude-opus-5-5, or --session ID"
        )
    try:
        row, log = await read_log(wanted.store, wanted.session)
    except (SessionMissing, ConfigurationError) as error:
        needed = f"a new session needs --route, such as {LAB_ROUTE}"
        raise type(error)(f"{error}; {needed}") from None
    route = last_route(log)
    if route is not None:
        return row.id, route
    raise ConfigurationError(f"session {row.id} was on no route yet; give --route")
