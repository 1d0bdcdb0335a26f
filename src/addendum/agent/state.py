"""All that follows from a session's log: every fold that driving it needs, registered once."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, TypeVar

from addendum.agent.calls.approval import Consent
from addendum.agent.calls.discovery import Discovered
from addendum.agent.calls.outputs import Outputs
from addendum.agent.calls.redefinition import Definitions
from addendum.agent.calls.repeats import Failures
from addendum.agent.calls.switches import Switched
from addendum.agent.context.answers import Answers
from addendum.agent.context.sent import SentRequests
from addendum.agent.context.window import Sizes
from addendum.log.events import (
    AssistantMessage,
    Event,
    Rewind,
    ToolResult,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.state import Fold
from addendum.log.subagents import SubagentEnded
from addendum.tools.history import HistoryFold

F = TypeVar("F", bound=Fold)


class Latest:
    """What came last: a fold of the log.

    Attributes:
        answer: The latest answer.
        turn_seq: Seq of the latest turn's start; -1 without one.
        message_seq: Seq of the latest thing that a person said or took back; -1 without one.
        children: Child sessions that the latest turn was done with, in order.
    """

    kinds: ClassVar[frozenset[type]] = frozenset(
        {AssistantMessage, TurnStart, UserMessage, Rewind, SubagentEnded}
    )

    def __init__(self) -> None:
        self.answer: AssistantMessage | None = None
        self.turn_seq = self.message_seq = -1
        self.children: list[SubagentEnded] = []

    def take(self, event: Event) -> None:
        """Take in an event of these kinds."""
        data = event.data
        if isinstance(data, AssistantMessage):
            self.answer = data
        elif isinstance(data, TurnStart):
            self.turn_seq = event.seq
            self.children = []
        elif isinstance(data, SubagentEnded):
            self.children.append(data)
        else:
            self.message_seq = event.seq


class Results:
    """The result of each call: a fold of the log.

    Attributes:
        by_call: Results by call id; the latest where ids repeat.
    """

    kinds: ClassVar[frozenset[type]] = frozenset({ToolResult})

    def __init__(self) -> None:
        self.by_call: dict[str, ToolResult] = {}

    def take(self, event: Event) -> None:
        """Take in a result."""
        if isinstance(event.data, ToolResult):
            self.by_call[event.data.call_id] = event.data


class State:
    """What follows from a session's log.

    A fold is registered when it is first asked for: it is told of all events so far, and from then
    on of each that is appended.

    Args:
        log: The log. What it says that is not as it was written allows nothing.
    """

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._trusted_from = max(log.changed, default=-1) + 1

    def _followed(self, fold: F) -> F:
        self._log.follow(fold)
        return fold

    @cached_property
    def history(self) -> HistoryFold:
        """Declarations of the series, and the head."""
        return self._followed(HistoryFold())

    @cached_property
    def consent(self) -> Consent:
        """What persons decided, by tool."""
        return self._followed(Consent(self._trusted_from))

    @cached_property
    def discovered(self) -> Discovered:
        """Deferred tools that searches have shown."""
        return self._followed(Discovered())

    @cached_property
    def outputs(self) -> Outputs:
        """Results by their labels."""
        return self._followed(Outputs())

    @cached_property
    def definitions(self) -> Definitions:
        """What headers defined."""
        return self._followed(Definitions())

    @cached_property
    def failures(self) -> Failures:
        """Calls that failed in this turn."""
        return self._followed(Failures())

    @cached_property
    def switches(self) -> Switched:
        """What was switched by hand."""
        return self._followed(Switched())

    @cached_property
    def sent(self) -> SentRequests:
        """Requests, by route."""
        return self._followed(SentRequests())

    @cached_property
    def answers(self) -> Answers:
        """What was answered, by route."""
        return self._followed(Answers())

    @cached_property
    def sizes(self) -> Sizes:
        """What the provider reported of the session's size."""
        return self._followed(Sizes())

    @cached_property
    def latest(self) -> Latest:
        """The latest answer, turn and message."""
        return self._followed(Latest())

    @cached_property
    def results(self) -> Results:
        """The result of each call."""
        return self._followed(Results())

    def at(self, seq: int) -> State:
        """Return the state as it was before the event with this seq was appended."""
        earlier = self._log.until(seq)
        earlier.changed = {each for each in self._log.changed if each < seq}
        return State(earlier)
