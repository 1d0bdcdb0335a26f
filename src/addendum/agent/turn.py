"""The loop: a turn is a user message and steps; a step is one request and its tool calls."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import anyio

from addendum import encoding
from addendum.agent.calls.approval import Pending, complete
from addendum.agent.calls.batch import Batch
from addendum.agent.calls.early import Early
from addendum.agent.context.compaction import Automatic
from addendum.agent.context.exchange import ask
from addendum.agent.context.step import log_step
from addendum.agent.results import (
    Notice,
    RequestFigures,
    StreamEvent,
    TurnResult,
    not_there,
    total,
)
from addendum.agent.subagents import ended
from addendum.errors import (
    AddendumError,
    ConfigurationError,
    LimitReached,
    ProviderError,
    described,
)
from addendum.log.events import (
    AssistantAttempt,
    RequestContext,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)
from addendum.log.known import ServerAway
from addendum.routes import credentials
from addendum.tools.registry import Snapshot
from addendum.wire.answer import Answer, Parser
from addendum.wire.refusal import one_line, too_large

if TYPE_CHECKING:
    from addendum.agent.calls.approval import Decisions
    from addendum.agent.session import Session


class Turn:
    """One turn of a session.

    Args:
        session: The session.
        emit: Told of everything that happens.
    """

    def __init__(self, session: Session, emit: Callable[[StreamEvent], None]) -> None:
        self._session = session
        self._tell = emit
        self._notices: list[str] = []
        self._figures: list[RequestFigures] = []
        self._unsaid: str | None = None
        self._parser: Parser | None = None
        self._early: Early | None = None
        self._last = Answer()
        self._compacting = Automatic(session, self._emit, self._figures)

    def _emit(self, event: StreamEvent) -> None:
        if isinstance(event, Notice):
            self._notices.append(event.text)
        self._tell(event)

    async def run(self, text: str) -> TurnResult:
        """Run the turn to its end; whatever ends it, the log is valid.

        Raises:
            ConfigurationError: The text says nothing; or the route has no key. Nothing is logged.
            AddendumError: Whatever else ended it; the log says so.
        """
        self.check(text)
        log = self._session.log
        turn = log.turns + 1
        log.append(TurnStart(turn))
        self._unsaid = encoding.clean(text)
        return await self._ended(turn, lambda: self._steps(turn, 1))

    def check(self, text: str) -> None:
        """Refuse a turn that could not begin.

        Raises:
            ConfigurationError: The text says nothing; or the route has no key.
        """
        session = self._session
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                "the message is empty or no text; write something", session=session.id
            )
        credentials(session.route)

    async def resume(self, decisions: Decisions) -> TurnResult:
        """Go on with the turn that waits for a person.

        Args:
            decisions: What they decided, by call id.

        Raises:
            ConfigurationError: It waits for other decisions, or the route has no key. It waits
                still.
            AddendumError: As `run`.
        """
        session, log = self._session, self._session.log
        complete(log.asked, decisions, session.id, session.decidable)
        credentials(session.route)
        assert log.turn is not None
        turn = log.turn
        return await self._ended(turn, lambda: self._rest(turn, decisions))

    async def _ended(
        self, turn: int, work: Callable[[], Awaitable[tuple[str, tuple[Pending, ...]]]]
    ) -> TurnResult:
        """Do the work of a turn and close it; one that waits for a person stays open."""
        session, log = self._session, self._session.log
        try:
            answer, waiting = await work()
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
            self._abandon(described(error), "interrupted")
            if isinstance(error, Exception):
                await session.flush()
            raise
        if not waiting:
            log.append(TurnEnd(turn))
        await session.flush()
        return TurnResult(
            answer,
            turn,
            total([figures.usage for figures in self._figures]),
            tuple(self._figures),
            waiting,
            ended(log.rare, turn),
            tuple(self._notices),
            self._last.ending,
            not (self._last.text or self._last.calls),
        )

    def _abandon(self, why: str, reason: Literal["interrupted", "failed", "limit"]) -> None:
        """Close the turn; keep what the person wrote, and what has arrived of an answer.

        A turn that waits for a person goes on waiting: stopping the question decides nothing.
        """
        log, why = self._session.log, one_line(why)
        if log.asked is not None:
            return
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
        if self._unsaid is not None and log.turn is not None:
            # It ended while it waited for a server or a summary: as if its request had failed.
            if log.step is None:
                log.append(StepStart(log.turn, 1))
            with contextlib.suppress(AddendumError):
                self._write(self._session.registry.snapshot())
        log.close_open(why, reason)

    async def _steps(self, turn: int, first: int) -> tuple[str, tuple[Pending, ...]]:
        """Make steps until the model calls no more tools, or a person has to decide."""
        session, log = self._session, self._session.log
        for step in range(first, session.agent.limits.steps + 1):
            await session.using.heard()
            await self._compacting.run(within=step > 1)
            log.append(StepStart(turn, step))
            snapshot, context = await self._prepare()
            self._early = session.early(self._emit, snapshot)
            try:
                try:
                    answer, context = await self._ask(context)
                except ProviderError as error:
                    if not too_large(error):
                        raise
                    # Nothing of it was answered: the next step asks again, behind a summary.
                    log.append(StepEnd(turn, step))
                    await self._compacting.make_room(error)
                    continue
                self._last = answer
                batch = Batch(session, self._emit, snapshot, context, self._early)
                planned, message = batch.understand(answer)
                log.append(message)
                await session.using.heard()
                if planned and (waiting := await batch.run(planned)):
                    return answer.text, waiting
            finally:
                if self._early is not None:
                    await self._early.aclose()
            log.append(StepEnd(turn, step))
            if not planned:
                return answer.text, ()
            await session.flush()
        raise LimitReached(
            f"the turn took {session.agent.limits.steps} steps without an end; raise "
            "Limits(steps=...) or ask for less at once",
            session=session.id,
        )

    async def _rest(self, turn: int, decisions: Decisions) -> tuple[str, tuple[Pending, ...]]:
        session, log = self._session, self._session.log
        step = log.step
        assert step is not None
        # What the request that is answered was rendered with, whatever route comes next.
        found = (event.data for event in reversed(log.events))
        context = next(data for data in found if isinstance(data, RequestContext))
        batch = Batch(session, self._emit, session.registry.snapshot(), context)
        await batch.decide(decisions)
        log.append(StepEnd(turn, step))
        await session.flush()
        return await self._steps(turn, step + 1)

    # -- before the request -----------------------------------------------------------------

    async def _prepare(self) -> tuple[Snapshot, RequestContext]:
        """Take in what has settled, and log what the request is made of."""
        session = self._session
        snapshot = await session.settle()
        await session.downgrades.read(session.route)
        for server, wrong in session.registry.troubles().items():
            session.log.append(ServerAway(server, wrong))
            if wrong:
                self._emit(Notice(not_there(server, wrong)))
        if (change := session.change()) is not None:
            self._emit(Notice(change))
        for line in session.unknown_names.notices(snapshot):
            self._emit(Notice(line))
        return snapshot, self._write(snapshot)

    def _write(self, snapshot: Snapshot) -> RequestContext:
        """Log what the request is made of, in its fixed order; the person's message once."""
        session = self._session
        text, self._unsaid = self._unsaid, None
        for _, notice in session.redefinitions.check(session.log, snapshot):
            self._emit(Notice(notice))
        given = session.step_input(snapshot)
        became_head = log_step(session.log, given, text)
        session.wrote_step(snapshot, became_head)
        session.requests.log_context(given.context)
        for lost in session.left_out.check(snapshot, given.context):
            self._emit(Notice(lost))
        return given.context

    # -- the request ------------------------------------------------------------------------

    async def _ask(self, context: RequestContext) -> tuple[Answer, RequestContext]:
        answer = await ask(
            self._session,
            context,
            self._emit,
            self._keep,
            self._figures,
            self._attempt,
            fed=None if self._early is None else self._early.fed,
        )
        self._parser = None
        return answer

    def _keep(self, parser: Parser) -> None:
        self._parser = parser

    def _attempt(self, error: ProviderError) -> None:
        session, log = self._session, self._session.log
        if self._early is not None:
            self._early.drop()
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
