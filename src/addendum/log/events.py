"""What can happen in a session: one frozen struct an event type, and the envelope around it.

An event says what happened and which tools were active, never what one provider can do. JSON that
somebody else made (schemas, provider-native items) is carried as `msgspec.Raw`, so that reading
and writing the log never changes a byte of it.

Surface events make messages; all others are log-only:

========================  =======  ==============================================================
type                      surface  what it says
========================  =======  ==============================================================
session/start             no       a session begins, with its format version
session/end-seed          no       everything before was inherited from a parent (fork)
session/rewind            yes      replaces a span by nothing
turn/start, turn/end      no       one user input and all that follows
step/start, step/end      no       one model request with its tool executions
system/message            yes      the prompt: static and conversation text
user/message              yes      what the person wrote, and this turn's instructions
server/instructions       yes      an MCP server's own text, when its tools are first offered
developer/message         yes      names of tools added and removed
assistant/message         yes      the model's answer: text, calls, native items, usage
assistant/attempt         no       a failed or cut answer
tool/call                 no       a tool is about to start
tool/result               yes      what it gave
approval/asked, /decided  no       a batch waits for a person; what was decided
hook/context              yes      text that a hook adds behind the results of a round
request/header            no       the active tools and the sampling settings
request/context           no       how an epoch renders: projection, facts, rendering number
request/sent              no       a request is about to leave
cache/kept                no       a request kept the cache from expiring (ignorable)
cache/break               no       a break of the prefix, declared before it happens
tool/switch               no       somebody switched a server or tool on or off
tool/policy               no       which tools are bound but refused
subagent/started, /ended   no       a call opened a child session; what it cost (ignorable)
tool/redefined            no       a tool is defined anew: old and new digest (ignorable)
tool/known                no       servers and hints of tools: what policies read (ignorable)
server/away               no       a person was told that a server is not there (ignorable)
compaction/summary        yes      replaces a span by its summary
compaction/failed         no       no usable summary came; nothing was replaced (ignorable)
route/downgrade           no       an endpoint refused tool changes (ignorable)
tool/left-out             no       a tool is not offered, or told in part, and why (ignorable)
========================  =======  ==============================================================
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias, get_args

from msgspec import UNSET, Raw, Struct, UnsetType

from addendum.log.approvals import (
    AddedContext,
    ApprovalAsked,
    ApprovalDecided,
    ToolRedefined,
)
from addendum.log.known import ServerAway, ToolsKnown
from addendum.log.requests import (
    CacheBreak,
    CacheKept,
    RequestContext,
    RequestHeader,
    RequestSent,
    RouteDowngrade,
    ToolLeftOut,
)
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.log.values import (
    Call,
    CallForm,
    DeveloperBlock,
    Facts,
    Logged,
    Media,
    ToolSchema,
    Usage,
)

FORMAT = 1
"""Version of the log format, in `session/start`."""


class SessionStart(Logged, frozen=True, tag="session/start"):
    """A session begins.

    Attributes:
        session: Its id.
        format: Version of the log format; the first where none is written.
        agent: Digest of what the agent's code configures.
        parent: The session whose call opened it, if one did.
        excluded: Tools that it can never use, as names or glob patterns.
    """

    facts: ClassVar[Facts] = Facts(title="start", surface=False, ignorable=False, echo=True)

    session: str
    format: int = 1
    agent: str | None = None
    parent: str | None = None
    excluded: tuple[str, ...] = ()


class EndSeed(Logged, frozen=True, tag="session/end-seed"):
    """Events before this one were inherited from `parent`."""

    facts: ClassVar[Facts] = Facts(title="fork", surface=False, ignorable=False)

    session: str
    parent: str
    inherited: int


class Rewind(Logged, frozen=True, tag="session/rewind"):
    """The surface from a turn on was cut.

    Attributes:
        to_turn: The first turn that was cut.
        reason: What for: `rewind`, or to say the message otherwise (`edit`) or again (`retry`).
    """

    facts: ClassVar[Facts] = Facts(title="rewind", surface=True, ignorable=False)

    to_turn: int
    reason: Literal["rewind", "edit", "retry"] = "rewind"


class TurnStart(Logged, frozen=True, tag="turn/start"):
    """A turn opens."""

    facts: ClassVar[Facts] = Facts(title="turn", surface=False, ignorable=False)

    turn: int


class TurnEnd(Logged, frozen=True, tag="turn/end"):
    """A turn closes."""

    facts: ClassVar[Facts] = Facts(title="end", surface=False, ignorable=False)

    turn: int
    reason: Literal["done", "interrupted", "failed", "limit"] = "done"
    error: str | None = None


class StepStart(Logged, frozen=True, tag="step/start"):
    """A step opens."""

    facts: ClassVar[Facts] = Facts(title="step", surface=False, ignorable=False, echo=True)

    turn: int
    step: int


class StepEnd(Logged, frozen=True, tag="step/end"):
    """A step closes."""

    facts: ClassVar[Facts] = Facts(title="step", surface=False, ignorable=False, echo=True)

    turn: int
    step: int


class SystemMessage(Logged, frozen=True, tag="system/message"):
    """The whole effective prompt; the latest one on the surface counts."""

    facts: ClassVar[Facts] = Facts(title="prompt", surface=True, ignorable=False)

    static: str = ""
    conversation: str = ""

    @property
    def empty(self) -> bool:
        """Whether the prompt renders to nothing."""
        return not (self.static or self.conversation)


class UserMessage(Logged, frozen=True, tag="user/message"):
    """What the person wrote.

    Attributes:
        turn: The turn it opens.
        text: The text as typed.
        tail: This turn's instructions, if there are any.
    """

    facts: ClassVar[Facts] = Facts(title="you", surface=True, ignorable=False)

    turn: int
    text: str
    tail: str | None = None


class ServerInstructions(Logged, frozen=True, tag="server/instructions"):
    """An MCP server's own instructions: data without authority."""

    facts: ClassVar[Facts] = Facts(title="server", surface=True, ignorable=False)

    turn: int
    step: int
    server: str
    text: str


