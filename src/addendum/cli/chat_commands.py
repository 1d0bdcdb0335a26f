"""What a line that begins with `/` does in a chat."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import Any

from addendum.agent.context.epochs import coming
from addendum.agent.prompts import ServerPrompt
from addendum.agent.session import Session, runtime_of
from addendum.cli.chat_view import say
from addendum.cli.switch_cost import told
from addendum.cli.terminal import WIDTH
from addendum.errors import AddendumError
from addendum.lines import one_line
from addendum.log.events import CacheBreak, RouteDowngrade
from addendum.log.exchanges import Exchanges
from addendum.log.values import ToolSchema
from addendum.routes import Route, credentials
from addendum.tell.figures import number

LIST_SECONDS = 8.0
"""How long a server that was switched on is waited for before the prompt comes back."""

BYTES_A_TOKEN = 4
"""Bytes of a definition that are taken for a token, where nobody counts."""

HELP = """\
/mcp              MCP servers: which are on, and how they are
/mcp on NAME      switch a server on, and say what that costs
/mcp off NAME     switch it off, and say what that costs
/tools            the tools that the model can call now
/prompt           prompts that the MCP servers offer
/prompt SERVER NAME [ARGUMENT=TEXT ...]   send one as your message
/route [NAME]     the route; go on with another one
/why              breaks of the cache prefix so far, and their reasons
/quit             leave (Ctrl-D does too); Ctrl-C stops an answer
A \\ at the end of a line goes on in the next one; //text sends /text.

