"""Switches: what a person, a host or a model turns on and off in a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from addendum.agent.calls.redefinition import record
from addendum.agent.runtime import Runtime
from addendum.checked import Word, checks_arguments, nearest
from addendum.errors import ConfigurationError
from addendum.log.approvals import ToolRedefined
from addendum.log.events import ToolPolicy, ToolSwitch
from addendum.prompt.updates import plain
from addendum.tools.functions import as_tool
from addendum.tools.registry import AnyTool


class SessionTools:
    """The session's tools. Every switch is durable when it returns.

    Each method returns the seq of the event: the switch holds from there on.
    """

    def __init__(self, run: Runtime) -> None:
        self._run = run

    @checks_arguments
    async def enable(self, server: Word, *, by: Word = "user") -> int:
        """Switch an MCP server on. Its tools join the next step, or a later one if it is slow."""
        await self._run.registry.enable(server)
        return await self._log(ToolSwitch("server", server, True, by))

    @checks_arguments
    async def disable(self, server: Word, *, by: Word = "user") -> int:
        """Switch an MCP server off. Its tools are refused at once."""
        await self._run.registry.disable(server)
        return await self._log(ToolSwitch("server", server, False, by))

    @checks_arguments
    async def add(self, tool: AnyTool | Callable[..., Any], *, by: Word = "user") -> int:
        """Add a function tool, or replace the one of that name.

        A tool of a new name is kept: in another process it is there, and answers with an error
        until it is added again. One that replaces a function of the agent's own lasts while the
        session is open: opened again, the session has the agent's function back, and says so as
        a redefinition.
        """
        ready = as_tool(tool)
        if ready.schema.defer_loading:
            # An addition offers the tool: the flag means something in a head only.
            ready = msgspec.structs.replace(ready, schema=plain(ready.schema))
        run = self._run
        run.registry.add(ready)
        # Opened again in front of its next step, the session decides about it as this one.
        entry = run.registry.snapshot().entries.get(ready.schema.name)
        record(run.log, () if entry is None else (entry,))
        return await self._log(ToolSwitch("tool", ready.schema.name, True, by, ready.schema))

    @checks_arguments
    async def remove(self, name: Word, *, by: Word = "user") -> int:
        """Remove a function tool.

        Raises:
            ConfigurationError: There is none of that name.
        """
        if not self._run.registry.remove(name):
            near = nearest(name, self._run.registry.snapshot().entries)
            raise ConfigurationError(
                f"no function tool named {name!r} is active{near}; a server's tools go with "
                "`disable(SERVER)`",
                session=self._run.id,
            )
        return await self._log(ToolSwitch("tool", name, False, by))

    @checks_arguments
    async def refuse(self, *names: Word) -> int:
        """Have calls of these tools refused from now on; they stay bound. None lifts all.

        What the agent itself disables stays refused.

        Raises:
            ConfigurationError: There is no such tool, and no server can bring it.
        """
        self._run.unknown_names.check_refused(names, self._run.disabled)
        disabled = {*self._run.setup.disabled, *names}
        return await self._log(ToolPolicy(tuple(sorted(disabled))))

    @checks_arguments
    def on(self, server: Word) -> bool:
        """Say whether a server is switched on."""
        return self._run.registry.is_on(server)

    def redefined(self) -> tuple[ToolRedefined, ...]:
        """Return the tools that were defined anew in this session, in the order of the log."""
        return tuple(self._run.state.definitions.redefined)

    async def _log(self, event: ToolSwitch | ToolPolicy) -> int:
        seq = self._run.log.append(event).seq
        await self._run.flush()
        return seq
