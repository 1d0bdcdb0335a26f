"""Where cache marks go: at most four, planned once, for every wire that has marks.

A provider stores a prefix only where a mark stood, and looks back from each mark over a bounded
number of positions. So the prompt is marked at its stable ends (tools, static text), at the end,
and at the place where the last answered request stored its own end (the lagging mark): however
wide a change is, that prefix is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Raw

from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Block, Change, Marks, Native, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts, takes_mark

TakesMark: TypeAlias = Callable[[str, Raw], bool]

ROOM = 5
"""Positions of a lookback that are left for what a provider counts and we do not.

With more than the rest between two marks, the tools mark gives way to the lagging one.
"""


class Positions:
    """Where the newest human message and the ends of answered requests are, by block index.

    Attributes:
        human: Index of the newest human message, or None.
        human_seq: Its seq.
        lasting: Index in front of which blocks stand in later turns too; None for all of them.

    Args:
        first_tail_behind: Whether a moved tail stands behind the first message of all.
    """

    def __init__(self, *, first_tail_behind: bool = False) -> None:
        self.human: int | None = None
        self.human_seq = -1
        self.lasting: int | None = None
        self._ends = False
        self._summed = -1
        self._first_behind = first_tail_behind
        self._answered: tuple[int, int | None, int | None] | None = None

    def copy(self) -> Positions:
        """Return a copy to go on with."""
        other = Positions(first_tail_behind=self._first_behind)
        other.human, other.human_seq, other.lasting = self.human, self.human_seq, self.lasting
        other._answered, other._ends = self._answered, self._ends
        other._summed = self._summed
        return other

    def take_human(self, index: int, seq: int, tail: bool, *, fleeting: bool = False) -> None:
        """Note a human message.

        Args:
            index: Its index.
            seq: Its seq.
            tail: Whether instructions stand beside it for this turn only.
            fleeting: Whether what the turn's first request ended with is the last that lasts.
        """
        self.human, self.human_seq = index, seq
        self.lasting = self.tail_at(index) if tail else None
        self._ends = fleeting and not tail

    def tail_at(self, human: int) -> int:
        """Return the index of the block that the tail of a human message stands in front of."""
        return human + (self._first_behind and human == 0)

    def take_summary(self, seq: int) -> None:
        """Note a summary: answers from before it that stay had another beginning in front."""
        self._summed = seq

    def answered(self, end: int, seq: int) -> None:
        """Note that a request of this route was answered.

        Args:
            end: The index that it ended in front of.
            seq: The answer's seq.
        """
        if self._ends and self.lasting is None:
            self.lasting = end
        if seq > self._summed:
            self._answered = (end, self.human, self.lasting)

    def stored_end(self) -> int | None:
        """Return the index of the last block that the last answered request could store for us.

        Instructions that stood beside its human message vanish with their turn, and so does
        reasoning that was bound to them: what a request of an earlier turn stored behind them is
        lost, whether or not this turn has some.
        """
        if self._answered is None:
            return None
        end, human, lasting = self._answered
        if lasting is not None and human != self.human:
            return lasting - 1 if lasting > 0 else None
        return end - 1


def markable(block: Block, takes_mark: TakesMark = takes_mark) -> bool:
    """Say whether a block may carry a mark.

    Args:
        block: The block.
        takes_mark: Says it of a native item, by its kind and itself.
    """
    match block:
        case Text():
            return bool(block.text.strip()) and not block.scoped and not block.media
        case Native():
            return takes_mark(block.kind, block.raw)
        case Result() | Use() | Change():
            return True


def _class(block: Block) -> str:
    """Return what runs of a block count as one position, or an empty string."""
    if isinstance(block, Use) or (isinstance(block, Native) and block.kind == "tool_use"):
        return "use"
    return "result" if isinstance(block, Result) else ""


def _speaker(block: Block) -> str:
    """Return whose message a block belongs to, on a wire that alternates."""
    if isinstance(block, Native | Use):
        return "assistant"
    return block.role if isinstance(block, Text) else "user"


class _Sequence:
    """Settled and open blocks as one sequence, without copying."""

    def __init__(
        self,
        settled: Sequence[Block],
        opened: Sequence[Block],
        facts: WireFacts,
    ) -> None:
        self._settled, self._open, self._count = settled, opened, len(settled)
        self._facts = facts

    def __len__(self) -> int:
        return self._count + len(self._open)

    def __getitem__(self, index: int) -> Block:
        return self._settled[index] if index < self._count else self._open[index - self._count]

    def last_markable(self, end: int) -> int | None:
        """Return the index of the last markable block in front of `end`."""
        if self._facts.input_marks:
            return self.last_input(end, ("user",))
        for index in range(min(end, len(self)) - 1, -1, -1):
            block = self[index]
            if isinstance(block, Result) and not self._facts.result_marks:
                continue
            if markable(block, self._facts.takes_mark) and not (
                self._facts.text_marks and self._beside_tools(index)
            ):
                return index
        return None

    def _beside_tools(self, index: int) -> bool:
        """Say whether a block's message holds a call or a result."""
        role = _speaker(self[index])
        for step in (-1, 1):
            at = index
            while 0 <= at < len(self) and _speaker(self[at]) == role:
                if _class(self[at]):
                    return True
                at += step
        return False

    def last_input(self, end: int, roles: Sequence[str]) -> int | None:
        """Return the index of the last result, or text under one of `roles`, in front of `end`."""
        for index in range(min(end, len(self)) - 1, -1, -1):
            block = self[index]
            if isinstance(block, Result):
                taken = self._facts.result_marks
            else:
                taken = isinstance(block, Text) and block.role in roles
            # A result without a text is told as one where marks stand on texts.
            if taken and (not isinstance(block, Text) or block.text.strip()):
                return index
        return None

    def width(self, start: int, end: int) -> int:
        """Count positions behind block `start` up to and including block `end`."""
        count, run = 0, ""
        for index in range(start + 1, end + 1):
            kind = _class(self[index])
            if not (kind and kind == run and self._facts.runs):
                count += 1
            run = kind
        return count


