"""From the log to the prompt: `log -> folds -> blocks`, a pure function told incrementally.

All that a request says follows from the log and from what its epoch recorded. A new `Projector`
gives the same answer as one that has followed the session; the latter keeps what can no longer
change, everything up to the last assistant message, so that a request's cost follows what is new.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from addendum import encoding
from addendum.log.approvals import AddedContext
from addendum.log.events import (
    AssistantMessage,
    CompactionSummary,
    DeveloperMessage,
    Event,
    RequestContext,
    RequestHeader,
    RequestSent,
    ServerInstructions,
    SystemMessage,
    ToolResult,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.prompt import announcements
from addendum.prompt.blocks import Block, Change, Prompt, Result, Text
from addendum.prompt.marks import Positions, plan_marks
from addendum.prompt.rounds import Group, Rounds, fleeting
from addendum.prompt.updates import (
    Telling,
    Told,
    by_history,
    never_without_tools,
    told_in_time,
)
from addendum.prompt.wire_facts import REASONING, WireFacts
from addendum.tools.history import HistoryFold
from addendum.tools.ledger import Ledger

_chains = itertools.count(1)

_NO_MARKS = WireFacts(marks=0)
_SAID = frozenset({UserMessage, ToolResult, AddedContext, ServerInstructions, CompactionSummary})
"""Types of nodes that are said in a user's or a tool's turn."""


class Projector:
    """Projects one session's log on one epoch.

    Args:
        context: What the epoch recorded.
        facts: What its wire asks for.
    """

    def __init__(self, context: RequestContext, facts: WireFacts) -> None:
        self.context = context
        self.facts = facts
        self._history = HistoryFold()
        self._ledger = Ledger()
        self._telling = Telling(context, facts)
        self._told: Told | None = None
        self._told_for: tuple[object, ...] = ()
        self._settled_told: Told | None = None
        self._settled_for = (-1, -1)
        self._key = ""
        self._key_for: int | None = None
        self._system: tuple[SystemMessage | None, tuple[Text, ...]] = (None, ())
        self._head = -1
        self._events: Sequence[Event] = ()
        # What was sent and not answered stays a message of its own there.
        self._apart = "user-after-user" in context.avoids
        self._reset()

    def _reset(self) -> None:
        self._chain = next(_chains)
        self._blocks: list[Block] = []
        self._nodes = 0
        self._positions = Positions(first_tail_behind=self.facts.first_tail_behind)
        self._used: dict[int, tuple[Block, ...]] = {}
        self._silent: set[int] = set()
        self._last_assistant: int | None = None
        self._prompt: Event | None = None
        self._changes = self._images = False
        self._rounds = Rounds(self.context, self.facts)

    # -- the request ------------------------------------------------------------------------

    def prompt(self, log: SessionLog, *, instruction: str | None = None, floor: int = -1) -> Prompt:
        """Return what the next request says.

        Args:
            log: The session's log.
            instruction: Text of a last user message that is not in the log (a compaction).
            floor: Seq below which reasoning is left out: a declared break ended its validity.

        Raises:
            UnsupportedContent: The history cannot be said on this route.
        """
        told = self._tell(log)
        self._events = log.events
        nodes = log.surface.nodes
        self._head = nodes[0].seq if nodes and isinstance(nodes[0].data, SystemMessage) else -1
        end = len(nodes)
        if fleeting(self.context):
            end = self._human(nodes)
            floor = max(floor, nodes[end].seq) if end < len(nodes) else floor
        state = (log.surface.generation, -1 if fleeting(self.context) else floor)
        if state != self._settled_for or self._told_otherwise(told):
            self._reset()
            self._settled_for = state
        self._settled_told = told
        self._settle(nodes, end, told, floor)
        positions = self._positions.copy()
        kept = self._last_assistant
        opened = self._open(nodes, told, floor, positions, instruction, len(log))
        # Only what is settled may be kept.
        self._last_assistant = kept
        source = self._system_source(nodes)
        if source is not self._system[0]:
            self._system = (source, _system_texts(source))
        system = self._system[1]
        moved = self._moved_tail(nodes)
        if moved is not None and not self.context.caching:
            system, moved = (*system, msgspec.structs.replace(moved, role="system")), None
        human = positions.human
        at = len(self._blocks) + len(opened) if human is None else positions.tail_at(human)
        marks = plan_marks(
            told.tools,
            system,
            self._blocks,
            opened,
            positions,
            self.facts if self.context.caching else _NO_MARKS,
            tail_at=at if moved is not None or fleeting(self.context) else None,
            fleeting=fleeting(self.context),
        )
        return Prompt(
            self.context,
            told.tools,
            system,
            self._blocks,
            len(self._blocks),
            tuple(opened),
            moved,
            at,
            marks,
            self._chain,
            self._cache_key(log.events),
            self._changes or any(isinstance(block, Change) for block in opened),
            self.facts.images_count and (self._images or any(map(_has_image, opened))),
        )

    def _human(self, nodes: Sequence[Event]) -> int:
        """Return the place of the newest human message; behind all nodes if there is none."""
        for place in range(len(nodes) - 1, -1, -1):
            if isinstance(nodes[place].data, UserMessage):
                return place
        return len(nodes)

    # -- tools ------------------------------------------------------------------------------

    def _tell(self, log: SessionLog) -> Told:
        context = self.context
        if context.projection == "dispatch" or context.definitions == "by-value":
            self._ledger.read(log)
            told = self._telling.read(self._ledger.head, self._ledger.updates())
            if not self.facts.waits or context.projection != "dispatch":
                return told
            waiting = (log.surface.generation, told)
            if self._told is None or not _identical(waiting, self._told_for):
                self._told, self._told_for = told_in_time(told, log.surface.nodes), waiting
            return self._told
        history = self._history.read(log.rare)
        key = (log.surface.generation, history, self._history.active)
        if self._told is None or not _identical(key, self._told_for):
            developer = log.surface.notes[DeveloperMessage]
            self._told = by_history(context, developer, self._history.active, history)
            if self.facts.needs_tools:
                self._told = never_without_tools(self._told, log.events)
            self._told_for = key
        return self._told

    def _told_otherwise(self, told: Told) -> bool:
        """Say whether an update that is settled would be told otherwise now."""
        if told is self._settled_told:
            return False
        return not (
            self._used.items() <= told.updates.items() and self._silent.isdisjoint(told.updates)
        )

    def _cache_key(self, events: Sequence[Event]) -> str:
        """Return the digest of the session's head and of the static text that it began with.

        Another key finds nothing, so it changes with the head alone.
        """
        fold = self._ledger if self._ledger.consumed else self._history
        # A new head may have the same tools, and another text.
        if self._key_for != fold.head_seq or fold.head_seq is None:
            names = [tool.identity() for tool in fold.head if not tool.defer_loading]
            self._key = encoding.digest(encoding.encode([names, _static_of_head(events)]))[:32]
            self._key_for = fold.head_seq
        return self._key

    # -- prompt text ------------------------------------------------------------------------

    def _system_source(self, nodes: Sequence[Event]) -> SystemMessage | None:
        """Return the prompt that stands in front of the messages."""
        if not nodes:
            return None
        found = None if self.context.prompt_update else self._prompt
        if not self.context.prompt_update:
            # A route that reads one prompt reads the latest. An emptied one says nothing.
            for node in nodes[self._nodes :]:
                if isinstance(node.data, SystemMessage) and not node.data.empty:
                    found = node
        elif isinstance(nodes[0].data, SystemMessage):
            found = nodes[0]
        if found is None or not isinstance(found.data, SystemMessage):
            return None
        return found.data

    def _moved_tail(self, nodes: Sequence[Event]) -> Text | None:
        if self.context.tail != "moved":
            return None
        place = self._human(nodes)
        data = nodes[place].data if place < len(nodes) else None
        if not isinstance(data, UserMessage) or data.tail is None:
            return None
        text = announcements.turn_instructions(data.tail)
        return Text(nodes[place].seq, 1, "user", text, "tail")

    # -- history ----------------------------------------------------------------------------

    def _settle(self, nodes: Sequence[Event], last: int, told: Told, floor: int) -> None:
        """Take in whole rounds: everything up to the last assistant message in front of `last`."""
        while last > self._nodes and not isinstance(nodes[last - 1].data, AssistantMessage):
            last -= 1
        if last == self._nodes:
            return
        fresh = nodes[self._nodes : last]
        said, _ = self._say(self._rounds, fresh, told, floor, self._positions, settling=True)
        self._changes = self._changes or any(isinstance(block, Change) for block in said)
        if self.facts.images_count:
            self._images = self._images or any(map(_has_image, said))
        self._blocks.extend(said)
        self._nodes = last

    def _sent_between(self, first: int, last: int) -> bool:
        """Say whether a turn's request left between two events, and so said the first alone."""
        return any(
            isinstance(event.data, RequestSent) and event.data.purpose == "turn"
            for event in self._events[first + 1 : last]
        )

    def _speak(
        self, rounds: Rounds, groups: Sequence[Group], start: int, at: Positions
    ) -> list[Block]:
        """Return the blocks of a user's turn; it has several groups if some stayed unanswered."""
        whole = [groups[0]]
        for group in groups[1:]:
            # What nobody said since is told with what was said before.
            if group.users:
                whole.append(group)
            else:
                whole[-1].take(group)
        said: list[Block] = []
        for group in whole:
            behind = said[-1] if said else None
            said.extend(rounds.say(group, start + len(said), at, behind))
        return said

    def _say(
        self,
        rounds: Rounds,
        nodes: Sequence[Event],
        told: Told,
        floor: int,
        at: Positions,
        *,
        settling: bool,
    ) -> tuple[list[Block], list[Group]]:
        """Return the blocks up to the last assistant message, and the nodes behind it."""
        said: list[Block] = []
        start = len(self._blocks)
        groups = [self._group(told, settling=settling)]
        for node in nodes:
            data = node.data
            if not isinstance(data, AssistantMessage):
                if self._apart and groups[-1].users:
                    if self._sent_between(groups[-1].end, node.seq):
                        groups.append(Group())
                self._join(groups[-1], node, told, settling=settling)
                continue
            said.extend(self._speak(rounds, groups, start + len(said), at))
            if data.route == self.context.route:
                at.answered(start + len(said), node.seq)
            said.extend(rounds.assistant(node, data, told, floor))
            self._last_assistant = node.seq
            groups = [self._group(told, settling=settling)]
        return said, groups

    def _open(
        self,
        nodes: Sequence[Event],
        told: Told,
        floor: int,
        positions: Positions,
        instruction: str | None,
        seq: int,
    ) -> list[Block]:
        """Return the blocks behind what is settled."""
        rounds = self._rounds.ahead()
        fresh = nodes[self._nodes :]
        said, groups = self._say(rounds, fresh, told, floor, positions, settling=False)
        if instruction is not None:
            if self._apart and groups[-1].users and self._sent_between(groups[-1].end, seq):
                groups.append(Group())
            groups[-1].users.append(Event(seq, 0, CompactionSummary(instruction, -1)))
        said.extend(self._speak(rounds, groups, len(self._blocks) + len(said), positions))
        return said

    def _group(self, told: Told, *, settling: bool) -> Group:
        group = Group()
        if self._last_assistant is not None:
            self._take_updates(group, self._last_assistant, told, settling=settling)
        return group

    def _take_updates(self, group: Group, seq: int, told: Told, *, settling: bool) -> None:
        found = told.updates.get(seq)
        if found:
            group.updates.extend(found)
            if settling:
                self._used[seq] = found

    def _join(self, group: Group, node: Event, told: Told, *, settling: bool) -> None:
        data = node.data
        group.end = node.seq
        if type(data) in _SAID:
            group.users.append(node)
            group.last = node.seq
            group.human = group.human or isinstance(data, UserMessage)
        elif isinstance(data, SystemMessage):
            if settling and not data.empty:
                self._prompt = node
            # The head stands in front of all messages; a later prompt joins the history.
            if self.context.prompt_update and not data.empty and node.seq != self._head:
                text = "\n\n".join(part for part in (data.static, data.conversation) if part)
                group.prompts.append(Text(node.seq, 0, "system", text, "prompt"))
        elif isinstance(data, DeveloperMessage) and settling and node.seq not in told.updates:
            self._silent.add(node.seq)
        self._take_updates(group, node.seq, told, settling=settling)


