"""Gives the events of a turn to whoever loops over them, while the turn runs in a task.

Python says nothing to an iterator whose loop is left: only one that is dropped is closed, and one
that somebody still holds never is. So the turn never runs ahead of whoever listens: before it
starts tools, and before it sends another request, it waits until all that it has told was taken and
the next event is asked for. A loop that was left asks for none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import TaskGroup

from addendum.agent.results import StreamEvent, TurnDone, TurnResult
from addendum.agent.tasks import Caller, from_any_thread
from addendum.errors import ConfigurationError


class Listener(Protocol):
    """Whoever is told what happens in a turn."""

    def tell(self, event: StreamEvent) -> None:
        """Take in what happened."""
        ...

    async def heard(self) -> None:
        """Wait until everything that was told was taken."""
        ...

    def left(self) -> bool:
        """Say whether nobody will ask for another event."""
        ...

    def stop(self) -> None:
        """Have the turn end soon."""
        ...


class Nobody:
    """Listens to a turn of which only the result is wanted."""

    def tell(self, event: StreamEvent) -> None:
        """Take in what happened."""

    async def heard(self) -> None:
        """Go on at once."""

    def left(self) -> bool:
        """Say no: whoever waits for the result is there."""
        return False

    def stop(self) -> None:
        """Do nothing: who waits for the result is never gone."""


Work = Callable[[Listener], Awaitable[TurnResult]]
"""A turn, given whom to tell what happens."""


class TurnStream:
    """The events of one turn as they happen; the last is `TurnDone`.

        async with session.stream(text) as events:      # or without `async with`
            async for event in events:
                ...

    The turn begins with the first event that is asked for. Leaving the block, or closing or
    dropping the stream, cancels it at once. Of one that is kept after its loop was left, nothing
    more happens, and the next turn of the session ends it.

    Args:
        free: Gives the group in which the turn runs, when the session is free for one.
        turn: The turn.

    Raises:
        ConfigurationError: The session is closed.
    """

    def __init__(self, free: Callable[[], Awaitable[TaskGroup]], turn: Work) -> None:
        self._free = free
        self._turn = turn
        self._heard: _Heard | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._closed:
            raise StopAsyncIteration
        heard = self._heard
        if heard is None:
            tasks = await self._free()
            heard = self._heard = _Heard()
            tasks.start_soon(_run, self._turn, heard)
        if heard.asking:
            raise ConfigurationError(
                "two tasks ask for the events of one turn; let one of them take all"
            )
        try:
            event = await heard.next()
        except BaseException:
            await self.aclose()
            raise
        if event is not None:
            return event
        self._closed = True
        if heard.failure is not None:
            raise heard.failure
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the turn if it still runs, and wait for its end."""
        heard = self._heard
        # Whoever waits for an event in another task is told that there is none.
        self._closed = self._closed or heard is None or not heard.asking
        if heard is not None:
            heard.scope.cancel()
            with anyio.CancelScope(shield=True):
                await heard.ended.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # A loop that was left drops its stream, in whatever thread that is noticed.
        heard = self._heard
        if heard is not None and not heard.ended.is_set():
            heard.soon(heard.scope.cancel)


async def _run(turn: Work, heard: _Heard) -> None:
    """Run a turn; what goes wrong in it is told behind its events."""
    failure: Exception | None = ConfigurationError(
        "this turn was ended: its stream was closed, or the session was used for another turn "
        "while nobody asked for its events"
    )
    try:
        with heard.scope:
            heard.tell(TurnDone(await turn(heard)))
            failure = None
    except Exception as error:
        failure = error
    finally:
        heard.end(failure)


class _Heard:
    """How far whoever loops over a turn's events has come.

    It knows nothing of the stream: that must be free to go when nobody holds it any more.

    Attributes:
        asking: Whether the next event is waited for.
        scope: What the turn runs in.
        ended: Set when the turn has ended.
        failure: Why it did not come to its end; None if it did.
        soon: Has the event loop do something, from any thread.
    """

    def __init__(self) -> None:
        self.asking = False
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.failure: Exception | None = None
        self.soon = from_any_thread()
        self._events: deque[StreamEvent] = deque()
        self._told = self._taken = 0
        self._changed = anyio.Event()
        self._by: Caller | None = None

    async def next(self) -> StreamEvent | None:
        """Return the next event when it is there; None behind the last."""
        self.asking, self._by = True, Caller()
        self._wake()
        try:
            while not self._events:
                if self.ended.is_set():
                    return None
                await self._changed.wait()
        finally:
            self.asking = False
        self._taken += 1
        return self._events.popleft()

    def tell(self, event: StreamEvent) -> None:
        """Keep an event until it is asked for."""
        self._told += 1
        self._events.append(event)
        self._wake()

    async def heard(self) -> None:
        """Wait until everything that was told was taken, and more is asked for."""
        while not (self.asking and self._taken == self._told):
            await self._changed.wait()

    def left(self) -> bool:
        """Say whether nobody will ask for another event.

        Surely so is a loop whose task has ended, or does something else now.
        """
        return self._by is not None and not self.asking and (self._by.over() or self._by.here())

    def stop(self) -> None:
        """Have the turn end soon."""
        self.scope.cancel()

    def end(self, failure: Exception | None) -> None:
        """Note that the turn has ended, and why."""
        self.failure = failure
        self.ended.set()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
