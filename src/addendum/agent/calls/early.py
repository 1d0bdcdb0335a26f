"""Calls that start while their answer still streams.

Only calls that can do no harm and that nobody has a say in: of a tool that is said to be read-only,
bound and called by its name, that no policy asks about or denies and no hook sees in front of its
run. The rest wait for the whole answer: calls of the dispatcher, of deferred tools and of disabled
ones always do.

`tool/call` is durable before the tool starts. What a call gives is used if the answer came whole
and has this very call; it is not run again then. An answer that failed or was cut takes its calls
with it: they are stopped, and nothing they gave is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from addendum.agent.calls.batch import Batch
from addendum.agent.calls.execution import Planned, run_one
from addendum.agent.results import StreamEvent, ToolStarted
from addendum.agent.runtime import Runtime
from addendum.errors import AddendumError
from addendum.log.events import ToolCall
from addendum.log.session_log import OUTCOME_UNKNOWN
from addendum.tools.registry import Outcome, Snapshot
from addendum.wire.answer import Parser


class _Begun:
    """One call that was started early."""

    def __init__(self, item: Planned) -> None:
        self.item = item
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.started = False
        self.outcome: Outcome | None = None


class Early:
    """The calls of one step that are started early.

    Args:
        run: The session.
        emit: Told of everything that happens.
        snapshot: The tools that calls are made against.
    """

    def __init__(
        self,
        run: Runtime,
        emit: Callable[[StreamEvent], None],
        snapshot: Snapshot,
    ) -> None:
        self._run = run
        self._emit = emit
        self._snapshot = snapshot
        self._batch: Batch | None = None
        self._seen = 0
        self._begun: dict[str, _Begun] = {}
        self._all: list[_Begun] = []

    def fed(self, parser: Parser) -> None:
        """Look at what an answer has come to, and start what is whole and may start."""
        calls = parser.settled()
        for call in calls[self._seen :]:
            item = self._now().harmless(call)
            if item is not None and call.id not in self._begun:
                self._begin(item)
        self._seen = len(calls)

    def _now(self) -> Batch:
        if self._batch is None:
            # The last one in the log: a refused request is made again in a weaker form.
            context = self._run.state.sent.latest
            assert context is not None
            self._batch = Batch(self._run, self._emit, self._snapshot, context)
        return self._batch

    def _begin(self, item: Planned) -> None:
        log, call = self._run.log, item.call
        assert log.turn is not None and log.step is not None
        log.append(
            ToolCall(
                log.turn, log.step, call.id, call.name, call.arguments, call.origin, early=True
            )
        )
        begun = self._begun[call.id] = _Begun(item)
        self._all.append(begun)
        self._run.tasks.start_soon(self._play, begun, self._now())

    async def _play(self, begun: _Begun, batch: Batch) -> None:
        run, call = self._run, begun.item.call
        try:
            with begun.scope:
                await run.using.heard()
                await run.flush()
                begun.started = True
                self._emit(ToolStarted(call.id, call.name, call.arguments))
                seconds = run.setup.limits.tool_timeout
                begun.outcome = await run_one(begun.item, batch.tool_context, seconds)
        except AddendumError:
            # Not durable, so not started: it is called with the others, or that fails as well.
            pass
        finally:
            begun.ended.set()

    def take(self, item: Planned) -> Callable[[], Awaitable[Outcome]] | None:
        """Return what gives the outcome of a call of the whole answer, if it was started early.

        Args:
            item: The call. If it may not run after all, or is another one than was started, what
                was started is stopped.
        """
        begun = self._begun.get(item.call.id)
        if begun is None:
            return None
        if item.refused is not None or item.reason is not None or item.call != begun.item.call:
            begun.scope.cancel()
            return None

        async def outcome() -> Outcome:
            await begun.ended.wait()
            if begun.outcome is not None:
                return begun.outcome
            if not begun.started:
                return await run_one(
                    item, self._now().tool_context, self._run.setup.limits.tool_timeout
                )
            code, text = OUTCOME_UNKNOWN
            return Outcome(text, True, code)

        return outcome

    def drop(self) -> None:
        """Stop what was started for an answer that failed; nothing of it is used."""
        for begun in self._begun.values():
            begun.scope.cancel()
        self._begun, self._batch, self._seen = {}, None, 0

    async def aclose(self) -> None:
        """Stop what still runs, and wait for its end."""
        self.drop()
        with anyio.CancelScope(shield=True):
            for begun in self._all:
                await begun.ended.wait()
