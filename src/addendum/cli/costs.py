"""How `sessions` and `show` tell what requests cost: for people in words, for programs in JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from addendum.agent.replay import known_route, replay
from addendum.cache.spent import Spent, Totals
from addendum.errors import AddendumError
from addendum.log.session_log import SessionLog
from addendum.tell.figures import money, number


def dead_weights(log: SessionLog) -> dict[int, int | None]:
    """Return the tokens of dead definitions of each request, by its event; an estimate.

    A request that this release cannot render again is left out, and so are those behind it.
    """
    found: dict[int, int | None] = {}
    try:
        for each in replay(log, route_of=known_route):
            prompt, size = each.record.usage.prompt, len(each.record.body)
            found[each.seq] = None if prompt is None else prompt * each.dead // size
    except AddendumError:
        pass
    return found


def request_fields(spent: Spent, dead: int | None) -> dict[str, Any]:
    """Return a request and what it cost, as fields of its JSON; null where it is not known."""
    request, cost, usage = spent.request, spent.cost, spent.request.usage
    return {
        "n": request.number,
        "turn": request.turn,
        "seq": request.seq,
        "route": request.route,
        "purpose": request.purpose,
        "answered": request.answered,
        "prompt_tokens": usage.prompt,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "cost": None if cost is None else float(cost.amount),
        "saved": None if cost is None else float(cost.saved),
        "rebinding_tokens": spent.rebinding,
        "rebinding_cost": _float(spent.rebinding_cost),
        "dead_weight": dead,
        "breaks": [
            {"reason": each.reason, "at": each.at, "detail": each.detail} for each in request.breaks
        ],
        "estimated": ["rebinding_tokens", "rebinding_cost", "dead_weight"],
    }


def total_fields(totals: Totals) -> dict[str, Any]:
    """Return sums as fields of JSON; null where one request does not say."""
    cost = totals.cost
    return {
        "requests": totals.requests,
        "uncounted": totals.uncounted,
        "prompt_tokens": totals.prompt,
        "cache_read": totals.cache_read,
        "cache_write": totals.cache_write,
        "output": totals.output,
        "cost": None if cost is None else float(cost.amount),
        "saved": None if cost is None else float(cost.saved),
        "rebinding_cost": _float(totals.rebinding),
        "estimated": ["rebinding_cost"],
    }


def total_lines(totals: Totals) -> list[str]:
    """Return sums in words, a line each of less than 80 columns."""
    cost = totals.cost
    paid = "-" if cost is None else money(cost.amount)
    saved = "-" if cost is None else money(cost.saved)
    more = "-" if totals.rebinding is None else f"about {money(totals.rebinding)}"
    left = f"{number(totals.uncounted)} more got no answer, and no count of tokens"
    return [
        f"{number(totals.requests)} requests: prompt {number(totals.prompt)}, "
        f"read {number(totals.cache_read)}, written {number(totals.cache_write)}, "
        f"out {number(totals.output)}",
        f"cost {paid}; saved against no cache {saved}, against rebinding {more}",
        *([left] if totals.uncounted else []),
    ]


def short(tokens: int | None) -> str:
    """Return a count of tokens in at most five characters: `950`, `41.2k`, `1.3M`."""
    if tokens is None:
        return "-"
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if tokens >= size:
            whole = tokens / size
            return f"{whole:.1f}{unit}" if whole < 99.95 else f"{whole:.0f}{unit}"
    return str(tokens)


def dollars(amount: Decimal | None) -> str:
    """Return money for a table, `-` where it is not known."""
    return "-" if amount is None else money(amount)


def _float(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)
