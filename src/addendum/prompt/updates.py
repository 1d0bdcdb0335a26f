"""How tool changes are told: four projections of one log.

Each gives the declarations of the request and, by the surface node they stand behind, the blocks
or the announcement of every update that is told. All are pure functions of the folds and of what
the epoch recorded in its `request/context`.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from addendum.log.events import (
    AssistantMessage,
    CompactionSummary,
    DeveloperMessage,
    Event,
    RequestContext,
    RequestHeader,
    UserMessage,
)
from addendum.log.values import DeveloperText, ToolAddition, ToolSchema
from addendum.prompt import announcements
from addendum.prompt.blocks import Block, Change, Key, Text
from addendum.prompt.wire_facts import SCREENED, WireFacts
from addendum.tools.dispatcher import CALL_TOOL, CALL_TOOL_TEXT, TOOL_DISPATCHER_NAME
from addendum.tools.history import ToolHistory, projected
from addendum.tools.ledger import LedgerUpdate
from addendum.tools.search import TOOL_SEARCH

NO_FACTS = WireFacts()
"""A wire that asks for nothing."""

PLACEHOLDER = ToolSchema(
    "deferred_tools_placeholder",
    "Stands for tools that may be added later in this conversation. Never call it.",
    Raw(b'{"type":"object","properties":{}}'),
    True,
)
"""Declared from the first request on where the first deferred tool would change hidden text."""


class Told(Struct, frozen=True):
    """What a projection says about tools.

    Attributes:
        tools: Declarations in order.
        updates: Blocks by the seq of the node that they stand behind. Under the seq of a
            developer message they stand where that message does.
        bound: Names that the model can call by name at all, on dispatch.
    """

    tools: tuple[ToolSchema, ...]
    updates: Mapping[int, tuple[Block, ...]]
    bound: frozenset[str] = frozenset()


def plain(tool: ToolSchema) -> ToolSchema:
    """Return the definition without its flag."""
    return msgspec.structs.replace(tool, defer_loading=None) if tool.defer_loading else tool


def bound_tools(
    head: Iterable[ToolSchema], context: RequestContext, facts: WireFacts
) -> tuple[ToolSchema, ...]:
    """Return what a dispatch route declares: head's immediate tools, search, dispatcher.

    Those that the endpoint does not take, or not so many of, are reached as deferred ones are.

    Args:
        head: Tools of the session's head header.
        context: What the epoch recorded.
        facts: What its wire asks for.
    """
    tools = [
        tool
        for tool in head
        if not tool.defer_loading
        and tool.definition() not in context.withheld
        and (context.rendering < SCREENED or facts.fits(tool))
    ]
    search = next((tool for tool in tools if tool.name == TOOL_SEARCH.name), TOOL_SEARCH)
    if facts.tools and context.rendering >= SCREENED:
        own = [tool for tool in tools if tool is not search][: max(facts.tools - 2, 0)]
        tools = [tool for tool in tools if tool is search or tool in own]
    if search not in tools:
        tools.append(search)
    return (*tools, CALL_TOOL_TEXT if facts.string_arguments else CALL_TOOL)


def taken_only(
    head: Sequence[ToolSchema], updates: Sequence[LedgerUpdate], withheld: Collection[str]
) -> tuple[tuple[ToolSchema, ...], tuple[LedgerUpdate, ...]]:
    """Return what would be told if definitions that an endpoint refused had never been there.

    A name whose later definition is taken comes with that one; one that lost a taken definition to
    a refused one goes.

    Args:
        head: Tools of the session's head header.
        updates: The ledger's updates.
        withheld: Digests of the refused definitions.
    """
    left_out = {tool.name for tool in head if tool.definition() in withheld}
    told: list[LedgerUpdate] = []
    for update in updates:
        refused = [
            tool.name
            for tool in (*update.added, *update.found, *update.redefined)
            if tool.definition() in withheld
        ]
        back = [each for each in update.redefined if each.name in left_out - {*refused}]
        gone = [each.name for each in update.redefined if each.name in {*refused} - left_out]
        left_out = (left_out | {*refused}) - {tool.name for tool in back}
        made = LedgerUpdate(
            update.seq,
            update.anchor,
            (*(tool for tool in update.added if tool.name not in refused), *back),
            tuple(
                tool for tool in update.redefined if tool.name not in refused and tool not in back
            ),
            (*update.removed, *gone),
            tuple(tool for tool in update.found if tool.name not in refused),
        )
        if made:
            told.append(made)
    return tuple(tool for tool in head if tool.definition() not in withheld), tuple(told)


def by_history(
    context: RequestContext,
    developer: Sequence[Event],
    active: Sequence[ToolSchema],
    history: ToolHistory,
) -> Told:
    """Tell changes by the note's projection: rebind, addition-only, in-history by reference.

    Args:
        context: What the epoch recorded.
        developer: Developer messages of the surface, in order.
        active: Tools of the latest header.
        history: The fold's snapshot.
    """
    mode = None if context.projection == "rebind" else context.projection
    assert mode != "dispatch"
    messages, tools = projected(developer, active, mode, history)
    whole = {event.seq: event.data for event in developer}
    updates: dict[int, tuple[Block, ...]] = {}
    for event in messages:
        data, logged = event.data, whole[event.seq]
        assert isinstance(data, DeveloperMessage) and isinstance(logged, DeveloperMessage)
        blocks: list[Block] = []
        # Numbered as logged: what is left out later must not rename what stays.
        parts = {id(block): part for part, block in enumerate(logged.content)}
        for block in data.content:
            key = (event.seq, parts[id(block)])
            if isinstance(block, DeveloperText):
                blocks.append(Text(*key, "system", block.text, "prompt"))
            elif isinstance(block, ToolAddition):
                blocks.append(Change(*key, block.tool_name, True))
            else:
                blocks.append(Change(*key, block.tool_name, False))
        updates[event.seq] = tuple(blocks)
    if context.withheld:
        refused = {tool.name for tool in tools if tool.definition() in context.withheld}
        tools = tuple(tool for tool in tools if tool.name not in refused)
        left = {seq: tuple(_spared(blocks, refused)) for seq, blocks in updates.items()}
        updates = {seq: blocks for seq, blocks in left.items() if blocks}
    return Told(with_placeholder(context, tools), updates)


def _spared(blocks: Iterable[Block], refused: Collection[str]) -> Iterator[Block]:
    for block in blocks:
        if not (isinstance(block, Change) and block.name in refused):
            yield block


def with_placeholder(
    context: RequestContext, tools: tuple[ToolSchema, ...]
) -> tuple[ToolSchema, ...]:
    """Put the deferred placeholder behind the immediate tools, where the epoch has one."""
    if not context.placeholder or not tools:
        return tools
    last = max((place for place, tool in enumerate(tools) if not tool.defer_loading), default=-1)
    return (*tools[: last + 1], PLACEHOLDER, *tools[last + 1 :])


def never_without_tools(told: Told, events: Sequence[Event]) -> Told:
    """Declare the placeholder where nothing is declared and something once was, or was called.

    Args:
        told: What is told.
        events: The session's log.
    """
    if told.tools or not any(
        event.data.header.tools if isinstance(event.data, RequestHeader) else event.data.calls
        for event in events
        if isinstance(event.data, RequestHeader | AssistantMessage)
    ):
        return told
    return msgspec.structs.replace(told, tools=(PLACEHOLDER,))


def told_in_time(told: Told, nodes: Sequence[Event]) -> Told:
    """Tell what waits for the next user message with the message of a turn that was compacted.

    A compaction in mid-run takes away what had told of the tools, and where user-role text has to
    wait, the run would go on without. All behind the summary is sent anew, so the update that
    follows on it stands behind the turn's own message at no cost.

    Args:
        told: What is told.
        nodes: The surface.
    """
    summary = next((node for node in nodes[:2] if isinstance(node.data, CompactionSummary)), None)
    if summary is None or not told.updates:
        return told
    human, end = None, None
    for node in nodes:
        if isinstance(node.data, UserMessage) and node.seq < summary.seq:
            human = node.seq
        elif isinstance(node.data, UserMessage | AssistantMessage) and node.seq > summary.seq:
            end = node.seq
            break
    if human is None:
        return told
    updates: dict[int, tuple[Block, ...]] = {}
    for anchor, blocks in told.updates.items():
        early = human < anchor and (end is None or anchor < end)
        at = human if early else anchor
        updates[at] = (*updates.get(at, ()), *blocks)
    return told if updates.keys() == told.updates.keys() else Told(told.tools, updates, told.bound)


class ByValue:
    """Tells changes in the history with their definitions, one update after the other.

    Where removals are text, a notice behind each update restates what is off, and a deferred tool
    of the head is defined when it is first told. What returns is defined anew, or told by its name
    where the epoch says so (`readd` text): its definition still stands.

    Args:
        context: What the epoch recorded.
        head: Tools of the session's head header.
    """

    def __init__(self, context: RequestContext, head: Sequence[ToolSchema]) -> None:
        self._text = text = context.removals == "text"
        self._stands = not text or context.readd == "text"
        tools = tuple(tool for tool in head if not (text and tool.defer_loading))
        self.tools = with_placeholder(context, tools)
        self.bound = frozenset[str]()
        self._offered = {tool.name: tool.identity() for tool in tools if not tool.defer_loading}
        self._defined = {tool.name: tool.identity() for tool in tools}

    def take(self, update: LedgerUpdate) -> tuple[Block, ...]:
        """Return the blocks that tell an update."""
        offered, defined = self._offered, self._defined
        blocks: list[Block] = []
        back: list[str] = []
        for tool in update.added + update.found + update.redefined:
            again = tool in update.redefined
            key = (update.seq, len(blocks))
            identity = tool.identity()
            if offered.get(tool.name) == identity or (again and tool.name not in offered):
                continue
            known = self._stands and defined.get(tool.name) == identity
            if known and self._text:
                back.append(tool.name)
            else:
                blocks.append(Change(*key, tool.name, True, None if known else plain(tool)))
            offered[tool.name] = defined[tool.name] = identity
        gone = [name for name in update.removed if name in offered]
        for name in gone:
            del offered[name]
            if not self._text:
                blocks.append(Change(update.seq, len(blocks), name, False))
        if self._text and (blocks or back or gone):
            off = [name for name in defined if name not in offered]
            said = announcements.tool_notice(bool(blocks), off, back)
            blocks.append(Text(update.seq, len(blocks), "system", said, "announcement"))
        return tuple(blocks)


def by_unique_name(head: Sequence[ToolSchema], updates: Sequence[LedgerUpdate]) -> Told:
    """Tell changes by value where a name is defined once for ever (Kimi).

    A removal is told in text, and so is the return of what was removed: its definition stands. A
    tool that is redefined gets its new definition where the old one stands, since nothing else
    can replace it: the prefix breaks there.

    Args:
        head: Tools of the session's head header.
        updates: The ledger's updates.
    """
    tools = {tool.name: tool for tool in head if not tool.defer_loading}
    offered = {name: tool.identity() for name, tool in tools.items()}
    places: dict[str, tuple[list[Block], int]] = {}
    rows: list[tuple[int, list[Block]]] = []
    for update in updates:
        blocks: list[Block] = []
        back: list[str] = []
        # Of a flagged tool that was never told nothing is told anew either.
        again = [tool for tool in update.redefined if tool.name in offered]
        for tool in map(plain, (*update.added, *update.found, *again)):
            name, identity = tool.name, tool.identity()
            if offered.get(name) == identity:
                continue
            if name in tools:
                tools[name] = tool
            elif name in places:
                row, at = places[name]
                # Other content has another key.
                key = (update.seq, 10_000 + len(offered))
                row[at] = _defines(row[at], key, tool)
            else:
                places[name] = (blocks, len(blocks))
                blocks.append(Change(update.seq, len(blocks), name, True, tool))
            if name not in offered and places.get(name, (None, 0))[0] is not blocks:
                back.append(name)
            offered[name] = identity
        gone = [name for name in update.removed if name in offered]
        for name in gone:
            del offered[name]
        if blocks or back or gone:
            off = [name for name in (*tools, *places) if name not in offered]
            said = announcements.tool_notice(bool(blocks), off, back)
            blocks.append(Text(update.seq, len(blocks), "system", said, "announcement"))
        rows.append((update.anchor, blocks))
    told: dict[int, tuple[Block, ...]] = {}
    for anchor, blocks in rows:
        if blocks:
            told[anchor] = (*told.get(anchor, ()), *blocks)
    return Told(tuple(tools.values()), told)


def _defines(block: Block, key: Key, tool: ToolSchema) -> Block:
    """Return an addition with another definition; itself if it is the same."""
    known = isinstance(block, Change) and block.definition == tool
    return block if known else Change(*key, tool.name, True, tool)


class ByDispatch:
    """Tells changes by announcements; everything added is reached through the dispatcher.

    Args:
        head: Tools of the session's head header.
        context: What the epoch recorded.
        facts: What its wire asks for.
        budget: Bytes of definitions that one announcement may hold.
    """

    def __init__(
        self,
        head: Sequence[ToolSchema],
        context: RequestContext,
        facts: WireFacts,
        budget: int = announcements.BUDGET,
    ) -> None:
        self._budget = budget
        self.tools = bound_tools(head, context, facts)
        self._declared = {tool.name: tool.identity() for tool in self.tools}
        self.bound = frozenset(self._declared)
        self._offered = {
            tool.name: tool.identity()
            for tool in head
            if not tool.defer_loading and tool.name in self.bound
        }
        self._announced: dict[str, str] = {}

    def take(self, update: LedgerUpdate) -> tuple[Block, ...]:
        """Return the announcement of an update, if it says anything."""
        offered = self._offered
        added: list[ToolSchema] = []
        changed: list[ToolSchema] = []
        again: list[str] = []
        restored: list[str] = []
        removed: list[str] = []
        for tool in update.added:
            identity = tool.identity()
            if offered.get(tool.name) == identity:
                continue
            if self._declared.get(tool.name) == identity:
                restored.append(tool.name)
            elif tool.name in offered:
                changed.append(tool)
            elif self._announced.get(tool.name) == identity:
                # Its definition stands in the history; a second copy would only cost.
                again.append(tool.name)
            else:
                added.append(tool)
            offered[tool.name] = identity
        # The result of the search has told of what it found.
        offered.update({tool.name: tool.identity() for tool in update.found})
        # A flagged tool that no announcement has told of is nothing to the model: search knows it.
        for tool in update.redefined:
            identity = tool.identity()
            if tool.name in offered and offered[tool.name] != identity:
                if self._declared.get(tool.name) == identity:
                    restored.append(tool.name)
                else:
                    changed.append(tool)
                offered[tool.name] = identity
        for name in update.removed:
            if name in offered:
                removed.append(name)
                del offered[name]
        self._announced |= {tool.name: tool.identity() for tool in (*added, *changed)}
        if not (added or changed or again or restored or removed):
            return ()
        text = announcements.tool_update(
            added,
            changed,
            again,
            restored,
            removed,
            dispatcher=TOOL_DISPATCHER_NAME,
            budget=self._budget,
        )
        return (Text(update.seq, 0, "user", text, "announcement"),)


def _unique(context: RequestContext) -> bool:
    """Say whether a name that is defined in the history can never be defined again."""
    native = context.projection in ("in-history", "addition-only")
    told_by_name = context.definitions == "by-value" and context.readd == "text"
    return native and told_by_name and not context.redefine


class Telling:
    """Follows one ledger: what is told stays, and each new update is told once.

    Args:
        context: What the epoch recorded.
        facts: What its wire asks for.
        budget: Bytes of definitions that one announcement may hold.
    """

    def __init__(
        self,
        context: RequestContext,
        facts: WireFacts = NO_FACTS,
        *,
        budget: int = announcements.BUDGET,
    ) -> None:
        self._context = context
        self._budget = budget
        self._facts = facts
        self._head: Sequence[ToolSchema] | None = None
        self._seen: Sequence[LedgerUpdate] = ()
        self._teller: ByValue | ByDispatch | None = None
        self._told = Told((), {})
        self._taken: tuple[Sequence[object], Sequence[object], Any] = ((), (), None)

    def read(self, head: Sequence[ToolSchema], updates: Sequence[LedgerUpdate]) -> Told:
        """Return what is told; the same object while nothing is new.

        Args:
            head: Tools of the session's head header.
            updates: The ledger's updates.
        """
        if self._context.withheld and self._context.projection != "dispatch":
            if self._taken[0] is not head or self._taken[1] is not updates:
                taken = taken_only(head, updates, self._context.withheld)
                self._taken = (head, updates, taken)
            head, updates = self._taken[2]
        teller, seen = self._teller, self._seen
        if _unique(self._context):
            if self._head is not head or updates is not seen:
                self._head, self._seen = head, updates
                self._told = by_unique_name(head, updates)
            return self._told
        if teller is not None and self._head is head:
            if updates is seen:
                return self._told
            if len(updates) < len(seen) or any(map(operator.is_not, seen, updates)):
                teller = None
        else:
            teller = None
        if teller is None:
            teller, seen = self._begin(head), ()
            self._told = Told(teller.tools, {}, teller.bound)
        told = dict(self._told.updates)
        for update in updates[len(seen) :]:
            if blocks := teller.take(update):
                told[update.anchor] = (*told.get(update.anchor, ()), *blocks)
        self._told = Told(teller.tools, told, teller.bound)
        self._head, self._seen, self._teller = head, updates, teller
        return self._told

    def _begin(self, head: Sequence[ToolSchema]) -> ByValue | ByDispatch:
        if self._context.projection == "dispatch":
            return ByDispatch(head, self._context, self._facts, self._budget)
        return ByValue(self._context, head)


__all__ = [
    "PLACEHOLDER",
    "ByDispatch",
    "ByValue",
    "Telling",
    "Told",
    "bound_tools",
    "by_history",
    "by_unique_name",
    "plain",
    "told_in_time",
    "with_placeholder",
]
