"""What a model can call by the bytes of one request, and the bytes that a log gives again.

Nothing here uses the folds or projections that made the request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from addendum.log.events import Event, RequestContext, RequestSent, Span
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.prompt.announcements import COMPACTION_INSTRUCTION, compaction_request
from addendum.prompt.breaks import reasoning_floor
from addendum.prompt.projector import Projector
from addendum.routes import Route
from addendum.wire.apis import facts, wire

OURS = frozenset({"call_tool", "tool_search", "deferred_tools_placeholder"})


class Seen(Struct):
    """What a request tells of tools.

    Attributes:
        offered: What can be called after its last block: the definition by name.
        undeclared: Names that a block refers to without a definition anywhere in front of it.
    """

    offered: dict[str, str]
    undeclared: list[str]


def definition(description: str, parameters: Any) -> str:
    """Write a definition so that equal ones are equal."""
    return json.dumps([description, parameters], sort_keys=True)


def of_schema(tool: ToolSchema) -> str:
    """Write the definition of a tool of ours."""
    return definition(tool.description, json.loads(bytes(tool.parameters)))


def seen(body: dict[str, Any]) -> Seen:
    """Read a request as the model does: declarations first, then the history in order."""
    known: dict[str, str] = {}
    offered: dict[str, str] = {}
    undeclared: list[str] = []
    bound: dict[str, str] = {}
    for entry in body.get("tools", []):
        tool = entry.get("function", entry)
        schema = tool.get("input_schema", tool.get("parameters"))
        known[tool["name"]] = definition(tool["description"], schema)
        if not entry.get("defer_loading"):
            offered[tool["name"]] = bound[tool["name"]] = known[tool["name"]]
    for block in _blocks(body):
        if block["type"] == "tool_addition":
            tool = block["tool"]
            if tool["type"] == "tool_definition":
                tool = tool["definition"]
                known[tool["name"]] = definition(tool["description"], tool["input_schema"])
            _offer(tool["name"], known, offered, undeclared)
        elif block["type"] == "tool_removal":
            name = block["tool"]["name"]
            if name not in known:
                undeclared.append(name)
            offered.pop(name, None)
        elif block["type"] == "text" and block["text"].startswith("<tool_update>"):
            _announced(block["text"], known, bound, offered, undeclared)
    return Seen({n: told for n, told in offered.items() if n not in OURS}, undeclared)


def _offer(
    name: str, known: dict[str, str], offered: dict[str, str], undeclared: list[str]
) -> None:
    if name in known:
        offered[name] = known[name]
    else:
        undeclared.append(name)


def _announced(
    text: str,
    known: dict[str, str],
    bound: dict[str, str],
    offered: dict[str, str],
    undeclared: list[str],
) -> None:
    update = json.loads(text.removeprefix("<tool_update>").removesuffix("</tool_update>"))
    for tool in [*update.get("added", []), *update.get("changed", [])]:
        known[tool["name"]] = definition(tool["description"], tool["parameters"])
        offered[tool["name"]] = known[tool["name"]]
    for name in update.get("added_again", []):
        # By the definition that an earlier announcement gave.
        _offer(name, known, offered, undeclared)
    for name in update.get("restored", []):
        # A declared tool, to be called by its name again: its declaration counts.
        _offer(name, bound, offered, undeclared)
    for name in update.get("removed", []):
        if name not in known:
            undeclared.append(name)
        offered.pop(name, None)


def _blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = message.get("content") or ""
        found += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return found


def replayed(events: Sequence[Event], route: Route) -> list[bytes]:
    """Return the body of every request that a log of one route tells of, each from nothing."""
    log = SessionLog("replay")
    bodies: list[bytes] = []
    for event in events:
        data = event.data
        if isinstance(data, RequestSent):
            context = events[data.context_seq].data
            assert isinstance(context, RequestContext)
            assert log.header is not None
            prompt = Projector(context, facts(route)).prompt(
                log,
                instruction=compaction_request(COMPACTION_INSTRUCTION)
                if data.purpose == "compaction"
                else None,
                floor=reasoning_floor(log.events, route.name) if context.reasoning_bound else -1,
            )
            bodies.append(wire(route.wire).renderer(route).body(prompt, log.header.header.config))
        span = event.surface_op
        log.append(data, replace=(span.start, span.end) if isinstance(span, Span) else None)
    return bodies
