"""Charts of a session's requests: tokens by where they came from, and money, as shapes to draw."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from addendum.cache.cost import Cost
from addendum.cache.spent import Spent
from addendum.tell.figures import money

COLUMNS = 160
"""Columns that a chart has at most; more requests than that share columns."""

WIDE, HIGH = 960, 200
"""Size of a chart, in its own units."""


class Column(Struct, frozen=True):
    """One request, or several that share a column.

    Attributes:
        first: Number of the first one.
        last: Number of the last one.
        turn: Turn of the last one.
        x: Where the column begins.
        width: How wide it is.
        bars: Kind, y and height of each part, from below.
        prompt: Tokens of their prompts.
        read: Tokens read.
        written: Tokens written.
        short: Tokens that were in the cache and were not read.
        cost: Money so far, or empty.
        y: Height of the money so far; None if it is not known.
    """

    first: int
    last: int
    turn: int
    x: float
    width: float
    bars: tuple[tuple[str, float, float], ...]
    prompt: int
    read: int
    written: int
    short: int
    cost: str
    y: float | None


class Chart(Struct, frozen=True):
    """Columns, and what the axes say.

    Attributes:
        columns: From the first request to the last.
        top: Tokens at the upper end.
        money: Money in all, or empty if it is not known.
        line: Points of the line of money so far.
    """

    columns: tuple[Column, ...]
    top: int
    money: str
    line: str


def chart(requests: Sequence[Spent]) -> Chart | None:
    """Return the chart of the requests that were counted; None if no figures are known."""
    known = [each for each in requests if each.request.usage.prompt is not None]
    if not known:
        return None
    share = -(-len(known) // COLUMNS)
    groups = [known[at : at + share] for at in range(0, len(known), share)]
    sums = [_sums(group) for group in groups]
    top = max(prompt for prompt, _, _, _ in sums) or 1
    costs = _running([each.cost for each in known])
    whole = costs[-1] if costs else None
    width = min(WIDE / len(groups), 48.0)
    columns: list[Column] = []
    for at, (group, (prompt, read, written, short)) in enumerate(zip(groups, sums, strict=True)):
        bars: list[tuple[str, float, float]] = []
        base = float(HIGH)
        for kind, tokens in (
            ("read", read),
            ("write", written),
            ("new", prompt - read - written),
        ):
            height = HIGH * max(0, tokens) / top
            base -= height
            if height > 0:
                bars.append((kind, round(base, 2), round(height, 2)))
        spent = costs[(at + 1) * share - 1 if (at + 1) * share <= len(costs) else -1]
        columns.append(
            Column(
                group[0].request.number,
                group[-1].request.number,
                group[-1].request.turn,
                round(at * width, 2),
                round(width * 0.8, 2),
                tuple(bars),
                prompt,
                read,
                written,
                short,
                "" if spent is None else money(spent),
                None
                if spent is None or not whole
                else round(HIGH - float(HIGH * spent / whole), 2),
            )
        )
    points = [f"{each.x + each.width / 2:.1f},{each.y}" for each in columns if each.y is not None]
    return Chart(tuple(columns), top, "" if whole is None else money(whole), " ".join(points))


def _sums(group: Sequence[Spent]) -> tuple[int, int, int, int]:
    """Return prompt, read, written and missed tokens of a column, on average over its requests."""
    count = len(group)
    usages = [each.request.usage for each in group]
    return (
        sum(each.prompt or 0 for each in usages) // count,
        sum(each.cache_read or 0 for each in usages) // count,
        sum(each.cache_write or 0 for each in usages) // count,
        sum(each.short for each in group) // count,
    )


def _running(costs: Sequence[Cost | None]) -> list[Decimal | None]:
    """Return sums so far; None from the first cost on that is not known."""
    running: list[Decimal | None] = []
    total: Decimal | None = Decimal(0)
    for cost in costs:
        total = None if total is None or cost is None else total + cost.amount
        running.append(total)
    return running
