"""The requests of a stored session, rendered again from its log.

A log keeps no bodies: it keeps what they are made of. What stood in it when a request left, on the
epoch that it names, gives the very bytes that were sent, so whoever judges requests can judge a
stored session as if it had been captured.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from msgspec import Struct

from addendum import encoding
from addendum.agent.context.sent import KNOWN_RENDERINGS
from addendum.cache.record import Declared, RequestRecord
from addendum.errors import LogError
from addendum.log.events import (
    Event,
    RequestContext,
    RequestSent,
    SystemMessage,
    UserMessage,
)
from addendum.log.exchanges import Exchange, exchanges
from addendum.log.reading import context_of
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.prompt.announcements import INSTRUCTIONS
from addendum.prompt.breaks import reasoning_floor
from addendum.prompt.projector import Projector
from addendum.prompt.weight import dead_bytes
from addendum.routes import Route, resolve
from addendum.tools.ledger import Ledger
from addendum.wire.apis import Renderer, facts, wire


class Replayed(Struct, frozen=True):
    """One request of a log.

    Attributes:
        record: What is judged: its bytes, what the provider counted, what was declared.
        seq: Its event.
        betas: Beta flags that went with it.
        dead: Bytes of its body that define tools which it does not offer so.
    """

    record: RequestRecord
    seq: int
    betas: tuple[str, ...]
    dead: int = 0


class _Line(Struct, frozen=True):
    """What is kept for one epoch, so that a request costs what is new in it."""

    context: RequestContext
    route: Route
    projector: Projector
    renderer: Renderer


def known_route(name: str) -> Route:
    """Return what is known of a route by its name alone, whatever the environment says."""
    return resolve(name, environ={})


def replay(
    log: SessionLog,
    *,
    route_of: Callable[[str], Route] = known_route,
    seqs: Container[int] | None = None,
) -> Iterator[Replayed]:
    """Yield the requests of a log, in the order in which they were sent.

    Args:
        log: A session's log; inherited requests of a fork are among them.
        route_of: Gives a route by the name that a log has.
        seqs: Events of the requests that are wanted; all if None.

    Raises:
        UnknownRoute: This release knows nothing of a route in the log.
        LogError: A request cannot be rendered again; the message says why.
    """
    sent = {each.event.seq: each for each in exchanges(log.events)}
    earlier = SessionLog(log.session)
    ledger = Ledger()
    lines: dict[int, _Line] = {}
    for event in log.events:
        data = event.data
        if isinstance(data, RequestSent) and (seqs is None or event.seq in seqs):
            line = lines.get(data.context_seq)
            if line is None:
                line = lines[data.context_seq] = _line(log, event, data, route_of)
            ledger.read(earlier)
            yield _again(earlier, sent[event.seq], line, ledger)
        earlier._admit(event)  # pyright: ignore[reportPrivateUsage]


def _line(
    log: SessionLog, event: Event, data: RequestSent, route_of: Callable[[str], Route]
) -> _Line:
    context = context_of(log, data) if data.context_seq < event.seq else None
    if context is None:
        raise _lost(log, event, data, "its epoch is not in the log")
    if context.rendering not in KNOWN_RENDERINGS:
        raise _lost(
            log,
            event,
            data,
            f"it has rendering {context.rendering}; use the release that sent it",
        )
    route = route_of(context.route)
    return _Line(
        context,
        route,
        Projector(context, facts(route)),
        wire(context.wire).renderer(route, context.rendering, context.avoids),
    )


def _again(log: SessionLog, own: Exchange, line: _Line, ledger: Ledger) -> Replayed:
    event, data, context = own.event, own.sent, line.context
    answer = own.end if own.answered else None
    header = log.header
    if header is None:
        raise _lost(log, event, data, "no header stands in front of it")
    floor = reasoning_floor(log.rare, context.route)
    instruction = INSTRUCTIONS.get(data.purpose)
    projector = line.projector
    if data.until is not None:
        if not 0 < data.until <= event.seq:
            raise _lost(log, event, data, "the turn that it leaves out is not in the log")
        log, projector = log.until(data.until), Projector(context, line.projector.facts)
    prompt = projector.prompt(log, instruction=instruction, floor=floor)
    body = line.renderer.body(prompt, header.header.config)
    first = log.surface.nodes[0].data if log.surface.nodes else None
    static = first.static if isinstance(first, SystemMessage) else ""
    said = next(
        (node.data for node in reversed(log.surface.nodes) if isinstance(node.data, UserMessage)),
        None,
    )
    keeps_head = context.projection == "dispatch" or context.definitions == "by-value"
    head = [tool.identity() for tool in ledger.head]
    record = RequestRecord(
        n=data.number,
        turn=data.turn,
        session=log.session,
        route=context.route,
        wire=context.wire,
        body=body,
        usage=Usage() if answer is None else own.usage,
        time_sent=event.time / 1000,
        time_answered=None if answer is None else answer.time / 1000,
        status="failed" if answer is None else "answered",
        strategy=context.projection,
        definitions=context.definitions,
        removals=context.removals,
        tail=context.tail,
        bound=context.reasoning_bound,
        tail_text=None if said is None else said.tail,
        human=None if said is None else said.text,
        # Elsewhere the body tells which tools stand in front.
        head=encoding.digest(encoding.encode([head, static])) if keeps_head else None,
        static_blocks=1 if static else 0,
        declared=tuple(Declared(each.reason, each.at) for each in own.breaks),
        # To a judge all is one that no turn goes on from.
        purpose="turn" if data.purpose == "turn" else "compaction",
        caching=context.caching,
    )
    flags = wire(context.wire).flags(prompt, line.route.block_betas)
    return Replayed(record, event.seq, flags, dead_bytes(prompt, header.header.tools))


def _lost(log: SessionLog, event: Event, data: RequestSent, why: str) -> LogError:
    return LogError(
        f"request {data.number} of session {log.session} cannot be rendered again: {why}",
        session=log.session,
        route=data.route,
        seq=event.seq,
    )