def project(
    log: SessionLog,
    context: RequestContext,
    facts: WireFacts,
    *,
    instruction: str | None = None,
    floor: int = -1,
) -> Prompt:
    """Return what a request says, from nothing but the log and the epoch's context.

    Args:
        log: The session's log.
        context: What the epoch recorded.
        facts: What its wire asks for.
        instruction: As for `Projector.prompt`.
        floor: As for `Projector.prompt`.
    """
    return Projector(context, facts).prompt(log, instruction=instruction, floor=floor)


def _static_of_head(events: Sequence[Event]) -> str:
    """Return the static text that was in force when the session's first header was logged.

    A later head may have the same tools: then no byte changes, and neither may the key.
    """
    latest = ""
    for event in events:
        if isinstance(event.data, SystemMessage):
            latest = event.data.static
        elif isinstance(event.data, RequestHeader):
            return latest
    return ""


def _system_texts(source: SystemMessage | None) -> tuple[Text, ...]:
    parts = enumerate((source.static, source.conversation)) if source else ()
    return tuple(Text(-1, part, "system", text, "prompt") for part, text in parts if text)


def _has_image(block: Block) -> bool:
    if not isinstance(block, Result) or not block.media:
        return False
    return any(each.media_type.startswith("image/") for each in block.media)


def _identical(one: Sequence[object], other: Sequence[object]) -> bool:
    """Compare by identity, integers by value: what folds hand out is kept and immutable."""
    return len(one) == len(other) and all(
        a is b or (isinstance(a, int) and a == b) for a, b in zip(one, other, strict=True)
    )


__all__ = ["REASONING", "Projector", "WireFacts", "project"]
