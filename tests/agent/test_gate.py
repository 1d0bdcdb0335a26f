"""Each gate by itself: what it refuses that no other does, and that a gate that fails refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from addendum import encoding
from addendum.agent.calls.approval import Approval, Consent, Policy
from addendum.agent.calls.execution import Planned
from addendum.agent.calls.gate import GATES, NOT_ASKED, STANDING, Gate, Scene, judge
from addendum.agent.calls.hooks import Ask, Hook
from addendum.log.known import KnownTool
from addendum.log.values import Call, ToolSchema
from addendum.tools.entries import ToolEntry

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"disk": {"type": "string"}}}
ALLOW = Approval(default="allow")
NAMES = [gate.name for gate in GATES]


async def _never(*_: Any) -> Any:
    raise AssertionError("nothing runs here")


def entry(name: str = "t", **more: Any) -> ToolEntry:
    return ToolEntry(ToolSchema(name, "A tool.", Raw(encoding.encode(SCHEMA))), _never, **more)


HARMLESS = Raw(b'{"readOnlyHint":true}')


def scene(*tools: ToolEntry, **more: Any) -> Scene:
    """A scene in which nothing is against a call of one of these tools."""
    options: dict[str, Any] = {
        "entries": {each.schema.name: each for each in tools or (entry(),)},
        "search": None,
        "known": {each.schema.name: each.record() for each in tools},
        "excluded": (),
        "disabled": (),
        "deferred": lambda schema: True,
        "can_dispatch": None,
        "hooks": (),
        "approval": ALLOW,
        "consent": Consent(),
        "on_redefinition": "accept",
    }
    return Scene(**options | more)


def planned(arguments: str = "{}", **more: Any) -> Planned:
    return Planned(Call("c", "t", arguments), entry(), **more)


HOOK = Hook("t", before=lambda _: None)
ALONE: dict[str, tuple[Scene, Planned]] = {
    "stored": (scene(doubtful=True), planned()),
    "excluded": (scene(excluded=("t*",)), planned()),
    "active": (scene(entry("other")), planned()),
    "disabled": (scene(disabled=("t",)), planned()),
    "can_dispatch": (scene(can_dispatch=lambda name, schema: False), planned()),
    "definition": (scene(), planned(terms=entry(server="elsewhere").terms)),
    "arguments": (scene(), planned('{"disk":7}')),
    "hooks": (scene(hooks=(HOOK,)), planned()),
    "policies": (scene(approval=Approval((Policy("deny", "t"),), default="allow")), planned()),
    "approval": (scene(approval=Approval(), late=True), planned()),
}
"""For each gate a call that it alone refuses."""


@pytest.mark.parametrize("name", NAMES)
def test_each_gate_refuses_what_no_other_does(name: str) -> None:
    now, item = ALONE[name]
    verdict = judge(now, item)
    assert verdict.gate == name and verdict.refused is not None and verdict.refused.is_error
    others = [gate for gate in GATES if gate.name != name]
    if name != "active":  # Without the tool there is nothing that the others could look at.
        assert judge(now, item, others).refused is None
    else:
        assert judge(now, item, others).refused is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_gate_that_fails_refuses(name: str) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no answer")

    gates = [Gate(each.name, fails) if each.name == name else each for each in GATES]
    verdict = judge(scene(), planned(), gates)
    assert verdict.gate == name
    assert verdict.refused is not None and "RuntimeError: no answer" in verdict.refused.text


def test_the_gates_have_names_and_an_order() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert GATES[: len(STANDING)] == STANDING
    assert NAMES[-1] == "approval", "it asks for all that the others want asked"


def test_a_call_that_nothing_is_against_runs() -> None:
    verdict = judge(scene(), planned())
    assert (verdict.gate, verdict.refused, verdict.asks) == ("", None, None)


@pytest.mark.parametrize(
    "answer",
    [None, 0, 1, "yes", [True], object(), ValueError("x"), "coroutine"],
    ids=lambda answer: type(answer).__name__ + str(answer)[:5],
)
@pytest.mark.parametrize("asked", ["can_dispatch", "when", "when of a denial"])
def test_whoever_does_not_say_yes_or_no_has_not_said_yes(asked: str, answer: Any) -> None:
    async def later(*_: Any) -> bool:
        return True

    def said(*given: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return later() if answer == "coroutine" else answer

    if asked == "can_dispatch":
        now = scene(can_dispatch=said)
    else:
        action = "allow" if asked == "when" else "deny"
        now = scene(approval=Approval((Policy(action, when=said),), default="allow"))
    verdict = judge(now, planned())
    assert verdict.refused is not None
    assert verdict.gate == ("can_dispatch" if asked == "can_dispatch" else "policies")


READS = {"one": '{"server":"db"}', "another": '{"server":"web"}', "all": "{}"}
"""Calls of a tool that reads the server which it is told, or all of them: `db` and `web`."""


@pytest.mark.parametrize(
    ("policy", "default", "asks", "refuses"),
    [
        (Policy("deny", server="db"), "allow", "", "one all"),
        (Policy("ask", server="d?"), "allow", "one all", ""),
        (Policy("allow", server="db"), "deny", "", "another all"),
        (Policy("allow", server="*"), "deny", "", ""),
        (Policy("deny", server="elsewhere"), "allow", "", ""),
        (Policy("deny", server="db", when=lambda a: "server" not in a), "allow", "", "all"),
    ],
)
def test_what_a_call_reads_of_servers_is_theirs(
    policy: Policy, default: Any, asks: str, refuses: str
) -> None:
    def reaches(arguments: Any) -> tuple[str, ...]:
        return (arguments["server"],) if "server" in arguments else ("db", "web")

    schema: dict[str, Any] = {"type": "object", "properties": {"server": {"type": "string"}}}
    read = ToolEntry(ToolSchema("t", "", Raw(encoding.encode(schema))), _never, reaches=reaches)
    now = scene(read, approval=Approval((policy,), default=default))
    for name, arguments in READS.items():
        verdict = judge(now, planned(arguments))
        assert (verdict.asks is not None) == (name in asks.split()), name
        assert (verdict.refused is not None) == (name in refuses.split()), name


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Policy("ask"), "policy 2 (ask)"),
        (Policy("ask", "t"), 'policy 2 (ask, tool="t")'),
        (Policy("ask", server="d*"), 'policy 2 (ask, server="d*")'),
        (Policy("ask", read_only=False, destructive=True), "read_only=False, destructive=True"),
        (Policy("ask", when=lambda _: True), "policy 2 (ask, when)"),
    ],
)
@pytest.mark.parametrize("action", ["ask", "deny"])
def test_the_rule_that_spoke_is_named(policy: Policy, told: str, action: Any) -> None:
    policy = msgspec.structs.replace(policy, action=action)
    rules = Approval((Policy("allow", "other"), policy), default="allow")
    now = scene(entry(server="db"), approval=rules)
    verdict = judge(now, planned())
    text = verdict.asks if action == "ask" else verdict.refused and verdict.refused.text
    assert told.replace("ask", action) in (text or "")
    assert judge(scene(approval=Approval()), planned()).asks == "no policy allows it"


def test_all_that_want_to_ask_are_named_in_the_order_of_the_gates() -> None:
    item = planned(asks=("a hook wants to know",))
    verdict = judge(scene(approval=Approval((Policy("ask"),))), item)
    assert verdict.asks == "a hook wants to know; policy 1 (ask)"
    answered = msgspec.structs.replace(item, answered=True)
    assert judge(scene(approval=Approval((Policy("ask"),))), answered).asks is None
    nobody = judge(scene(approval=None), item)
    assert nobody.refused is not None and "nobody can be asked" in nobody.refused.text
    late = judge(scene(late=True), item)
    assert late.refused is not None and NOT_ASKED in late.refused.text


# -- what a decision is bound to ---------------------------------------------------------------

TERMS = {
    "another definition": {
        "schema": ToolSchema("t", "Another tool.", Raw(encoding.encode(SCHEMA)))
    },
    "another server": {"server": "b"},
    "a server, not a function": {"server": None},
    "harmless all at once": {"annotations": HARMLESS},
    "mild all at once": {"annotations": Raw(b'{"destructiveHint":false}')},
}


@pytest.mark.parametrize("what", TERMS)
def test_an_answer_holds_for_all_that_was_read(what: str) -> None:
    before = entry(server="a")
    after = msgspec.structs.replace(before, **TERMS[what])
    item = planned(terms=before.terms, answered=True)
    assert judge(scene(before), item).refused is None
    refused = judge(scene(after), item).refused
    assert refused is not None and refused.code == "PROPOSAL_CHANGED"


@pytest.mark.parametrize(
    "after",
    [
        entry(server="a", annotations=Raw(b'{"title":"T"}')),
        entry(server="a", annotations=Raw(b'{"destructiveHint":true,"openWorldHint":false}')),
        entry(server="a", annotations=Raw(b'{"readOnlyHint":"yes"}')),
        msgspec.structs.replace(
            entry(server="a"),
            schema=msgspec.structs.replace(entry().schema, defer_loading=True),
        ),
    ],
    ids=["a title", "the strict words", "no word at all", "deferred"],
)
def test_what_nobody_reads_changes_no_terms(after: ToolEntry) -> None:
    assert after.terms == entry(server="a").terms


@pytest.mark.parametrize("said", [None, KnownTool("t"), KnownTool("t", destructive=False)])
def test_what_was_not_told_yet_loosens_nothing(said: KnownTool | None) -> None:
    rules = Approval((Policy("allow", read_only=True),), default="deny")
    known = {} if said is None else {"t": said}
    assert judge(scene(entry(annotations=HARMLESS), approval=rules), planned()).refused is None
    now = scene(entry(annotations=HARMLESS), approval=rules, known=known)
    assert judge(now, planned()).gate == "policies"


def test_a_hook_that_asks_is_no_answer_to_another_hook() -> None:
    other = Hook("t", before=lambda _: Ask("and this?"))
    assert judge(scene(hooks=(HOOK, other)), planned(heard=(HOOK,))).gate == "hooks"
    assert judge(scene(hooks=(HOOK, other)), planned(heard=(HOOK, other))).gate == ""
    assert judge(scene(hooks=(Hook("u*", before=lambda _: None),)), planned()).gate == ""
