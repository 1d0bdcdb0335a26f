"""A session's life, in a task of its own: opened here, used there, closed anywhere.

    async with agent.open("s") as session:      # closed when the block is left
        ...

    session = await agent.open("s")             # closed when somebody says so
    ...
    await session.aclose()

Both are the same: the task holds the store, the lease and everything that runs beside the turns
until it is told to let go. Whoever opened a session may be gone by then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import anyio

from addendum.agent import tasks

S = TypeVar("S")
"""What is opened: a session."""


class Opening(Generic[S]):
    """A session that is to be opened: await it, or enter it as a context.

    Args:
        live: Gives what opens the session and closes it again, told what keeps it open. It is
            entered and left in one task.
    """

    def __init__(self, live: Callable[[Life[S]], AbstractAsyncContextManager[S]]) -> None:
        self._live = live
        self._life: Life[S] | None = None

    def __await__(self) -> Generator[Any, Any, S]:
        return self._opened().__await__()

    async def __aenter__(self) -> S:
        return await self._opened()

    async def __aexit__(self, *_: object) -> None:
        assert self._life is not None
        with anyio.CancelScope(shield=True):
            await self._life.close()

    async def _opened(self) -> S:
        self._life = Life(self._live)
        return await self._life.open()


class Life(Generic[S]):
    """What keeps a session open.

    Args:
        live: As for `Opening`.
    """

    def __init__(self, live: Callable[[Life[S]], AbstractAsyncContextManager[S]]) -> None:
        self._context = live(self)
        self._session: S | None = None
        self._failure: BaseException | None = None
        self._scope = anyio.CancelScope()
        self._opened, self._leave, self._ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def open(self) -> S:
        """Open the session.

        Raises:
            AddendumError: As whatever opens it.
        """
        tasks.start(self._live)
        try:
            await self._opened.wait()
        except BaseException:
            # Nobody would close it.
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
            raise
        if self._session is None:
            await self.close()
            raise RuntimeError("a session was neither opened nor refused")
        return self._session

    async def close(self) -> None:
        """Close the session and wait until that is done; once more it does nothing.

        Raises:
            AddendumError: Something could not be made durable.
        """
        self._leave.set()
        await self._ended.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _live(self) -> None:
        try:
            with self._scope:
                async with self._context as session:
                    self._session = session
                    self._opened.set()
                    await self._leave.wait()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._ended.set()
            self._opened.set()
