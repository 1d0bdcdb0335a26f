"""From what a session sent to what the judge reads: records, cache rules, the lab's count."""

from __future__ import annotations

from addendum import encoding
from addendum.agent.context.requests import Sent
from addendum.agent.session import Session, runtime_of
from addendum.cache.record import Declared, RequestRecord
from addendum.cache.rules import CacheRules
from addendum.log.events import EndSeed, RequestContext, SystemMessage, UserMessage
from addendum.routes import CacheRules as RouteCache
from addendum.wire.segment import Segment


def rules_of(cache: RouteCache) -> CacheRules:
    """Return the judge's rules for what a route's data says of its cache.

    Where the data counts explicit marks beside an implicit one, the judge counts both.
    """
    if cache.kind == "marks":
        return CacheRules(
            cache.kind,
            minimum=cache.minimum,
            lookback=cache.lookback,
            max_marks=cache.max_marks,
            text_marks=cache.text_marks,
            result_marks="tool" in cache.mark_roles,
            runs=("tool_use", "tool_result") if cache.runs else (),
            lifetime=cache.default_lifetime_s or None,
        )
    if cache.kind == "boundaries":
        return CacheRules(
            cache.kind,
            minimum=cache.minimum,
            max_marks=cache.max_marks + 1,
            lifetime=cache.default_lifetime_s or None,
            earlier_ends=cache.lookback,
        )
    return CacheRules(
        cache.kind,
        minimum=cache.minimum,
        step=cache.step if cache.kind == "steps" else 1,
        fresh=cache.fresh,
        interval=(cache.step or None) if cache.kind == "units" else None,
        lifetime=cache.default_lifetime_s or None,
    )


def lab_count(segment: Segment) -> int:
    """Return the tokens of a segment by the lab's rule (`addendum.lab.tokens`).

    The word in front of a segment's JSON is its role, and marks count nothing, so its size tells.
    """
    return -(-(len(segment.role) + segment.size) // 4)


class Said:
    """What a conversation's next requests say: the newest human message and its instructions.

    Attributes:
        human: The newest message that a person wrote, if it still stands.
        tail: The instructions of its turn.
    """

    def __init__(self, session: Session) -> None:
        newest = next(
            (
                node.data
                for node in reversed(session.log.surface.nodes)
                if isinstance(node.data, UserMessage)
            ),
            None,
        )
        self.human = None if newest is None else newest.text
        self.tail = None if newest is None else newest.tail


def record_of(session: Session, sent: Sent, n: int, said: Said) -> RequestRecord:
    """Return the record of a request.

    Args:
        session: The session that sent it.
        sent: The request.
        n: Its number in the run.
        said: The human message that it answers.
    """
    context = sent.context
    static = _static_text(session)
    seeds = (each.data for each in reversed(session.log.rare) if isinstance(each.data, EndSeed))
    seed = next(seeds, None)
    return RequestRecord(
        n=n,
        turn=sent.turn,
        session=sent.session,
        route=context.route,
        wire=context.wire,
        body=sent.body,
        usage=sent.usage,
        time_sent=sent.sent,
        time_answered=sent.answered,
        status="failed" if sent.answered is None else "answered",
        strategy=context.projection,
        definitions=context.definitions,
        removals=context.removals,
        tail=context.tail,
        bound=context.reasoning_bound,
        tail_text=said.tail,
        human=said.human,
        head=_head(session, static) if _keeps_head(context) else None,
        static_blocks=1 if static else 0,
        declared=tuple(Declared(each.reason, each.at) for each in sent.breaks),
        purpose="turn" if sent.purpose == "turn" else "compaction",
        caching=context.caching,
        parent=None if seed is None else seed.parent,
    )


def _keeps_head(context: RequestContext) -> bool:
    """Say whether the tools in front are the head's; elsewhere the body tells which they are."""
    return context.projection == "dispatch" or context.definitions == "by-value"


def _head(session: Session, static: str) -> str:
    tools = [tool.identity() for tool in runtime_of(session).state.history.head]
    return encoding.digest(encoding.encode([tools, static]))


def _static_text(session: Session) -> str:
    nodes = session.log.surface.nodes
    first = nodes[0].data if nodes else None
    return first.static if isinstance(first, SystemMessage) else ""
