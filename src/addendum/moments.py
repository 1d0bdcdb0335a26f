"""Times as dates: a clock, a log or a file may give a number that is no date of any calendar."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float) -> datetime | None:
    """Return a time in UTC, or None if it is no date.

    Args:
        seconds: Since the epoch.
    """
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
