"""Compaction: the older part of a conversation is replaced by a summary, asked for or by itself.

The request for the summary replays the conversation as it was sent, with the instruction last, so
it reads the whole prefix from the cache. Nothing is replaced until a usable summary is there. What
stays (the newest turns, and a turn that runs) stays whole: a round of calls is never taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

from addendum import encoding
from addendum.agent.context.epochs import outside_turns
from addendum.agent.context.exchange import Asking
from addendum.agent.context.window import replaceable, size_of
from addendum.agent.results import Notice, RequestDone, StreamEvent
from addendum.agent.runtime import Runtime
from addendum.errors import (
    ConfigurationError,
    LimitReached,
    ProviderError,
    UnsupportedContent,
)
from addendum.log.events import (
    AssistantMessage,
    CompactionFailed,
    CompactionSummary,
    Event,
)
from addendum.log.values import Usage
from addendum.wire.endings import told
from addendum.wire.refusal import too_large


class Automatic:
    """Compacts a session in a turn, at most once in it.

    Args:
        run: The session.
        emit: Told of what happens.
    """

    def __init__(
        self,
        run: Runtime,
        emit: Callable[[StreamEvent], None],
    ) -> None:
        self._run = run
        self._emit = emit
        self._tried = False
        self._made_room = False

    async def run(self, *, within: bool) -> None:
        """Compact if it is time to. Whatever comes of it, the turn goes on.

        Args:
            within: Whether the turn's own message is on the surface; it stays whole.
        """
        run, wanted = self._run, self._run.setup.compaction
        if wanted is None or self._tried:
            return
        sizes, limit = run.state.sizes, wanted.limit(run.route)
        size = sizes.reported
        keep = wanted.keep_turns + within
        if size is None or size < limit:
            return
        window = wanted.room(run.route)
        limit = sizes.next_attempt(run.route, window) or limit
        if size < limit:
            return
        if not any(
            isinstance(node.data, AssistantMessage)
            for node in replaceable(run.log.surface.nodes, keep)
        ):
            return  # A summary of a summary saves nothing.
        self._tried = True
        self._emit(Notice(f"compacting: {size:,} tokens, from {limit:,} on"))
        try:
            await compact(run, None, keep, emit=self._emit)
        except NoSummary as error:
            again = sizes.next_attempt(run.route, window)
            self._emit(
                Notice(
                    f"not compacted: {error}; it is tried again from {again:,} tokens on, "
                    "or by session.compact()"
                )
            )
        except (ProviderError, UnsupportedContent, LimitReached) as error:
            self._emit(Notice(f"not compacted: {error}"))

    async def make_room(self, error: ProviderError) -> None:
        """Compact what stands in front of a turn that the model's window does not hold.

        Args:
            error: How the provider refused the turn's request.

        Raises:
            LimitReached: That was done already, or cannot be done: the turn has to end.
            ProviderError: The very error, if the agent compacts nothing by itself.
        """
        run = self._run
        if run.setup.compaction is None:
            raise error
        nodes = run.log.surface.nodes
        front = replaceable(nodes, 1)
        if self._made_room or not any(isinstance(node.data, AssistantMessage) for node in front):
            raise _too_long(run, "this turn alone is") from error
        self._made_room = self._tried = True
        self._emit(Notice("compacting: the turn does not fit behind what stands in front of it"))
        own = run.state.latest.turn_seq
        try:
            await compact(run, None, 1, emit=self._emit, until=own)
        except (ProviderError, NoSummary, UnsupportedContent, LimitReached) as failed:
            raise _too_long(run, "the conversation is") from failed


def _too_long(run: Runtime, what: str) -> LimitReached:
    return LimitReached(
        f"{what} larger than the window of {run.route.name}; go back with session.rewind() "
        "and ask for less at once, lower Limits(shown_bytes=...), or use a model with more room",
        session=run.id,
        route=run.route.name,
    )


class NoSummary(ConfigurationError):
    """The model's answer is no summary that could stand for the conversation."""


async def compact(
    run: Runtime,
    summary: str | None,
    keep_turns: int,
    *,
    emit: Callable[[StreamEvent], None] = lambda _: None,
    until: int | None = None,
) -> str:
    """Replace all but the newest turns by a summary, asking the model for one if none is given.

    Args:
        run: The session; no round of calls is open.
        summary: The summary, if there is one.
        keep_turns: How many of the newest turns stay.
        emit: Told of notices and figures.
        until: Seq of the first event that the request for a summary says nothing of.

    Raises:
        ConfigurationError: There is nothing to compact, or the summary given says nothing.
        NoSummary: What the model gave is none. All stays as it was, and the log says why.
        LimitReached: Not even the request for a summary fits. All stays as it was.
        ProviderError: The request failed. All stays as it was, and the log says why.
    """
    log = run.log
    nodes = replaceable(log.surface.nodes, keep_turns)
    # A cut or an update alone says nothing that a summary could stand for.
    if not any(size_of(node, ()) for node in nodes):
        raise ConfigurationError("there is nothing to compact yet", session=run.id)
    usage, route = Usage(), None
    if summary is None:
        summary, usage = await _asked(run, nodes, emit, until)
        route = run.route.name
    elif not isinstance(summary, str) or not summary.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("the summary says nothing; give one with text", session=run.id)
    summary = encoding.clean(summary)
    log.append(
        CompactionSummary(summary, log.turns, route, usage), replace=(nodes[0].seq, nodes[-1].seq)
    )
    await run.flush()
    return summary


async def _asked(
    run: Runtime,
    nodes: Sequence[Event],
    emit: Callable[[StreamEvent], None],
    until: int | None,
) -> tuple[str, Usage]:
    request = Asking(run, outside_turns(run), purpose="compaction", until=until, waiting=emit)
    try:
        async with aclosing(request.events()) as events:
            async for event in events:
                # The summary's own text is no part of an answer.
                if isinstance(event, Notice | RequestDone):
                    emit(event)
    except (ProviderError, UnsupportedContent) as error:
        await _failed(run, CompactionFailed(str(error)))
        if isinstance(error, ProviderError) and too_large(error):
            raise _too_long(run, "the conversation is") from error
        raise
    answer = request.answer
    size = sum(size_of(node, request.context.shows) for node in nodes)
    why = ""
    if not answer.text.strip():
        why = "the model gave no summary"
    elif answer.ending not in ("whole", "unknown"):
        why = f"the summary is not whole: {told(answer.stop, answer.ending, answer.details)}"
    elif len(answer.text.encode()) > size:
        why = "the summary is longer than what it would replace"
    if why:
        await _failed(run, CompactionFailed(why, run.route.name, answer.usage))
        raise NoSummary(f"{why}; the conversation stays as it was", session=run.id)
    return answer.text, answer.usage


async def _failed(run: Runtime, event: CompactionFailed) -> None:
    run.log.append(event)
    await run.flush()
