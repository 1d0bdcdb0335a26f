"""Figures as people read them: money, numbers, shares, sizes, times."""

from __future__ import annotations

from decimal import Decimal

from addendum.moments import moment


def money(amount: Decimal) -> str:
    """Return US dollars with two digits that mean something: `$12.30`, `$0.13`, `$0.0021`."""
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    if size == 0:
        return "$0"
    if size >= Decimal("0.0995"):
        return f"{sign}${size:,.2f}"
    if size < Decimal("0.000001"):
        return f"under {sign}$0.000001"
    places = 1 - size.adjusted()
    return f"{sign}${size:.{places}f}"


def number(value: int | None) -> str:
    """Return a number with thousands, `-` if it is unknown."""
    return "-" if value is None else f"{value:,}"


def percent(share: float | None) -> str:
    """Return a share as a percentage, rounded down: 100.0 % is all of it."""
    return "-" if share is None else f"{int(share * 1000 + 1e-9) / 10:.1f} %"


def when(milliseconds: int) -> str:
    """Return a time in UTC, `-` if it is none of a calendar."""
    at = moment(milliseconds / 1000)
    return "-" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """Return a number of bytes or characters in short: `812`, `4.1 k`, `131 k`, `2.0 M`."""
    if count < 1000:
        return str(count)
    value, unit = (count / 1000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"


def octets(count: int) -> str:
    """Return a number of bytes in short: `812 B`, `4.1 kB`, `2.0 MB`."""
    short = size(count)
    return f"{short}B" if " " in short else f"{short} B"
