"""What a transport may take: times, attempts and sizes."""

from __future__ import annotations

from msgspec import Struct

from addendum.checked import (
    AtLeastNone,
    AtLeastOne,
    Seconds,
    Wait,
    check_fields,
)
from addendum.wire.sse import MAX_EVENT


class TransportSettings(Struct, frozen=True):
    """Limits of a transport; times in seconds, sizes in bytes.

    Attributes:
        connect: To open a connection.
        read: Between two pieces of an answer, and for the body of an error.
        write: Between two pieces of a request.
        retries: Attempts after the first.
        first_delay: Longest wait before the first retry; doubled for each later one.
        max_delay: Longest wait of our own choice.
        max_retry_after: Longest wait that a provider may ask for.
        max_event: Size of one event.
        max_answer: Size of one answer, all events together.
        quiet: For keep-alives alone, until an event comes.
        max_quiet: Size of keep-alives between two events, behind decompression.
    """

    connect: Seconds = 10.0
    read: Seconds = 120.0
    write: Seconds = 60.0
    retries: AtLeastNone = 2
    first_delay: Wait = 0.5
    max_delay: Wait = 8.0
    max_retry_after: Wait = 60.0
    max_event: AtLeastOne = MAX_EVENT
    max_answer: AtLeastOne = 256 * 1024 * 1024
    quiet: Seconds = 900.0
    max_quiet: AtLeastOne = 1024 * 1024

    def __post_init__(self) -> None:
        check_fields(self)
