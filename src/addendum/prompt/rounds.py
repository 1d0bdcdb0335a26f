"""What one round says: the nodes in front of an answer, and the answer itself, as blocks.

The only state is what a later round needs of the ones before it: the turn's instructions, what
waits for the next user message, and the ids under which calls went out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import LogError, UnsupportedContent
from addendum.log.approvals import AddedContext
from addendum.log.events import (
    AssistantMessage,
    CompactionSummary,
    Event,
    RequestContext,
    ServerInstructions,
    ToolResult,
    UserMessage,
)
from addendum.log.values import Call, Media
from addendum.prompt import announcements
from addendum.prompt.announcements import escape, escape_json
from addendum.prompt.blocks import Block, Native, Result, Text, Use
from addendum.prompt.long_results import shown
from addendum.prompt.marks import Positions
from addendum.prompt.media import Shown
from addendum.prompt.updates import Told
from addendum.prompt.wire_facts import REASONING, WireFacts
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME, rewrite_direct_call

EMPTY_ANSWER = "(no text)"
"""Stands for an assistant message that leaves nothing to say on this route."""

UNANSWERED = "(not answered)"
"""Stands for an answer that never came, on routes that ask for one at that place."""

SHORT_ID = "[a-zA-Z0-9]{9}"
"""What a call id is like where no others are taken."""


def fleeting(context: RequestContext) -> bool:
    """Say whether reasoning lasts for its turn only.

    A moved tail vanishes with its turn, and with it what that turn's reasoning was bound to.
    """
    return context.tail == "moved" and context.reasoning_bound


class Group:
    """The nodes between two assistant messages, sorted by where they are said.

    Attributes:
        users: What people, tools and servers said, in order.
        prompts: Prompts that were appended.
        updates: Blocks that tell changes of tools.
        human: Whether a person's message is among `users`.
        last: Seq of the last of `users`.
        end: Seq of the last event that adds to it.
    """

    __slots__ = ("end", "human", "last", "prompts", "updates", "users")

    def __init__(self) -> None:
        self.users: list[Event] = []
        self.prompts: list[Block] = []
        self.updates: list[Block] = []
        self.human = False
        self.last = self.end = -1

    def take(self, other: Group) -> None:
        """Take all of a later group in."""
        self.users += other.users
        self.prompts += other.prompts
        self.updates += other.updates
        self.human = self.human or other.human
        self.last, self.end = max(self.last, other.last), max(self.end, other.end)


class Rounds:
    """Says one round after the other.

    Args:
        context: What the epoch recorded.
        facts: What its wire asks for.
    """

    def __init__(self, context: RequestContext, facts: WireFacts) -> None:
        self._context = context
        self._facts = facts
        self._leaves = fleeting(context)
        self._waiting: list[Block] = []
        self._tail: str | None = None
        self._ids: dict[str, str] = {}
        self._shown = Shown(context.shows)
        # Which answer each id belongs to. Saying a round again gives it the same ids.
        self._given: dict[str, int] = {}
        self._pattern = SHORT_ID if "long-call-id" in context.avoids else facts.call_id

    def ahead(self) -> Rounds:
        """Return what goes on from here and leaves this one as it is."""
        copy = Rounds(self._context, self._facts)
        copy._waiting, copy._tail = self._waiting, self._tail
        copy._ids, copy._given = self._ids, self._given
        copy._shown = self._shown.copy()
        return copy

    def say(
        self, group: Group, index: int, positions: Positions, behind: Block | None = None
    ) -> list[Block]:
        """Return a group's blocks: user turn, then appended prompts, updates, scoped tail.

        Args:
            group: The group.
            index: Index of its first block.
            positions: Takes where its human message is.
            behind: The block in front of it that was sent and not answered, on a route that asks
                for an answer.
        """
        said = _UserTurn(self._context, behind)
        later: list[Block] = []
        wait = self._facts.waits and not group.human
        leaves = self._leaves
        apart: list[Text] = []
        for node in group.users:
            data = node.data
            match data:
                case UserMessage():
                    said.extend(apart)
                    apart = []
                    self._tail = data.tail
                    said.open_user(node.seq)
                    if data.tail is not None and self._context.tail == "kept":
                        text = announcements.turn_instructions(data.tail)
                        said.append(Text(node.seq, 1, "user", text, "tail"))
                    positions.take_human(
                        index + len(said),
                        node.seq,
                        (data.tail is not None and self._context.tail == "moved")
                        or (leaves and not self._facts.input_marks),
                        fleeting=leaves,
                    )
                    said.append(Text(node.seq, 0, "user", escape(data.text), "human"))
                case ToolResult():
                    call_id = self._ids.get(data.call_id, data.call_id)
                    media, note = self._shown.take(data.media) if data.media else ((), "")
                    if media and self._facts.media_apart:
                        apart.append(_apart(node.seq, data.name, call_id, media))
                        media = ()
                    text = escape(shown(data.text, data.shown)) + note
                    if data.label is not None or data.unknown:
                        text += announcements.output_note(data.label, data.unknown)
                    said.append(Result(node.seq, 0, call_id, data.name, text, data.is_error, media))
                case AddedContext():
                    text = announcements.added_context(data.source, data.text)
                    last = said.blocks[-1] if said.blocks else None
                    if wait and isinstance(last, Result):
                        # No user-role text may stand in the midst of a run there.
                        longer = f"{last.text}\n\n{text}"
                        said.blocks[-1] = msgspec.structs.replace(last, text=longer)
                    else:
                        said.append(Text(node.seq, 0, "user", text, "context"))
                case ServerInstructions():
                    text = announcements.server_instructions(data.server, data.text)
                    server = Text(node.seq, 0, "user", text, "server")
                    later.append(server) if wait else said.append(server)
                case CompactionSummary() if data.turn < 0:
                    said.append(Text(node.seq, 0, "user", data.text, "instruction"))
                case CompactionSummary():
                    positions.take_summary(node.seq)
                    text = announcements.summary(data.text)
                    said.append(Text(node.seq, 0, "user", text, "summary"))
                case _:  # pragma: no cover - _join admits no other
                    pass
        said.extend(apart)
        native: list[Block] = []
        for block in group.updates:
            (later if _user_text(block) else native).append(block)
        if native and not group.users:
            raise UnsupportedContent(
                "a tool update has no user message or tool result in front of it; "
                "send it with the next user message",
                route=self._context.route,
                seq=native[0].seq,
            )
        if wait:
            self._waiting = [*self._waiting, *later]
        else:
            said.extend(self._waiting)
            said.extend(later)
            self._waiting = []
        said.extend(group.prompts)
        said.extend(native)
        if self._context.tail == "scoped" and self._tail is not None and group.users:
            said.append(Text(group.last, 2, "system", self._tail, "tail", scoped=True))
        return said.blocks

    def assistant(self, node: Event, data: AssistantMessage, told: Told, floor: int) -> list[Block]:
        """Return an answer's blocks: as it came where this epoch made it, else written anew."""
        said: list[Block] = []
        context = self._context
        silent = True
        if (
            data.native
            and data.wire == context.wire
            and data.route == context.route
            and data.form == context.form
        ):
            # The call goes out under its own id, and so does its result.
            self._ids = {call.id: call.id for call in data.calls}
            if "long-call-id" in context.avoids:
                self._ids = {call.id: self._call_id(call.id, node.seq) for call in data.calls}
            self._given.update(dict.fromkeys(self._ids.values(), node.seq))
            guard = context.projection == "dispatch" and not context.reasoning_bound
            unpaired = False
            for part, raw in enumerate(data.native):
                try:
                    kind = self._facts.kind(raw)
                except msgspec.MsgspecError:
                    raise LogError(
                        f"event {node.seq} holds no item of {context.wire}; "
                        "restore the store from a copy",
                        route=context.route,
                        seq=node.seq,
                    ) from None
                if kind in REASONING and node.seq < floor:
                    unpaired = True
                    continue
                if guard and kind not in REASONING:
                    raw = _escaped(raw)
                bare = raw if self._facts.bare is None else self._facts.bare(raw)
                reasons = bare is not raw
                if reasons and node.seq < floor:
                    raw, unpaired = bare, True
                    if not bytes(raw):
                        continue
                if self._facts.shaped is not None and context.avoids:
                    raw = self._facts.shaped(raw, context.avoids, self._ids)
                # Without its reasoning it is another content, so it has another key.
                own = -1 - part if unpaired else part
                said.append(Native(node.seq, own, raw, kind, unpaired, reasons))
                silent = silent and kind in REASONING
        else:
            if data.text.strip():
                said.append(Text(node.seq, 0, "assistant", escape(data.text), "answer"))
            self._ids = {call.id: self._call_id(call.id, node.seq) for call in data.calls}
            for part, call in enumerate(data.calls, 1):
                said.append(self._use(node.seq, part, call, told))
            silent = not said
        if silent:
            said.append(Text(node.seq, 9_999, "assistant", EMPTY_ANSWER, "answer"))
        return said

    def _use(self, seq: int, part: int, call: Call, told: Told) -> Use:
        if self._context.projection == "dispatch" and call.name not in told.bound:
            return Use(
                seq,
                part,
                self._ids[call.id],
                TOOL_DISPATCHER_NAME,
                escape_json(
                    rewrite_direct_call(call, string_arguments=self._facts.string_arguments)
                ),
            )
        return Use(seq, part, self._ids[call.id], call.name, escape_json(call.arguments))

    def _call_id(self, given: str, seq: int) -> str:
        """Return the id that a call of another route goes out under.

        It is its own where the route takes it and no earlier answer has used it; else a digest.
        """
        pattern = self._pattern
        sent = given if re.fullmatch(pattern, given) else _digest_id(given, pattern)
        if self._given.get(sent, seq) != seq:
            sent = _digest_id(f"{seq} {given}", pattern)
        self._given[sent] = seq
        return sent


