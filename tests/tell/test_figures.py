from __future__ import annotations

from decimal import Decimal

import pytest

from addendum.tell.figures import money, octets, percent, size, when


def test_a_share_is_never_rounded_up_to_all_of_it() -> None:
    assert percent(0.9999) == "99.9 %"
    assert percent(1.0) == "100.0 %"
    assert percent(0.29) == "29.0 %"
    assert percent(None) == "-"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "$0"),
        ("1234.5", "$1,234.50"),
        ("0.197", "$0.20"),
        ("0.13", "$0.13"),
        ("0.0996", "$0.10"),
        ("0.0312", "$0.031"),
        ("0.0021", "$0.0021"),
        ("-0.00179", "-$0.0018"),
        ("0.00000001", "under $0.000001"),
    ],
)
def test_money_has_two_digits_that_mean_something(amount: str, shown: str) -> None:
    assert money(Decimal(amount)) == shown


@pytest.mark.parametrize(
    ("count", "short", "of_bytes"),
    [
        (0, "0", "0 B"),
        (999, "999", "999 B"),
        (4_100, "4.1 k", "4.1 kB"),
        (131_000, "131 k", "131 kB"),
        (999_499, "999 k", "999 kB"),
        (999_500, "1.0 M", "1.0 MB"),
    ],
)
def test_sizes_are_short(count: int, short: str, of_bytes: str) -> None:
    assert (size(count), octets(count)) == (short, of_bytes)


@pytest.mark.parametrize("milliseconds", [2**62, -(2**62)])
def test_a_time_of_no_calendar_is_a_dash(milliseconds: int) -> None:
    assert when(milliseconds) == "-"
    assert when(0) == "1970-01-01 00:00:00"
