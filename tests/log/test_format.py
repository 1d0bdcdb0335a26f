"""A log of a later format is refused, in words that say what to do."""

from __future__ import annotations

import pytest

from addendum.errors import LogError
from addendum.log.codec import encode_event
from addendum.log.events import FORMAT, Event, SessionStart
from addendum.log.session_log import SessionLog


def stored(number: int) -> list[bytes]:
    return [encode_event(Event(0, 7, SessionStart("s", format=number)))]


def test_our_own_format_is_read() -> None:
    assert len(SessionLog.load("s", stored(FORMAT))) == 1


def test_a_later_format_is_refused() -> None:
    with pytest.raises(LogError) as caught:
        SessionLog.load("s", stored(FORMAT + 1))
    assert str(caught.value) == (
        f"session 's' is stored in format {FORMAT + 1}, and this release reads up to {FORMAT}; "
        "open it with a newer addendum"
    )
    assert caught.value.seq == 0
