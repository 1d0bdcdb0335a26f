"""What an event must be to follow on a log: every append is checked, and every read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from addendum import encoding
from addendum.errors import AppendRefused, ContentError, LogError
from addendum.log.approvals import AddedContext, ApprovalAsked, ApprovalDecided
from addendum.log.events import (
    FORMAT,
    AssistantMessage,
    DeveloperMessage,
    Event,
    ServerInstructions,
    SessionStart,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.values import ToolAddition, ToolRemoval, ToolSchema

if TYPE_CHECKING:
    from addendum.log.session_log import SessionLog

_STEPPED: frozenset[type] = frozenset(
    {
        DeveloperMessage,
        AssistantMessage,
        ToolResult,
        ToolCall,
        ServerInstructions,
        ApprovalAsked,
        ApprovalDecided,
        AddedContext,
    }
)

CHECKED: frozenset[type] = frozenset(
    {
        *_STEPPED,
        SessionStart,
        TurnStart,
        TurnEnd,
        StepStart,
        StepEnd,
        UserMessage,
    }
)
"""Types that have rules of their own; most events of a long log are of no such type."""


def refuse(log: SessionLog, event: Event, why: str) -> AppendRefused:
    """Return the error for an event that may not be appended."""
    return AppendRefused(f"{event.type} refused: {why}", session=log.session, seq=event.seq)


def check(log: SessionLog, event: Event) -> None:
    """Refuse an event that may not follow on a log as it is.

    Raises:
        AppendRefused: It breaks a rule.
        LogError: It begins a log in a format of a later release.
    """
    data: Any = event.data
    if type(data) in _STEPPED and (data.step != log.step or data.turn != log.turn):
        raise refuse(
            log,
            event,
            f"turn {data.turn} step {data.step} is not open "
            f"(open: turn {log.turn} step {log.step})",
        )
    match data:
        case StepStart():
            if data.turn != log.turn or log.step is not None:
                raise refuse(log, event, "its turn is not open, or a step still is")
        case StepEnd():
            if (data.turn, data.step) != (log.turn, log.step):
                raise refuse(log, event, "it is not the open step")
            if log.unanswered:
                raise refuse(log, event, f"call {log.unanswered[0]} has no result")
        case AssistantMessage():
            _check_calls(log, event, data)
        case ToolResult():
            if data.call_id not in log.unanswered:
                raise refuse(log, event, f"no call {data.call_id!r} waits for a result")
        case TurnStart():
            if log.turn is not None:
                raise refuse(log, event, f"turn {log.turn} is still open")
            if data.turn != log.turns + 1:
                raise refuse(log, event, f"the next turn is {log.turns + 1}")
        case TurnEnd():
            if data.turn != log.turn:
                raise refuse(log, event, f"turn {data.turn} is not open")
            if log.step is not None:
                raise refuse(log, event, f"step {log.step} is still open")
        case UserMessage():
            if data.turn != log.turn:
                raise refuse(log, event, f"turn {data.turn} is not open")
        case SessionStart():
            if event.seq != 0:
                raise refuse(log, event, "a session starts once, at seq 0")
            if data.format > FORMAT:
                raise LogError(
                    f"session {log.session!r} is stored in format {data.format}, and this "
                    f"release reads up to {FORMAT}; open it with a newer addendum",
                    session=log.session,
                    seq=0,
                )
        case DeveloperMessage():
            _check_developer(log, event, data)
        case ApprovalAsked():
            if log.asked is not None or [c.call_id for c in data.calls] != list(log.unanswered):
                raise refuse(log, event, "it is not all of the calls that wait for a result")
        case ApprovalDecided():
            asked = () if log.asked is None else log.asked.calls
            if not {d.call_id for d in data.decisions} <= {c.call_id for c in asked}:
                raise refuse(log, event, "it decides what was not asked")
            if log.asked is None:
                raise refuse(log, event, "nothing was asked")
        case AddedContext():
            if log.unanswered:
                raise refuse(log, event, f"call {log.unanswered[0]} has no result")
        case _:
            pass


def _check_calls(log: SessionLog, event: Event, data: AssistantMessage) -> None:
    if log.unanswered:
        raise refuse(log, event, f"call {log.unanswered[0]} has no result")
    ids = [call.id for call in data.calls]
    if not all(ids) or not all(call.name for call in data.calls):
        raise refuse(log, event, "a call has no id or no name")
    if len(set(ids)) != len(ids):
        raise refuse(log, event, "two calls have the same id")


def _check_developer(log: SessionLog, event: Event, data: DeveloperMessage) -> None:
    added = [block.tool_name for block in data.content if isinstance(block, ToolAddition)]
    removed = [block.tool_name for block in data.content if isinstance(block, ToolRemoval)]
    names = added + removed
    if len(set(names)) != len(names):
        raise refuse(log, event, "a name stands in it twice")
    if bool(added) != (data.header_seq is not None):
        raise refuse(log, event, "header_seq must be there with an addition, and only then")
    if data.header_seq is None:
        return
    header = log.header_at(data.header_seq)
    if header is None:
        raise refuse(log, event, f"event {data.header_seq} is no earlier header")
    there: dict[str, list[ToolSchema]] = {}
    for tool in header.header.tools:
        there.setdefault(tool.name, []).append(tool)
    for name in added:
        matches = there.get(name, [])
        if len(matches) != 1:
            raise refuse(
                log, event, f"header {data.header_seq} has {len(matches)} tools named {name!r}"
            )
        problem = _definition_problem(matches[0].parameters, matches[0].defer_loading)
        if problem:
            raise refuse(log, event, f"the definition of {name!r} {problem}")


def _definition_problem(parameters: bytes, flag: bool | None) -> str:
    if flag is False:
        return "carries a deferral flag that is false; leave it out"
    try:
        value = encoding.decode(bytes(parameters))
    except ContentError:
        return "has parameters that are no JSON"
    return "" if isinstance(value, dict) else "has parameters that are no object"
