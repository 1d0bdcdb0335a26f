"""The repeat guard: a call that fails in the same way again and again is told to stop.

Models have been seen to send a call that cannot work a dozen times, each time with the whole
explanation added to the history (Lexus2016/hermes-agent-evolution#1786). The third time it is
short, and says what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from addendum.encoding import clean
from addendum.log.events import AssistantMessage, Event, ToolResult, TurnStart
from addendum.log.values import Call

LIMIT = 3
"""The failure of the same call in one turn from which on it is told to stop."""

_MOVES = {
    "E1": "send `name` and `arguments` as one JSON object",
    "E2": "send `name` beside `arguments`",
    "E3": "put the name of the tool you want in `name`",
    "E4": "use another tool",
    "E5": "do without this tool",
    "E6": "call it directly, by its own name",
    "E7": "do without this tool",
    "E8": "send its parameters as a JSON object",
    "E9": "change the arguments",
    "E10": "do without this tool",
    "UNKNOWN_TOOL": "use another tool",
}


class Failures:
    """How often the same call failed in the same way in this turn: a fold of the log."""

    kinds: ClassVar[frozenset[type]] = frozenset({TurnStart, AssistantMessage, ToolResult})

    def __init__(self) -> None:
        self._round: dict[str, Call] = {}
        self._counts: Counter[tuple[str, tuple[str, str, str]]] = Counter()

    def take(self, event: Event) -> None:
        """Take in a turn's start, a round of calls or a result."""
        data = event.data
        if isinstance(data, ToolResult):
            call = self._round.get(data.call_id)
            if data.code in _MOVES and call is not None and data.name == call.name:
                self._counts[data.code, _form(call)] += 1
        elif isinstance(data, AssistantMessage):
            self._round = {call.id: call for call in data.calls}
        else:
            self._round = {}
            self._counts.clear()

    def count(self, code: str, call: Call) -> int:
        """Return how often a call failed so far.

        Args:
            code: How.
            call: The call as it is logged.
        """
        return self._counts[code, _form(call)]


def guarded(
    message: str, code: str, call: Call, *, failures: Failures, beside: Sequence[Call] = ()
) -> str:
    """Return what the model reads of a call that was refused: the message, or to stop.

    Args:
        message: Why it is refused.
        code: The same for programs.
        call: The call as it will be logged.
        failures: Those in front of its answer.
        beside: Calls that were refused with this code in the same answer, in front of it.
    """
    before = sum(_form(call) == _form(each) for each in beside) + failures.count(code, call)
    if before + 1 < LIMIT or code not in _MOVES:
        return message
    name = clean(call.name)[:64]
    return (
        f"Stop: this same call of {name} has failed {before + 1} times in this turn. Do not send "
        f"it again; {_MOVES[code]}, or answer without it."
    )


def _form(call: Call) -> tuple[str, str, str]:
    return call.name, call.arguments, call.origin
