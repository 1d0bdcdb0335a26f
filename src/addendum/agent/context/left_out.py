"""What a session's tools lose on their way to the model: told once, and kept in the log.

A tool that its server lists in a form that cannot be used; one that the route's endpoint takes in
part only; one that does not fit into the list of tools, and is called through the dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from addendum.agent.state import State
from addendum.lines import one_line
from addendum.log.events import RequestContext, ToolLeftOut
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.prompt.updates import bound_tools
from addendum.prompt.wire_facts import SCREENED
from addendum.routes import Route
from addendum.tools.registry import Registry, Snapshot
from addendum.wire.apis import facts
from addendum.wire.schemas import screened

SHOWN = 5
"""Tools that one notice names with their reasons; the rest is counted."""


class LeftOut:
    """Tells what one session's tools lose.

    Args:
        log: The session's log.
        registry: Its tools.
        state: What follows from the log.
    """

    def __init__(self, log: SessionLog, registry: Registry, state: State) -> None:
        self._log = log
        self._registry = registry
        self._state = state
        self._checked: tuple[tuple[ToolSchema, ...], RequestContext] | None = None

    def check(
        self,
        snapshot: Snapshot,
        context: RequestContext,
        route: Route,
        head: tuple[ToolSchema, ...],
    ) -> list[str]:
        """Log what is new, and return a line for each kind of it.

        Args:
            snapshot: The tools of the step.
            context: What its requests are rendered with.
            route: Where they go.
            head: Tools of the session's head header.
        """
        log = self._log
        found: dict[str, list[ToolLeftOut]] = {}
        for server, note in self._registry.dropped():
            name, _, why = note.partition(": ")
            lost = ToolLeftOut(one_line(name, 100), one_line(why or name, 300), server=server)
            found.setdefault(f"server {server} lists tools that cannot be offered", []).append(lost)
        checked = (snapshot.active, context)
        if self._checked is None or any(
            one is not other for one, other in zip(self._checked, checked, strict=True)
        ):
            self._checked = checked
            for lost in _on_route(snapshot, context, route, head):
                kind = f"{context.route} is not told all of some tools"
                found.setdefault(kind, []).append(lost)
        lines: list[str] = []
        for kind, listed in found.items():
            fresh = [each for each in listed if each not in self._state.sent.lost]
            for each in fresh:
                log.append(each)
            if fresh:
                lines.append(f"{kind}: {_listed(fresh)}")
        return lines


def _on_route(
    snapshot: Snapshot,
    context: RequestContext,
    route: Route,
    head: tuple[ToolSchema, ...],
) -> Iterator[ToolLeftOut]:
    if context.rendering < SCREENED:
        return
    bound: Iterable[ToolSchema] = snapshot.active
    if context.projection == "dispatch":
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