class DeveloperMessage(Logged, frozen=True, tag="developer/message"):
    """What changed in the tool names since the header before (source: tool registry).

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        content: Additions in new-header order, then removals in old-header order.
        header_seq: Seq of the header that defines the additions; absent without one.
    """

    facts: ClassVar[Facts] = Facts(title="tools", surface=True, ignorable=False, echo=True)

    turn: int
    step: int
    content: tuple[DeveloperBlock, ...] = ()
    header_seq: int | None = None


class AssistantMessage(Logged, frozen=True, tag="assistant/message"):
    """The model's answer.

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        route: `provider:model` that made it.
        wire: Name of the wire API.
        form: Call form of the request that it answers.
        text: Its text blocks, joined.
        calls: Its calls in order, in real form.
        native: The wire's own items as they are sent back, in order; one JSON value each.
        original: The items as they came, where `native` was rewritten (a direct call to a
            deferred tool).
        reasoning: Text of readable reasoning, for people.
        stop: Why it ended, in the wire's word.
        usage: What the provider counted.
        details: What else the provider said of how it ended, one JSON object.
    """

    facts: ClassVar[Facts] = Facts(title="model", surface=True, ignorable=False)

    turn: int
    step: int
    route: str
    wire: str
    form: CallForm = "direct"
    text: str = ""
    calls: tuple[Call, ...] = ()
    native: tuple[Raw, ...] = ()
    original: tuple[Raw, ...] = ()
    reasoning: str = ""
    stop: str | None = None
    usage: Usage = Usage()
    details: Raw | UnsetType = UNSET


class AssistantAttempt(Logged, frozen=True, tag="assistant/attempt"):
    """An answer that failed or was cut; kept for people, never sent again."""

    facts: ClassVar[Facts] = Facts(title="failed", surface=False, ignorable=False)

    turn: int
    step: int
    route: str
    error: str
    code: str | None = None
    status: int | None = None
    text: str = ""
    usage: Usage = Usage()


class ToolCall(Logged, frozen=True, tag="tool/call"):
    """A tool is about to start; durable before it does.

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        call_id: The call.
        name: The real tool.
        arguments: JSON text of what it runs with.
        origin: How it was called.
        early: Whether it starts while the answer still streams. If that answer never came whole,
            no assistant message has the call, and nothing that it gave was used.
    """

    facts: ClassVar[Facts] = Facts(title="call", surface=False, ignorable=False, echo=True)

    turn: int
    step: int
    call_id: str
    name: str
    arguments: str
    origin: Literal["direct", "dispatched"] = "direct"
    early: bool = False


