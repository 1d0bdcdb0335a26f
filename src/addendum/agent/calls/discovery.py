"""What a session has found: deferred tools that may be told as additions.

A result of `tool_search` stays in the log as the model reads it, behind whatever hooks made of it,
so it says which definitions the model has seen. A tool that the model called by its name without
being shown it is found as well: from then on the history names it. On a route with native tool
changes the next step tells those tools as additions, and they are called by name from then on. A
dispatch route binds nothing: what was found is called through the dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from addendum import encoding
from addendum.agent.setup import AgentSetup
from addendum.errors import ContentError
from addendum.log.events import Event, ToolResult
from addendum.log.values import ToolSchema
from addendum.tools.search import TOOL_SEARCH_NAME

_UNKNOWN = ("E4", "UNKNOWN_TOOL")
"""What a call of a tool that there was not is answered with."""


class Discovered:
    """The names that searches have shown so far, and those that were called: a fold of the log.

    A rewind or a compaction takes nothing back: what a session has found is found for good.

    Attributes:
        names: The names.
    """

    kinds: ClassVar[frozenset[type]] = frozenset({ToolResult})

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()

    def take(self, event: Event) -> None:
        """Take in a result."""
        data = event.data
        if not isinstance(data, ToolResult):
            return
        if data.name != TOOL_SEARCH_NAME:
            if data.code not in _UNKNOWN and data.name not in self.names:
                self.names |= {data.name}
        elif not data.is_error and (names := shown(data.text)):
            self.names |= set(names)


def binds_search(setup: AgentSetup, head: Sequence[ToolSchema]) -> bool:
    """Say whether `tool_search` belongs to the head of a new session.

    It does where there is something to find: a deferred tool, or a server whose tools are deferred.
    So it does where nothing else could stand in the list of tools although tools may come.

    Args:
        setup: What the agent is set up with.
        head: Its own tools, as far as they are known.
    """
    if not setup.can_change:
        return False
    if all(tool.defer_loading for tool in head):
        return True
    deferred = any(tool.defer_loading for tool in head) or any(
        spec.on and spec.defer for spec in setup.servers
    )
    # Rebinding offers every tool: there is nothing to find.
    return deferred and setup.tool_changes != "rebind"


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