Figures: tokens in; of these, read from the cache, and new; tokens out; money
by list prices, and what it would have been more without a cache."""

_NAME = 60
_ERROR = 300


def prompt_line(offered: ServerPrompt) -> str:
    """Return one prompt as a line: server, name, arguments (in brackets if optional), what for."""
    prompt = offered.prompt
    taken = [each.name if each.required else f"[{each.name}]" for each in prompt.arguments]
    shown = " ".join([offered.server, prompt.name, *taken])
    return one_line(f"{shown}: {prompt.description}" if prompt.description else shown, _ERROR)


class Commands:
    """The commands of one chat.

    Args:
        session: The session.
        resolve: Gives the route that a name means in this chat.
        send: Sends a message and shows what comes back.
    """

    def __init__(
        self,
        session: Session,
        resolve: Callable[[str], Route],
        send: Callable[[str], Awaitable[None]],
    ) -> None:
        self._session = session
        self._resolve = resolve
        self._send = send
        self._table: dict[str, Callable[[str], Awaitable[None]]] = {
            "/mcp": self._mcp,
            "/tools": self._tools,
            "/prompt": self._prompt,
            "/route": self._route,
            "/why": self._why,
            "/help": self._help,
        }

    async def run(self, text: str) -> None:
        """Do what a line asks for; an unknown command gets a line of help.

        Raises:
            AddendumError: It cannot be done; the message says what to do.
        """
        word, _, rest = text.partition(" ")
        command = self._table.get(word)
        if command is None:
            known = " ".join([*self._table, "/quit"])
            say(f"no command {one_line(word, _NAME)}; there are {known}", error=True)
        else:
            await command(rest.strip())

    # -- servers ----------------------------------------------------------------------------

    async def _mcp(self, rest: str) -> None:
        if not self._session.registry.server_names:
            say("no MCP servers here; start with --mcp FILE")
            return
        verb, _, name = rest.partition(" ")
        name = name.strip()
        if not rest:
            for each in self._session.registry.server_names:
                say(self._server_line(each))
        elif verb == "on" and name:
            await self._switch_on(name)
        elif verb == "off" and name:
            await self._switch_off(name)
        else:
            say("write /mcp, /mcp on NAME or /mcp off NAME", error=True)

    def _server_line(self, name: str) -> str:
        registry = self._session.registry
        if not registry.is_on(name):
            return f"{one_line(name, _NAME)}: off"
        state = registry.state(name)
        said = {
            "idle": "on, not connected: it is when a tool is called",
            "starting": "on, connecting",
            "ready": "on, ready",
            "lost": "on, connection lost: its tools work again when it is back",
            "failed": "on, cannot be reached: it is tried again",
        }[state.status]
        why = f" ({one_line(state.error, _ERROR)})" if state.error else ""
        tools = self._of_server(name)
        return f"{one_line(name, _NAME)}: {said}{why}; {_size(tools)}"

    async def _prompt(self, rest: str) -> None:
        prompts = self._session.prompts
        try:
            words = shlex.split(rest)
        except ValueError:
            say("a quotation mark has no end", error=True)
            return
        pairs = [word.partition("=") for word in words[2:]]
        if not words:
            found = await prompts.list()
            for text_line in found:
                say(prompt_line(text_line))
            if not found:
                say("no server that is on offers prompts")
        elif len(words) == 1 or not all(equals for _, equals, _ in pairs):
            say("write /prompt, or /prompt SERVER NAME ARGUMENT=TEXT ...", error=True)
        else:
            text = await prompts.text(words[0], words[1], {name: value for name, _, value in pairs})
            for text_line in text.splitlines():
                say(f"> {one_line(text_line, _ERROR)}", dim=True)
            await self._send(text)

    def _of_server(self, name: str) -> list[ToolSchema]:
        entries = self._session.registry.snapshot().entries.values()
        return [entry.schema for entry in entries if entry.server == name]

    async def _switch_on(self, name: str) -> None:
        session = self._session
        if session.tools.on(name):
            say(f"{self._server_line(name)} (nothing changed)")
            return
        await session.tools.enable(name)
        shown = one_line(name, _NAME)
        say(f"{shown} is on; asking for its tools", dim=True)
        await session.registry.settle(LIST_SECONDS)
        state = session.registry.state(name)
        if state.error is not None:
            why = one_line(state.error, _ERROR)
            said = f"{shown} cannot be reached: {why}; retried until /mcp off {shown}"
            say(said, error=True)
        elif not self._of_server(name):
            late = "has no tools" if state.revision else "has not answered yet"
            say(f"{shown} {late}; what it lists joins when it does")
        else:
            say(f"{shown}: {_size(self._of_server(name))}")
            self._say_cost()

    async def _switch_off(self, name: str) -> None:
        session = self._session
        if not session.tools.on(name):
            say(f"{one_line(name, _NAME)} is off already")
            return
        await session.tools.disable(name)
        say(f"{one_line(name, _NAME)} is off; its tools are refused from now on")
        self._say_cost()

    def _say_cost(self) -> None:
        try:
            said = told(self._session.switch_cost())
        except AddendumError as error:
            said = f"what this costs cannot be told: {error}"
        # Without a terminal nothing breaks it: what explains a figure then has its own line.
        if len(said) > WIDTH and said.endswith(")"):
            said = "\n  (".join(said.rsplit(" (", 1))
        say(said, bold=True)

    # -- what there is ----------------------------------------------------------------------

    async def _tools(self, rest: str) -> None:
        await self._session.registry.settle(0)
        entries = self._session.registry.snapshot().entries.values()
        by_server: dict[str | None, list[ToolSchema]] = {}
        for entry in entries:
            by_server.setdefault(entry.server, []).append(entry.schema)
        if not by_server:
            say("no tools; /mcp on NAME switches a server's on")
            return
        for server, tools in by_server.items():
            say(
                f"{'own' if server is None else one_line(server, _NAME)}: {_size(tools)}", bold=True
            )
            for tool in tools:
                say(f"  {one_line(tool.name, _NAME)} ~{number(_tokens(tool))}")
        say(f"~ is an estimate: {BYTES_A_TOKEN} bytes a token", dim=True)

    async def _route(self, rest: str) -> None:
        session = self._session
        if rest:
            route = self._resolve(rest)
            credentials(route)
            session.use(route)
        say(route_line(session))

    async def _why(self, rest: str) -> None:
        found: list[str] = []
        follows = Exchanges()
        for event in self._session.log.events:
            data: Any = event.data
            own = follows.take(event)
            if own is not None and own.end is None:
                where = f"turn {own.sent.turn}, request {own.sent.number}"
                found += [f"{where}: {_break(each)}" for each in own.breaks]
            elif isinstance(data, RouteDowngrade):
                names = ", ".join(data.rejected)
                found.append(f"{data.route} refused {names}; on by {data.projection}")
        if not found:
            say("no break so far: each request extended the one before it")
        for each in found:
            say(one_line(each, _ERROR))

    async def _help(self, rest: str) -> None:
        say(HELP)


def route_line(session: Session) -> str:
    """Return the session's route and how it is told of tool changes."""
    context = coming(runtime_of(session))
    return f"on {session.route.full_name}; tool changes: {context.projection}"


def _break(cache_break: CacheBreak) -> str:
    place = "the cache had expired" if cache_break.at == "none" else f"from {cache_break.at} on"
    return (
        f"{cache_break.reason}, {place}{f' ({cache_break.detail})' if cache_break.detail else ''}"
    )


def _tokens(tool: ToolSchema) -> int:
    size = len(tool.name) + len(tool.description.encode()) + len(bytes(tool.parameters))
    return -(-size // BYTES_A_TOKEN)


def _size(tools: list[ToolSchema]) -> str:
    count = f"{number(len(tools))} tool{'' if len(tools) == 1 else 's'}"
    return f"{count}, about {number(sum(map(_tokens, tools)))} tokens" if tools else "no tools"
