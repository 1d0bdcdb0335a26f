"""What an event must be to follow on a log: every append is checked, and every read."""

from __future__ import annotations

from typing import Any

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
from addendum.log.state import LogState
from addendum.log.values import ToolAddition, ToolRemoval, ToolSchema

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


def refuse(state: LogState, event: Event, why: str) -> AppendRefused:
    """Return the error for an event that may not be appended."""
    return AppendRefused(f"{event.type} refused: {why}", session=state.session, seq=event.seq)


def check(state: LogState, event: Event) -> None:
    """Refuse an event that may not follow on a log as it is.

    Raises:
        AppendRefused: It breaks a rule.
        LogError: It begins a log in a format of a later release.
    """
    data: Any = event.data
    if type(data) in _STEPPED and (data.step != state.step or data.turn != state.turn):
        raise refuse(
            state,
            event,
            f"turn {data.turn} step {data.step} is not open "
            f"(open: turn {state.turn} step {state.step})",
        )
    match data:
        case StepStart():
            if data.turn != state.turn or state.step is not None:
                raise refuse(state, event, "its turn is not open, or a step still is")
        case StepEnd():
            if (data.turn, data.step) != (state.turn, state.step):
                raise refuse(state, event, "it is not the open step")
            if state.waiting:
                raise refuse(state, event, f"call {state.waiting[0]} has no result")
        case AssistantMessage():
            _check_calls(state, event, data)
        case ToolResult():
            if data.call_id not in state.waiting:
                raise refuse(state, event, f"no call {data.call_id!r} waits for a result")
        case TurnStart():
            if state.turn is not None:
                raise refuse(state, event, f"turn {state.turn} is still open")
            if data.turn != state.turns + 1:
                raise refuse(state, event, f"the next turn is {state.turns + 1}")
        case TurnEnd():
            if data.turn != state.turn:
                raise refuse(state, event, f"turn {data.turn} is not open")
            if state.step is not None:
                raise refuse(state, event, f"step {state.step} is still open")
        case UserMessage():
            if data.turn != state.turn:
                raise refuse(state, event, f"turn {data.turn} is not open")
        case SessionStart():
            if event.seq != 0:
                raise refuse(state, event, "a session starts once, at seq 0")
            if data.format > FORMAT:
                raise LogError(
                    f"session {state.session!r} is stored in format {data.format}, and this "
                    f"release reads up to {FORMAT}; open it with a newer addendum",
                    session=state.session,
                    seq=0,
                )
        case DeveloperMessage():
            _check_developer(state, event, data)
        case ApprovalAsked():
            if state.asked is not None or [c.call_id for c in data.calls] != state.waiting:
                raise refuse(state, event, "it is not all of the calls that wait for a result")
        case ApprovalDecided():
            asked = () if state.asked is None else state.asked.calls
            if not {d.call_id for d in data.decisions} <= {c.call_id for c in asked}:
                raise refuse(state, event, "it decides what was not asked")
            if state.asked is None:
                raise refuse(state, event, "nothing was asked")
        case AddedContext():
            if state.waiting:
                raise refuse(state, event, f"call {state.waiting[0]} has no result")
        case _:
            pass


def _check_calls(state: LogState, event: Event, data: AssistantMessage) -> None:
    if state.waiting:
        raise refuse(state, event, f"call {state.waiting[0]} has no result")
    ids = [call.id for call in data.calls]
    if not all(ids) or not all(call.name for call in data.calls):
        raise refuse(state, event, "a call has no id or no name")
    if len(set(ids)) != len(ids):
        raise refuse(state, event, "two calls have the same id")


def _check_developer(state: LogState, event: Event, data: DeveloperMessage) -> None:
    added = [block.tool_name for block in data.content if isinstance(block, ToolAddition)]
    removed = [block.tool_name for block in data.content if isinstance(block, ToolRemoval)]
    names = added + removed
    if len(set(names)) != len(names):
        raise refuse(state, event, "a name stands in it twice")
    if bool(added) != (data.header_seq is not None):
        raise refuse(state, event, "header_seq must be there with an addition, and only then")
    if data.header_seq is None:
        return
    header = state.headers.get(data.header_seq)
    if header is None:
        raise refuse(state, event, f"event {data.header_seq} is no earlier header")
    there: dict[str, list[ToolSchema]] = {}
    for tool in header.header.tools:
        there.setdefault(tool.name, []).append(tool)
    for name in added:
        matches = there.get(name, [])
        if len(matches) != 1:
            raise refuse(
                state, event, f"header {data.header_seq} has {len(matches)} tools named {name!r}"
            )
        problem = _definition_problem(matches[0].parameters, matches[0].defer_loading)
        if problem:
            raise refuse(state, event, f"the definition of {name!r} {problem}")


def _definition_problem(parameters: bytes, flag: bool | None) -> str:
    if flag is False:
        return "carries a deferral flag that is false; leave it out"
    try:
        value = encoding.decode(bytes(parameters))
    except ContentError:
        return "has parameters that are no JSON"
    return "" if isinstance(value, dict) else "has parameters that are no object"
