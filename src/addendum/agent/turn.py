"""The loop: a turn is a user message and steps; a step is one request and its tool calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from addendum import encoding
from addendum.agent.exchange import ask
from addendum.agent.execution import Planned, run_calls
from addendum.agent.results import (
    RequestFigures,
    StreamEvent,
    ToolFinished,
    ToolStarted,
    TurnResult,
    total,
)
from addendum.agent.step import log_step
from addendum.errors import AddendumError, ConfigurationError, LimitReached, ProviderError
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CompactionSummary,
    RequestContext,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from addendum.log.values import Call, Usage
from addendum.prompt.announcements import COMPACTION_INSTRUCTION, compaction_request
from addendum.routes import credentials
from addendum.tools.dispatcher import (
    TOOL_DISPATCHER_NAME,
    Refused,
    resolve_call,
    rewrite_direct_call,
)
from addendum.tools.functions import ToolContext
from addendum.tools.names import legal_name
from addendum.tools.registry import Entry, Outcome, Snapshot
from addendum.tools.search import TOOL_SEARCH, TOOL_SEARCH_NAME
from addendum.wire.answer import Answer, Parser
from addendum.wire.apis import wire
from addendum.wire.reading import legal_object
from addendum.wire.refusal import one_line

if TYPE_CHECKING:
    from addendum.agent.session import Session


class Turn:
    """One turn of a session.

    Args:
        session: The session.
        emit: Told of everything that happens.
    """

    def __init__(self, session: Session, emit: Callable[[StreamEvent], None]) -> None:
        self._session = session
        self._emit = emit
        self._figures: list[RequestFigures] = []
        self._parser: Parser | None = None

    async def run(self, text: str) -> TurnResult:
        """Run the turn to its end; whatever ends it, the log is valid.

        Raises:
            ConfigurationError: The text says nothing; or the route has no key. Nothing is logged.
            AddendumError: Whatever else ended it; the log says so.
        """
        session, log = self._session, self._session.log
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                "the message is empty or no text; write something", session=session.id
            )
        credentials(session.route)
        turn = log.turns + 1
        log.append(TurnStart(turn))
        try:
            answer = await self._steps(turn, encoding.clean(text))
        except anyio.get_cancelled_exc_class():
            self._abandon("the person stopped it", "interrupted")
            # The cancellation counts for more than a store that fails now: the events are kept,
            # and the next flush tries again.
            with anyio.CancelScope(shield=True), contextlib.suppress(AddendumError):
                await session.flush()
            raise
        except AddendumError as error:
            error.session = error.session or session.id
            self._abandon(str(error), "limit" if isinstance(error, LimitReached) else "failed")
            await session.flush()
            raise
        except BaseException as error:
            self._abandon(f"{type(error).__name__}: {error}", "interrupted")
            if isinstance(error, Exception):
                await session.flush()
            raise
        log.append(TurnEnd(turn))
        await session.flush()
        return TurnResult(
            answer,
            turn,
            total([figures.usage for figures in self._figures]),
            tuple(self._figures),
        )

    def _abandon(self, why: str, reason: Literal["interrupted", "failed", "limit"]) -> None:
        """Close the turn, and keep what has arrived of an answer."""
        log, why = self._session.log, one_line(why)
        if self._parser is not None and log.step is not None and log.turn is not None:
            partial = self._parser.partial()
            log.append(
                AssistantAttempt(
                    log.turn,
                    log.step,
                    self._session.route.name,
                    why,
                    "CANCELLED",
                    text=partial.text,
                    usage=partial.usage,
                )
            )
            self._parser = None
        log.close_open(why, reason)

    async def _steps(self, turn: int, text: str) -> str:
        session, log = self._session, self._session.log
        for step in range(1, session.agent.limits.steps + 1):
            log.append(StepStart(turn, step))
            snapshot, context = await self._prepare(text if step == 1 else None)
            answer, context = await self._ask(context)
            planned, message = self._understand(turn, step, answer, snapshot, context)
            log.append(message)
            if planned:
                await self._call(turn, step, planned)
            log.append(StepEnd(turn, step))
            if not planned:
                return answer.text
            await session.flush()
        raise LimitReached(
            f"the turn took {session.agent.limits.steps} steps without an end; raise "
            "Limits(steps=...) or ask for less at once",
            session=session.id,
        )

    # -- before the request -----------------------------------------------------------------

    async def _prepare(self, text: str | None) -> tuple[Snapshot, RequestContext]:
        """Log what the request is made of, in its fixed order."""
        session = self._session
        snapshot = await session.settle()
        await session.learn()
        given = session.step_input(snapshot)
        became_head = log_step(session.log, given, text)
        session.wrote_step(snapshot, became_head)
        session.requests.log_context(given.context)
        return snapshot, given.context

    # -- the request ------------------------------------------------------------------------

    async def _ask(self, context: RequestContext) -> tuple[Answer, RequestContext]:
        answer = await ask(
            self._session, context, self._emit, self._keep, self._figures, self._attempt
        )
        self._parser = None
        return answer

    def _keep(self, parser: Parser) -> None:
        self._parser = parser

    def _attempt(self, error: ProviderError) -> None:
        session, log = self._session, self._session.log
        assert log.turn is not None and log.step is not None
        partial = Answer() if self._parser is None else self._parser.partial()
        error.route = session.route.name
        log.append(
            AssistantAttempt(
                log.turn,
                log.step,
                session.route.name,
                str(error),
                error.code,
                error.status,
                partial.text,
                partial.usage,
            )
        )
        self._parser = None

    # -- the answer -------------------------------------------------------------------------

    def _understand(
        self, turn: int, step: int, answer: Answer, snapshot: Snapshot, context: RequestContext
    ) -> tuple[list[Planned], AssistantMessage]:
        """Bring every call into its real form before anything else sees it."""
        session = self._session
        dispatch = context.projection == "dispatch"
        registry = {name: entry.schema for name, entry in snapshot.entries.items()}
        bound = session.bound_tools(snapshot) if dispatch else frozenset(registry)
        planned: list[Planned] = []
        calls: list[Call] = []
        envelopes: dict[str, str] = {}
        as_text = wire(context.wire).facts.string_arguments
        native = answer.native
        for given in answer.calls:
            call = msgspec.structs.replace(given, name=legal_name(given.name))
            if call.name != given.name:
                # No provider takes such a name back, and the history would be refused for good.
                arguments = bytes(legal_object(call.arguments) or b"{}").decode()
                native = wire(context.wire).rewrite(native, {call.id: arguments}, call.name)
            found = resolve_call(
                call,
                registry=registry,
                bound=bound,
                disabled=session.disabled,
                can_dispatch=session.agent.dispatch.can_dispatch,
                search_bound=dispatch or TOOL_SEARCH_NAME in registry,
                pass_through_bound=session.agent.dispatch.pass_through_bound,
                dispatch=dispatch,
            )
            if isinstance(found, Refused):
                # The name of a target may be anything too, and another route sends it as a name.
                target = msgspec.structs.replace(found.call, name=legal_name(found.call.name))
                planned.append(Planned(target, refused=Outcome(found.message, True, found.code)))
                calls.append(target)
            else:
                entry = snapshot.entries.get(found.call.name) or _search_entry(session)
                planned.append(Planned(found.call, entry))
                calls.append(Call(found.call.id, found.call.name, found.given, found.call.origin))
            real = calls[-1]
            if dispatch and real.origin == "direct" and real.name not in bound:
                envelopes[call.id] = rewrite_direct_call(real, string_arguments=as_text)
        if envelopes:
            native = wire(context.wire).rewrite(native, envelopes, TOOL_DISPATCHER_NAME)
        return planned, AssistantMessage(
            turn,
            step,
            context.route,
            context.wire,
            context.form,
            answer.text,
            tuple(calls),
            native,
            () if native is answer.native else answer.native,
            answer.reasoning,
            answer.stop,
            answer.usage,
        )

    async def _call(self, turn: int, step: int, planned: list[Planned]) -> None:
        session, log = self._session, self._session.log
        for item in planned:
            if item.refused is None:
                call = item.call
                log.append(ToolCall(turn, step, call.id, call.name, call.arguments, call.origin))
        await session.flush()
        for item in planned:
            if item.refused is None:
                self._emit(ToolStarted(item.call.id, item.call.name, item.call.arguments))

        def context(call: Call) -> ToolContext:
            return ToolContext(
                session=session.id,
                turn=turn,
                step=step,
                call_id=call.id,
                tool=call.name,
                state=session.state,
            )

        def done(place: int, outcome: Outcome) -> None:
            call = planned[place].call
            log.append(
                ToolResult(
                    turn,
                    step,
                    call.id,
                    call.name,
                    outcome.text,
                    outcome.is_error,
                    outcome.code,
                )
            )
            self._emit(ToolFinished(call.id, call.name, outcome.text, outcome.is_error))

        limits = session.agent.limits
        await run_calls(
            planned, context, timeout=limits.tool_timeout, limit=limits.result_bytes, done=done
        )


def _search_entry(session: Session) -> Entry:
    async def run(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
        return Outcome(session.search(arguments))

    return Entry(TOOL_SEARCH, run)


async def compact(session: Session, summary: str | None) -> str:
    """Replace the conversation by a summary, asking the model for one if none is given."""
    log = session.log
    nodes = [node for node in log.surface.nodes if node.type != "system/message"]
    if not nodes:
        raise ConfigurationError("there is nothing to compact yet", session=session.id)
    usage, route = Usage(), None
    if summary is None:
        context = session.current_context()
        session.requests.log_context(context)
        answer, _ = await ask(
            session,
            context,
            lambda _: None,
            lambda _: None,
            [],
            lambda _: None,
            instruction=compaction_request(COMPACTION_INSTRUCTION),
        )
        summary, usage, route = answer.text, answer.usage, session.route.name
        if not summary.strip():
            raise ConfigurationError(
                "the model gave no summary; the conversation stays as it was", session=session.id
            )
    first = nodes[0].seq
    log.append(CompactionSummary(summary, log.turns, route, usage), replace=(first, nodes[-1].seq))
    await session.flush()
    return summary
