"""What is asked of a server, and how long its answer is waited for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from addendum.tools.mcp.link import Link

T = TypeVar("T")

PROGRESS_FACTOR = 10
"""A call that reports progress may take this many times its limit."""


class Job(Generic[T]):
    """Something to ask a server, left by a caller in the owner's group."""

    def __init__(self, work: Callable[[Link], Awaitable[T]]) -> None:
        self.work = work
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.outcome: T | None = None


class Patience:
    """How long an answer is waited for: anew with each sign of progress, up to a ceiling.

    Args:
        seconds: From the beginning, and from each sign on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = anyio.current_time() + seconds * PROGRESS_FACTOR
        self._renewed = False
        self.deadline = anyio.current_time() + seconds
        self._scope = anyio.CancelScope()

    def __str__(self) -> str:
        if self.deadline >= self._last:
            return f"{self._seconds * PROGRESS_FACTOR:g} s, though it reported progress"
        since = " of its last sign of progress" if self._renewed else ""
        return f"{self._seconds:g} s{since}"

    def renew(self) -> None:
        """Begin anew, for a sign of progress."""
        self._renewed = True
        self.deadline = min(anyio.current_time() + self._seconds, self._last)
        self._scope.deadline = self.deadline

    async def wait(self, event: anyio.Event) -> None:
        """Wait for an event as long as patience lasts."""
        with anyio.CancelScope(deadline=self.deadline) as self._scope:
            await event.wait()
