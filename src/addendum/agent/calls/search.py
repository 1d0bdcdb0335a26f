"""Answers calls of `tool_search` over what could be called now."""

from __future__ import annotations

from addendum.agent.context.epochs import coming
from addendum.agent.runtime import Runtime
from addendum.tools.dispatcher import is_dispatchable
from addendum.tools.functions import ToolContext
from addendum.tools.registry import Outcome, ToolEntry
from addendum.tools.search import TOOL_SEARCH, answer
from addendum.tools.servers import Run


def searched(run: Runtime, arguments: bytes | str) -> str:
    """Answer a call of `tool_search`.

    Args:
        run: The session.
        arguments: JSON text of the call's arguments, checked before.
    """
    snapshot, context = run.registry.snapshot(), coming(run)
    bound = run.bound_tools(snapshot, context)
    callable_now = [
        (entry.schema, entry.server)
        for entry in snapshot.entries.values()
        if is_dispatchable(
            entry.schema,
            bound=bound,
            disabled=run.disabled,
            can_dispatch=run.setup.dispatch.can_dispatch,
        )
    ]
    return answer(
        arguments,
        callable_now,
        dispatch=context.projection == "dispatch",
        servers=run.registry.server_names,
    )


def run_search(run: Runtime) -> Run:
    """Return what runs calls of `tool_search` in a session."""

    async def search(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
        return Outcome(searched(run, arguments))

    return search


def search_entry(run: Runtime) -> ToolEntry:
    """Return `tool_search` where it is bound without being an active tool."""
    return ToolEntry(TOOL_SEARCH, run_search(run))
