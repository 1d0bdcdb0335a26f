"""Code that is not ours: functions, hooks, predicates and handlers, whatever they raise.

What such code raises is its own fault, and counts against its call: also `sys.exit()`, and a
cancellation that nobody asked for. Only an end that somebody asked of this task goes its way.
"""

from __future__ import annotations

import asyncio
import math

import anyio

from addendum.errors import leaves


def is_own(error: BaseException) -> bool:
    """Say whether foreign code raised an error by itself.

    Args:
        error: What came out of it.
    """
    return all(map(_is_own, leaves(error)))


def _is_own(error: BaseException) -> bool:
    if isinstance(error, Exception | SystemExit):
        return True
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return False
    return not _cancelled()


def _cancelled() -> bool:
    """Say whether somebody asked for this task's end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop than asyncio's, or none
        task = None
    if task is not None and task.cancelling():
        return True
    try:
        return anyio.current_effective_deadline() == -math.inf
    except RuntimeError:
        return False
