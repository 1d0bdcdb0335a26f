"""Events about child sessions that a tool opens."""

from __future__ import annotations

from typing import ClassVar

from addendum.log.values import Facts, Logged, Usage


class SubagentStarted(Logged, frozen=True, tag="subagent/started"):
    """A call opens a child session; durable before it does.

    Attributes:
        turn: Turn of the call.
        step: Step of the call.
        call_id: The call.
        session: Id of the child session.
        excluded: Tools that the child can never use, as names or glob patterns.
    """

    facts: ClassVar[Facts] = Facts(title="child", surface=False, ignorable=True)

    turn: int
    step: int
    call_id: str
    session: str
    excluded: tuple[str, ...] = ()


class SubagentEnded(Logged, frozen=True, tag="subagent/ended"):
    """The call is done with its child session, however it ended.

    Attributes:
        turn: Turn of the call.
        step: Step of the call.
        call_id: The call.
        session: Id of the child session.
        requests: Requests of the child that were answered, or cut off and counted by their
            provider; those of its own children left out.
        usage: What they cost together; None where one did not say.
    """

    facts: ClassVar[Facts] = Facts(title="child", surface=False, ignorable=True)

    turn: int
    step: int
    call_id: str
    session: str
    requests: int = 0
    usage: Usage = Usage()
