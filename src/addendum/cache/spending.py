"""The most that may be spent: what was reported so far, by list prices, and an end to it."""

from __future__ import annotations

from decimal import Decimal

from addendum.cache.cost import price
from addendum.errors import LimitReached
from addendum.log.values import Usage
from addendum.routes import Route


class SpendingStopped(LimitReached):
    """No further request may leave.

    Attributes:
        code: `max-cost`, or `usage unknown`.
    """

    def __init__(self, message: str, code: str, route: Route) -> None:
        super().__init__(message, route=route.name)
        self.code = code


class Spending:
    """What was spent so far, by list prices, and the most that may be.

    Args:
        route: The route whose prices count.
        most: US dollars, or None for no limit.
        unknown_stops: Whether a request whose price cannot be told is the last one, too.

    Attributes:
        requests: Answered requests that were counted.
        spent: US dollars; None if the price of one of them is not known.
    """

    def __init__(self, route: Route, most: Decimal | None, *, unknown_stops: bool = False) -> None:
        self._route = route
        self._most = most
        self._unknown_stops = unknown_stops
        self.requests = 0
        self.spent: Decimal | None = Decimal(0)

    def add(self, usage: Usage, moment: float) -> None:
        """Count an answered request.

        Args:
            usage: What it used.
            moment: When it was sent, in seconds since the epoch: prices change.
        """
        self.requests += 1
        cost = price(self._route, usage, moment)
        self.spent = None if cost is None or self.spent is None else self.spent + cost.amount

    def check(self) -> None:
        """Stop once the limit is passed.

        Raises:
            SpendingStopped: It is; or nobody can tell, where that is to stop it.
        """
        if self._most is None:
            return
        if self.spent is None:
            if not self._unknown_stops:
                return
            raise SpendingStopped(
                "the endpoint did not report what a request used, so its price is not known",
                "usage unknown",
                self._route,
            )
        if self.spent > self._most:
            raise SpendingStopped(
                f"${self.spent:.4f} were used, more than --max-cost ${self._most}; allow more",
                "max-cost",
                self._route,
            )
