"""The surface: the ordered nodes from which messages are made.

An append adds a node at the end; a replace puts one node in the place of an inclusive span. There
is no delete: what cuts (a rewind) leaves a node that makes no message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from addendum.errors import AppendRefused
from addendum.log.events import (
    SURFACE_TYPES,
    DeveloperMessage,
    Event,
    ServerInstructions,
    Span,
    SystemMessage,
)

_NOTES = (SystemMessage, DeveloperMessage, ServerInstructions)
ON_SURFACE: frozenset[type] = frozenset(SURFACE_TYPES)
"""The types of events that have a place on the surface."""


def _notes_of(nodes: Iterable[Event]) -> dict[type, list[Event]]:
    notes: dict[type, list[Event]] = {kind: [] for kind in _NOTES}
    for node in nodes:
        if type(node.data) in notes:
            notes[type(node.data)].append(node)
    return notes


class Surface:
    """The live nodes of one log.

    Attributes:
        nodes: Surface events in surface order.
        generation: How many replaces there were; it moves when bytes already sent may change.
        notes: Those of the nodes that neither person, model nor tool made, by their type: prompts,
            tool updates, server instructions. They are few, and asked for at every step.
    """

    def __init__(self) -> None:
        self.nodes: list[Event] = []
        self.generation = 0
        self.notes: Mapping[type, list[Event]] = _notes_of(())

    def until(self, seq: int) -> Surface:
        """Return the surface in front of an event, if nothing was replaced since."""
        earlier, end = Surface(), len(self.nodes)
        while end and self.nodes[end - 1].seq >= seq:
            end -= 1
        earlier.nodes = self.nodes[:end]
        earlier.generation = self.generation
        earlier.notes = {
            kind: [node for node in notes if node.seq < seq] for kind, notes in self.notes.items()
        }
        return earlier

    def index(self, seq: int) -> int:
        """Return the place of a node.

        Raises:
            AppendRefused: There is no such node.
        """
        # Nodes are asked for near the end nearly always.
        for place in range(len(self.nodes) - 1, -1, -1):
            if self.nodes[place].seq == seq:
                return place
        raise AppendRefused(f"event {seq} is not on the surface", seq=seq)

    def span(self, start: int, end: int) -> tuple[int, ...]:
        """Return the seqs of the nodes from `start` to `end`, both included.

        Raises:
            AppendRefused: One is no node, or they are in the wrong order.
        """
        first, last = self.index(start), self.index(end)
        if first > last:
            raise AppendRefused(f"the span {start} to {end} runs backwards", seq=end)
        return tuple(node.seq for node in self.nodes[first : last + 1])

    def check(self, event: Event) -> None:
        """Raise `AppendRefused` if the event may not join the surface as it says."""
        on_surface = type(event.data) in ON_SURFACE
        if on_surface != (event.surface_op is not None):
            raise AppendRefused(
                f"{event.type} {'needs' if on_surface else 'has no'} place on the surface",
                seq=event.seq,
            )
        if not isinstance(event.surface_op, Span):
            return
        shadowed = self.span(event.surface_op.start, event.surface_op.end)
        if shadowed != event.sources:
            raise AppendRefused(
                f"a replace must cite every node it shadows: {list(shadowed)}", seq=event.seq
            )
        head = self.nodes[0]
        if (
            head.seq in shadowed
            and isinstance(head.data, SystemMessage)
            and not isinstance(event.data, SystemMessage)
        ):
            raise AppendRefused(
                f"{event.type} may not replace the system head; only a system/message may",
                seq=event.seq,
            )

    def apply(self, event: Event) -> None:
        """Take in an event that was checked."""
        placed, kind = event.surface_op, type(event.data)
        if placed == "append":
            self.nodes.append(event)
            if kind in self.notes:
                self.notes[kind].append(event)
        elif isinstance(placed, Span):
            first, last = self.index(placed.start), self.index(placed.end)
            self.nodes[first : last + 1] = [event]
            self.generation += 1
            self.notes = _notes_of(self.nodes)
