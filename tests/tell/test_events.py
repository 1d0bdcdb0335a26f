"""Every kind of event is told in every language, by one function."""

from __future__ import annotations

import pytest
from msgspec import Raw
from tests.golden.make_logs import paths

from addendum.log import codec
from addendum.log.approvals import AddedContext
from addendum.log.events import FORMAT, KINDS, Event, RequestHeader, Unknown
from addendum.log.known import KnownTool, ServerAway, ToolsKnown
from addendum.log.requests import RouteDowngrade, ToolLeftOut
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.tell.events import describe, is_quiet
from addendum.tell.words import LANGUAGES, words

ELSEWHERE = [
    AddedContext(1, 1, "look", "seen before"),
    RouteDowngrade("a:b", "http://127.0.0.1", ("tools",), "dispatch"),
    ToolLeftOut("look", "no usable schema", server="s"),
    SubagentStarted(1, 1, "c1", "child"),
    SubagentEnded(1, 1, "c1", "child", 3),
    ToolsKnown((KnownTool("db__look", "db", read_only=True, destructive=False),)),
    ServerAway("db", "cannot be reached (no such program)"),
]
"""Kinds that the golden log does not have: refusals, hooks, agents behind tools, servers that are
away, and what came since it was written."""

LOG = [codec.decode_event(line) for line in paths(FORMAT)[0].read_bytes().splitlines()]
EVENTS = {type(event.data): event for event in LOG} | {
    type(data): Event(7, 1, data) for data in ELSEWHERE
}

KINDS_AND_LANGUAGES = [(kind, code) for kind in KINDS for code in LANGUAGES]


@pytest.mark.parametrize(("kind", "language"), KINDS_AND_LANGUAGES)
def test_every_kind_is_told_in_every_language(kind: type, language: str) -> None:
    telling = describe(EVENTS[kind], words(language))
    assert telling.kind and 0 < len(telling.title) <= 8
    assert telling.text or is_quiet(EVENTS[kind]) or kind is RequestHeader or telling.parts
    assert all(0 < len(part.title) <= 8 for part in telling.lines())
    if not is_quiet(EVENTS[kind]):
        assert f"kind.{telling.kind}" in words(language).texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_states_all_that_holds_of_it(kind: type) -> None:
    facts = vars(kind)["facts"]
    assert not (facts.surface and facts.ignorable)


def test_what_a_later_release_logged_is_told_by_its_type() -> None:
    strange = Event(7, 1, Unknown(Raw(b'{"type":"later/thing"}')))
    assert describe(strange, words("en")).kind == "other"
