"""The session-long fold: the head, then every addition, redefinition and removal with its place.

It never rebuilds. By-value and dispatch read it: their bound tools come from the session's head
header, and everything since is told in the history. At a header that starts a series (after a
compaction, a rewind, on request) one update is derived from the log in place of the step's own:
what is active now, less what the surviving surface still tells, and the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from addendum.log.events import DeveloperMessage, Event, RequestHeader, Span
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolAddition, ToolSchema


class LedgerUpdate(Struct, frozen=True):
    """What one header changed, or what a search has found since.

    Attributes:
        seq: The header's seq: the update's identity and its order. Of what was found, the seq of
            the developer message that says so.
        anchor: Seq of the last surface node in front of it; -1 if there was none. The update
            stands as long as that node does.
        added: Names that became callable, in header order, with their definitions.
        redefined: Active names whose definition was replaced, in header order.
        removed: Names that are no longer callable, in the order they were told.
        found: Deferred tools that a search has shown, in header order: active before, and
            callable by name from here on.
    """

    seq: int
    anchor: int
    added: tuple[ToolSchema, ...] = ()
    redefined: tuple[ToolSchema, ...] = ()
    removed: tuple[str, ...] = ()
    found: tuple[ToolSchema, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.redefined or self.removed or self.found)


class Ledger:
    """Folds headers along the surface; later reads touch unseen events only.

    Attributes:
        head: The session's head header, or None before the first.
        head_seq: Its seq.
        active: Tools of the latest header.
    """

    def __init__(self) -> None:
        self.head: tuple[ToolSchema, ...] = ()
        self.head_seq: int | None = None
        self.active: tuple[ToolSchema, ...] = ()
        self.consumed = 0  # Of the log's `rare` events.
        self._updates: tuple[LedgerUpdate, ...] = ()
        self._surfaced: set[str] = set()

    def read(self, log: SessionLog) -> None:
        """Take in all unseen events of the log that say something of tools: they are few."""
        for event in log.rare[self.consumed :]:
            data = event.data
            if isinstance(data, RequestHeader):
                self._take(event.seq, data, log.events)
                continue
            if isinstance(data, DeveloperMessage):
                self._find(event.seq, data, log.events)
            if isinstance(event.surface_op, Span):
                self._replace(event)
        self.consumed = len(log.rare)

    def _replace(self, event: Event) -> None:
        gone = set(event.sources)
        if any(update.anchor in gone for update in self._updates):
            self._updates = tuple(each for each in self._updates if each.anchor not in gone)

    def updates(self) -> tuple[LedgerUpdate, ...]:
        """Return the updates that the surface still tells, in order: the same while they stay."""
        return self._updates

    def _find(self, seq: int, data: DeveloperMessage, events: Sequence[Event]) -> None:
        """Take what a message adds that its header had already: deferred tools that were found."""
        names = {block.tool_name for block in data.content if isinstance(block, ToolAddition)}
        found = tuple(tool for tool in self.active if tool.name in names and self._withheld(tool))
        if found:
            self._updates = (*self._updates, LedgerUpdate(seq, _anchor(events, seq), found=found))
            self._surfaced.update(tool.name for tool in found)

    def _withheld(self, tool: ToolSchema) -> bool:
        """Say whether a tool is deferred and was never told: active, but not for the model."""
        return bool(tool.defer_loading) and tool.name not in self._surfaced

    def _take(self, seq: int, data: RequestHeader, events: Sequence[Event]) -> None:
        before, self.active = self.active, data.header.tools
        if self.head_seq is None or data.head:
            self.head, self.head_seq = data.header.tools, seq
            self._updates = ()
            self._surfaced = set()
            return
        if data.new_series:
            told = told_by(self.head, self._updates)
            wanted = [tool for tool in self.active if not self._withheld(tool)]
            names = {tool.name for tool in self.active}
        else:
            told = {tool.name: tool for tool in before if not self._withheld(tool)}
            withheld = {tool.name for tool in before if self._withheld(tool)}
            wanted = [
                tool for tool in self.active if not tool.defer_loading or tool.name not in withheld
            ]
            names = {tool.name for tool in self.active}
        update = LedgerUpdate(
            seq,
            _anchor(events, seq),
            tuple(tool for tool in wanted if tool.name not in told),
            tuple(
                tool
                for tool in wanted
                if tool.name in told and told[tool.name].identity() != tool.identity()
            ),
            tuple(name for name in told if name not in names),
        )
        if update:
            self._updates = (*self._updates, update)
            self._surfaced.update(tool.name for tool in update.added)


def _anchor(events: Sequence[Event], seq: int) -> int:
    """Return the seq of the last surface node in front of an event; -1 if there was none."""
    spans: list[Event] = []
    last = -1
    for place in range(seq - 1, -1, -1):
        placed = events[place].surface_op
        if placed == "append":
            last = place
            break
        if placed is not None:
            spans.append(events[place])
    for event in reversed(spans):
        if last in event.sources:
            last = event.seq
    return last


def told_by(head: Iterable[ToolSchema], updates: Iterable[LedgerUpdate]) -> dict[str, ToolSchema]:
    """Return what a reader of head and updates takes for callable, by name."""
    told = {tool.name: tool for tool in head if not tool.defer_loading}
    for update in updates:
        for tool in update.added + update.found:
            told[tool.name] = tool
        for tool in update.redefined:
            if tool.name in told:
                told[tool.name] = tool
        for name in update.removed:
            told.pop(name, None)
    return told
