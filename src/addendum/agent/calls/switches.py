"""What was switched by hand."""

from __future__ import annotations

from typing import ClassVar

from addendum.log.events import Event, ToolSwitch
from addendum.log.values import ToolSchema


class Switched:
    """What was switched by hand so far: a fold of the log.

    Attributes:
        servers: Servers in the order in which they were switched last, and whether they are on.
        added: Functions that were added and are there, in their order.
        removed: Functions that were removed and are not there.
    """

    kinds: ClassVar[frozenset[type]] = frozenset({ToolSwitch})

    def __init__(self) -> None:
        self.servers: dict[str, bool] = {}
        self.added: dict[str, ToolSchema] = {}
        self.removed: set[str] = set()

    def take(self, event: Event) -> None:
        """Take in a switch."""
        data = event.data
        if not isinstance(data, ToolSwitch):
            return
        if data.kind == "server":
            if self.servers.get(data.name) != data.on:
                self.servers.pop(data.name, None)
                self.servers[data.name] = data.on
        elif data.on and data.tool is not None:
            # One that replaces another has its place.
            self.added[data.name] = data.tool
            self.removed.discard(data.name)
        elif not data.on:
            self.added.pop(data.name, None)
            self.removed.add(data.name)
