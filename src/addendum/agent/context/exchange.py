"""One request and its answer: send it when it is durable, and again in a weaker form if need be."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from addendum.agent.context.downgrades import refuses_reasoning
from addendum.agent.context.quarantine import (
    TRIES,
    Quarantine,
    speaks_of_too_many,
    surely_of_definitions,
)
from addendum.agent.context.quarantine import told as told_tools
from addendum.agent.context.requests import Ready, Sent, send
from addendum.agent.results import (
    Notice,
    ReasoningPiece,
    RequestDone,
    RequestFigures,
    StreamEvent,
    TextPiece,
)
from addendum.errors import ProviderError, ProviderRefused
from addendum.log.events import CacheBreak, RequestContext, RouteDowngrade
from addendum.log.requests import RequestPurpose
from addendum.routes import (
    MESSAGE_TOOLS,
    SYSTEM_ROLE,
    TOOLS_REFUSED,
    dispatching,
    fields,
    weaker,
)
from addendum.wire.answer import Answer, Delta, Parser, ReasoningDelta, TextDelta
from addendum.wire.apis import wire
from addendum.wire.endings import told
from addendum.wire.refusal import one_line, refusal_text
from addendum.wire.transport import Retry

if TYPE_CHECKING:
    from addendum.agent.session import Session


async def ask(
    session: Session,
    context: RequestContext,
    emit: Callable[[StreamEvent], None],
    keep: Callable[[Parser], None],
    figures: list[RequestFigures],
    failed: Callable[[ProviderError], None],
    *,
    purpose: RequestPurpose = "turn",
    fed: Callable[[Parser], None] | None = None,
    until: int | None = None,
) -> tuple[Answer, RequestContext]:
    """Prepare and send a request; once more in a weaker form if its tool changes are refused.

    Once more without the reasoning of earlier answers, too, or without a definition, if that is
    what is refused. With `until`, it says nothing of the events from that seq on.

    Returns:
        The answer, and what the request it answers was rendered with.
    """
    # What is no turn adds nothing to the log in front of it: its settings are the last header's.
    header = session.log.header
    config = session.config() if purpose == "turn" or header is None else header.header.config
    reasons, quarantine = True, Quarantine(session)
    for _ in range(4 + TRIES):
        ready = session.requests.prepare(
            session.route, context, config, purpose=purpose, until=until
        )
        answered = False
        try:
            answer = await exchange(
                session,
                ready,
                emit,
                keep,
                figures,
                purpose=purpose,
                fed=fed,
                most=config.max_tokens,
            )
            answered = True
            await quarantine.settle(emit)
            return answer, context
        except ProviderError as error:
            failed(error)
            if reasons and refuses_reasoning(error):
                reasons = False
                lost = CacheBreak(
                    "reasoning stripped", context.route, "messages", "refused", drops_reasoning=True
                )
                session.log.append(lost)
                emit(Notice(f"{context.route} refused earlier reasoning; going on without it"))
                continue
            if _names_no_field(session, context, error):
                without = quarantine.next(context, ready, error)
                if without is not None:
                    context = without
                    session.requests.log_context(context)
                    continue
            context = quarantine.undone(context)
            session.requests.log_context(context)
            softer = await fewer(session, context, ready, error)
            softer = softer or await downgrade(session, context, error)
            if softer is None:
                await session.flush()
                raise
            emit(Notice(f"{context.route} refused tool changes; going on by {softer.projection}"))
            context = softer
            session.requests.log_context(context)
        finally:
            session.agent.firsts.end(ready.head, answered=answered)
    raise ProviderRefused(
        f"{context.route} refuses every form of tool changes; use another route",
        session=session.id,
        route=context.route,
    )


async def exchange(
    session: Session,
    ready: Ready,
    emit: Callable[[StreamEvent], None],
    keep: Callable[[Parser], None],
    figures: list[RequestFigures],
    *,
    purpose: RequestPurpose = "turn",
    fed: Callable[[Parser], None] | None = None,
    most: int | None = None,
) -> Answer:
    """Send a prepared request once all it is made of is durable; note what it cost.

    Whatever makes its answer less than a whole one is told.
    """
    log = session.log
    await session.flush()
    for found in ready.breaks:
        whole = found.at == "none"
        what = "the cache holds less than it could" if whole else "the cache prefix breaks"
        emit(Notice(f"{what}: {found.reason}"))
    sent: Sent | None = None
    if session.agent.record:
        sent = Sent(
            ready.number,
            log.turn or log.turns,
            session.id,
            ready.prompt.context,
            ready.request.body,
            session.agent.clock(),
            ready.breaks,
            purpose,
        )
        session.sent.append(sent)

    def on_delta(delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            emit(TextPiece(delta.text))
        elif isinstance(delta, ReasoningDelta):
            emit(ReasoningPiece(delta.text))

    def on_retry(retry: Retry) -> None:
        emit(Notice(f"trying again in {retry.delay:.1f} s: {retry.error}"))

    answer = await send(
        session.transport,
        wire(session.route.wire),
        ready.request,
        on_delta=on_delta,
        on_retry=on_retry,
        keep=keep,
        fed=fed,
        most=most,
    )
    turn, name = log.turn or log.turns, session.route.name
    done = RequestFigures(
        ready.number,
        turn,
        name,
        answer.usage,
        ready.breaks,
        answer.stop,
        answer.ending,
        not (answer.text or answer.calls),
        answer.details,
    )
    figures.append(done)
    for line in _told(answer):
        emit(Notice(f"{name}: {line}"))
    if sent is not None:
        sent.answered, sent.usage = session.agent.clock(), answer.usage
    emit(RequestDone(done))
    return answer


def _names_no_field(session: Session, context: RequestContext, error: ProviderError) -> bool:
    """Say whether a refusal is about no field of tool changes, or surely about a definition."""
    rejected = rejected_fields(refusal_text(error), fields(session.route, context))
    return not rejected or surely_of_definitions(error)


async def fewer(
    session: Session, context: RequestContext, ready: Ready, error: ProviderError
) -> RequestContext | None:
    """Return what to go on with after a refusal of so many tools: the dispatcher, or None."""
    if context.projection == "dispatch" or session.agent.tool_changes != "auto":
        return None
    if not speaks_of_too_many(error):
        return None
    route = session.route
    softer = dispatching(route, context)
    rejected = (f"{TOOLS_REFUSED}{len(told_tools(ready.prompt))}",)
    session.log.append(
        RouteDowngrade(
            route.name,
            route.endpoint.base_url,
            rejected,
            softer.projection,
            softer.definitions,
        )
    )
    await session.downgrades.keep(route, rejected)
    return softer


async def downgrade(
    session: Session, context: RequestContext, error: ProviderError
) -> RequestContext | None:
    """Return what to go on with after a refusal that names tool-change fields (D7), or None.

    A refusal about the place of a block, or about a name that stands nowhere, is our own fault
    and never downgrades.
    """
    if not isinstance(error, ProviderRefused) or error.status not in (400, 422):
        return None
    text = refusal_text(error)
    if error.code == "tool_reference_unresolved" or any(word in text for word in _OUR_FAULT):
        return None
    rejected = rejected_fields(text, fields(session.route, context))
    softer = weaker(session.route, context, rejected)
    if softer is not None:
        session.log.append(
            RouteDowngrade(
                session.route.name,
                session.route.endpoint.base_url,
                rejected,
                softer.projection,
                softer.definitions,
            )
        )
        await session.downgrades.keep(session.route, rejected)
    return softer


def _told(answer: Answer) -> Iterator[str]:
    """Yield what a person should know of an answer that is not whole."""
    if line := told(answer.stop, answer.ending, answer.details):
        yield line
    if answer.cut:
        names = ", ".join(call.name or "?" for call in answer.calls if call.id in answer.cut)
        yield f"not run, since the arguments may not have come whole: {one_line(names, 200)}"
    if answer.ending == "whole" and not (answer.text.strip() or answer.calls):
        yield "the answer is empty; ask again or say it otherwise"
    if answer.left_out:
        yield f"left out of the answer, since it is not known here: {', '.join(answer.left_out)}"


_OUR_FAULT = ("must precede", "must directly follow", "must follow")
_ROLE = re.compile(r"""role[\s:=\\]*["'`\\]*system""", re.IGNORECASE)
_UNKNOWN_ITEM = "Cannot determine type of 'item'"
"""What llama-server says of an item that it does not know (commit 86a2835)."""

# What Moonshot's older models say; llama.cpp; OpenAI's and FastAPI's way to name a place.
_MESSAGE_TOOLS = re.compile(
    r"tokenization failed|must contain 'content'"
    r"|messages\W{1,4}\d+\W{1,4}(?:\w+\W{1,4}){0,4}?(?:tools|content)\b"
)
_CULPRIT = re.compile(r"Input tag '([\w-]+)' found|unknown variant `([\w-]+)`")


def rejected_fields(text: str, names: Collection[str]) -> tuple[str, ...]:
    """Return which of the fields a refusal is about.

    A strict parser names the one it met, and beside it the path and all it would have taken.
    """
    found = {name for name in names if name in text}
    if SYSTEM_ROLE in names and _ROLE.search(text):
        found.add(SYSTEM_ROLE)
    if "additional_tools" in names and _UNKNOWN_ITEM in text:
        found.add("additional_tools")
    if MESSAGE_TOOLS in names and _MESSAGE_TOOLS.search(text):
        found.add(MESSAGE_TOOLS)
    met = {name for match in _CULPRIT.finditer(text) for name in match.groups() if name}
    return tuple(sorted(found & met or found))
