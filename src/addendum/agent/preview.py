"""What the next request would break if it left now: told before anybody decides to send it.

The log is copied, the step's events are written to the copy, and the request is prepared as it
would be. Nothing of it reaches the session or the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from addendum.agent.requests import Requests
from addendum.agent.step import log_step
from addendum.log.events import (
    CacheBreak,
    RequestSent,
    StepStart,
    TurnStart,
)
from addendum.log.session_log import SessionLog

if TYPE_CHECKING:
    from addendum.agent.session import Session
    from addendum.tools.registry import Snapshot

_MESSAGE = "?"
"""Stands for what the person will write; what is in front of it does not depend on it."""


def upcoming_breaks(session: Session, snapshot: Snapshot | None = None) -> tuple[CacheBreak, ...]:
    """Return the breaks that would be declared for the next request; none without an earlier one.

    Args:
        session: An open session in which no turn runs. What its servers have settled on counts.
        snapshot: What would be active; what is active now if None.

    Raises:
        AddendumError: The request could not be made as things are; the message says why.
    """
    if not _was_used(session.log, session.route.name):
        return ()
    copy = session.log.until(len(session.log))
    copy.append(TurnStart(copy.turns + 1))
    copy.append(StepStart(copy.turns, 1))
    given = session.step_input(snapshot or session.registry.snapshot())
    # The session's own fold has no business in a copy.
    given = msgspec.structs.replace(given, history=None)
    log_step(copy, given, _MESSAGE)
    requests = Requests(copy, clock=session.agent.clock)
    requests.log_context(given.context)
    return requests.prepare(session.route, given.context, given.config).breaks


def _was_used(log: SessionLog, route: str) -> bool:
    return any(
        isinstance(event.data, RequestSent)
        and event.data.route == route
        and event.data.purpose == "turn"
        for event in log.events
    )
