"""Hands what was sent to the judge in `addendum.cache`."""

from __future__ import annotations

from tests.property.driver import Played


def judged(played: Played) -> None:
    """Fail on an undeclared miss, or on a broken invariant."""
