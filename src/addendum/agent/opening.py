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
from typing import TYPE_CHECKING, Any

import anyio

from addendum.agent import tasks

if TYPE_CHECKING:
    from addendum.agent.session import Session


class Opening:
    """A session that is to be opened: await it, or enter it as a context.

    Args:
        live: Gives what opens the session and closes it again. It is entered and left in one task.
    """

    def __init__(self, live: Callable[[], AbstractAsyncContextManager[Session]]) -> None:
        self._live = live
        self._life: Life | None = None

    def __await__(self) -> Generator[Any, Any, Session]:
        return self._opened().__await__()

    async def __aenter__(self) -> Session:
        return await self._opened()

    async def __aexit__(self, *_: object) -> None:
        assert self._life is not None
        with anyio.CancelScope(shield=True):
            await self._life.close()

    async def _opened(self) -> Session:
        self._life = Life(self._live())
        return await self._life.open()


class Life:
    """What keeps a session open.

    Args:
        context: Opens the session and closes it again.
    """

    def __init__(self, context: AbstractAsyncContextManager[Session]) -> None:
        self._context = context
        self._session: Session | None = None
        self._failure: BaseException | None = None
        self._scope = anyio.CancelScope()
        self._opened, self._leave, self._ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def open(self) -> Session:
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
                    session.life = self
                    self._opened.set()
                    await self._leave.wait()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._ended.set()
            self._opened.set()
