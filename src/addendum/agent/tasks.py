"""Tasks that belong to nobody's block: what anyio has no word for, on asyncio and on trio.

A cancel scope has to be left by the task that entered it. What is opened in one task and closed in
another, as notebooks and web servers do, therefore lives in a task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

_running: set[asyncio.Task[None]] = set()
"""Event loops themselves hold their tasks weakly."""


def _on_asyncio() -> bool:
    return anyio.get_cancelled_exc_class() is asyncio.CancelledError


def _trio() -> Any:
    return importlib.import_module("trio")


def start(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something in a task of its own, until it ends or the event loop does.

    Args:
        work: What to run. It keeps its errors to itself.
    """
    if _on_asyncio():
        task = asyncio.get_running_loop().create_task(work())
        _running.add(task)
        task.add_done_callback(_running.discard)
    else:
        _trio().lowlevel.spawn_system_task(work, context=contextvars.copy_context())


def from_any_thread() -> Callable[[Callable[[], object]], None]:
    """Return what has this event loop do something soon, from whatever thread it is called.

    Once the loop has ended it does nothing.
    """
    if _on_asyncio():
        loop = asyncio.get_running_loop()

        def soon(work: Callable[[], object]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(work)

    else:
        trio = _trio()
        token = trio.lowlevel.current_trio_token()

        def soon(work: Callable[[], object]) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(work)

    return soon


class Caller:
    """The task that runs now, to ask later whether it is still there."""

    def __init__(self) -> None:
        self._task: Callable[[], Any] = weakref.ref(_current())

    def here(self) -> bool:
        """Say whether it is the one that runs now."""
        return self._task() is _current()

    def over(self) -> bool:
        """Say whether it has ended."""
        task = self._task()
        if task is None:
            return True
        if isinstance(task, asyncio.Task):
            return task.done()
        return task.coro.cr_frame is None


def _current() -> Any:
    return asyncio.current_task() if _on_asyncio() else _trio().lowlevel.current_task()
