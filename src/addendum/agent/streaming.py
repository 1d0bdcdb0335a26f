"""Gives the events of a turn to whoever loops over them, while the turn runs in a task."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from addendum.agent.results import StreamEvent, TurnDone, TurnResult
from addendum.errors import ConfigurationError

Work = Callable[[Callable[[StreamEvent], None]], Awaitable[TurnResult]]
"""A turn, given whom to tell what happens."""


async def streamed(tasks: TaskGroup, turn: Work) -> AsyncGenerator[StreamEvent]:
    """Run a turn and give its events as they happen; the last is `TurnDone`.

    Leaving the loop early cancels the turn. What it raises is raised at the end.

    Args:
        tasks: Where it runs.
        turn: The turn.

    Raises:
        ConfigurationError: The session is closed.
    """
    send, receive = anyio.create_memory_object_stream[StreamEvent](math.inf)
    failure: list[BaseException] = []
    scope, ended = anyio.CancelScope(), anyio.Event()

    def tell(event: StreamEvent) -> None:
        # Whoever left the loop hears no more; the turn is cancelled, which is no error of it.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            send.send_nowait(event)

    async def work() -> None:
        try:
            with scope:
                tell(TurnDone(await turn(tell)))
        except Exception as error:
            failure.append(error)
        finally:
            send.close()
            ended.set()

    try:
        tasks.start_soon(work)
    except RuntimeError as error:
        send.close()
        receive.close()
        raise ConfigurationError("this session was closed; open it again to go on") from error
    try:
        async for event in receive:
            yield event
    finally:
        receive.close()
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()
    if failure:
        raise failure[0]
