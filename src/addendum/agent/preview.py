"""What the next request would break if it left now: told before anybody decides to send it.

The log is copied, the step's events are written to the copy, and the request is prepared as it
would be. Nothing of it reaches the session or the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from addendum.agent.requests import Requests
from addendum.encoding import clean
from addendum.log.events import (
    CacheBreak,
    RequestContext,
    RequestSent,
    StepStart,
    TurnStart,
    UserMessage,
)
from addendum.log.headers import log_header, log_prompt, moved_since_request, names_changed
from addendum.log.session_log import SessionLog
from addendum.log.values import Header

if TYPE_CHECKING:
    from addendum.agent.session import Session

_MESSAGE = "?"
"""Stands for what the person will write; what is in front of it does not depend on it."""


def upcoming_breaks(session: Session) -> tuple[CacheBreak, ...]:
    """Return the breaks that would be declared for the next request; none without an earlier one.

    Args:
        session: An open session in which no turn runs. What its servers have settled on counts.

    Raises:
        AddendumError: The request could not be made as things are; the message says why.
    """
    if not _was_used(session.log, session.route.name):
        return ()
    copy = session.log.until(len(session.log))
    context = _write_step(session, copy)
    requests = Requests(copy, clock=session.agent.clock)
    requests.log_context(context)
    return requests.prepare(session.route, context, session.config()).breaks


def _was_used(log: SessionLog, route: str) -> bool:
    return any(
        isinstance(event.data, RequestSent)
        and event.data.route == route
        and event.data.purpose == "turn"
        for event in log.events
    )


def _write_step(session: Session, log: SessionLog) -> RequestContext:
    """Write what a step would, in its order; see `addendum.agent.turn`."""
    turn = log.turns + 1
    log.append(TurnStart(turn))
    log.append(StepStart(turn, 1))
    context = session.current_context()
    header = Header(session.config(), session.registry.snapshot().active)
    series = session.explicit_series or moved_since_request(log)
    rewritten = log_prompt(
        log,
        clean(session.instructions),
        clean(session.conversation_instructions),
        appendable=context.prompt_update,
        new_series=series
        or session.new_head
        or (context.projection == "rebind" and names_changed(log, header)),
    )
    log.append(UserMessage(turn, _MESSAGE, session.turn_instructions))
    log_header(log, header, first=session.fresh, series=series or rewritten, head=session.new_head)
    return context
