"""What becomes of a client's request: changes told, a new head, or the request as it came.

One decision with a reason from a closed list. It is written down with the request's node, so that
the same request is planned the same way for ever, here and on every machine with the same store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from addendum.gateway.branches import (
    PLAIN,
    Branches,
    Break,
    Footing,
    Node,
    Update,
    head_schemas,
    ledger,
)
from addendum.gateway.foreign import Chain
from addendum.log.values import ToolSchema
from addendum.routes import Route
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.ledger import told_by
from addendum.wire.splice import ClientRequest, ClientTool, PassReason, Splice

ToolChanges: TypeAlias = Literal["auto", "native", "dispatch", "off"]
Prepare: TypeAlias = Literal["always", "on-change"]

MOST_EDITS = 2
"""Requests in a row whose history was written anew from its beginning, before nothing is told."""


class PlanInput(Struct, frozen=True):
    """All that a plan follows from.

    Attributes:
        request: The request.
        splice: Its wire.
        route: Its route.
        links: Its digests.
        standing: Where it stands in what is known.
        way: How changes are told on this route: `native`, `dispatch`, or `off`.
        prepare: Whether a first request is made ready for changes.
        switched_off: Whether nothing is to be told any more.
        refused: Whether nothing can be told since the endpoint refuses what tells it.
    """

    request: ClientRequest
    splice: Splice
    route: Route
    links: Chain
    standing: Footing
    way: Literal["native", "dispatch", "off"]
    prepare: Prepare = "always"
    switched_off: bool = False
    refused: bool = False


def way_of(
    route: Route, tool_changes: ToolChanges, refused: bool
) -> Literal["native", "dispatch", "off"]:
    """Return how changes are told on a route.

    Args:
        route: The route.
        tool_changes: What the caller asks for.
        refused: Whether the endpoint has refused native changes before.
    """
    if tool_changes == "off":
        return "off"
    has = route.capabilities
    native = has.tool_update is not None and has.definitions == "by-value" and not refused
    if native and tool_changes != "dispatch":
        return "native"
    return "off" if tool_changes == "native" else "dispatch"


def reason_to_pass(case: PlanInput) -> PassReason | None:
    """Return why a request is not driven at all, by itself and what it goes on from."""
    request, node = case.request, case.standing.node
    names = [tool.name for tool in request.tools]
    if node is None or not node.head:
        if not names:
            return "no tools"
    if case.switched_off:
        return "switched off"
    if len(set(names)) < len(names):
        return "two tools of one name"
    if case.way == "off":
        return "refused by the endpoint" if case.refused else "no way to tell"
    if case.way == "dispatch":
        if TOOL_DISPATCHER_NAME in names:
            return "call_tool taken"
        limit = case.route.schemas.tools
        if limit and len(names) + 1 > limit:
            return "too many tools"
    return None


def plan(case: PlanInput, branches: Branches) -> Node:
    """Return the node of a request that has none yet.

    Args:
        case: What it follows from.
        branches: Where definitions and heads are known.
    """
    request, standing = case.request, case.standing
    parent, depth = standing.node, standing.depth
    count = len(request.elements)
    active = tuple(tool.digest() for tool in request.tools)
    spoken = any(element.role == "assistant" for element in request.elements)
    if parent is not None and not spoken and {*parent.head} - {*active}:
        # A conversation that begins alike: it never inherits a tool that it has not got.
        parent, depth = None, 0
    breaks: list[Break] = []
    edits, rewritten = _edited(case, breaks)
    passed = reason_to_pass(case)
    earlier = parent or (standing.expected if breaks else None)
    # All other reasons are asked for anew: a conversation that was passed on may be told again.
    lasting: PassReason = "rewrites its history each turn"
    again = parent is not None and parent.passed == lasting
    if passed is None and (again or (rewritten and edits > MOST_EDITS)):
        passed = lasting
    base = Node(
        standing.key,
        case.links.root,
        standing.key if earlier is None else earlier.conversation,
        1 if earlier is None else earlier.number + 1,
        count,
        (),
        active,
        PLAIN,
        before=0 if parent is None else parent.count if parent.count < count else parent.before,
        edits=edits,
        time=time.time(),
        line=case.links.line if earlier is None else earlier.line,
    )
    if passed is not None:
        if parent is not None and (parent.head or parent.updates):
            breaks.append(Break("passed on unchanged", "tools", passed))
        floor = count if breaks and spoken else _floor(parent, depth)
        return msgspec.structs.replace(base, passed=passed, breaks=tuple(breaks), floor=floor)
    if parent is None or not parent.head:
        if parent is not None:
            why = "tools were added" if parent.passed == "no tools" else "changes are told again"
            breaks.append(Break("head changed", "tools", why))
        elif spoken and not breaks:
            breaks.append(Break("history unknown", "tools"))
        return _new_head(case, base, breaks, spoken)
    definitions = branches.definitions([*named(parent), *active])
    if definitions is None:
        breaks.append(Break("history unknown", "tools"))
        return _new_head(case, base, breaks, spoken)
    fixed = {each for each in parent.head if definitions[each].schema is None}
    if fixed != {tool.digest() for tool in request.tools if tool.schema is None}:
        breaks.append(Break("tool that cannot be told", "tools"))
        return _new_head(case, base, breaks, spoken)
    if parent.projection not in (PLAIN, _projection(case)):
        breaks.append(Break("downgrade", "tools"))
        return _new_head(case, base, breaks, spoken)
    kept, moved = _kept(case, parent, depth)
    if moved:
        breaks.append(Break("attempt failed", "messages"))
    change = _change(parent, kept, request, definitions)
    if parent.projection == PLAIN and change is not None:
        breaks.append(Break("rebinding", "tools"))
        return _new_head(case, base, breaks, spoken, ready=True)
    if change is not None and _cheaper(case, parent, branches, change, definitions):
        breaks.append(Break("new head: cheaper", "tools"))
        return _new_head(case, base, breaks, spoken)
    updates = kept
    if change is not None:
        behind = _behind(case, depth, change, definitions)
        if behind:
            updates = (*kept, msgspec.structs.replace(change, behind=behind))
    floor = count if breaks and spoken else _floor(parent, depth)
    return msgspec.structs.replace(
        base,
        head=parent.head,
        projection=parent.projection,
        updates=updates,
        floor=floor,
        breaks=tuple(breaks),
    )


def _floor(parent: Node | None, depth: int) -> int:
    return 0 if parent is None else min(parent.floor, depth)


def _edited(case: PlanInput, breaks: list[Break]) -> tuple[int, bool]:
    """Declare what the client wrote anew; return how often in a row, and whether nothing stayed."""
    standing = case.standing
    expected = standing.expected
    if expected is None:
        return 0, False
    if standing.node is not None and standing.depth >= expected.count:
        return 0, False
    if expected.root != case.links.root:
        breaks.append(Break("system rewritten by the client", "system"))
    else:
        place = len(case.request.front) + standing.depth
        breaks.append(Break("history edited by the client", f"messages[{place}]"))
    return expected.edits + 1, standing.depth == 0


def _new_head(
    case: PlanInput, base: Node, breaks: Sequence[Break], spoken: bool, *, ready: bool = False
) -> Node:
    """Return a node whose tools are declared anew: those that the client offers."""
    projection = _projection(case)
    if case.prepare == "on-change" and not ready and case.way == "dispatch":
        projection = PLAIN
    return msgspec.structs.replace(
        base,
        head=base.active,
        projection=projection,
        breaks=tuple(breaks),
        # What was thought behind another head is not valid behind this one.
        floor=base.count if spoken else 0,
    )


def _projection(case: PlanInput) -> str:
    """Return how changes are told where nothing was told yet."""
    return str(case.route.capabilities.tool_update) if case.way == "native" else "dispatch"


def named(node: Node) -> tuple[str, ...]:
    """Return the digests of all that a node speaks of."""
    told = (each for update in node.updates for each in (*update.added, *update.redefined))
    return (*node.head, *told)


def _kept(case: PlanInput, parent: Node, depth: int) -> tuple[tuple[Update, ...], bool]:
    """Return the updates that still stand, and whether one had to move to another place."""
    count = len(case.request.elements)
    # One at the very end of this request belongs to another try of it: it is told anew.
    end = min(depth, count - 1) if depth == count else depth
    standing = tuple(each for each in parent.updates if each.behind <= end)
    native = case.way == "native"
    for place, update in enumerate(standing):
        if not case.splice.legal(case.request, update.behind, native=native):
            return standing[:place], True
    return standing, False


def _change(
    parent: Node,
    kept: Sequence[Update],
    request: ClientRequest,
    definitions: Mapping[str, ClientTool],
) -> Update | None:
    """Return what has to be told, wherever it stands; None if nothing changed."""
    head = head_schemas(parent.head, definitions)
    told = told_by(head, ledger(kept, definitions))
    wanted: dict[str, ToolSchema] = {}
    for tool in request.tools:
        if tool.schema is not None:
            wanted[tool.name] = tool.schema
    added = [each for name, each in wanted.items() if name not in told]
    redefined = [
        each
        for name, each in wanted.items()
        if name in told and told[name].identity() != each.identity()
    ]
    change = Update(
        0,
        tuple(each.definition() for each in added),
        tuple(each.definition() for each in redefined),
        tuple(name for name in told if name not in wanted),
    )
    return change if change.added or change.redefined or change.removed else None


def _cheaper(
    case: PlanInput,
    parent: Node,
    branches: Branches,
    change: Update,
    definitions: Mapping[str, ClientTool],
) -> bool:
    """Say whether a new head costs less than to tell a change.

    A new head is read anew, with all of the history that stands behind it, unless another
    conversation has the same; what is told is read anew once.
    """
    # What still stands is told by its name alone.
    standing = {*parent.head, *(each for update in parent.updates for each in update.added)}
    anew_told = [each for each in (*change.added, *change.redefined) if each not in standing]
    to_tell = sum(len(definitions[each].raw) for each in anew_told)
    depth = case.standing.depth
    anew = sum(len(element.raw) for element in case.request.elements[:depth])
    head = [tool.digest() for tool in case.request.tools]
    if anew >= to_tell:
        return False
    if not branches.is_live(case.links.root, head):
        anew += sum(len(tool.raw) for tool in case.request.tools)
        anew += sum(map(len, case.request.front))
        anew += len(bytes(case.request.fields.get("system", b"")))
    return anew < to_tell


def _behind(
    case: PlanInput, depth: int, change: Update, definitions: Mapping[str, ClientTool]
) -> int:
    """Return how many elements an update stands behind; 0 where it has to wait.

    As late as it may: behind the last message of the user's or of results. Where the new part calls
    already what is not told yet, as early as it may.
    """
    request = case.request
    names = {definitions[each].name for each in (*change.added, *change.redefined)}
    end = len(request.elements)
    for number in range(depth + 1, end + 1):
        if names.intersection(request.elements[number - 1].calls):
            for early in range(max(depth, 1), number):
                if _takes(case, early):
                    return early
            break
    for late in range(end, depth, -1):
        if _takes(case, late):
            return late
    return depth if depth and depth == end and _takes(case, depth) else 0


def _takes(case: PlanInput, behind: int) -> bool:
    native = case.way == "native"
    if not case.splice.legal(case.request, behind, native=native):
        return False
    element = case.request.elements[behind - 1]
    if native or not element.results:
        return True
    # Text of the user's role behind results waits where a model or its template takes it for a
    # new turn.
    return (
        case.route.capabilities.keeps_reasoning
        and "user-after-result" not in case.route.shapes.refuses
    )
