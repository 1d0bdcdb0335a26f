"""First requests of conversations that share a head: which left while another was in flight.

A provider stores what a request says only when it answers. Where two conversations of one agent
begin at once, both pay for their head, and that is known before the second one leaves.
"""

from __future__ import annotations

from collections import Counter


class FirstRequests:
    """The first requests of one agent's conversations, as far as this process knows."""

    def __init__(self) -> None:
        self._flying: Counter[str] = Counter()
        self._answered: set[str] = set()

    def begin(self, head: str) -> bool:
        """Note that a first request leaves.

        Args:
            head: What it shares with others: route, address and cache key.

        Returns:
            Whether another one with this head is in flight, and none was answered before.
        """
        together = self._flying[head] > 0 and head not in self._answered
        self._flying[head] += 1
        return together

    def end(self, head: str, *, answered: bool) -> None:
        """Note what became of it.

        Args:
            head: As for `begin`; empty if none began.
            answered: Whether its answer came whole.
        """
        if not head:
            return
        self._flying[head] -= 1
        if answered:
            self._answered.add(head)
