"""The tool history: which declarations a request series has, and every update since.

This is the exact fold and projection that adapters with tool updates need. It is independent of
what a route can do; `project_tool_updates` brings the route's mode in. By-value and dispatch use
the session-long fold in `addendum.tools.ledger` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from addendum.checked import SHALLOW, check_fields, checks_arguments
from addendum.errors import LogError
from addendum.log.events import DeveloperMessage, Event, RequestHeader
from addendum.log.values import DeveloperBlock, ToolAddition, ToolRemoval, ToolSchema

Mode: TypeAlias = Literal["addition-only", "in-history"] | None


class ToolUpdate(Struct, frozen=True):
    """One developer message of the current series.

    Attributes:
        message_id: The message's identity, its seq.
        additions: Full definitions of what it added; empty for a message that only removes.
    """

    message_id: int
    additions: Annotated[tuple[ToolSchema, ...], SHALLOW] = ()

    def __post_init__(self) -> None:
        check_fields(self)


class ToolHistory(Struct, frozen=True):
    """Initial declarations of the current series, and its updates in order."""

    tools: Annotated[tuple[ToolSchema, ...], SHALLOW] = ()
    updates: Annotated[tuple[ToolUpdate, ...], SHALLOW] = ()

    def __post_init__(self) -> None:
        check_fields(self)


EMPTY = ToolHistory()


class HistoryFold:
    """Folds committed headers and developer messages; later reads touch unseen events only.

    Attributes:
        baseline: Seq of the header that the current series starts from, or None.
        head: Tools of the session's head header.
        head_seq: Its seq, or None before the first.
        first: Tools of the session's first header, by name: the agent's own.
        offered: Names that the series has told as callable, and has not taken back.
        consumed: How many events were read so far.
    """

    kinds: ClassVar[frozenset[type]] = frozenset({RequestHeader, DeveloperMessage})

    def __init__(self) -> None:
        self.baseline: int | None = None
        self.head: tuple[ToolSchema, ...] = ()
        self.head_seq: int | None = None
        self.first: dict[str, ToolSchema] = {}
        self.offered: set[str] = set()
        self.consumed = 0
        self._headers: dict[int, tuple[ToolSchema, ...]] = {}
        self._declared: dict[str, ToolSchema] = {}
        self._active: tuple[ToolSchema, ...] = ()
        self._available: set[str] = set()
        self._snapshot = EMPTY
        self._result = EMPTY
        self._stale = False

    def read(self, events: Sequence[Event]) -> ToolHistory:
        """Return the immutable snapshot after all of `events`.

        Raises:
            LogError: An addition names a tool that its header does not define.
        """
        for place in range(self.consumed, len(events)):
            self.take(events[place])
        self.consumed = len(events)
        return self.history

    def take(self, event: Event) -> None:
        """Take in the next event of the log.

        Raises:
            LogError: An addition names a tool that its header does not define.
        """
        data = event.data
        if isinstance(data, RequestHeader):
            self._take_header(event.seq, data)
            self._stale = True
        elif isinstance(data, DeveloperMessage):
            self._take_message(event.seq, data)
            self._stale = True

    @property
    def history(self) -> ToolHistory:
        """The immutable snapshot after all that was taken in."""
        if self._stale:
            # Else a log from before updates were emitted, or a crash between header and message.
            self._result = self._snapshot if self._complete else ToolHistory(self._active)
            self._stale = False
        return self._result

    @property
    def active(self) -> tuple[ToolSchema, ...]:
        """Tools of the latest header read."""
        return self._active

    @property
    def _complete(self) -> bool:
        return {tool.name for tool in self._active} == self._available

    def _take_header(self, seq: int, data: RequestHeader) -> None:
        tools = data.header.tools
        if not self._headers:
            self.first = {tool.name: tool for tool in tools}
        if not self._headers or data.head:
            self.head, self.head_seq = tools, seq
        self._headers[seq] = tools
        if (
            self.baseline is None
            or data.new_series
            or not self._complete
            or any(
                tool.name in self._declared
                and self._declared[tool.name].identity() != tool.identity()
                for tool in tools
            )
        ):
            self.baseline = seq
            self._declared = {tool.name: tool for tool in tools}
            self._available = set(self._declared)
            self.offered = {tool.name for tool in tools if not tool.defer_loading}
            self._snapshot = ToolHistory(tools)
        self._active = tools

    def _take_message(self, seq: int, data: DeveloperMessage) -> None:
        additions: list[ToolSchema] = []
        header = -1 if data.header_seq is None else data.header_seq
        defined = {tool.name: tool for tool in self._headers.get(header, ())}
        for block in data.content:
            if isinstance(block, ToolAddition):
                tool = defined.get(block.tool_name)
                if tool is None:
                    raise LogError(
                        f"no definition of {block.tool_name!r} in header {data.header_seq}; "
                        "the log was changed by hand",
                        seq=seq,
                    )
                additions.append(tool)
                self._declared.setdefault(tool.name, tool)
                self._available.add(tool.name)
                self.offered.add(tool.name)
            elif isinstance(block, ToolRemoval):
                self._available.discard(block.tool_name)
                self.offered.discard(block.tool_name)
        self._snapshot = ToolHistory(
            self._snapshot.tools,
            (*self._snapshot.updates, ToolUpdate(seq, tuple(additions))),
        )


_M = TypeVar("_M", bound=Event)


def undeferred(tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Return the tools without the deferral flag."""
    return tuple(
        msgspec.structs.replace(tool, defer_loading=None) if tool.defer_loading else tool
        for tool in tools
    )


