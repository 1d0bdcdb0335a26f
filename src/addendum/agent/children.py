"""Tools that open child sessions: what is known of them without opening one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from addendum.agent.setup import AgentSetup
from addendum.tools.functions import ToolContext


class ChildTool(Struct, frozen=True):
    """Runs calls of one tool that opens child sessions.

    Attributes:
        setup: What the agent of the child is set up with.
        run: Gives the task of a call to a child session, and returns what it answers.
    """

    setup: AgentSetup
    run: Callable[[ToolContext, str], Awaitable[str]]

    async def __call__(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        """Run a call."""
        return await self.run(context, arguments["task"])


def setups_of(setup: AgentSetup) -> tuple[AgentSetup, ...]:
    """Return what the agents are set up with that an agent's own tools open child sessions of."""
    runs = (tool.function for tool in setup.tools)
    return tuple(run.setup for run in runs if isinstance(run, ChildTool))
