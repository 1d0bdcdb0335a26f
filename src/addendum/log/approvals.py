"""What hooks and approval leave in the log: what is asked, what was decided, what was added.

A batch that waits for a person is in the log as a whole, so that another process can go on with
it days later: every call of it in real form, and for each tool the digest of the definition that
the person is asked about. A tool that is defined anew has an event too: no approval outlives the
definition that it was given for.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from addendum.log.values import Facts, Logged, Media, ToolSchema


class AskedCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """One call of a batch that waits.

    Attributes:
        call_id: The model's call id.
        name: The real tool.
        arguments: JSON text of the arguments to run with.
        origin: How it was called.
        definition: Digest of the tool's terms: its definition, its server, what is said of it;
            empty where there is no tool to run.
        reason: Why a person is asked; None if this call needs no answer.
        refusal: What the model will read if the call is refused already, or has run.
        code: Why it is, for programs.
        context: Texts that hooks add behind the results.
        ran: Whether the call has run: it was started early, and `refusal` is what it gave.
        is_error: Whether `refusal` says that the call failed.
        media: Files that belong to what it gave.
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
    ran: bool = False
    is_error: bool = True
    media: tuple[Media, ...] = ()


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


class ApprovalAsked(Logged, frozen=True, tag="approval/asked"):
    """A batch waits for a person; all calls of the step, in the model's order."""

    facts: ClassVar[Facts] = Facts(title="ask", surface=False, ignorable=False)

    turn: int
    step: int
    calls: tuple[AskedCall, ...]


class ApprovalDecided(Logged, frozen=True, tag="approval/decided"):
    """The batch that waited was decided."""

    facts: ClassVar[Facts] = Facts(title="decide", surface=False, ignorable=False)

    turn: int
    step: int
    decisions: tuple[DecidedCall, ...] = ()


class AddedContext(Logged, frozen=True, tag="hook/context"):
    """Text that a hook added behind the results of a round: data without authority.

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        source: The tool whose call it belongs to.
        text: What is added.
    """

    facts: ClassVar[Facts] = Facts(title="context", surface=True, ignorable=False)

    turn: int
    step: int
    source: str
    text: str


class ToolRedefined(Logged, frozen=True, tag="tool/redefined"):
    """A tool is defined otherwise than the session knew it.

    Attributes:
        name: The tool.
        old: Digest of its terms as the session knew them last: definition, server, hints.
        new: Digest of its terms now.
        action: What happens: the new one holds (`accept`), holds once a call was approved (`ask`),
            or is not used in this session (`keep`).
        tool: The new definition, where it is not used; elsewhere the next header has it.
    """

    facts: ClassVar[Facts] = Facts(title="anew", surface=False, ignorable=True)

    name: str
    old: str
    new: str
    action: Literal["accept", "ask", "keep"] = "accept"
    tool: ToolSchema | None = None
