"""The loop: a turn is a user message and steps; a step is one request and its tool calls."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Literal

import anyio

from addendum import encoding
from addendum.agent.calls.approval import Decisions, Pending, complete
from addendum.agent.calls.batch import Batch
from addendum.agent.calls.early import Early
from addendum.agent.context.compaction import Automatic
from addendum.agent.context.exchange import Arrived, Asking, Failed
from addendum.agent.context.step import log_step, step_input
from addendum.agent.results import (
    Notice,
    RequestDone,
    RequestFigures,
    StreamEvent,
    TurnResult,
    not_there,
    total,
)
from addendum.agent.runtime import Runtime
from addendum.errors import (
    AddendumError,
    ConfigurationError,
    LimitReached,
    ProviderError,
    described,
)
from addendum.lines import one_line
from addendum.log.events import (
    AssistantAttempt,
    RequestContext,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)
from addendum.log.known import ServerAway
from addendum.log.reading import lost
from addendum.routes import credentials
from addendum.tools.registry import Snapshot
from addendum.wire.answer import Answer
from addendum.wire.refusal import too_large


class Turn:
    """One turn of a session.

    Args:
        run: The session.
        emit: Told of everything that happens.
    """

    def __init__(self, run: Runtime, emit: Callable[[StreamEvent], None]) -> None:
        self._run = run
        self._tell = emit
        self._notices: list[str] = []
        self._figures: list[RequestFigures] = []
        self._unsaid: str | None = None
        self._asking: Asking | None = None
        self._early: Early | None = None
        self._last = Answer()
        self._compacting = Automatic(run, self._emit)

    def _emit(self, event: StreamEvent) -> None:
        if isinstance(event, Notice):
            self._notices.append(event.text)
        elif isinstance(event, RequestDone):
            self._figures.append(event.figures)
        self._tell(event)

    async def run(self, text: str) -> TurnResult:
        """Run the turn to its end; whatever ends it, the log is valid.

        Raises:
            ConfigurationError: The text says nothing; or the route has no key. Nothing is logged.
            AddendumError: Whatever else ended it; the log says so.
        """
        self.check(text)
        log = self._run.log
        turn = log.turns + 1
        log.append(TurnStart(turn))
        self._unsaid = encoding.clean(text)
        return await self._ended(turn, lambda: self._steps(turn, 1))

    def check(self, text: str) -> None:
        """Refuse a turn that could not begin.

        Raises:
            ConfigurationError: The text says nothing; or the route has no key.
        """
        run = self._run
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                "the message is empty or no text; write something", session=run.id
            )
        credentials(run.route)

    async def resume(self, decisions: Decisions) -> TurnResult:
        """Go on with the turn that waits for a person.

        Args:
            decisions: What they decided, by call id.

        Raises:
            ConfigurationError: It waits for other decisions, or the route has no key. It waits
                still.
            AddendumError: As `run`.
        """
        run, log = self._run, self._run.log
        complete(log.asked, decisions, run.id, run.setup.decidable)
        credentials(run.route)
        assert log.turn is not None
        turn = log.turn
        return await self._ended(turn, lambda: self._rest(turn, decisions))

    async def _ended(
        self, turn: int, work: Callable[[], Awaitable[tuple[str, tuple[Pending, ...]]]]
    ) -> TurnResult:
        """Do the work of a turn and close it; one that waits for a person stays open."""
        run, log = self._run, self._run.log
        try:
            answer, waiting = await work()
        except anyio.get_cancelled_exc_class():
            self._abandon("the person stopped it", "interrupted")
            # The cancellation counts for more than a store that fails now: the events are kept,
            # and the next flush tries again.
            with anyio.CancelScope(shield=True), contextlib.suppress(AddendumError):
                await run.flush()
            raise
        except AddendumError as error:
            error.session = error.session or run.id
            self._abandon(str(error), "limit" if isinstance(error, LimitReached) else "failed")
            await run.flush()
            raise
        except BaseException as error:
            self._abandon(described(error), "interrupted")
            if isinstance(error, Exception):
                await run.flush()
            raise
        if not waiting:
            log.append(TurnEnd(turn))
        await run.flush()
        return TurnResult(
            answer,
            turn,
            total([figures.usage for figures in self._figures]),
            tuple(self._figures),
            waiting,
            tuple(run.state.latest.children),
            tuple(self._notices),
            self._last.ending,
            not (self._last.text or self._last.calls),
        )

    def _abandon(self, why: str, reason: Literal["interrupted", "failed", "limit"]) -> None:
        """Close the turn; keep what the person wrote, and what has arrived of an answer.

        A turn that waits for a person goes on waiting: stopping the question decides nothing.
        """
        log, why = self._run.log, one_line(why, 500)
        if log.asked is not None:
            return
        partial = None if self._asking is None else self._asking.partial()
        if partial is not None and log.step is not None and log.turn is not None:
            self._attempted(why, "CANCELLED", partial)
        self._asking = None
        if self._unsaid is not None and log.turn is not None:
            # It ended while it waited for a server or a summary: as if its request had failed.
            if log.step is None:
                log.append(StepStart(log.turn, 1))
            with contextlib.suppress(AddendumError):
                self._write(self._run.registry.snapshot())
        log.close_open(why, reason)

    async def _steps(self, turn: int, first: int) -> tuple[str, tuple[Pending, ...]]:
        """Make steps until the model calls no more tools, or a person has to decide."""
        run, log = self._run, self._run.log
        for step in range(first, run.setup.limits.steps + 1):
            await run.using.heard()
            await self._compacting.run(within=step > 1)
            log.append(StepStart(turn, step))
            snapshot, context = await self._prepare()
            if run.setup.early_start:
                self._early = Early(run, self._emit, snapshot)
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
                batch = Batch(run, self._emit, snapshot, context, self._early)
                planned, message = batch.understand(answer)
                log.append(message)
                await run.using.heard()
                if planned and (waiting := await batch.run(planned)):
                    return answer.text, waiting
            finally:
                if self._early is not None:
                    await self._early.aclose()
            log.append(StepEnd(turn, step))
            if not planned:
                return answer.text, ()
            await run.flush()
        raise LimitReached(
            f"the turn took {run.setup.limits.steps} steps without an end; raise "
            "Limits(steps=...) or ask for less at once",
            session=run.id,
        )

    async def _rest(self, turn: int, decisions: Decisions) -> tuple[str, tuple[Pending, ...]]:
        run, log = self._run, self._run.log
        step = log.step
        assert step is not None
        # What the request that is answered was rendered with, whatever route comes next.
        context = run.state.sent.latest
        if context is None:
            raise lost(log, "how the request was made whose calls wait")
        batch = Batch(run, self._emit, run.registry.snapshot(), context)
        await batch.decide(decisions)
        log.append(StepEnd(turn, step))
        await run.flush()
        return await self._steps(turn, step + 1)

    # -- before the request -----------------------------------------------------------------

    async def _prepare(self) -> tuple[Snapshot, RequestContext]:
        """Take in what has settled, and log what the request is made of."""
        run = self._run
        snapshot = await run.settle()
        await run.downgrades.read(run.route)
        for server, wrong in run.registry.troubles().items():
            run.log.append(ServerAway(server, wrong))
            if wrong:
                self._emit(Notice(not_there(server, wrong)))
        if (change := run.change()) is not None:
            self._emit(Notice(change))
        for line in run.unknown_names.notices(snapshot):
            self._emit(Notice(line))
        return snapshot, self._write(snapshot)

    def _write(self, snapshot: Snapshot) -> RequestContext:
        """Log what the request is made of, in its fixed order; the person's message once."""
        run = self._run
        text, self._unsaid = self._unsaid, None
        for _, notice in run.redefinitions.check(run.log, snapshot):
            self._emit(Notice(notice))
        own = step_input(run, snapshot)
        became_head = log_step(run.log, own, text)
        # What was asked for this step is done.
        run.first = run.series = run.new_head = False
        run.redefinitions.hold()
        if became_head:
            run.head = snapshot.active
        run.requests.log_context(own.context)
        head = run.state.history.head
        for missing in run.left_out.check(snapshot, own.context, run.route, head):
            self._emit(Notice(missing))
        return own.context

    # -- the request ------------------------------------------------------------------------

    async def _ask(self, context: RequestContext) -> tuple[Answer, RequestContext]:
        """Return the answer, and what the request was rendered with that it answers."""
        asking = self._asking = Asking(self._run, context, waiting=self._emit)
        async with aclosing(asking.events()) as events:
            async for event in events:
                if isinstance(event, Arrived):
                    if self._early is not None:
                        self._early.fed(event.parser)
                elif isinstance(event, Failed):
                    self._failed(event)
                else:
                    self._emit(event)
        self._asking = None
        return asking.answer, asking.context

    def _failed(self, failed: Failed) -> None:
        if self._early is not None:
            self._early.drop()
        error = failed.error
        error.route = self._run.route.name
        self._attempted(str(error), error.code, failed.partial, error.status)

    def _attempted(
        self, why: str, code: str | None, partial: Answer, status: int | None = None
    ) -> None:
        """Log what has arrived of an answer that does not come."""
        log = self._run.log
        assert log.turn is not None and log.step is not None
        log.append(
            AssistantAttempt(
                turn=log.turn,
                step=log.step,
                route=self._run.route.name,
                error=why,
                code=code,
                status=status,
                text=partial.text,
                usage=partial.usage,
            )
        )