class _UserTurn:
    """The blocks of a user's turn as they are put together, in a shape that the route takes.

    Args:
        context: What the epoch recorded.
        behind: As for `Rounds.say`.

    Attributes:
        blocks: The blocks.
    """

    def __init__(self, context: RequestContext, behind: Block | None) -> None:
        self.blocks: list[Block] = []
        self._between = "user-after-result" in context.avoids
        self._behind = behind

    def __len__(self) -> int:
        return len(self.blocks)

    def open_user(self, seq: int) -> None:
        """Put what has to stand in front of a message of the user's.

        Args:
            seq: Seq of the event that it comes from.
        """
        last = self.blocks[-1] if self.blocks else self._behind
        waits = self._between and isinstance(last, Result)
        unanswered = not self.blocks and last is not None and _user_text(last)
        if waits or unanswered:
            self.blocks.append(Text(seq, 9_998, "assistant", UNANSWERED, "answer"))

    def append(self, block: Block) -> None:
        """Add a block."""
        if _user_text(block):
            self.open_user(block.seq)
        self.blocks.append(block)

    def extend(self, blocks: Iterable[Block]) -> None:
        """Add blocks."""
        for block in blocks:
            self.append(block)


def _digest_id(text: str, pattern: str) -> str:
    usual = f"call_{encoding.digest(text)[:24]}"
    # Some take nine letters and digits, and nothing else.
    return usual if re.fullmatch(pattern, usual) else encoding.digest(text)[:9]


def _apart(seq: int, tool: str, call_id: str, media: tuple[Media, ...]) -> Text:
    """Return the user message that holds a result's files where the result itself cannot."""
    said = f"The files of the result of call {call_id}, in their order."
    text = announcements.added_context(tool, said)
    return Text(seq, 3, "user", text, "context", media=media)


def _user_text(block: Block) -> bool:
    return isinstance(block, Text) and block.role == "user"


def _escaped(raw: Raw) -> Raw:
    text = bytes(raw).decode()
    escaped = escape_json(text)
    return raw if escaped == text else Raw(escaped.encode())


__all__ = ["EMPTY_ANSWER", "SHORT_ID", "UNANSWERED", "Group", "Rounds", "fleeting"]
