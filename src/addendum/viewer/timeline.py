"""Tools over turns: what each tool was at any time, and when it was called."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from addendum.log.events import Event, RequestHeader, ToolCall, ToolPolicy, TurnStart
from addendum.log.values import ToolSchema

COLUMNS = 240
"""Columns that a strip has at most; more turns than that share columns."""


class Stretch(Struct, frozen=True):
    """A run of turns in which a tool was in one state: `active`, `deferred` or `disabled`."""

    state: str
    first: int
    last: int


class Strip(Struct, frozen=True):
    """One tool.

    Attributes:
        name: Its name.
        stretches: Its states; where there is none it could not be called.
        calls: How often it was called, by turn.
    """

    name: str
    stretches: tuple[Stretch, ...]
    calls: dict[int, int]

    @property
    def total(self) -> int:
        """How often it was called in all."""
        return sum(self.calls.values())


class Timeline(Struct, frozen=True):
    """All tools of a session, in the order in which they came.

    Attributes:
        turns: Turns of the session.
        strips: A row a tool.
    """

    turns: int
    strips: tuple[Strip, ...]


class _Row:
    def __init__(self) -> None:
        self.state = ""
        self.since = 0
        self.stretches: list[Stretch] = []
        self.calls: dict[int, int] = {}

    def become(self, state: str, turn: int) -> None:
        if state == self.state:
            return
        if self.state and self.since < turn:
            self.stretches.append(Stretch(self.state, self.since, turn - 1))
        self.state, self.since = state, turn


def timeline(events: Sequence[Event]) -> Timeline:
    """Return what each tool of a log was in each turn, as of the turn's last header."""
    rows: dict[str, _Row] = {}
    head: dict[str, str] | None = None
    active: dict[str, ToolSchema] = {}
    disabled: frozenset[str] = frozenset()
    turn = 0

    def settle() -> None:
        for name, row in rows.items():
            row.become(_state(name, active, head or {}, disabled), max(turn, 1))

    for event in events:
        data = event.data
        match data:
            case TurnStart():
                turn = data.turn
            case RequestHeader():
                active = {tool.name: tool for tool in data.header.tools}
                if head is None or data.head:
                    head = {
                        name: tool.identity()
                        for name, tool in active.items()
                        if not tool.defer_loading
                    }
                for name in active:
                    rows.setdefault(name, _Row())
                settle()
            case ToolPolicy():
                disabled = frozenset(data.disabled)
                settle()
            case ToolCall():
                row = rows.setdefault(data.name, _Row())
                row.calls[turn] = row.calls.get(turn, 0) + 1
            case _:
                pass
    for row in rows.values():
        row.become("", turn + 1)
    return Timeline(turn, tuple(Strip(n, tuple(r.stretches), r.calls) for n, r in rows.items()))


def _state(
    name: str, active: dict[str, ToolSchema], head: dict[str, str], disabled: frozenset[str]
) -> str:
    if name not in active:
        return ""
    if name in disabled:
        return "disabled"
    return "active" if head.get(name) == active[name].identity() else "deferred"
