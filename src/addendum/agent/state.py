"""All that follows from a session's log: every fold that driving it needs, registered once."""

from __future__ import annotations

from typing import ClassVar

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
from addendum.log.subagents import SubagentEnded
from addendum.tools.history import HistoryFold


class Latest:
    """The latest event of some kinds, and each call's latest result: a fold of the log.

    Attributes:
        answer: The latest answer.
        answer_seq: Its seq; -1 without one.
        turn_seq: Seq of the latest turn's start; -1 without one.
        message_seq: Seq of the latest thing that a person said or took back; -1 without one.
        results: Results by call id; the latest where ids repeat.
        children: Child sessions that the latest turn was done with, in order.
    """

    kinds: ClassVar[frozenset[type]] = frozenset(
        {AssistantMessage, TurnStart, UserMessage, Rewind, ToolResult, SubagentEnded}
    )

    def __init__(self) -> None:
        self.answer: AssistantMessage | None = None
        self.answer_seq = self.turn_seq = self.message_seq = -1
        self.results: dict[str, ToolResult] = {}
        self.children: list[SubagentEnded] = []

    def take(self, event: Event) -> None:
        """Take in an event of these kinds."""
        data = event.data
        if isinstance(data, ToolResult):
            self.results[data.call_id] = data
        elif isinstance(data, AssistantMessage):
            self.answer, self.answer_seq = data, event.seq
        elif isinstance(data, TurnStart):
            self.turn_seq = event.seq
            self.children = []
        elif isinstance(data, SubagentEnded):
            self.children.append(data)
        else:
            self.message_seq = event.seq


class State:
    """What follows from a session's log: each fold goes on with every event that is appended.

    Args:
        log: The log. What it says that is not as it was written allows nothing.

    Attributes:
        history: Declarations of the series, and the head.
        consent: What persons decided, by tool.
        discovered: Deferred tools that searches have shown.
        outputs: Results by their labels.
        definitions: What headers defined.
        failures: Calls that failed in this turn.
        switches: What was switched by hand.
        sent: Requests, by route.
        answers: What was answered, by route.
        sizes: What the provider reported of the session's size.
        latest: The latest answer, turn, message and results.
    """

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.history = HistoryFold()
        self.consent = Consent(max(log.changed, default=-1) + 1)
        self.discovered = Discovered()
        self.outputs = Outputs()
        self.definitions = Definitions()
        self.failures = Failures()
        self.switches = Switched()
        self.sent = SentRequests()
        self.answers = Answers()
        self.sizes = Sizes()
        self.latest = Latest()
        log.follow(
            self.history,
            self.consent,
            self.discovered,
            self.outputs,
            self.definitions,
            self.failures,
            self.switches,
            self.sent,
            self.answers,
            self.sizes,
            self.latest,
        )

    def at(self, seq: int) -> State:
        """Return the state as it was before the event with this seq was appended."""
        earlier = self._log.until(seq)
        earlier.changed = {each for each in self._log.changed if each < seq}
        return State(earlier)
