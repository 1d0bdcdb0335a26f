"""Prompts that MCP servers offer: a person picks one, fills it in, and sends it as a message."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from addendum.agent.runtime import Runtime
from addendum.checked import Word, checks_arguments
from addendum.errors import ConfigurationError
from addendum.tools.mcp.offers import RemotePrompt
from addendum.tools.mcp.pool import Connection
from addendum.tools.mcp.values import CallOutcome


class ServerPrompt(Struct, frozen=True):
    """A prompt and the server that offers it."""

    server: str
    prompt: RemotePrompt


class SessionPrompts:
    """The prompts of the servers that are switched on."""

    def __init__(self, run: Runtime) -> None:
        self._run = run

    @checks_arguments
    async def list(self, server: Word | None = None) -> tuple[ServerPrompt, ...]:
        """Return what can be inserted, by server and name.

        Args:
            server: Ask this one only. Without it, a server that cannot be asked is passed over.

        Raises:
            ConfigurationError: The server is off, unknown or cannot be asked.
        """
        registry = self._run.registry
        on = [name for name in registry.server_names if registry.is_on(name)]
        found: list[ServerPrompt] = []
        for name in on if server is None else [server]:
            connection = await self._connection(name)
            seconds = self._run.setup.limits.server_wait
            answer = await connection.ask(lambda link: link.prompts(), seconds)
            if not isinstance(answer, CallOutcome):
                found += [ServerPrompt(name, each) for each in answer]
            elif server is not None:
                raise ConfigurationError(answer.text, session=self._run.id)
        return tuple(found)

    @checks_arguments
    async def text(
        self, server: Word, name: Word, arguments: Mapping[str, str] | None = None
    ) -> str:
        """Return a prompt filled in, as the text of a message: `await session.run(text)`.

        It is the server's own text, sent because a person asked for it, and has no more authority
        than what that person writes.

        Args:
            server: The server.
            name: The prompt's name there.
            arguments: What it is filled in with.

        Raises:
            ConfigurationError: There is no such prompt, an argument is missing or unknown, or the
                server does not give it.
        """
        listed = await self.list(server)
        prompt = next((each.prompt for each in listed if each.prompt.name == name), None)
        if prompt is None:
            there = ", ".join(each.prompt.name for each in listed) or "none"
            raise self._wrong(f"server {server} has no prompt {name!r}; there are: {there}")
        given = dict(arguments or {})
        known = [each.name for each in prompt.arguments]
        for each in prompt.arguments:
            if each.required and each.name not in given:
                raise self._wrong(f"prompt {name!r} needs the argument {each.name!r}; give it")
        for each in given:
            if each not in known:
                takes = ", ".join(known) or "none"
                raise self._wrong(f"prompt {name!r} takes no argument {each!r}; it takes: {takes}")
        connection = await self._connection(server)
        seconds = self._run.setup.limits.tool_timeout
        found = await connection.ask(lambda link: link.prompt(name, given), seconds)
        if found.is_error:
            raise self._wrong(found.text)
        if not found.text.strip():
            raise self._wrong(f"prompt {name!r} of server {server} is empty")
        return found.text

    async def _connection(self, server: str) -> Connection:
        registry = self._run.registry
        if not registry.is_on(server):
            raise self._wrong(f"server {server} is off; switch it on to use its prompts")
        return await registry.connection(server)

    def _wrong(self, why: str) -> ConfigurationError:
        return ConfigurationError(why, session=self._run.id)
