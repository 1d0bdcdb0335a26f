"""The cost of a switch of tools, in a sentence."""

from __future__ import annotations

from decimal import Decimal

from addendum.agent.context.switch_cost import SwitchCost
from addendum.tell.figures import money, number


def told(cost: SwitchCost) -> str:
    """Return the cost in a sentence.

    Such as `0 of 41,200 tokens read again; rebinding would have cost $0.13 (41,200 tokens)`.
    """
    if cost.held is None or cost.again is None or cost.rebinding is None:
        ours = "no token" if not cost.reasons else "the prompt"
        return f"{ours} is read again{_why(cost)}; what rebinding would have cost is unknown"
    about = "about " if cost.estimated and cost.held else ""
    whole = cost.held or cost.prompt or 0
    parts = [f"{about if cost.again else ''}{number(cost.again)} of "]
    parts.append(f"{'' if cost.again else about}{number(whole)} tokens read again")
    if cost.again:
        parts.append(f" for {_dollars(cost.cost)}")
    parts.append(f"{_why(cost)}; rebinding would have cost {_dollars(cost.rebinding_cost)}")
    if cost.rebinding:
        parts.append(f" ({about}{number(cost.rebinding)} tokens)")
    elif cost.note:
        parts.append(f" ({cost.note})")
    elif cost.again == 0:
        parts.append(" (the tools are those of a request that is still cached)")
    return "".join(parts)


def _why(cost: SwitchCost) -> str:
    return f" ({', '.join(cost.reasons)})" if cost.reasons and cost.again != 0 else ""


def _dollars(amount: Decimal | None) -> str:
    return "an unknown sum" if amount is None else money(amount)
