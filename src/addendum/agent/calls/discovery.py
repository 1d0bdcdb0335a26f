"""What a session has found: deferred tools that may be told as additions.

A result of `tool_search` stays in the log as the model reads it, behind whatever hooks made of it,
so it says which definitions the model has seen. A tool that the model called by its name without
being shown it is found as well: from then on the history names it. On a route with native tool
changes the next step tells those tools as additions, and they are called by name from then on. A
dispatch route binds nothing: what was found is called through the dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from addendum import encoding
from addendum.errors import ContentError
from addendum.log.events import Event, ToolResult
from addendum.log.values import ToolSchema
from addendum.tools.dispatcher import is_dispatchable
from addendum.tools.search import TOOL_SEARCH_NAME, answer

if TYPE_CHECKING:
    from addendum.agent.agent import Agent
    from addendum.agent.session import Session


_UNKNOWN = ("E4", "UNKNOWN_TOOL")
"""What a call of a tool that there was not is answered with."""


class Found:
    """The names that searches have shown so far, and those that were called; follows the log.

    A rewind or a compaction takes nothing back: what a session has found is found for good.
    """

    def __init__(self) -> None:
        self._read = 0
        self._names: frozenset[str] = frozenset()

    def read(self, events: Sequence[Event]) -> frozenset[str]:
        """Take in what is new in the log and return the names."""
        for event in events[self._read :]:
            data = event.data
            if not isinstance(data, ToolResult):
                continue
            if data.name != TOOL_SEARCH_NAME:
                if data.code not in _UNKNOWN and data.name not in self._names:
                    self._names |= {data.name}
            elif not data.is_error and (names := shown(data.text)):
                self._names |= set(names)
        self._read = len(events)
        return self._names


def binds_search(agent: Agent, head: Sequence[ToolSchema]) -> bool:
    """Say whether `tool_search` belongs to the head of a new session.

    It does where there is something to find: a deferred tool, or a server whose tools are deferred.
    So it does where nothing else could stand in the list of tools although tools may come.

    Args:
        agent: The agent.
        head: Its own tools, as far as they are known.
    """
    if not agent.can_change:
        return False
    if all(tool.defer_loading for tool in head):
        return True
    deferred = any(tool.defer_loading for tool in head) or any(
        spec.on and spec.defer for spec in agent.servers
    )
    # Rebinding offers every tool: there is nothing to find.
    return deferred and agent.tool_changes != "rebind"


def shown(text: str) -> tuple[str, ...]:
    """Return the names of the tools whose definitions the answer of a search shows.

    Args:
        text: What a model reads as the answer; anything else shows none.
    """
    try:
        body: Any = encoding.decode(text)
    except ContentError:
        return ()
    tools = cast("dict[str, Any]", body).get("tools") if isinstance(body, dict) else None
    found: list[str] = []
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else ():
        name = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else None
        if isinstance(name, str):
            found.append(name)
    return tuple(found)


def searched(session: Session, arguments: bytes | str) -> str:
    """Answer a call of `tool_search` over what could be called now.

    Args:
        session: The session.
        arguments: JSON text of the call's arguments, checked before.
    """
    snapshot = session.registry.snapshot()
    bound = session.bound_tools(snapshot, session.current_context())
    found = [
        (entry.schema, entry.server)
        for entry in snapshot.entries.values()
        if is_dispatchable(
            entry.schema,
            bound=bound,
            disabled=session.disabled,
            can_dispatch=session.agent.dispatch.can_dispatch,
        )
    ]
    return answer(
        arguments,
        found,
        dispatch=session.current_context().projection == "dispatch",
        servers=session.registry.server_names,
    )
