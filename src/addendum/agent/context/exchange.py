"""One request and its answer: send it when it is durable, and again in a weaker form if need be."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from addendum.agent.context.downgrades import refuses_reasoning
from addendum.agent.context.quarantine import (
    TRIES,
    Quarantine,
    speaks_of_too_many,
    surely_of_definitions,
)
from addendum.agent.context.quarantine import told as told_tools
from addendum.agent.context.requests import Ready, Sent
from addendum.agent.context.sending import Sending
from addendum.agent.context.shapes import ShapeTrial, given_up, named_shapes
from addendum.agent.results import (
    Notice,
    ReasoningPiece,
    RequestDone,
    RequestFigures,
    StreamEvent,
    TextPiece,
)
from addendum.agent.runtime import Runtime
from addendum.errors import ProviderError, ProviderRefused
from addendum.lines import one_line
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
from addendum.routes.shapes import SHAPES
from addendum.wire.answer import Answer, Parser, ReasoningDelta, TextDelta
from addendum.wire.apis import wire
from addendum.wire.endings import told
from addendum.wire.refusal import refusal_text, refuses_form
from addendum.wire.transport import Retry


class Arrived(Struct, frozen=True):
    """More of an answer has come; the parser has all of it so far."""

    parser: Parser


class Failed(Struct, frozen=True):
    """A request failed.

    Attributes:
        error: How.
        partial: What had arrived of its answer.
    """

    error: ProviderError
    partial: Answer


AskEvent: TypeAlias = StreamEvent | Arrived | Failed
"""What happens while a request is answered: what a stream tells, and what its turn has to know."""


def _ignored(event: StreamEvent) -> None:
    """Tell nobody."""


class Asking:
    """One request and its answer: prepared, sent, and sent once more in a weaker form if need be.

    That is, if its tool changes are refused; also without the reasoning of earlier answers, or
    without a definition, if that is what is refused.

    Args:
        run: The session.
        context: What the request is to be rendered with.
        purpose: What it is for.
        until: Seq of the first event that it says nothing of; it says all if None.
        waiting: Told at once what happens while nothing can be yielded: that it is tried again.

    Attributes:
        context: What the latest form of the request was rendered with.
        answer: The answer, once all events were taken.
    """

    def __init__(
        self,
        run: Runtime,
        context: RequestContext,
        *,
        purpose: RequestPurpose = "turn",
        until: int | None = None,
        waiting: Callable[[StreamEvent], None] = _ignored,
    ) -> None:
        self.context = context
        self.answer = Answer()
        self._run = run
        self._purpose: RequestPurpose = purpose
        self._until = until
        self._waiting = waiting
        self._sending: Sending | None = None

    def partial(self) -> Answer | None:
        """Return what has arrived of an answer that is not there yet; None while none is due."""
        parser = None if self._sending is None else self._sending.parser
        return None if parser is None else parser.partial()

    async def events(self) -> AsyncGenerator[AskEvent]:
        """Yield what happens, to the answer's end.

        Raises:
            ProviderError: The request failed, in every form that was worth trying.
            UnsupportedContent: The history cannot be said on this route.
        """
        run = self._run
        # What is no turn adds nothing to the log in front of it: its settings are the last
        # header's.
        header = run.log.header
        config = run.config()
        if self._purpose != "turn" and header is not None:
            config = header.header.config
        reasons, stepped = True, False
        quarantine, trial = Quarantine(run), ShapeTrial(run)
        try:
            for _ in range(5 + TRIES + len(SHAPES)):
                ready = run.requests.prepare(
                    run.route, self.context, config, purpose=self._purpose, until=self._until
                )
                answered = False
                try:
                    async with aclosing(self._sent(ready, config.max_tokens)) as events:
                        async for event in events:
                            yield event
                    answered = True
                    for line in (await quarantine.settle(), await trial.settle(ready)):
                        if line is not None:
                            yield line
                    return
                except ProviderError as error:
                    partial = self.partial() or Answer()
                    self._sending = None
                    yield Failed(error, partial)
                    context = self.context
                    if partial.text or partial.calls:
                        # What is refused for its form is refused in front of an answer.
                        raise
                    if reasons and refuses_reasoning(error):
                        reasons = False
                        lost = CacheBreak(
                            "reasoning stripped",
                            context.route,
                            "messages",
                            "refused",
                            drops_reasoning=True,
                        )
                        run.log.append(lost)
                        yield Notice(
                            f"{context.route} refused earlier reasoning; going on without it"
                        )
                        continue
                    named = named_shapes(context, ready.prompt, error)
                    if not named and _names_no_field(run, context, error):
                        without = quarantine.next(context, ready, error)
                        if without is not None:
                            self._go_on(without)
                            continue
                    context = quarantine.undone(context)
                    self._go_on(context)
                    softer = await fewer(run, context, ready, error)
                    softer = softer or await downgrade(run, context, named, error)
                    if softer is not None:
                        yield Notice(_given_up(context, softer))
                        if named and stepped:
                            # It names one after the other: each would cost a request.
                            softer = trial.next(softer, ready, error) or softer
                        stepped = stepped or bool(named)
                    else:
                        softer = trial.next(context, ready, error)
                    if softer is None:
                        self._go_on(trial.undone(context))
                        await run.flush()
                        raise
                    self._go_on(softer)
                finally:
                    run.setup.firsts.end(ready.head, answered=answered)
        except BaseException:
            # Whoever stops it in the midst of a trial leaves open whether that helps.
            self._go_on(trial.undone(quarantine.undone(self.context)))
            raise
        raise ProviderRefused(
            f"{self.context.route} refuses every form of tool changes; use another route",
            session=run.id,
            route=self.context.route,
        )

    def _go_on(self, context: RequestContext) -> None:
        self.context = context
        self._run.requests.log_context(context)

    async def _sent(self, ready: Ready, most: int | None) -> AsyncGenerator[AskEvent]:
        """Send a prepared request once all it is made of is durable; note what it cost.

        Whatever makes its answer less than a whole one is told.
        """
        run, log = self._run, self._run.log
        await run.flush()
        for declared in ready.breaks:
            whole = declared.at == "none"
            what = "the cache holds less than it could" if whole else "the cache prefix breaks"
            yield Notice(f"{what}: {declared.reason}")
        turn, name = log.turn or log.turns, run.route.name
        sent: Sent | None = None
        if run.setup.record:
            sent = Sent(
                number=ready.number,
                turn=turn,
                session=run.id,
                context=ready.prompt.context,
                body=ready.request.body,
                sent=run.setup.clock(),
                breaks=ready.breaks,
                purpose=self._purpose,
            )
            run.captured.append(sent)
        sending = self._sending = Sending(
            run.transport,
            wire(run.route.wire),
            ready.request,
            most=most,
            on_retry=self._retried,
        )
        async with aclosing(sending.pieces()) as pieces:
            async for deltas in pieces:
                for delta in deltas:
                    if isinstance(delta, TextDelta):
                        yield TextPiece(delta.text)
                    elif isinstance(delta, ReasoningDelta):
                        yield ReasoningPiece(delta.text)
                if sending.parser is not None:
                    yield Arrived(sending.parser)
        answer = self.answer = sending.answer
        self._sending = None
        done = RequestFigures(
            number=ready.number,
            turn=turn,
            route=name,
            usage=answer.usage,
            breaks=ready.breaks,
            stop=answer.stop,
            ending=answer.ending,
            empty=not (answer.text or answer.calls),
            details=answer.details,
        )
        for line in _told(answer):
            yield Notice(f"{name}: {line}")
        if sent is not None:
            sent.answered, sent.usage = run.setup.clock(), answer.usage
        yield RequestDone(done)

    def _retried(self, retry: Retry) -> None:
        self._waiting(Notice(f"trying again in {retry.delay:.1f} s: {retry.error}"))


def _names_no_field(run: Runtime, context: RequestContext, error: ProviderError) -> bool:
    """Say whether a refusal is about no field of tool changes, or surely about a definition."""
    rejected = rejected_fields(refusal_text(error), fields(run.route, context))
    return not rejected or surely_of_definitions(error)


async def fewer(
    run: Runtime, context: RequestContext, ready: Ready, error: ProviderError
) -> RequestContext | None:
    """Return what to go on with after a refusal of so many tools: the dispatcher, or None."""
    if context.projection == "dispatch" or run.setup.tool_changes != "auto":
        return None
    if not speaks_of_too_many(error):
        return None
    route = run.route
    softer = dispatching(route, context)
    rejected = (f"{TOOLS_REFUSED}{len(told_tools(ready.prompt))}",)
    run.log.append(
        RouteDowngrade(
            route.name,
            route.endpoint.base_url,
            rejected,
            softer.projection,
            softer.definitions,
        )
    )
    await run.downgrades.keep(route, rejected)
    return softer


async def downgrade(
    run: Runtime, context: RequestContext, named: Iterable[str], error: ProviderError
) -> RequestContext | None:
    """Return what to go on with after a refusal that names what a request can do without, or None.

    Args:
        run: The session.
        context: What the refused request was rendered with.
        named: The shapes that the refusal names.
        error: The refusal.

    A refusal about the place of a block, or about a name that stands nowhere, is our own fault
    and never downgrades.
    """
    if not refuses_form(error):
        return None
    text = refusal_text(error)
    if error.code == "tool_reference_unresolved" or any(word in text for word in _OUR_FAULT):
        return None
    rejected = (*rejected_fields(text, fields(run.route, context)), *sorted(named))
    softer = weaker(run.route, context, rejected)
    if softer is not None:
        run.log.append(
            RouteDowngrade(
                run.route.name,
                run.route.endpoint.base_url,
                rejected,
                softer.projection,
                softer.definitions,
            )
        )
        await run.downgrades.keep(run.route, rejected)
    return softer


def _given_up(context: RequestContext, softer: RequestContext) -> str:
    """Return the line that tells how a session goes on after a refusal."""
    if fresh := [name for name in softer.avoids if name not in context.avoids]:
        return given_up(context.route, fresh)
    return f"{context.route} refused tool changes; going on by {softer.projection}"


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
# Templates (lumpenspace/raft#16), Bedrock (stdapi-ai/stdapi.ai#104): whatever such a message holds.
_ANY_SYSTEM = re.compile(
    r"system messages? must be at the beginning|(?:doesn't|does not) support system messages",
    re.IGNORECASE,
)
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
    if _ANY_SYSTEM.search(text):
        found |= {SYSTEM_ROLE, MESSAGE_TOOLS}.intersection(names)
    if "additional_tools" in names and _UNKNOWN_ITEM in text:
        found.add("additional_tools")
    if MESSAGE_TOOLS in names and _MESSAGE_TOOLS.search(text):
        found.add(MESSAGE_TOOLS)
    met = {name for match in _CULPRIT.finditer(text) for name in match.groups() if name}
    return tuple(sorted(found & met or found))
