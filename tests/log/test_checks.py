"""Each rule of what may follow on a log: one log that keeps it, and one that does not.

The last event of a log is the one in question. What is refused as an append is refused as well
when a stored log is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from msgspec import Raw

from addendum.errors import AppendRefused, LogError
from addendum.log.approvals import (
    AddedContext,
    ApprovalAsked,
    ApprovalDecided,
    AskedCall,
    DecidedCall,
)
from addendum.log.codec import encode_event
from addendum.log.events import (
    FORMAT,
    SURFACE_TYPES,
    AssistantMessage,
    DeveloperMessage,
    Event,
    EventData,
    RequestHeader,
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
from addendum.log.session_log import SessionLog
from addendum.log.values import Call, Config, Header, ToolAddition, ToolRemoval, ToolSchema

Log: TypeAlias = tuple[EventData, ...]


def answer(*ids: str, turn: int = 1, step: int = 1, name: str = "web") -> AssistantMessage:
    calls = tuple(Call(each, name, "{}") for each in ids)
    return AssistantMessage(turn, step, "anthropic:m", "anthropic_messages", calls=calls)


def result(call: str, turn: int = 1, step: int = 1) -> ToolResult:
    return ToolResult(turn, step, call, "web", "found")


def asked(*ids: str, turn: int = 1, step: int = 1) -> ApprovalAsked:
    return ApprovalAsked(turn, step, tuple(AskedCall(each, "web", "{}") for each in ids))


def decided(*ids: str, turn: int = 1, step: int = 1) -> ApprovalDecided:
    return ApprovalDecided(turn, step, tuple(DecidedCall(each, "approve") for each in ids))


def header(*tools: ToolSchema) -> RequestHeader:
    return RequestHeader(Header(Config("anthropic", "m"), tools), "initial")


def tool(name: str, parameters: bytes = b"{}", flag: bool | None = None) -> ToolSchema:
    return ToolSchema(name, "Reads.", Raw(parameters), flag)


def update(*content: ToolAddition | ToolRemoval, at: int | None = None) -> DeveloperMessage:
    return DeveloperMessage(1, 1, content, at)


START: Log = (SessionStart("s", format=FORMAT),)
TURN: Log = (*START, TurnStart(1))
STEP: Log = (*TURN, StepStart(1, 1))
CALLED: Log = (*STEP, answer("a", "b"))
ASKED: Log = (*CALLED, asked("a", "b"))
ENDED: Log = (*STEP, StepEnd(1, 1))
DONE: Log = (*TURN, TurnEnd(1))
A, B = ToolAddition("a"), ToolAddition("b")
GONE = ToolRemoval("a")


def defined(*tools: ToolSchema) -> Log:
    """An open step with a header at seq 3."""
    return (*STEP, header(*tools))


TOOLS = defined(tool("a"), tool("b"))

RULES: dict[str, tuple[Log, Log, str]] = {
    "a_session_starts_at_seq_0": (START, (*START, *START), "once, at seq 0"),
    "its_format_is_known": (START, (SessionStart("s", format=FORMAT + 1),), "newer addendum"),
    "a_turn_starts_behind_the_last": ((*DONE, TurnStart(2)), (*TURN, TurnStart(2)), "still open"),
    "no_turn_is_left_out": (TURN, (*START, TurnStart(2)), "the next turn is 1"),
    "turns_do_not_repeat": ((*DONE, TurnStart(2)), (*DONE, TurnStart(1)), "the next turn is 2"),
    "a_turn_ends_that_is_open": (DONE, (*DONE, TurnEnd(1)), "turn 1 is not open"),
    "no_other_turn_ends": (DONE, (*TURN, TurnEnd(2)), "turn 2 is not open"),
    "a_turn_ends_behind_its_steps": ((*ENDED, TurnEnd(1)), (*STEP, TurnEnd(1)), "still open"),
    "a_step_starts_in_a_turn": (STEP, (*START, StepStart(1, 1)), "its turn is not open"),
    "a_step_starts_in_its_own_turn": (STEP, (*TURN, StepStart(2, 1)), "its turn is not open"),
    "a_step_starts_behind_the_last": (
        (*ENDED, StepStart(1, 2)),
        (*STEP, StepStart(1, 2)),
        "step still is",
    ),
    "a_step_ends_that_is_open": (ENDED, (*ENDED, StepEnd(1, 1)), "not the open step"),
    "no_other_step_ends": (ENDED, (*STEP, StepEnd(1, 2)), "not the open step"),
    "no_step_of_another_turn_ends": (ENDED, (*STEP, StepEnd(2, 1)), "not the open step"),
    "a_step_ends_when_every_call_has_a_result": (
        (*CALLED, result("a"), result("b"), StepEnd(1, 1)),
        (*CALLED, result("a"), StepEnd(1, 1)),
        "call b has no result",
    ),
    "a_message_comes_in_a_turn": (
        (*TURN, UserMessage(1, "hi")),
        (*DONE, UserMessage(1, "hi")),
        "turn 1 is not open",
    ),
    "a_message_comes_in_its_own_turn": (
        (*STEP, UserMessage(1, "hi")),
        (*STEP, UserMessage(2, "hi")),
        "turn 2 is not open",
    ),
    "an_answer_waits_for_the_results": (
        (*STEP, answer("a"), result("a"), answer()),
        (*STEP, answer("a"), answer()),
        "call a has no result",
    ),
    "every_call_has_an_id": (CALLED, (*STEP, answer("a", "")), "no id or no name"),
    "a_lone_call_has_an_id": ((*STEP, answer("a")), (*STEP, answer("")), "no id or no name"),
    "every_call_has_a_name": (CALLED, (*STEP, answer("a", "b", name="")), "no id or no name"),
    "a_lone_call_has_a_name": (
        (*STEP, answer("a")),
        (*STEP, answer("a", name="")),
        "no id or no name",
    ),
    "no_two_calls_have_one_id": (CALLED, (*STEP, answer("a", "a")), "the same id"),
    "a_result_answers_a_call": ((*CALLED, result("b")), (*CALLED, result("c")), "no call 'c' wait"),
    "a_result_answers_once": (
        (*CALLED, result("a"), result("b")),
        (*CALLED, result("a"), result("a")),
        "no call 'a' waits",
    ),
    "all_that_wait_are_asked_about": (ASKED, (*CALLED, asked("a")), "not all of the calls"),
    "they_are_asked_about_in_order": (ASKED, (*CALLED, asked("b", "a")), "not all of the calls"),
    "what_has_a_result_is_not_asked_about": (
        (*CALLED, result("a"), asked("b")),
        (*CALLED, result("a"), asked("a", "b")),
        "not all of the calls",
    ),
    "nobody_is_asked_twice_at_once": (
        (*ASKED, decided("a"), asked("a", "b")),
        (*ASKED, asked("a", "b")),
        "not all of the calls",
    ),
    "a_question_ends_with_its_step": (
        (*ASKED, result("a"), result("b"), StepEnd(1, 1)),
        (*ASKED, result("a"), result("b"), asked()),
        "not all of the calls",
    ),
    "what_was_asked_is_decided": ((*ASKED, decided("b")), (*ASKED, decided("c")), "was not asked"),
    "nothing_else_is_decided_with_it": (
        (*ASKED, decided("a", "b")),
        (*ASKED, decided("a", "c")),
        "was not asked",
    ),
    "no_call_is_decided_unasked": (
        (*ASKED, decided("a")),
        (*CALLED, decided("a")),
        "was not asked",
    ),
    "nothing_is_decided_unasked": ((*ASKED, decided()), (*CALLED, decided()), "nothing was asked"),
    "nothing_is_decided_twice": (
        (*ASKED, decided()),
        (*ASKED, decided(), decided()),
        "nothing was asked",
    ),
    "a_hook_waits_for_the_results": (
        (*CALLED, result("a"), result("b"), AddedContext(1, 1, "web", "more")),
        (*CALLED, result("a"), AddedContext(1, 1, "web", "more")),
        "call b has no result",
    ),
    "no_name_is_added_twice": ((*TOOLS, update(A, B, at=3)), (*TOOLS, update(A, A, at=3)), "twice"),
    "no_name_is_removed_twice": ((*TOOLS, update(GONE)), (*TOOLS, update(GONE, GONE)), "twice"),
    "no_name_is_added_and_removed": (
        (*TOOLS, update(B, GONE, at=3)),
        (*TOOLS, update(A, GONE, at=3)),
        "twice",
    ),
    "an_addition_names_its_header": (
        (*TOOLS, update(A, at=3)),
        (*TOOLS, update(A)),
        "with an addition, and only then",
    ),
    "a_removal_names_no_header": (
        (*TOOLS, update(GONE)),
        (*TOOLS, update(GONE, at=3)),
        "with an addition, and only then",
    ),
    "the_header_is_an_earlier_one": (
        (*TOOLS, header(), update(A, at=3)),
        (*TOOLS, update(A, at=4)),
        "event 4 is no earlier header",
    ),
    "the_header_is_one": (
        (*TOOLS, update(A, at=3)),
        (*TOOLS, update(A, at=2)),
        "event 2 is no earlier header",
    ),
    "the_header_has_every_name": (
        (*TOOLS, update(A, B, at=3)),
        (*defined(tool("a")), update(A, B, at=3)),
        "has 0 tools named 'b'",
    ),
    "the_header_has_the_name_once": (
        (*defined(tool("a"), tool("b"), tool("b")), update(A, at=3)),
        (*defined(tool("a"), tool("a"), tool("b")), update(A, at=3)),
        "has 2 tools named 'a'",
    ),
    "its_parameters_are_an_object": (
        (*defined(tool("a", b'{"type":"object"}')), update(A, at=3)),
        (*defined(tool("a", b"[]")), update(A, at=3)),
        "'a' has parameters that are no object",
    ),
    "its_flag_is_true_or_absent": (
        (*defined(tool("a", flag=True)), update(A, at=3)),
        (*defined(tool("a", flag=False)), update(A, at=3)),
        "'a' carries a deferral flag that is false",
    ),
}

IN_A_STEP: dict[str, tuple[Log, Callable[[int, int], EventData]]] = {
    "an_answer": (STEP, lambda turn, step: answer(turn=turn, step=step)),
    "a_call": (STEP, lambda turn, step: ToolCall(turn, step, "a", "web", "{}")),
    "a_result": (CALLED, lambda turn, step: result("a", turn, step)),
    "an_update": (STEP, lambda turn, step: DeveloperMessage(turn, step)),
    "a_server": (STEP, lambda turn, step: ServerInstructions(turn, step, "git", "Ask.")),
    "a_question": (CALLED, lambda turn, step: asked("a", "b", turn=turn, step=step)),
    "a_decision": (ASKED, lambda turn, step: decided(turn=turn, step=step)),
    "a_hook": (STEP, lambda turn, step: AddedContext(turn, step, "web", "more")),
}

for name, (before, made) in IN_A_STEP.items():
    for place, broken in (("step", made(1, 2)), ("turn", made(2, 1))):
        kept = (*before, made(1, 1))
        RULES[f"{name}_speaks_in_the_open_{place}"] = (kept, (*before, broken), "is not open")

EACH = [pytest.param(*row, id=name) for name, row in RULES.items()]


def written(before: Log) -> SessionLog:
    log = SessionLog("s", clock=lambda: 7)
    for data in before:
        log.append(data)
    return log


def state(log: SessionLog) -> list[object]:
    """Return what later events are checked against."""
    now = [log.turn, log.step, log.turns, log.unanswered, log.asked, log.header_seq]
    return [*log.events, *log.surface.nodes, *now]


def stored(events: Log) -> list[bytes]:
    return [
        encode_event(Event(seq, 7, data, "append" if isinstance(data, SURFACE_TYPES) else None))
        for seq, data in enumerate(events)
    ]


@pytest.mark.parametrize(("kept", "broken", "why"), EACH)
def test_an_append_keeps_the_rule(kept: Log, broken: Log, why: str) -> None:
    assert [event.data for event in written(kept).events] == list(kept)
    log = written(broken[:-1])
    with pytest.raises(LogError, match=why) as caught:
        log.append(broken[-1])
    assert (caught.value.session, caught.value.seq) == ("s", len(broken) - 1)
    assert [event.data for event in log.events] == list(broken[:-1])


@pytest.mark.parametrize(("kept", "broken", "why"), EACH)
def test_a_stored_log_keeps_the_rule(kept: Log, broken: Log, why: str) -> None:
    assert state(SessionLog.load("s", stored(kept))) == state(written(kept))
    with pytest.raises(LogError, match=why) as caught:
        SessionLog.load("s", stored(broken))
    assert caught.value.seq == len(broken) - 1


def test_parameters_that_are_no_json_define_nothing() -> None:
    """No stored log can hold such a header."""
    log = written(defined(tool("a", b"")))
    with pytest.raises(AppendRefused, match="'a' has parameters that are no JSON"):
        log.append(update(A, at=3))
