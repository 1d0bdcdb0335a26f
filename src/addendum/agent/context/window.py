"""How large a conversation may grow, how large it is, and which part of it a summary replaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from addendum.checked import AtLeastNone, AtLeastOne, check_fields
from addendum.errors import ConfigurationError
from addendum.log.approvals import AddedContext
from addendum.log.events import (
    AssistantMessage,
    CompactionFailed,
    CompactionSummary,
    Event,
    Rewind,
    ServerInstructions,
    Span,
    SystemMessage,
    ToolResult,
    UserMessage,
)
from addendum.prompt.long_results import shown
from addendum.routes import Route


class Compaction(Struct, frozen=True):
    """When a session is compacted by itself, and what stays.

    Attributes:
        at: Share of the window, more than 0 and at most 1, from which on it is compacted: by the
            tokens that the provider reported for the last request and its answer.
        keep_turns: How many of the newest turns stay as they are. On routes whose reasoning is
            bound to the exact prefix they stay without theirs.
        window: Tokens of prompt and output that the model takes; the route's own if None.

    Raises:
        ConfigurationError: A figure is out of its bounds.
    """

    at: Annotated[float, Meta(gt=0, le=1)] = 0.8
    keep_turns: AtLeastNone = 2
    window: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def limit(self, route: Route) -> int:
        """Return the tokens from which on a session on `route` is compacted.

        Raises:
            ConfigurationError: The model's window is not known and was not given.
        """
        return int(self.room(route) * self.at)

    def room(self, route: Route) -> int:
        """Return the tokens of prompt and output that the model of a route takes.

        Raises:
            ConfigurationError: That is not known and was not given.
        """
        window = self.window or route.window
        if not window:
            raise ConfigurationError(
                f"the window of {route.full_name} is not known; "
                "say Compaction(window=...) in tokens",
                route=route.name,
            )
        return window


class Sizes:
    """What a session's provider reported of its size: a fold of the log.

    Attributes:
        reported: Tokens that the next request has at least; None if that is not known. What was
            reported before a part of the log was replaced says nothing.
    """

    kinds: ClassVar[frozenset[type]] = frozenset(
        {AssistantMessage, CompactionFailed, CompactionSummary, Rewind}
    )

    def __init__(self) -> None:
        self.reported: int | None = None
        self._failed: dict[str, int] = {}

    def take(self, event: Event) -> None:
        """Take in an answer, or that something was replaced or could not be."""
        data = event.data
        if isinstance(event.surface_op, Span):
            self.reported = None
            self._failed.clear()
        if isinstance(data, AssistantMessage):
            usage = data.usage
            self.reported = None if usage.prompt is None else usage.prompt + (usage.output or 0)
        elif isinstance(data, CompactionFailed) and data.route is not None:
            self._failed[data.route] = self.reported or 0

    def next_attempt(self, route: Route, window: int) -> int | None:
        """Return where a session is compacted by itself again, if the model last gave no summary.

        Such an answer is paid for like any other, so it is not asked for at every turn: half of
        the room that was left is used up first, and what fits no more is compacted in any case.

        Args:
            route: The route; what another model gave says nothing of this one.
            window: Tokens of prompt and output that the model takes.

        Returns:
            The tokens; None if nothing was tried since a part of the log was replaced, or the
            request failed, which costs nothing.
        """
        size = self._failed.get(route.name)
        return None if size is None else size + max(window - size, window // 10) // 2


def replaceable(nodes: Sequence[Event], keep_turns: int) -> Sequence[Event]:
    """Return the nodes that a compaction replaces: all but the prompt and the newest turns.

    Args:
        nodes: The surface.
        keep_turns: How many of the newest turns stay.
    """
    first = 1 if nodes and isinstance(nodes[0].data, SystemMessage) else 0
    places = [at for at, node in enumerate(nodes) if isinstance(node.data, UserMessage)]
    end = len(nodes)
    if keep_turns:
        end = places[-keep_turns] if keep_turns <= len(places) else first
        # A prompt that the first kept turn appended stays with it.
        while end > first and isinstance(nodes[end - 1].data, SystemMessage):
            end -= 1
    return nodes[first:end]


def size_of(node: Event, shows: Sequence[str]) -> int:
    """Return about how many bytes a node has in a request, its files included.

    Args:
        node: The node.
        shows: Media types that the request shows.
    """
    data = node.data
    if isinstance(data, AssistantMessage):
        own = sum(len(bytes(raw)) for raw in data.native)
        return own or len(data.text.encode()) + sum(len(call.arguments) for call in data.calls)
    if isinstance(data, ToolResult):
        files = sum(len(file.data) for file in data.media if file.media_type in shows)
        return len(shown(data.text, data.shown).encode()) + files
    if isinstance(data, UserMessage | AddedContext | ServerInstructions | CompactionSummary):
        return len(data.text.encode())
    return 0
