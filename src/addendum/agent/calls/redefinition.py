"""Tools that are defined anew while a session lasts: never in silence, whoever did it.

What counts is all that decisions read: the definition, the server, and what that says of the tool
(`readOnlyHint`, `destructiveHint`). The log names the old and the new, whatever happens. `accept`
goes on with the new one, `ask` as well, once a call of it was approved. `keep` goes on with the old
one for the rest of the session: the model sees nothing, calls are checked against the old
definition and judged by the stricter of all hints so far, one that comes from another server is
gone, and the application is told what differs.

What is known of tools beside their definitions goes into the log here too, in front of the request
that first offers them so: a session that is opened again decides by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from addendum.agent.calls.approval import OnRedefinition
from addendum.log.approvals import ToolRedefined
from addendum.log.events import Event, RequestHeader
from addendum.log.known import KnownTool, ToolsKnown
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.tools.entries import ToolEntry, definition, hints_known, terms, unrecorded
from addendum.tools.held import Held
from addendum.tools.registry import Registry, Snapshot


class Definitions:
    """What the headers of a session defined, and what was told of it since: a fold of the log.

    Attributes:
        tools: Each tool as a header defined it last, by name.
        records: What is known of it beside its definition.
        terms: Digest of both, as the session goes by it.
        kept_from: Digest of what was told and is not used, where the old definition is kept.
        changes: How often a header or a record said something new.
        redefined: The redefinitions that were logged, in order.
    """

    kinds: ClassVar[frozenset[type]] = frozenset({RequestHeader, ToolsKnown, ToolRedefined})

    def __init__(self) -> None:
        self.tools: dict[str, ToolSchema] = {}
        self.records: dict[str, KnownTool] = {}
        self.terms: dict[str, str] = {}
        self.kept_from: dict[str, str] = {}
        self.changes = 0
        self.redefined: list[ToolRedefined] = []

    def take(self, event: Event) -> None:
        """Take in what defines tools."""
        data = event.data
        if isinstance(data, RequestHeader):
            # Most are the very ones of the header before.
            for tool in [each for each in data.header.tools if not self._goes_by(each)]:
                self._define(tool)
            self.changes += 1
        elif isinstance(data, ToolsKnown):
            self.records.update({tool.name: tool for tool in data.tools})
            self.changes += 1
        elif isinstance(data, ToolRedefined):
            self.redefined.append(data)
            now = self.kept_from if data.action == "keep" else self.terms
            now[data.name] = data.new

    def _goes_by(self, tool: ToolSchema) -> bool:
        return self.tools.get(tool.name) is tool and tool.name in self.terms

    def _define(self, tool: ToolSchema) -> None:
        before, self.tools[tool.name] = self.tools.get(tool.name), tool
        if tool.name in self.terms and before and definition(before) == definition(tool):
            return  # Of what else changed, an event says so.
        record = self.records.get(tool.name, unrecorded(tool.name))
        if record is not None:
            self.terms[tool.name] = terms(tool, record.server, hints_known(record))

    def goes_on(self, name: str) -> str | None:
        """Return the terms by which a tool is judged that stays as it was."""
        tool, record = self.tools.get(name), self.records.get(name, unrecorded(name))
        if tool is None or record is None:
            return None
        return terms(tool, record.server, hints_known(record))


class Redefinitions:
    """Tells what differs from what the headers of a session defined.

    Args:
        action: What happens to a redefinition.
        registry: The session's tools.
        definitions: What its log defines.
    """

    def __init__(
        self, action: OnRedefinition, registry: Registry, definitions: Definitions
    ) -> None:
        self._action: OnRedefinition = action
        self._registry = registry
        self._definitions = definitions
        self._held = 0
        self._checked: Snapshot | None = None

    def hold(self) -> None:
        """Have the registry keep the definitions that there are, where that is asked for."""
        now = self._definitions
        if now.changes != self._held and self._action == "keep":
            self._registry.hold(Held(dict(now.tools), dict(now.records)))
        self._held = now.changes

    def check(self, log: SessionLog, snapshot: Snapshot) -> list[tuple[ToolRedefined, str]]:
        """Log what is otherwise than the headers so far say, and what is known of the tools.

        Args:
            log: The session's log, in front of the step's header.
            snapshot: The tools of the step.

        Returns:
            What is new, each with what a person reads of it.
        """
        self.hold()
        if snapshot is self._checked:
            return []
        self._checked = snapshot
        found: list[tuple[ToolRedefined, str]] = []
        now = self._definitions
        for name, entry in {**snapshot.entries, **snapshot.unused}.items():
            old, new = now.terms.get(name), entry.terms
            if old is None or old == new:
                continue
            if self._action == "keep" and new in (
                now.kept_from.get(name),
                now.goes_on(name),
            ):
                continue  # It would be told in each step; or it is what the session goes on with.
            unused = entry.schema if name in snapshot.unused else None
            event = ToolRedefined(name, old, new, self._action, unused)
            log.append(event)
            found.append((event, notice(event, self._difference(entry))))
        record(log, snapshot.entries.values())
        return found

    def _difference(self, entry: ToolEntry) -> str:
        """Return in what a tool differs from what was known of it, in words."""
        name = entry.schema.name
        before = self._definitions.records.get(name, unrecorded(name)) or KnownTool(name)
        now = entry.record()
        parts: list[str] = []
        if before.server != now.server:
            parts.append(f"comes from {_source(now.server)}, not from {_source(before.server)}")
        if before.read_only != now.read_only:
            parts.append(f"says that it {'changes nothing' if now.read_only else 'changes things'}")
        elif before.destructive != now.destructive:
            parts.append(f"says that it {'may destroy' if now.destructive else 'destroys nothing'}")
        return " and ".join(parts) or "is defined otherwise"


def record(log: SessionLog, entries: Iterable[ToolEntry]) -> None:
    """Log what is known of active tools and does not stand in the log yet."""
    records = (entry.record() for entry in entries)
    new = tuple(
        found
        for found in records
        if found != log.state.known.get(found.name, unrecorded(found.name))
    )
    if new:
        log.append(ToolsKnown(new))


def notice(found: ToolRedefined, difference: str) -> str:
    """Return what a person reads of a redefinition.

    Args:
        found: The event.
        difference: In what the tool differs.
    """
    ends = {
        "accept": "it is used like that from now on",
        "ask": "a call of it has to be approved first",
        "keep": "this session goes on with the old definition and the stricter hints",
    }
    return (
        f"{found.name} {difference} now ({found.old[:8]} to {found.new[:8]}); {ends[found.action]}"
    )


def _source(server: str | None) -> str:
    return "the application" if server is None else f"server {server}"
