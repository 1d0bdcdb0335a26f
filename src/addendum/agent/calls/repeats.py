"""The repeat guard: a call that fails in the same way again and again is told to stop.

Models have been seen to send a call that cannot work a dozen times, each time with the whole
explanation added to the history (Lexus2016/hermes-agent-evolution#1786). The third time it is
short, and says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def guarded(
    message: str, code: str, call: Call, *, events: Sequence[Event], beside: Sequence[Call] = ()
) -> str:
    """Return what the model reads of a call that was refused: the message, or to stop.

    Args:
        message: Why it is refused.
        code: The same for programs.
        call: The call as it will be logged.
        events: The log in front of its answer.
        beside: Calls that were refused with this code in the same answer, in front of it.
    """
    before = sum(_same(call, each) for each in beside) + _failures(events, code, call)
    if before + 1 < LIMIT or code not in _MOVES:
        return message
    name = clean(call.name)[:64]
    return (
        f"Stop: this same call of {name} has failed {before + 1} times in this turn. Do not send "
        f"it again; {_MOVES[code]}, or answer without it."
    )


def _failures(events: Sequence[Event], code: str, call: Call) -> int:
    """Return how often the same call failed in this turn so far."""
    count = 0
    failed: set[str] = set()
    for event in reversed(events):
        data = event.data
        if isinstance(data, TurnStart):
            break
        if isinstance(data, ToolResult) and data.code == code and data.name == call.name:
            failed.add(data.call_id)
        elif isinstance(data, AssistantMessage):
            count += sum(each.id in failed and _same(call, each) for each in data.calls)
            failed.clear()
    return count


def _same(one: Call, other: Call) -> bool:
    return (one.name, one.arguments, one.origin) == (other.name, other.arguments, other.origin)
