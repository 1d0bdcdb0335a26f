"""What a session does one at a time: turns, and whatever else changes what the model sees."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

import anyio
from anyio.abc import TaskGroup

from addendum.agent.streaming import Listener, Nobody
from addendum.errors import ConfigurationError
from addendum.log.session_log import SessionLog


class Using:
    """Lets one turn into a session at a time, and none once it is closed.

    Args:
        log: The session's log.
        tasks: Where turns run that are streamed.
    """

    def __init__(self, log: SessionLog, tasks: TaskGroup) -> None:
        self._log = log
        self._tasks = tasks
        self._use: _Use | None = None
        self._closed = False

    async def free(self) -> TaskGroup:
        """End a turn to which nobody listens any more; return where the next one may run.

        Raises:
            ConfigurationError: The session is closed.
        """
        if self._use is not None and self._use.listener.left():
            self._use.listener.stop()
            await self._use.ended.wait()
        if self._closed:
            raise ConfigurationError(
                "the session is closed; open it again to go on", session=self._log.session
            )
        return self._tasks

    @contextlib.asynccontextmanager
    async def alone(
        self, listener: Listener | None = None, *, deciding: bool = False
    ) -> AsyncGenerator[None]:
        """Let nothing else in while the block runs.

        Args:
            listener: Who is told what happens in it.
            deciding: Whether it decides what a turn waits for; all else is refused meanwhile.

        Raises:
            ConfigurationError: Something runs already, waits for decisions, or the session is
                closed, now or while the block runs.
        """
        await self.free()
        if self._use is not None:
            raise ConfigurationError(
                "a turn is running in this session; wait for it or cancel it first",
                session=self._log.session,
            )
        if self._log.asked is not None and not deciding:
            raise ConfigurationError(
                "a turn waits for decisions; answer session.pending() with session.decide(...)",
                session=self._log.session,
            )
        use = self._use = _Use(listener or Nobody())
        try:
            with use.scope:
                yield
        finally:
            self._use = None
            use.ended.set()
        if use.scope.cancelled_caught:
            raise ConfigurationError(
                "the session was closed while this ran; open it again to go on",
                session=self._log.session,
            )

    async def heard(self) -> None:
        """Wait until whoever loops over the events of the turn has taken all of them."""
        if self._use is not None:
            await self._use.listener.heard()

    async def close(self) -> None:
        """Let no more in, and end what runs, whoever waits for it."""
        self._closed = True
        if self._use is not None:
            self._use.scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._use.ended.wait()


class _Use:
    """What a session does now.

    Attributes:
        listener: Who is told of it.
        scope: What it runs in.
        ended: Set when it has ended.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
