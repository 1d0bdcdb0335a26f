"""What a running call says of its progress, as events: bounded, and only while it runs."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.lowlevel

from addendum.agent.results import ToolProgress
from addendum.lines import one_line
from addendum.log.values import Call

PAUSE = 0.1
"""Seconds between two events of one call; what comes sooner is left out, unless it is the end."""

_TEXT = 200


class Progress:
    """Turns what one call reports into events.

    Args:
        call: The call.
        emit: Told of each event.
    """

    def __init__(self, call: Call, emit: Callable[[ToolProgress], None]) -> None:
        self._call = call
        self._emit = emit
        self._due = -math.inf
        self._open = True
        self._thread = threading.get_ident()
        self._token = anyio.lowlevel.current_token()

    def __call__(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Take a report, from any thread; from a foreign server it may be anything."""
        if threading.get_ident() == self._thread:
            self._take(progress, total, message)
            return
        # A thread that was left behind may outlive the loop.
        with contextlib.suppress(anyio.RunFinishedError):
            anyio.from_thread.run_sync(self._take, progress, total, message, token=self._token)

    def _take(self, progress: float, total: float | None, message: str | None) -> None:
        if total is not None and not math.isfinite(total):
            total = None
        if not self._open or not math.isfinite(progress):
            return
        now = anyio.current_time()
        whole = total is not None and progress >= total
        if now < self._due and not whole:
            return
        self._due = now + PAUSE
        # The end is told once; a server may go on saying it.
        self._open = not whole
        text = one_line(message, _TEXT) if message else ""
        self._emit(ToolProgress(self._call.id, self._call.name, progress, total, text))

    def close(self) -> None:
        """Take no more: the call has its result."""
        self._open = False
