"""What hooks and approval leave in the log: what is asked, what was decided, what was added.

A batch that waits for a person is in the log as a whole, so that another process can go on with
it days later: every call of it in real form, and for each tool the digest of the definition that
the person is asked about.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class AskedCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """One call of a batch that waits.

    Attributes:
        call_id: The model's call id.
        name: The real tool.
        arguments: JSON text of the arguments to run with.
        origin: How it was called.
        definition: Digest of the tool's definition; empty where there is no tool to run.
        reason: Why a person is asked; None if this call needs no answer.
        refusal: What the model will read if the call is refused already.
        code: Why it is, for programs.
        context: Texts that hooks add behind the results.
    """

    call_id: str
    name: str
    arguments: str
    origin: Literal["direct", "dispatched"] = "direct"
    definition: str = ""
    reason: str | None = None
    refusal: str | None = None
    code: str | None = None
    context: tuple[str, ...] = ()


class DecidedCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """What was decided of one call.

    Attributes:
        call_id: The call.
        kind: `approve`, `deny`, `edit` or `respond`; another word counts as a refusal.
        arguments: JSON text of the arguments of an edit.
        text: The reason of a denial, or the text of a response.
        always: Whether the tool, as it is defined now, need not be asked about again.
    """

    call_id: str
    kind: str
    arguments: str | None = None
    text: str = ""
    always: bool = False


class ApprovalAsked(
    Struct, frozen=True, gc=False, tag_field="type", tag="approval/asked", omit_defaults=True
):
    """A batch waits for a person; all calls of the step, in the model's order."""

    turn: int
    step: int
    calls: tuple[AskedCall, ...]


class ApprovalDecided(
    Struct, frozen=True, gc=False, tag_field="type", tag="approval/decided", omit_defaults=True
):
    """The batch that waited was decided."""

    turn: int
    step: int
    decisions: tuple[DecidedCall, ...] = ()


class AddedContext(Struct, frozen=True, gc=False, tag_field="type", tag="hook/context"):
    """Text that a hook added behind the results of a round: data without authority.

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        source: The tool whose call it belongs to.
        text: What is added.
    """

    turn: int
    step: int
    source: str
    text: str
