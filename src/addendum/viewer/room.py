"""A session that is open here: the turn that runs in it, and what came in so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from addendum.agent.results import Notice, ReasoningPiece, RequestDone, StreamEvent, TextPiece
from addendum.agent.session import Session
from addendum.agent.streaming import TurnStream
from addendum.errors import AddendumError, ConfigurationError
from addendum.host.faults import complain, fault

NOTICES = 20
"""Notices of a turn that are kept for its page."""


class Live:
    """The answer that is coming in.

    Attributes:
        text: Its text so far.
        reasoning: Its readable reasoning so far.
        since: Events of the log when it began.
    """

    def __init__(self, since: int) -> None:
        self.text = ""
        self.reasoning = ""
        self.since = since


class Audience(Protocol):
    """Who is told of what happens in a room.

    Attributes:
        viewers: Event streams that follow it.
    """

    viewers: int

    def notify(self) -> None:
        """Wake up whoever waits for a change."""
        ...

    async def drive(self, room: Room | None) -> None:
        """Say what drives the session from now on here; None if nothing does."""
        ...


class Room:
    """A session that is open here.

    Args:
        session: The session.
        watched: What pages see of it.

    Attributes:
        live: The answer that is coming in.
        notices: What happened that a person should know: retries, downgrades.
        error: Why the last turn could not go on, or empty.
        costs: What was told last of a switch, by server and language: whether the server was on,
            the words, and whether it is free.
        used: When somebody last did something in it.
        closing: Set when it is about to close.
        closed: Set when it is closed.
        quiet: Set while no turn runs.
    """

    def __init__(self, session: Session, watched: Audience) -> None:
        self.session = session
        self.watched = watched
        self.live: Live | None = None
        self.notices: list[str] = []
        self.error = ""
        self.costs: dict[tuple[str, str], tuple[bool, str, bool]] = {}
        self.used = anyio.current_time()
        self.closing = anyio.Event()
        self.closed = anyio.Event()
        self.quiet = anyio.Event()
        self.quiet.set()
        self._scope: anyio.CancelScope | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self._scope is not None

    def stop(self) -> None:
        """Stop the turn that runs."""
        if self._scope is not None:
            self._scope.cancel()

    def start(self, tasks: TaskGroup, turn: Callable[[], TurnStream]) -> None:
        """Run a turn in a task of its own.

        Raises:
            ConfigurationError: One runs already.
        """
        if self._scope is not None:
            raise ConfigurationError("a turn is running; wait for it or stop it first")
        self._scope, self.quiet = anyio.CancelScope(), anyio.Event()
        self.error, self.notices, self.used = "", [], anyio.current_time()
        tasks.start_soon(self._run, self._scope, turn)

    async def _run(self, scope: anyio.CancelScope, turn: Callable[[], TurnStream]) -> None:
        try:
            with scope:
                async with turn() as events:
                    async for event in events:
                        self._hear(event)
                        self.watched.notify()
        except AddendumError as error:
            self.error = str(error)
        except Exception as error:
            # One conversation's fault is no reason to close the others.
            self.error = fault(error)
            complain(self.error)
        finally:
            self._scope, self.live = None, None
            self.quiet.set()
            self.used = anyio.current_time()
            self.watched.notify()

    def _hear(self, event: StreamEvent) -> None:
        match event:
            case TextPiece(text=text):
                self._incoming().text += text
            case ReasoningPiece(text=text):
                self._incoming().reasoning += text
            case RequestDone():
                self.live = None
            case Notice(text=text):
                self.notices = [*self.notices, text][-NOTICES:]
                # An attempt that failed begins again from nothing.
                self.live = None
            case _:
                pass

    def _incoming(self) -> Live:
        if self.live is None:
            self.live = Live(len(self.session.log))
        return self.live
