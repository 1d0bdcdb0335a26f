"""What is told of foreign errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import pytest

from addendum.errors import ConfigurationError, described, leaves


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(work: Callable[[], None]) -> BaseException:
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def in_tasks(*errors: Exception) -> BaseException:
    async def fail(error: Exception) -> None:
        raise error

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for error in errors:
                tasks.start_soon(fail, error)

    return raised(lambda: anyio.run(main))


def in_asyncio(error: Exception) -> BaseException:
    async def fail() -> None:
        raise error

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    return raised(lambda: asyncio.run(main()))


def nested(levels: int) -> BaseException:
    error: Exception = ValueError("the disk is full")
    for level in range(levels):
        error = ExceptionGroup(f"level {level}", [error])
    return error


# modelcontextprotocol/python-sdk#2114, epam/statgpt-backend#454, griptape-ai/griptape#2027
TOLD: dict[str, tuple[BaseException, str]] = {
    "an error": (ValueError("the disk is full"), "ValueError: the disk is full"),
    "an error without words": (ValueError(), "ValueError"),
    "an error that cannot be shown": (Mute(), "Mute: its message cannot be shown"),
    "an exit": (SystemExit(3), "SystemExit: 3"),
    "a task group": (in_tasks(ValueError("the disk is full")), "ValueError: the disk is full"),
    "asyncio's": (in_asyncio(ValueError("the disk is full")), "ValueError: the disk is full"),
    "ours in a group": (in_tasks(ConfigurationError("mine")), "ConfigurationError: mine"),
    "nested": (nested(3), "ValueError: the disk is full"),
    "nested without end": (nested(20_000), "ValueError: the disk is full"),
    "two": (
        ExceptionGroup("x", [ExceptionGroup("y", [ValueError("a")]), KeyError("k")]),
        "ValueError: a; KeyError: 'k'",
    ),
    "the same twice": (ExceptionGroup("x", [ValueError("a"), ValueError("a")]), "ValueError: a"),
    "not only exceptions": (
        BaseExceptionGroup("x", [SystemExit(3), ValueError("a")]),
        "SystemExit: 3; ValueError: a",
    ),
    "mute ones": (ExceptionGroup("x", [Mute(), Mute()]), "Mute: its message cannot be shown"),
    "many": (
        ExceptionGroup("x", [ValueError(each) for each in range(13)]),
        "; ".join(f"ValueError: {each}" for each in range(10)) + "; and 3 more",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_leaves_of_a_group_are_told(name: str) -> None:
    error, text = TOLD[name]
    assert described(error) == text
    assert "sub-exception" not in text
    assert not any(isinstance(each, BaseExceptionGroup) for each in leaves(error))
