"""What the next request would break if it left now: told before anybody decides to send it.

The log is copied, the step's events are written to the copy, and the request is prepared as it
would be. Nothing of it reaches the session or the network.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Raw

from addendum.agent.context.requests import Requests
from addendum.agent.context.step import log_step, step_input
from addendum.agent.runtime import Runtime
from addendum.agent.state import State
from addendum.errors import AddendumError
from addendum.log.events import (
    CacheBreak,
    StepStart,
    TurnStart,
)
from addendum.log.values import ToolSchema
from addendum.tools.names import model_name
from addendum.tools.registry import Snapshot, ToolEntry
from addendum.tools.servers import Outcome

_MESSAGE = "?"
"""Stands for what the person will write; what is in front of it does not depend on it."""


def upcoming_breaks(run: Runtime, snapshot: Snapshot | None = None) -> tuple[CacheBreak, ...]:
    """Return the breaks that would be declared for the next request; none without an earlier one.

    Args:
        run: An open session in which no turn runs. What its servers have settled on counts.
        snapshot: What would be active; what is active now if None.

    Raises:
        AddendumError: The request could not be made as things are; the message says why.
    """
    if not run.state.sent.in_turn(run.route.name):
        return ()
    copy = run.log.until(len(run.log))
    copy.append(TurnStart(copy.turns + 1))
    copy.append(StepStart(copy.turns, 1))
    state = State(copy)
    own = step_input(run, snapshot or run.registry.snapshot())
    own = msgspec.structs.replace(own, history=state.history)
    log_step(copy, own, _MESSAGE)
    requests = Requests(copy, state, clock=run.setup.clock)
    requests.log_context(own.context)
    return requests.prepare(run.route, own.context, own.config).breaks


def unknown_tool(server: str, names: Collection[str]) -> ToolSchema:
    """Return what stands for the tools of a server that never was on: that some come is known.

    Args:
        server: The server.
        names: Names that are taken.
    """
    return ToolSchema(model_name(server, "unknown", names), "", Raw(b'{"type":"object"}'))


def shown_only(tool: ToolSchema, server: str | None = None) -> ToolEntry:
    """Return a tool of a preview: it is counted, and never run."""
    return ToolEntry(tool, _refuse, server)


async def _refuse(arguments: bytes, context: object, seconds: float) -> Outcome:
    raise AddendumError("a preview runs nothing; switch the server on first")