def deferred(tool: ToolSchema) -> ToolSchema:
    """Return the tool with the deferral flag."""
    return tool if tool.defer_loading else msgspec.structs.replace(tool, defer_loading=True)


def declarations(history: ToolHistory) -> tuple[ToolSchema, ...]:
    """Return all declarations of the series: initial ones, then later ones, deferred."""
    later = list(definitions(history).values())[len(history.tools) :]
    return (*history.tools, *(deferred(tool) for tool in later))


def definitions(history: ToolHistory) -> dict[str, ToolSchema]:
    """Return the series' definitions as they were logged, by name, in order of declaration."""
    found = {tool.name: tool for tool in history.tools}
    for update in history.updates:
        for tool in update.additions:
            found.setdefault(tool.name, tool)
    return found


@checks_arguments
def project_tool_updates(
    messages: Sequence[_M],
    active_tools: Sequence[ToolSchema],
    mode: Mode,
    history: ToolHistory | None,
) -> tuple[Sequence[_M], tuple[ToolSchema, ...]]:
    """Say the tool updates of a request as the route's mode allows.

    Args:
        messages: The request's surface events; developer messages are the ones concerned.
        active_tools: What may be called now, in header order.
        mode: None (no updates), `addition-only` or `in-history`.
        history: The fold's snapshot; None if it is not known.

    Returns:
        The messages (the same object if nothing was filtered) and the tool declarations.

    Raises:
        ConfigurationError: The mode is none of the three, or something is of another type.
    """
    return projected(messages, active_tools, mode, history)


def projected(
    messages: Sequence[_M],
    active_tools: Sequence[ToolSchema],
    mode: Mode,
    history: ToolHistory | None,
) -> tuple[Sequence[_M], tuple[ToolSchema, ...]]:
    """As `project_tool_updates`, of what we made ourselves: nothing is looked at twice."""
    if mode is None:
        return _without_updates(messages), undeferred(_known_order(active_tools, history))
    if history is None or not _current(messages, active_tools, history):
        return _without_updates(messages), _offering(active_tools)
    declared = declarations(history)
    active = {tool.name for tool in active_tools}
    if mode == "addition-only":
        declared = tuple(tool for tool in declared if tool.name in active)
    if declared and all(tool.defer_loading for tool in declared):
        return _without_updates(messages), undeferred(active_tools)
    return filter_updates(messages, declared, mode, history), declared