class ToolResult(Logged, frozen=True, tag="tool/result"):
    """What a call gave.

    Attributes:
        turn: Turn of the open step.
        step: The open step.
        call_id: The call it answers.
        name: The real tool, where one was found.
        text: What the model reads.
        is_error: Whether it says that the call failed.
        code: Why it failed (`UNKNOWN_TOOL`, `E6` ...), for programs.
        media: Files that belong to the text, which names each in its place by its number.
        shown: Bytes of `text` that the model reads, decided before it is first sent; None if all.
        label: What a later call may refer to it by, told behind the text; None without one.
        unknown: Labels that its arguments referred to in vain, told behind the text too.
    """

    facts: ClassVar[Facts] = Facts(title="result", surface=True, ignorable=False)

    turn: int
    step: int
    call_id: str
    name: str
    text: str
    is_error: bool = False
    code: str | None = None
    media: tuple[Media, ...] = ()
    shown: int | None = None
    label: str | None = None
    unknown: tuple[str, ...] = ()


class ToolSwitch(Logged, frozen=True, tag="tool/switch"):
    """Somebody switched a server or tool on or off.

    Attributes:
        kind: `server` or `tool`.
        name: The server's or the tool's name.
        on: The new state.
        by: Who did it (`user`, `agent`, `model`, a host's own word).
        tool: The definition, for a tool added by hand.
    """

    facts: ClassVar[Facts] = Facts(title="switch", surface=False, ignorable=False)

    kind: Literal["server", "tool"]
    name: str
    on: bool
    by: str = "user"
    tool: ToolSchema | None = None


class ToolPolicy(Logged, frozen=True, tag="tool/policy"):
    """Tools that stay bound but are refused."""

    facts: ClassVar[Facts] = Facts(title="refuse", surface=False, ignorable=False)

    disabled: tuple[str, ...] = ()


class CompactionSummary(Logged, frozen=True, tag="compaction/summary"):
    """A span of the surface, told in short.

    Attributes:
        text: The summary.
        turn: Turns so far.
        route: Who wrote it, if a model did.
        usage: What that request cost.
    """

    facts: ClassVar[Facts] = Facts(title="summary", surface=True, ignorable=False)

    text: str
    turn: int = 0
    route: str | None = None
    usage: Usage = Usage()


class CompactionFailed(Logged, frozen=True, tag="compaction/failed"):
    """A compaction that replaced nothing.

    Attributes:
        reason: Why.
        route: Who answered, if a model did.
        usage: What that request cost.
    """

    facts: ClassVar[Facts] = Facts(title="failed", surface=False, ignorable=True)

    reason: str
    route: str | None = None
    usage: Usage = Usage()


class Unknown(Struct, frozen=True, gc=False, tag_field="type", tag="unknown"):
    """An event of a later release that may be ignored; kept as it is."""

    raw: Raw


EventData: TypeAlias = (
    SessionStart
    | EndSeed
    | Rewind
    | TurnStart
    | TurnEnd
    | StepStart
    | StepEnd
    | SystemMessage
    | UserMessage
    | ServerInstructions
    | DeveloperMessage
    | AssistantMessage
    | AssistantAttempt
    | ToolCall
    | ToolResult
    | ApprovalAsked
    | ApprovalDecided
    | AddedContext
    | RequestHeader
    | RequestContext
    | RequestSent
    | CacheBreak
    | CacheKept
    | ToolSwitch
    | ToolPolicy
    | ToolRedefined
    | ToolsKnown
    | ServerAway
    | SubagentStarted
    | SubagentEnded
    | CompactionSummary
    | CompactionFailed
    | RouteDowngrade
    | ToolLeftOut
)

KINDS: tuple[type[EventData], ...] = get_args(EventData)
"""Every kind of event."""

SURFACE_TYPES: tuple[type[Struct], ...] = tuple(kind for kind in KINDS if kind.facts.surface)
IGNORABLE_TYPES: tuple[type[Struct], ...] = tuple(kind for kind in KINDS if kind.facts.ignorable)


class Span(Struct, frozen=True):
    """An inclusive span of surface nodes, by the seqs of its ends, that an event replaces."""

    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Span


class Event(Struct, frozen=True, gc=False):
    """The envelope. As it is part of no cycle, the garbage collector need not look at it.

    Attributes:
        seq: Place in the log, contiguous from 0.
        time: Milliseconds since the epoch.
        data: What happened.
        surface_op: For surface events, `append` or the span replaced.
        sources: Seqs of all nodes that a replace shadows.
    """

    seq: int
    time: int
    data: EventData | Unknown
    surface_op: SurfaceOp | None = None
    sources: tuple[int, ...] = ()

    @property
    def type(self) -> str:
        """The event's type, such as `user/message`."""
        return str(self.data.__struct_config__.tag)
