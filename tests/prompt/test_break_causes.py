"""Which event a break is blamed on: the closed list of reasons, and which of two counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

import pytest
from msgspec import structs
from tests.prompt.test_breaks import (
    BASE,
    CONFIG,
    EPOCH,
    RARE,
    ROUTE,
    WEB,
    prompt,
    prompt_text,
    tool,
)

from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CompactionSummary,
    DeveloperMessage,
    EndSeed,
    Event,
    EventData,
    RequestContext,
    RequestHeader,
    RequestSent,
    Rewind,
    RouteDowngrade,
    Span,
    StepEnd,
    SystemMessage,
    TurnEnd,
    UserMessage,
)
from addendum.log.values import (
    BreakReason,
    Header,
    HeaderReason,
    ToolAddition,
    ToolRemoval,
    ToolSchema,
)
from addendum.prompt.blocks import Change
from addendum.prompt.breaks import Difference, Place, causes

Row: TypeAlias = tuple[
    Place, Sequence[EventData | Event], dict[str, Any], dict[str, Any], str | None
]


def over(data: EventData) -> Event:
    """Return an event that replaces some of the surface."""
    return Event(0, 7, data, Span(3, 5))


def header(*tools: ToolSchema, reason: HeaderReason = "change", **rest: bool) -> RequestHeader:
    return RequestHeader(Header(CONFIG, tools or BASE.tools), reason, **rest)


def epoch(**changes: Any) -> dict[str, RequestContext]:
    return {"context": structs.replace(EPOCH, **changes)}


def defined(*tools: ToolSchema) -> dict[str, Any]:
    """Return blocks that tell definitions by value, one behind the other."""
    return {"said": [Change(at, 0, each.name, True, each) for at, each in enumerate(tools)]}


SENT = RequestSent(1, 1, 1, ROUTE, 0)
ANSWER = AssistantMessage(1, 1, ROUTE, "anthropic_messages")
SUMMARY, REWIND = over(CompactionSummary("In short.")), over(Rewind(1))
FORK, DOWNGRADE = EndSeed("t", "s", 3), RouteDowngrade(ROUTE, "http://x", ("tools",), "dispatch")
PROMPT, USER = SystemMessage("You rhyme."), UserMessage(2, "hi")
CHANGED = (ANSWER, header())
HEAD, SERIES = header(head=True), header(reason="series")
WEB2, LATE = tool("web", "Writes."), tool("web", late=True)
REDEFINED = (ANSWER, header(WEB2))
VALUE = epoch(definitions="by-value")
REDEFINE = epoch(definitions="by-value", redefine=True)
ADDITIONS = epoch(projection="addition-only")
REBIND = epoch(projection="rebind")
DISPATCH = epoch(projection="dispatch")
NEW: dict[str, Any] = {"tools": (WEB2, RARE)}
GIT, GIT2 = {**VALUE, **defined(tool("git"))}, defined(tool("git", "Writes."))
REMOVED = DeveloperMessage(2, 1, (ToolRemoval("git"),))
BACK = DeveloperMessage(2, 1, (ToolAddition("git"),), 5)

CAUSES: dict[str, Row] = {
    # The place, the log behind the last request, what that was, what is new now: the reason.
    "nothing_that_the_log_knows": ("messages", (ANSWER, USER), {}, {}, None),
    "rendering": ("tools", (), {}, epoch(rendering=2), "rendering changed"),
    "compaction": ("messages", (ANSWER, SUMMARY), {}, {}, "compaction"),
    "a_summary_that_replaced_nothing": (
        "messages",
        (ANSWER, CompactionSummary("In short.")),
        {},
        {},
        None,
    ),
    "rewind": ("messages", (ANSWER, REWIND), {}, {}, "rewind"),
    "fork": ("messages", (ANSWER, FORK), {}, {}, "fork"),
    "downgrade": ("tools", (DOWNGRADE,), {}, DISPATCH, "downgrade"),
    "another_head": ("tools", (ANSWER, HEAD), {}, {}, "head changed"),
    "another_head_lies_in_front": ("tools", (HEAD, SUMMARY), {}, {}, "head changed"),
    "other_settings_come_with_it": ("settings", (HEAD, SUMMARY), {}, {}, "head changed"),
    "its_tools_stand_and_messages_do_not": ("messages", (HEAD, SUMMARY), {}, {}, "compaction"),
    "another_head_in_another_epoch": (
        "tools",
        (HEAD,),
        {},
        epoch(ttl="1h"),
        "settings changed: ttl",
    ),
    "another_head_moves_messages": ("messages", (ANSWER, HEAD), {}, {}, "head changed"),
    "another_epoch": (
        "tools",
        CHANGED,
        {},
        epoch(projection="dispatch", definitions="by-value", tail="kept", caching=False, ttl="1h"),
        "settings changed: projection, definitions, tail, caching, ttl",
    ),
    "another_lifetime": ("messages", (), {}, epoch(ttl="1h"), "settings changed: ttl"),
    "another_epoch_of_other_facts": ("settings", (), {}, epoch(betas=("b",)), "settings changed"),
    "from_binding_to_the_dispatcher": (
        "tools",
        CHANGED,
        REBIND,
        DISPATCH,
        "head changed: the dispatcher is bound from here on",
    ),
    "and_back": ("tools", CHANGED, DISPATCH, REBIND, "settings changed: projection"),
    "settings": ("settings", (ANSWER,), {}, {}, "settings changed: model"),
    # The prompt.
    "a_prompt_in_front": ("system", (ANSWER,), {}, {}, "prompt rewritten"),
    "a_prompt_in_place": ("messages", (ANSWER, over(PROMPT)), {}, {}, "prompt rewritten"),
    "a_prompt_appended": ("messages", (ANSWER, PROMPT), {}, {}, None),
    "a_prompt_that_cannot_be": (
        "messages",
        (ANSWER, PROMPT),
        epoch(prompt_update=False),
        {},
        "prompt rewritten",
    ),
    "no_prompt_where_none_can_be": ("messages", (ANSWER,), epoch(prompt_update=False), {}, None),
    # Requests that nobody answered.
    "sent_again": ("messages", (SENT,), {}, {}, "attempt failed"),
    "a_message_instead": ("messages", (USER, ANSWER), {}, {}, "attempt failed"),
    "the_step_ended": ("messages", (StepEnd(1, 1),), {}, {}, "attempt failed"),
    "the_turn_ended": ("messages", (TurnEnd(1),), {}, {}, "attempt failed"),
    "it_was_answered_first": ("messages", (ANSWER, StepEnd(1, 1), USER), {}, {}, None),
    "it_is_on_its_way": ("messages", (AssistantAttempt(1, 1, ROUTE, "cut"),), {}, {}, None),
    "unanswered_but_the_tools_moved": ("tools", (USER,), {}, {}, None),
    # Series.
    "a_series": ("messages", (ANSWER, SERIES), {}, {}, "explicit series"),
    "a_change_that_starts_one": (
        "messages",
        (ANSWER, header(starts_series=True)),
        {},
        {},
        "explicit series",
    ),
    # Tools that are bound anew.
    "rebinding": ("tools", CHANGED, REBIND, {"tools": ()}, "rebinding"),
    "rebound_in_another_order": (
        "tools",
        CHANGED,
        {**REBIND, "tools": (WEB, tool("a"))},
        {"tools": (tool("a"), WEB)},
        None,
    ),
    "rebound_without_a_header": ("tools", (ANSWER,), REBIND, {"tools": ()}, None),
    "rebound_and_messages_moved": ("messages", CHANGED, REBIND, {}, None),
    "behind_a_dispatcher_none_is_rebound": ("tools", CHANGED, DISPATCH, {"tools": ()}, None),
    "behind_a_dispatcher_none_is_redefined": (
        "tools",
        REDEFINED,
        epoch(projection="dispatch", definitions="by-value"),
        NEW,
        None,
    ),
    "nor_where_none_is_told": ("messages", REDEFINED, DISPATCH, {}, None),
    # Told natively, by reference.
    "a_removal_that_cannot_be_told": ("tools", (*CHANGED, REMOVED), ADDITIONS, {}, "removal: git"),
    "a_removal_in_the_history": ("messages", (*CHANGED, REMOVED), ADDITIONS, {}, "removal: git"),
    "a_return_in_front": ("tools", (*CHANGED, BACK), ADDITIONS, {}, "restore: git"),
    "one_leaves_and_one_is_back": (
        "tools",
        (*CHANGED, REMOVED, BACK),
        ADDITIONS,
        {},
        "removal: git",
    ),
    "a_removal_that_left_nothing_in_front": (
        "tools",
        (ANSWER, HEAD, REMOVED),
        ADDITIONS,
        {},
        "removal: git",
    ),
    "a_removal_where_it_can": ("tools", (*CHANGED, REMOVED), {}, {}, None),
    "no_removal_without_a_header": ("tools", (ANSWER,), ADDITIONS, {}, None),
    "redefined_by_reference": ("tools", REDEFINED, {}, NEW, "redefinition: web"),
    "redefined_in_no_header": ("tools", CHANGED, {}, NEW, "redefinition: web"),
    "redefined_behind_a_rewind": ("tools", (REWIND, header(WEB2)), {}, NEW, "redefinition: web"),
    "redefined_and_back_again": (
        "messages",
        (ANSWER, header(WEB2), header(WEB)),
        {},
        {},
        "redefinition: web",
    ),
    "defined_twice_since": (
        "messages",
        (ANSWER, header(tool("git")), header(tool("git", "Writes."))),
        {},
        {},
        "redefinition: git",
    ),
    "redefined_where_none_is_removed": ("tools", REDEFINED, ADDITIONS, NEW, "redefinition: web"),
    "deferred_is_not_redefined": (
        "tools",
        (ANSWER, header(LATE)),
        ADDITIONS,
        {"tools": (LATE,)},
        "removal: web",
    ),
    # Told natively, by value.
    "redefined_in_the_head": ("tools", CHANGED, VALUE, NEW, "redefinition: web"),
    "redefined_in_front_of_a_rewind": ("tools", (REWIND,), VALUE, NEW, "redefinition: web"),
    "redefined_with_another_head": ("tools", (HEAD,), VALUE, NEW, "head changed"),
    "redefined_in_another_epoch": (
        "tools",
        (),
        epoch(),
        {**VALUE, **NEW},
        "settings changed: definitions",
    ),
    "redefined_in_the_history": ("messages", CHANGED, GIT, GIT2, "redefinition: git"),
    "messages_move_with_a_rewind": ("messages", (REWIND,), GIT, GIT2, "rewind"),
    "redefined_without_a_header": ("messages", (ANSWER,), GIT, GIT2, None),
    "a_removal_by_value": (
        "messages",
        CHANGED,
        VALUE,
        {"said": [Change(0, 0, "web", False)]},
        None,
    ),
    "the_latest_definition_counts": (
        "messages",
        CHANGED,
        {**GIT, **defined(tool("git"), tool("git", "Writes."))},
        GIT2,
        None,
    ),
    "redefined_where_it_is_appended": ("tools", CHANGED, REDEFINE, NEW, None),
    "a_new_name_by_value": ("messages", CHANGED, VALUE, defined(tool("git")), None),
}
"""Of each reason that has an event; the others are declared by who sends."""

ORDER: tuple[tuple[str, Sequence[EventData | Event], dict[str, Any]], ...] = (
    # Each counts in front of all that follow: what it adds to the log, and to the later request.
    ("rendering changed", (), {"rendering": 2}),
    ("compaction", (SUMMARY,), {}),
    ("rewind", (REWIND,), {}),
    ("fork", (FORK,), {}),
    ("downgrade", (DOWNGRADE,), {}),
    ("settings changed", (), {"ttl": "1h"}),
    ("head changed", (HEAD,), {}),
    ("prompt rewritten", (over(PROMPT),), {}),
    ("attempt failed", (USER,), {}),
    ("explicit series", (SERIES,), {}),
    ("redefinition", (header(WEB2),), {}),
    ("removal", (header(), REMOVED), {}),
)


def blamed(
    at: Place, events: Sequence[EventData | Event], last: dict[str, Any], now: dict[str, Any]
) -> str | None:
    log = [each if isinstance(each, Event) else Event(0, 7, each) for each in (SENT, *events)]
    found = Difference(at, detail="model" if at == "settings" else "")
    why = causes(found, log, prompt(last), prompt(last | now))
    if not why:
        return None
    reason, detail = why[0]
    return f"{reason}: {detail}" if detail else reason


@pytest.mark.parametrize(
    ("at", "events", "last", "now", "reason"),
    [pytest.param(*row, id=name) for name, row in CAUSES.items()],
)
def test_cause(
    at: Place,
    events: Sequence[EventData | Event],
    last: dict[str, Any],
    now: dict[str, Any],
    reason: str | None,
) -> None:
    assert blamed(at, events, last, now) == reason


@pytest.mark.parametrize("place", range(len(ORDER)), ids=[each[0] for each in ORDER])
def test_of_several_the_first_counts(place: int) -> None:
    events: list[EventData | Event] = []
    facts: dict[str, Any] = {"projection": "addition-only"}
    for _, added, changed in ORDER[place:]:
        events += added
        facts |= changed
    found = blamed("messages", events, ADDITIONS, epoch(**facts))
    assert found is not None and found.startswith(ORDER[place][0])


def test_every_reason_that_has_an_event_is_in_the_table() -> None:
    by_who_sends = {
        "route changed",
        "concurrent first requests",
        "lifetime passed",
        "reasoning stripped",
    }
    earlier = {"removal or restore"}
    # Declared where somebody else drives.
    clients = {
        "history edited by the client",
        "system rewritten by the client",
        "history unknown",
        "new head: cheaper",
        "tool that cannot be told",
        "passed on unchanged",
    }
    reasons = {row[-1].partition(":")[0] for row in CAUSES.values() if row[-1] is not None}
    assert reasons == set(get_args(BreakReason)) - by_who_sends - earlier - clients


WHAT_MOVES: dict[str, tuple[Place, Sequence[EventData | Event], dict[str, Any], dict[str, Any]]] = {
    # What moves only the part that is named: where, the log, what was and what is new.
    "redefinition": ("tools", (header(WEB2),), {}, NEW),
    "removal": ("tools", (header(), REMOVED), ADDITIONS, {}),
    "restore": ("tools", (header(), BACK), ADDITIONS, {}),
    "rebinding": ("tools", (header(),), REBIND, {"tools": ()}),
    "prompt rewritten": (
        "system",
        (over(PROMPT),),
        {},
        {"system": (prompt_text(0, "You rhyme."),)},
    ),
}


@pytest.mark.parametrize("moved", WHAT_MOVES)
@pytest.mark.parametrize(
    ("other", "event"),
    [("compaction", SUMMARY), ("rewind", REWIND), ("fork", FORK), ("attempt failed", SENT)],
)
def test_what_moved_is_the_reason_and_what_lies_behind_is_told_too(
    moved: str, other: str, event: EventData | Event
) -> None:
    at, events, last, now = WHAT_MOVES[moved]
    log = [
        each if isinstance(each, Event) else Event(0, 7, each)
        for each in (SENT, event, *((USER,) if other == "attempt failed" else ()), *events)
    ]
    why = [reason for reason, _ in causes(Difference(at), log, prompt(last), prompt(last | now))]
    assert why[0] == moved
    # A failed attempt moves messages alone; where they stand, nothing of it is seen.
    assert (other in why) == (other != "attempt failed")
    found = causes(Difference("messages", 0), log, prompt(last), prompt(last | now))
    assert other in [reason for reason, _ in found][:1] or other == "attempt failed"
