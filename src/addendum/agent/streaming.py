"""Gives the events of a turn to whoever loops over them, while the turn runs in a task.

Python says nothing to an iterator whose loop is left: only one that is dropped is closed, and one
that somebody still holds never is. So the turn never runs ahead of whoever listens: before it
starts tools, and before it sends another request, it waits until all that it has told was taken and
the next event is asked for. A loop that was left asks for none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import TaskGroup

from addendum.agent.results import StreamEvent, TurnDone, TurnResult
from addendum.agent.tasks import Caller
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
    """

    def __init__(self, free: Callable[[], Awaitable[TaskGroup]], turn: Work) -> None:
        self._heard = _Heard()
        self._events = _events(free, turn, self._heard)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        heard = self._heard
        if heard.asking:
            raise ConfigurationError(
                "two tasks ask for the events of one turn; let one of them take all"
            )
        heard.ask()
        try:
            event = await anext(self._events)
        finally:
            heard.asking = False
        heard.taken += 1
        return event

    async def aclose(self) -> None:
        """Cancel the turn if it still runs, and wait for its end."""
        if self._heard.asking:
            # Whoever waits for an event gets none; their task closes what is theirs.
            self._heard.scope.cancel()
        else:
            await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Heard:
    """How far whoever loops over a turn's events has come.

    It knows nothing of the stream: that must be free to go when nobody holds it any more.

    Attributes:
        taken: Events that were taken.
        asking: Whether the next one is waited for.
        scope: What the turn runs in.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.asking = False
        self.scope = anyio.CancelScope()
        self._waiting: deque[StreamEvent] = deque()
        self._told = 0
        self._over = False
        self._changed = anyio.Event()
        self._by: Caller | None = None

    def ask(self) -> None:
        """Note that the task that runs now waits for the next event."""
        self.asking, self._by = True, Caller()
        self._wake()

    def tell(self, event: StreamEvent) -> None:
        """Keep an event until it is asked for."""
        self._told += 1
        if not self._over:
            self._waiting.append(event)
            self._wake()

    async def next(self) -> StreamEvent | None:
        """Return the next event when it is there; None behind the last."""
        while not self._waiting and not self._over:
            await self._changed.wait()
        return self._waiting.popleft() if self._waiting else None

    async def heard(self) -> None:
        """Wait until everything that was told was taken, and more is asked for."""
        while not (self.asking and self.taken == self._told):
            await self._changed.wait()

    def left(self) -> bool:
        """Say whether nobody will ask for another event.

        Surely so is a loop whose task has ended, or does something else now.
        """
        return self._by is not None and not self.asking and (self._by.over() or self._by.here())

    def stop(self) -> None:
        """Have the turn end soon."""
        self.scope.cancel()

    def over(self) -> None:
        """Note that no more is told."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def _events(
    free: Callable[[], Awaitable[TaskGroup]], turn: Work, heard: _Heard
) -> AsyncGenerator[StreamEvent]:
    failure: list[Exception] = []
    done, ended = False, anyio.Event()

    async def work() -> None:
        nonlocal done
        try:
            with heard.scope:
                heard.tell(TurnDone(await turn(heard)))
                done = True
        except Exception as error:
            failure.append(error)
        finally:
            heard.over()
            ended.set()

    (await free()).start_soon(work)
    try:
        while (event := await heard.next()) is not None:
            yield event
    finally:
        heard.scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()
    if failure:
        raise failure[0]
    if not done:
        raise ConfigurationError(
            "this turn was ended: its stream was closed, or the session was used for another turn "
            "while nobody asked for its events"
        )
