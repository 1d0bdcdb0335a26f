"""Tools that are defined anew while a session lasts: never in silence, whoever did it.

The log names the old and the new definition, whatever happens. `accept` goes on with the new one,
`ask` as well, once a call of it was approved. `keep` goes on with the old one for the rest of the
session: the model sees nothing, calls are checked against the old definition, and the application
is told what differs.
"""

from __future__ import annotations

from addendum.agent.approval import OnRedefinition, definition
from addendum.log.approvals import ToolRedefined
from addendum.log.events import RequestHeader
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.tools.registry import Registry, Snapshot, same_definition


class Redefinitions:
    """What the headers of a session defined, and what differs from it; follows the log.

    Args:
        action: What happens to a redefinition.
        registry: The session's tools.
    """

    def __init__(self, action: OnRedefinition, registry: Registry) -> None:
        self._action: OnRedefinition = action
        self._registry = registry
        self._read = 0
        self._known: dict[str, ToolSchema] = {}
        self._told: dict[str, str] = {}
        self._checked: tuple[ToolSchema, ...] | None = None

    def follow(self, log: SessionLog) -> None:
        """Take in what is new in the log."""
        grown = False
        for event in log.rare[self._read :]:
            data = event.data
            if isinstance(data, RequestHeader):
                self._known.update({tool.name: tool for tool in data.header.tools})
                grown = True
            elif isinstance(data, ToolRedefined):
                self._told[data.name] = data.new
        self._read = len(log.rare)
        if grown and self._action == "keep":
            self._registry.hold(self._known)

    def check(self, log: SessionLog, snapshot: Snapshot) -> list[ToolRedefined]:
        """Log what is defined otherwise than the headers so far say; return what is new.

        Args:
            log: The session's log, in front of the step's header.
            snapshot: The tools of the step.
        """
        self.follow(log)
        if snapshot.active is self._checked and not snapshot.unused:
            return []
        self._checked = snapshot.active
        found: list[ToolRedefined] = []
        for tool in snapshot.active:
            new = snapshot.unused.get(tool.name, tool)
            old = self._known.get(tool.name, new)
            if same_definition(old, new):
                continue
            unused = tool.name in snapshot.unused
            event = ToolRedefined(
                tool.name, definition(old), definition(new), self._action, new if unused else None
            )
            # One that is not used would be told in each step.
            if not unused or self._told.get(tool.name) != event.new:
                log.append(event)
                found.append(event)
        return found


def notice(found: ToolRedefined) -> str:
    """Return what a person reads of a redefinition."""
    ends = {
        "accept": "the new definition is used from now on",
        "ask": "a call of it has to be approved first",
        "keep": "this session goes on with the old definition",
    }
    return (
        f"{found.name} is defined otherwise now ({found.old[:8]} to {found.new[:8]}); "
        + (ends[found.action])
    )