_WORTH: Mapping[str, Sequence[str]] = {
    "kept": ("tools", "static", "lag", "end", "conversation"),
    "moved": ("tools", "static", "history", "end", "conversation"),
    # What stands between the marks of before and now is too wide to look back over.
    "wide": ("static", "lag", "history", "end", "tools", "conversation"),
    "wide, no prompt": ("tools", "lag", "history", "end"),
    # No message of before lasts: what has to be found ends with the prompt.
    "prompt alone": ("static", "conversation", "history", "end", "tools"),
}
"""What to mark, in order of worth, by what a request can still read; what does not fit is left out.

The prompt has two ends, of its static text and of the conversation's. In the messages, `end` is the
last place that takes a mark, `lag` the one where the last answered request stored its own end, and
`history` the last one in front of a moved tail.
"""


def plan_marks(
    tools: Sequence[ToolSchema],
    system: Sequence[Text],
    settled: Sequence[Block],
    opened: Sequence[Block],
    positions: Positions,
    facts: WireFacts,
    *,
    tail_at: int | None,
    fleeting: bool = False,
) -> Marks:
    """Plan the marks of one request.

    Args:
        tools: Declarations; the last immediate one may be marked.
        system: Prompt texts: static first.
        settled: Blocks that are settled.
        opened: Blocks behind them.
        positions: Where things are.
        facts: What the wire says of marks: how many, on what, and how far a read looks back.
        tail_at: Index of the block that a moved tail stands in front of; None without one.
        fleeting: Whether reasoning leaves with its turn, so that little behind its human message
            can be read again.
    """
    if not facts.marks:
        return Marks()
    blocks = _Sequence(settled, opened, facts)
    stored = positions.stored_end()
    if facts.implicit:
        ends = (tail_at, None if stored is None else stored + 1)
        return _breakpoints(system, blocks, ends, facts.marks, fleeting)
    end = blocks.last_markable(len(blocks))
    lag = None if stored is None else blocks.last_markable(stored + 1)
    history = blocks.last_markable(tail_at) if tail_at else None
    places: dict[str, tuple[str, int]] = {}
    if not facts.text_marks and any(not tool.defer_loading for tool in tools):
        places["tools"] = ("tools", 0)
    for number, name in enumerate(("static", "conversation")[: len(system)]):
        places[name] = ("system", number)
    for name, block in (("lag", lag), ("history", history), ("end", end)):
        if block is not None:
            places[name] = ("block", block)
    reach = "kept" if tail_at is None else _reach(blocks, lag, history, end, len(system), facts)
    worth = [places[name] for name in _WORTH[reach] if name in places]
    chosen = list(dict.fromkeys(worth))[: facts.marks]
    return Marks(
        ("tools", 0) in chosen,
        tuple(sorted(index for kind, index in chosen if kind == "system")),
        tuple(sorted(index for kind, index in chosen if kind == "block")),
    )


def _reach(
    blocks: _Sequence,
    lag: int | None,
    history: int | None,
    end: int | None,
    texts: int,
    facts: WireFacts,
) -> str:
    """Return the row of `_WORTH` for a request with a moved tail."""
    # The first mark behind the stored end is the one that has to find it again.
    finder = end if history is None or (lag is not None and lag >= history) else history
    if finder is None:
        return "moved"
    far = max(facts.lookback - ROOM, 0)
    if lag is not None:
        if facts.input_marks or blocks.width(lag, finder) > far:
            return "wide" if texts else "wide, no prompt"
    elif texts > 1 and blocks.width(-1, finder) > far:
        return "prompt alone"
    return "moved"


def _breakpoints(
    system: Sequence[Text],
    blocks: _Sequence,
    ends: Sequence[int | None],
    limit: int,
    fleeting: bool,
) -> Marks:
    """Plan the marks beside an implicit one.

    In order of worth: the end of the static text, which holds the head too; the last text or result
    in front of a moved tail, where the implicit end is lost with the turn; the last one of the
    request before, however many ends were added since; and a developer text at the end, where the
    provider makes none by itself, so that definitions in front of it are stored at once.
    """
    roles = ("user",) if fleeting else ("user", "system")
    found = [blocks.last_input(end, roles) for end in ends if end]
    last = blocks.last_input(len(blocks), roles)
    if last is not None and isinstance(block := blocks[last], Text) and block.role == "system":
        found.append(last)
    room = max(0, limit - bool(system))
    chosen = list(dict.fromkeys(at for at in found if at is not None))[:room]
    return Marks(False, (0,) if system else (), tuple(sorted(chosen)))