def filter_updates(
    messages: Sequence[_M],
    declared: Sequence[ToolSchema],
    mode: Literal["addition-only", "in-history"],
    history: ToolHistory,
) -> Sequence[_M]:
    """Keep the update blocks that mean something in this series.

    Args:
        messages: Surface events.
        declared: The declarations of the request.
        mode: The route's mode.
        history: The fold's snapshot.
    """
    ids = {update.message_id for update in history.updates}
    names = {tool.name for tool in declared}
    offered = {tool.name for tool in history.tools if not tool.defer_loading}
    kept: list[_M] = []
    changed = False
    for message in messages:
        data = message.data
        if not isinstance(data, DeveloperMessage):
            kept.append(message)
            continue
        if message.seq not in ids:
            changed = True
            continue
        content = tuple(
            block for block in data.content if _means_something(block, mode, names, offered)
        )
        if content and content == data.content:
            kept.append(message)
        else:
            changed = True
            if content:
                copy = msgspec.structs.replace(data, content=content)
                kept.append(msgspec.structs.replace(message, data=copy))
    return kept if changed else messages


def _means_something(
    block: DeveloperBlock,
    mode: Literal["addition-only", "in-history"],
    declared: set[str],
    offered: set[str],
) -> bool:
    """Say whether a block stays, and follow what is offered."""
    if isinstance(block, ToolAddition):
        if block.tool_name not in declared or block.tool_name in offered:
            return False
        offered.add(block.tool_name)
    elif isinstance(block, ToolRemoval):
        if mode != "in-history" or block.tool_name not in offered:
            return False
        offered.discard(block.tool_name)
    return True


def _offering(tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Return the tools with their flags, unless all have one: providers refuse such a list."""
    return undeferred(tools) if all(tool.defer_loading for tool in tools) else tuple(tools)


def _without_updates(messages: Sequence[_M]) -> Sequence[_M]:
    kept = [message for message in messages if not isinstance(message.data, DeveloperMessage)]
    return messages if len(kept) == len(messages) else kept


def _known_order(
    active_tools: Sequence[ToolSchema], history: ToolHistory | None
) -> tuple[ToolSchema, ...]:
    """Order the active tools as they were first declared, new names last, in their first bytes.

    A tool list that only grows at the end shares the longest prefix with the one before.
    """
    if history is None:
        return tuple(active_tools)
    known = definitions(history)
    rank = {name: place for place, name in enumerate(known)}
    same = [
        known[tool.name]
        if tool.name in known and known[tool.name].identity() == tool.identity()
        else tool
        for tool in active_tools
    ]
    return tuple(sorted(same, key=lambda tool: rank.get(tool.name, len(rank))))


def _current(
    messages: Sequence[Event], active_tools: Sequence[ToolSchema], history: ToolHistory
) -> bool:
    """Say whether history, messages and active tools belong together."""
    wanted = {update.message_id for update in history.updates}
    if [
        message.seq
        for message in messages
        if isinstance(message.data, DeveloperMessage) and message.seq in wanted
    ] != [update.message_id for update in history.updates]:
        return False
    known = definitions(history)
    if any(
        tool.name not in known or known[tool.name].identity() != tool.identity()
        for tool in active_tools
    ):
        return False
    return reached(history, messages) == {tool.name for tool in active_tools}


def reached(history: ToolHistory, messages: Sequence[Event]) -> set[str]:
    """Return the names active after the last update."""
    names = {tool.name for tool in history.tools}
    ids = {update.message_id for update in history.updates}
    for message in messages:
        if isinstance(message.data, DeveloperMessage) and message.seq in ids:
            for block in message.data.content:
                if isinstance(block, ToolAddition):
                    names.add(block.tool_name)
                elif isinstance(block, ToolRemoval):
                    names.discard(block.tool_name)
    return names
