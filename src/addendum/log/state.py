"""What follows from the events of a log, one after the other, and from nothing else.

A fold takes the events of some kinds. Each fold of a log is registered once, and told of an event
by one call when that is appended, so none keeps a cursor of its own, and any of them can be had as
of an earlier event: a new one that is told of all events up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

from addendum.log.approvals import ApprovalAsked, ApprovalDecided
from addendum.log.events import (
    AssistantMessage,
    EndSeed,
    Event,
    RequestHeader,
    RequestSent,
    StepEnd,
    StepStart,
    ToolPolicy,
    ToolResult,
    ToolSwitch,
    TurnEnd,
    TurnStart,
)
from addendum.log.known import KnownTool, ServerAway, ToolsKnown

LASTING: frozenset[type] = frozenset({EndSeed, ToolPolicy, ToolSwitch, ToolsKnown, ServerAway})
"""Kinds that say something that holds for all that follows."""


class Fold(Protocol):
    """What follows from the events of some kinds.

    Attributes:
        kinds: The kinds of events that it is told of; a long log has many more of others.
    """

    kinds: ClassVar[frozenset[type]]

    def take(self, event: Event) -> None:
        """Take in the next event of these kinds."""
        ...


class Folds:
    """The folds of one log, each registered once."""

    def __init__(self) -> None:
        self._takers: dict[type, list[Callable[[Event], None]]] = {}

    def register(self, fold: Fold, events: Iterable[Event] = ()) -> None:
        """Add a fold.

        Args:
            fold: The fold.
            events: The log so far, or at least its events of the fold's kinds.
        """
        kinds, take = fold.kinds, fold.take
        for event in events:
            if type(event.data) in kinds:
                take(event)
        for kind in kinds:
            self._takers.setdefault(kind, []).append(take)

    def take(self, event: Event) -> None:
        """Tell the folds of the next event."""
        for taker in self._takers.get(type(event.data), ()):
            taker(event)


class LogState:
    """What appending to a log needs to know of it.

    Attributes:
        session: The session's id.
        turn: The open turn, or None.
        step: The open step, or None.
        turns: How many turns were opened so far.
        waiting: Ids of calls that have no result yet, in the model's order.
        asked: The batch that waits for a person, or None.
        headers: All headers, by seq.
        generation: That of the surface when a turn's request left last; None if none did.
        inherited: How many events came from a parent.
        disabled: Names of tools that are bound and refused.
        known: What is known of tools beside their definitions, by name.
        away: What a person was told of servers whose tools are not there, by server.
        switched_on: Whether a tool or server was ever switched on by hand.
    """

    kinds: ClassVar[frozenset[type]] = LASTING | {
        TurnStart,
        TurnEnd,
        StepStart,
        StepEnd,
        ApprovalAsked,
        ApprovalDecided,
        RequestHeader,
        RequestSent,
        AssistantMessage,
        ToolResult,
    }

    def __init__(self, session: str) -> None:
        self.session = session
        self.turn: int | None = None
        self.step: int | None = None
        self.turns = 0
        self.waiting: list[str] = []
        self.asked: ApprovalAsked | None = None
        self.headers: dict[int, RequestHeader] = {}
        self.generation: int | None = None
        self.inherited = 0
        self.disabled: tuple[str, ...] = ()
        self.known: dict[str, KnownTool] = {}
        self.away: dict[str, str] = {}
        self.switched_on = False

    def take(self, event: Event) -> None:
        """Take in an event that was checked."""
        data = event.data
        match data:
            case StepStart():
                self.step = data.step
            case StepEnd():
                self.step = self.asked = None
            case AssistantMessage():
                self.waiting = [call.id for call in data.calls]
            case ToolResult():
                self.waiting.remove(data.call_id)
            case TurnStart():
                self.turn = data.turn
                self.turns = data.turn
            case TurnEnd():
                self.turn = None
            case ApprovalAsked():
                self.asked = data
            case ApprovalDecided():
                self.asked = None
            case RequestHeader():
                self.headers[event.seq] = data
            case RequestSent():
                if data.purpose == "turn":
                    self.generation = data.generation
            case EndSeed():
                self.inherited = data.inherited
            case ToolPolicy():
                self.disabled = data.disabled
            case ToolSwitch():
                self.switched_on = self.switched_on or data.on
            case ToolsKnown():
                self.known.update({tool.name: tool for tool in data.tools})
            case ServerAway():
                self.away[data.server] = data.why
            case _:
                pass
