"""What a session's tools lose on their way to the model: told once, and kept in the log.

A tool that its server lists in a form that cannot be used; one that the route's endpoint takes in
part only; one that does not fit into the list of tools, and is called through the dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from addendum.log.events import RequestContext, ToolLeftOut
from addendum.log.values import ToolSchema
from addendum.prompt.updates import bound_tools
from addendum.prompt.wire_facts import SCREENED
from addendum.tools.registry import Snapshot
from addendum.wire.apis import facts
from addendum.wire.refusal import one_line
from addendum.wire.schemas import screened

if TYPE_CHECKING:
    from addendum.agent.session import Session

SHOWN = 5
"""Tools that one notice names with their reasons; the rest is counted."""


class LeftOut:
    """Follows what one session's tools lose.

    Args:
        session: The session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._read = 0
        self._told: set[ToolLeftOut] = set()
        self._checked: tuple[tuple[ToolSchema, ...], RequestContext] | None = None

    def check(self, snapshot: Snapshot, context: RequestContext) -> list[str]:
        """Log what is new, and return a line for each kind of it.

        Args:
            snapshot: The tools of the step.
            context: What its requests are rendered with.
        """
        log = self._session.log
        for event in log.rare[self._read :]:
            if isinstance(event.data, ToolLeftOut):
                self._told.add(event.data)
        found: dict[str, list[ToolLeftOut]] = {}
        for server, note in self._session.registry.dropped():
            name, _, why = note.partition(": ")
            lost = ToolLeftOut(one_line(name, 100), one_line(why or name, 300), server=server)
            found.setdefault(f"server {server} lists tools that cannot be offered", []).append(lost)
        checked = (snapshot.active, context)
        if self._checked is None or any(
            one is not other for one, other in zip(self._checked, checked, strict=True)
        ):
            self._checked = checked
            for lost in self._on_route(snapshot, context):
                kind = f"{context.route} is not told all of some tools"
                found.setdefault(kind, []).append(lost)
        lines: list[str] = []
        for kind, listed in found.items():
            fresh = [each for each in listed if each not in self._told]
            for each in fresh:
                log.append(each)
            if fresh:
                lines.append(f"{kind}: {_listed(fresh)}")
        self._read = len(log.rare)
        self._told.update(each for listed in found.values() for each in listed)
        return lines

    def _on_route(self, snapshot: Snapshot, context: RequestContext) -> Iterator[ToolLeftOut]:
        if context.rendering < SCREENED:
            return
        route = self._session.route
        bound: Iterable[ToolSchema] = snapshot.active
        if context.projection == "dispatch":
            head = self._session.head_tools()
            bound = bound_tools(head, context, facts(route))
            names = {tool.name for tool in bound}
            for tool in head:
                if tool.defer_loading or tool.name in names:
                    continue
                if tool.definition() not in context.withheld:
                    why = "it does not fit into the list of tools, and is called through call_tool"
                    yield ToolLeftOut(
                        tool.name,
                        why,
                        route=route.name,
                        definition=tool.definition(),
                        partly=True,
                    )
        for tool in bound:
            losses = screened(tool, route.schemas).losses
            if losses and tool.definition() not in context.withheld:
                why = f"without {', '.join(losses)}"
                yield ToolLeftOut(
                    tool.name,
                    one_line(why, 300),
                    route=route.name,
                    definition=tool.definition(),
                    partly=True,
                )


def _listed(found: list[ToolLeftOut]) -> str:
    shown = [f"{each.name} ({each.why})" for each in found[:SHOWN]]
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return one_line("; ".join([*shown, *more]), 1_000)
