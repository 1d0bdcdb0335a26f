"""May this call run now? One question, one list of gates, asked last before a call is logged.

Whatever way a call came (by its name or through the dispatcher, early while its answer streams,
approved days later in another process, with a person's own arguments), it is judged by the same
gates in the same order, as things stand then: who was asked something earlier has answered for
that moment only. The first gate that refuses ends it. A gate that fails refuses, and so does one
that does not know.

==============  ==================================================================
gate            refuses
==============  ==================================================================
stored          a call of a round that is not stored as it was written: it may be
                another one than a person was asked about
excluded        a tool that does not exist in this session, whatever its agent has
active          one that was removed or switched off, or went with its server
disabled        one that is bound and refused (`Agent(disabled=)`, `refuse`)
can_dispatch    a deferred one that the agent's rule does not let be called
definition      one that is another than a person was asked about; asks about one
                that was defined anew, where that has to be approved
arguments       arguments that do not fit, or would run otherwise than was judged
hooks           a call that a hook in front of it was not asked about; asks what
                hooks want asked
policies        what a policy denies; asks what a policy wants asked
approval        what is to be asked, where nobody can be asked or it is too late
==============  ==================================================================

The hooks themselves are asked before (they may wait for something), and this gate makes sure of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from addendum import encoding
from addendum.agent.calls.approval import Approval, Consent, OnRedefinition, outdated
from addendum.agent.calls.execution import Planned
from addendum.agent.calls.hooks import Hook, blocked, described, faulty, in_front
from addendum.log.known import KnownTool
from addendum.log.values import ToolSchema
from addendum.tools.dispatcher import (
    CanDispatch,
    Refused,
    allows,
    check_arguments,
    not_here,
    switched_off,
)
from addendum.tools.entries import (
    UNSAID,
    ToolEntry,
    hints_known,
    is_excluded,
    unrecorded,
)
from addendum.tools.foreign import is_own
from addendum.tools.registry import Outcome
from addendum.tools.search import TOOL_SEARCH_NAME

NOT_ASKED = "it needs an approval that it was not asked for"
"""Why a call does not run that somebody wants asked about, when it is too late to ask."""

_REDEFINED = "its definition, or what is said of it, is another than was offered or approved before"


class Scene(Struct, frozen=True):
    """All that a call is judged by, at one moment.

    Attributes:
        entries: What can be called, by name.
        search: Runs `tool_search` where it is bound without being an active tool.
        known: What the log says of tools beside their definitions: what was told of them.
        excluded: Tools that do not exist here, as names or glob patterns.
        disabled: Names that are bound and refused.
        deferred: Says whether a tool is deferred, so that `can_dispatch` has a say.
        can_dispatch: The agent's own rule for those.
        hooks: The application's hooks, in order.
        approval: The rules of approval; None if there are none.
        consent: What persons decided so far.
        on_redefinition: What happens to a tool that is defined anew.
        doubtful: Whether something of the open step is not stored as it was written.
        late: Whether the call is about to be logged, so that nobody can be asked any more.
    """

    entries: Mapping[str, ToolEntry]
    search: ToolEntry | None
    known: Mapping[str, KnownTool]
    excluded: Collection[str]
    disabled: Collection[str]
    deferred: Callable[[ToolSchema], bool]
    can_dispatch: CanDispatch | None
    hooks: tuple[Hook, ...]
    approval: Approval | None
    consent: Consent
    on_redefinition: OnRedefinition
    doubtful: bool = False
    late: bool = False

    def entry(self, name: str) -> ToolEntry | None:
        """Return a tool as it is now."""
        found = self.entries.get(name)
        return self.search if found is None and name == TOOL_SEARCH_NAME else found

    def read(self, entry: ToolEntry) -> ToolEntry:
        """Return a tool as policies read it.

        What it says of itself counts once the log has it: a server that calls a tool harmless in
        the middle of a step loosens nothing before anybody was told.
        """
        record = self.known.get(entry.schema.name, unrecorded(entry.schema.name))
        return entry.with_hints(
            entry.hints.stricter(UNSAID if record is None else hints_known(record))
        )


class Verdict(Struct, frozen=True):
    """What the gates say of a call.

    Attributes:
        gate: The gate that spoke; empty if the call may run.
        refused: What the model reads, if it may not.
        asks: Why a person has to be asked first; None if nobody has to.
    """

    gate: str = ""
    refused: Outcome | None = None
    asks: str | None = None


class Wants(Struct, frozen=True):
    """A gate wants a person to be asked, for this reason."""

    reason: str


class Question(Struct, frozen=True):
    """A person is asked, for all these reasons."""

    reason: str


Rule: TypeAlias = Callable[[Scene, Planned, Sequence[str]], Outcome | Wants | Question | None]
"""What a gate says of a call, given what gates in front of it want asked; None lets it through."""


class Gate(Struct, frozen=True):
    """One gate: its name, and what it says."""

    name: str
    rule: Rule


def judge(scene: Scene, item: Planned, gates: Sequence[Gate] | None = None) -> Verdict:
    """Say whether a call may run now.

    Args:
        scene: How things stand.
        item: The call.
        gates: Some of the gates, in order; all if None.
    """
    asks: list[str] = []
    for gate in GATES if gates is None else gates:
        try:
            answer = gate.rule(scene, item, asks)
        except BaseException as error:
            if not is_own(error):
                raise
            answer = faulty(f"Blocked: a check of this call failed ({described(error)})")
        match answer:
            case Outcome():
                return Verdict(gate.name, answer)
            case Question(reason=reason):
                return Verdict(gate.name, asks=reason)
            case Wants(reason=reason):
                asks.append(reason)
            case None:
                pass
    return Verdict()


def _stored(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | None:
    if not scene.doubtful:
        return None
    return outdated(item.call.name, "is not stored as it was asked")


def _excluded(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | None:
    if not is_excluded(item.call.name, scene.excluded):
        return None
    # As of any name that nobody knows: what is excluded does not exist.
    name = encoding.encode(item.call.name).decode()
    return Outcome(f"unknown tool {name}", True, "UNKNOWN_TOOL")


def _active(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | None:
    if scene.entry(item.call.name) is not None:
        return None
    if item.terms is not None:
        return outdated(item.call.name, "is no longer there")
    return Outcome(f"{item.call.name} was removed; do without it", True, "removed")


def _disabled(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | None:
    return _refusal(switched_off(item.call)) if item.call.name in scene.disabled else None


def _can_dispatch(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | None:
    schema = _entry(scene, item).schema
    if scene.can_dispatch is None or not scene.deferred(schema):
        return None
    return None if allows(scene.can_dispatch, schema) else _refusal(not_here(item.call))


def _definition(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | Wants | None:
    terms = _entry(scene, item).terms
    if item.terms is not None and item.terms != terms:
        return outdated(item.call.name, "is defined otherwise now")
    if scene.on_redefinition == "ask" and scene.consent.redefined(item.call.name, terms):
        return Wants(_REDEFINED)
    return None


def _arguments(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | None:
    found = check_arguments(item.call, _entry(scene, item).schema)
    if isinstance(found, Refused):
        return _refusal(found)
    if found.call.arguments != item.call.arguments:
        return outdated(item.call.name, "would run with other arguments now")
    return None


def _hooks(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | Wants | None:
    if any(hook not in item.heard for hook in in_front(scene.hooks, item.call.name)):
        return blocked("a check of this call came when it was under way; call it again")
    return Wants("; ".join(item.asks)) if item.asks else None


def _policies(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | Wants | None:
    if scene.approval is None:
        return None
    entry = _entry(scene, item)
    action, reason = scene.approval.judge(scene.read(entry), item.call.arguments)
    # Its terms name no server, where each call may reach another one.
    always = entry.reaches is None and scene.consent.always(item.call.name, entry.terms)
    if action == "allow" or (action == "ask" and always):
        return None
    return Wants(reason) if action == "ask" else blocked(reason)


def _approval(scene: Scene, item: Planned, asks: Sequence[str]) -> Outcome | Question | None:
    if not asks or item.answered:
        return None
    if scene.approval is None:
        return blocked(f"{asks[0]}; it needs an approval, and nobody can be asked")
    return blocked(NOT_ASKED) if scene.late else Question("; ".join(asks))


STANDING = (
    Gate("stored", _stored),
    Gate("excluded", _excluded),
    Gate("active", _active),
    Gate("disabled", _disabled),
    Gate("can_dispatch", _can_dispatch),
    Gate("definition", _definition),
    Gate("arguments", _arguments),
)
"""The gates in front of the hooks: a call that they refuse reaches none."""

GATES = (
    *STANDING,
    Gate("hooks", _hooks),
    Gate("policies", _policies),
    Gate("approval", _approval),
)
"""All gates, in order."""


def _entry(scene: Scene, item: Planned) -> ToolEntry:
    entry = scene.entry(item.call.name)
    assert entry is not None  # Where the gate in front let it through, it counts as failed here.
    return entry


def _refusal(found: Refused) -> Outcome:
    return Outcome(found.message, True, found.code)
