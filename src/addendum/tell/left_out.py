"""Which tools are not offered, or not told in full, at one moment of a session, and why."""

from __future__ import annotations

from collections.abc import Iterable

from addendum.log.events import Event, RequestContext, RequestHeader, ToolLeftOut


def left_out(events: Iterable[Event]) -> tuple[ToolLeftOut, ...]:
    """Return what holds behind the last of these events, in the order in which it was first said.

    What was said of another route, of another definition, or of a tool that its server lists well
    by now, holds no longer.

    Args:
        events: A session's log up to the moment.
    """
    tool_left_outs: dict[tuple[str, str, str], ToolLeftOut] = {}
    context: RequestContext | None = None
    names: set[str] = set()
    definitions: set[str] = set()
    for event in events:
        data = event.data
        if isinstance(data, ToolLeftOut):
            tool_left_outs[data.server, data.name, data.route] = data
        elif isinstance(data, RequestContext):
            context = data
        elif isinstance(data, RequestHeader):
            names = {tool.name for tool in data.header.tools}
            definitions = {tool.definition() for tool in data.header.tools}

    def holds(each: ToolLeftOut) -> bool:
        if each.server:
            return f"{each.server}__{each.name}" not in names
        if context is None or each.route != context.route or each.definition not in definitions:
            return False
        return each.partly or each.definition in context.withheld

    return tuple(each for each in tool_left_outs.values() if holds(each))
