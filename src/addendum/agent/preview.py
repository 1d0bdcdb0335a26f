"""What the next request would break if it left now: told before anybody decides to send it.

The log is copied, the step's events are written to the copy, and the request is prepared as it
would be. Nothing of it reaches the session or the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

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
from addendum.log.values import Header, ToolSchema
from addendum.prompt.blocks import Block, Change, Native, Prompt, Result, Text

if TYPE_CHECKING:
    from addendum.agent.session import Session

_MESSAGE = "?"
"""Stands for what the person will write; what is in front of it does not depend on it."""


class Preview(Struct, frozen=True):
    """What the next request would break.

    Attributes:
        breaks: The breaks that would be declared for it.
        behind: Part of the last request on the route, from 0 to 1, that stands behind the first
            break and so would be read again. Between 0 and 1 it is estimated by bytes.
    """

    breaks: tuple[CacheBreak, ...]
    behind: float


def preview(session: Session) -> Preview | None:
    """Return what the next request would break.

    Args:
        session: An open session in which no turn runs.

    Returns:
        None if nothing was sent yet on the session's route: there is nothing to break.

    Raises:
        AddendumError: The request could not be made as things are; the message says why.
    """
    last = last_sent(session.log, session.route.name)
    if last is None:
        return None
    copy = session.log.until(len(session.log))
    context = _write_step(session, copy)
    requests = Requests(copy, clock=session.agent.clock)
    requests.log_context(context)
    ready = requests.prepare(session.route, context, session.config())
    behind = max((_behind(session, last, found) for found in ready.breaks), default=0.0)
    return Preview(ready.breaks, behind)


def last_sent(log: SessionLog, route: str) -> int | None:
    """Return the seq of the last request of a turn on a route, or None."""
    for event in reversed(log.events):
        data = event.data
        if isinstance(data, RequestSent) and data.route == route and data.purpose == "turn":
            return event.seq
    return None


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


def _behind(session: Session, last: int, found: CacheBreak) -> float:
    if found.at == "none":
        return 0.0
    if found.at not in ("system", "messages"):
        return 1.0
    return _share_behind(_sent_then(session, last), found)


def _sent_then(session: Session, last: int) -> Prompt:
    """Return what an earlier request said."""
    log = session.log.until(last)
    sent, header = session.log.events[last].data, log.header
    assert isinstance(sent, RequestSent) and header is not None
    context = session.log.events[sent.context_seq].data
    assert isinstance(context, RequestContext)
    return Requests(log).prepare(session.route, context, header.header.config).prompt


def _share_behind(prompt: Prompt, found: CacheBreak) -> float:
    tools = sum(_tool_bytes(tool) for tool in prompt.tools if not tool.defer_loading)
    system = sum(len(text.text.encode()) for text in prompt.system)
    blocks = [_block_bytes(block) for block in prompt.blocks]
    front = tools
    if found.at == "messages":
        places = (at for at, each in enumerate(prompt.blocks) if each.key[0] == found.seq)
        front += system + sum(blocks[: next(places, 0)])
    whole = tools + system + sum(blocks)
    return 1 - front / whole if whole else 1.0


def _tool_bytes(tool: ToolSchema) -> int:
    return len(tool.name) + len(tool.description.encode()) + len(bytes(tool.parameters))


def _block_bytes(block: Block) -> int:
    match block:
        case Text(text=text) | Result(text=text):
            return len(text.encode())
        case Native(raw=raw):
            return len(bytes(raw))
        case Change(definition=definition):
            return 0 if definition is None else _tool_bytes(definition)
        case _:
            return len(block.arguments.encode())
