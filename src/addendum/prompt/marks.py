"""Where cache marks go: at most four, planned once, for every wire that has marks.

A provider stores a prefix only where a mark stood, and looks back from each mark over a bounded
number of positions. So the prompt is marked at its stable ends (tools, static text), at the end,
and at the place where the last answered request stored its own end (the lagging mark): however
wide a change is, that prefix is found again.
"""

from __future__ import annotations

from collections.abc import Sequence

from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Block, Change, Marks, Native, Result, Text, Use

WIDE = 15
"""Positions between two marks beyond which the tools mark gives way to the lagging one.

Providers look back 20; the rest is room for what they count and we do not.
"""


class Positions:
    """Where the newest human message and the ends of answered requests are, by block index.

    Attributes:
        human: Index of the newest human message, or None.
        human_seq: Its seq.
        human_tail: Whether its turn has instructions of its own.
    """

    def __init__(self) -> None:
        self.human: int | None = None
        self.human_seq = -1
        self.human_tail = False
        self._answered: tuple[int, int | None, bool] | None = None

    def copy(self) -> Positions:
        """Return a copy to go on with."""
        other = Positions()
        other.take_human(self.human, self.human_seq, self.human_tail)
        other._answered = self._answered
        return other

    def take_human(self, index: int | None, seq: int, tail: bool) -> None:
        """Note a human message."""
        self.human, self.human_seq, self.human_tail = index, seq, tail

    def answered(self, end: int) -> None:
        """Note that a request of this route that ended in front of `end` was answered."""
        self._answered = (end, self.human, self.human_tail)

    def stored_end(self, *, moved: bool) -> int | None:
        """Return the index of the last block that the last answered request could store for us.

        Args:
            moved: Whether a turn's instructions stand in front of its human message and vanish
                with the turn: then a request of an earlier turn stored nothing behind them.
        """
        if self._answered is None:
            return None
        end, human, tail = self._answered
        if moved and tail and human is not None and human != self.human:
            return human - 1 if human > 0 else None
        return end - 1


def markable(block: Block) -> bool:
    """Say whether a block may carry a mark."""
    match block:
        case Text():
            return bool(block.text.strip()) and not block.scoped
        case Native():
            return block.kind not in ("thinking", "redacted_thinking") and not (
                block.kind == "text" and b'"text":""' in bytes(block.raw)
            )
        case Result() | Use() | Change():
            return True


def _class(block: Block) -> str:
    """Return what runs of a block count as one position, or an empty string."""
    if isinstance(block, Use) or (isinstance(block, Native) and block.kind == "tool_use"):
        return "use"
    return "result" if isinstance(block, Result) else ""


class _Sequence:
    """Settled and open blocks as one sequence, without copying."""

    def __init__(self, settled: Sequence[Block], opened: Sequence[Block]) -> None:
        self._settled, self._open, self._count = settled, opened, len(settled)

    def __len__(self) -> int:
        return self._count + len(self._open)

    def __getitem__(self, index: int) -> Block:
        return self._settled[index] if index < self._count else self._open[index - self._count]

    def last_markable(self, end: int) -> int | None:
        """Return the index of the last markable block in front of `end`."""
        for index in range(min(end, len(self)) - 1, -1, -1):
            if markable(self[index]):
                return index
        return None

    def width(self, start: int, end: int) -> int:
        """Count positions behind block `start` up to and including block `end`."""
        count, run = 0, ""
        for index in range(start + 1, end + 1):
            kind = _class(self[index])
            if not kind or kind != run:
                count += 1
            run = kind
        return count


def plan_marks(
    tools: Sequence[ToolSchema],
    system: Sequence[Text],
    settled: Sequence[Block],
    opened: Sequence[Block],
    positions: Positions,
    *,
    tail_at: int | None,
    limit: int,
) -> Marks:
    """Plan the marks of one request.

    Args:
        tools: Declarations; the last immediate one may be marked.
        system: Prompt texts: static first.
        settled: Blocks that are settled.
        opened: Blocks behind them.
        positions: Where things are.
        tail_at: Index of the block that a moved tail stands in front of; None without one.
        limit: Most marks allowed; 0 for a wire without marks.
    """
    if not limit:
        return Marks()
    blocks = _Sequence(settled, opened)
    end = blocks.last_markable(len(blocks))
    stored = positions.stored_end(moved=tail_at is not None or positions.human_tail)
    lag = None if stored is None else blocks.last_markable(stored + 1)
    has_tools = any(not tool.defer_loading for tool in tools)
    history = blocks.last_markable(tail_at) if tail_at else None
    # In order of worth; what does not fit is left out.
    order: list[tuple[str, int]] = []
    if tail_at is None:
        if has_tools:
            order.append(("tools", 0))
        if system:
            order.append(("system", 0))
        if lag is not None:
            order.append(("block", lag))
        if end is not None:
            order.append(("block", end))
    else:
        # The first mark behind the stored end is the one that has to find it again.
        finder = end if history is None or (lag is not None and lag >= history) else history
        wide = lag is not None and finder is not None and blocks.width(lag, finder) > WIDE
        if system:
            order.append(("system", 0))
        if history is not None:
            order.append(("block", history))
        if end is not None:
            order.append(("block", end))
        if wide and lag is not None:
            order.insert(1 if system else 0, ("block", lag))
        if has_tools:
            order.append(("tools", 0)) if wide and system else order.insert(0, ("tools", 0))
    if len(system) > 1:
        order.append(("system", 1))
    chosen = list(dict.fromkeys(order))[:limit]
    return Marks(
        ("tools", 0) in chosen,
        tuple(sorted(index for kind, index in chosen if kind == "system")),
        tuple(sorted(index for kind, index in chosen if kind == "block")),
    )
