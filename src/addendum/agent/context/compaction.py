"""Compaction: the older part of a conversation is replaced by a summary, asked for or by itself.

The request for the summary replays the conversation as it was sent, with the instruction last, so
it reads the whole prefix from the cache. Nothing is replaced until a usable summary is there. What
stays (the newest turns, and a turn that runs) stays whole: a round of calls is never taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from addendum import encoding
from addendum.agent.context.epochs import outside_turns
from addendum.agent.context.exchange import ask
from addendum.agent.results import Notice, RequestDone, RequestFigures, StreamEvent
from addendum.checked import AtLeastNone, AtLeastOne, check_fields
from addendum.errors import (
    ConfigurationError,
    LimitReached,
    ProviderError,
    UnsupportedContent,
)
from addendum.log.approvals import AddedContext
from addendum.log.events import (
    AssistantMessage,
    CompactionFailed,
    CompactionSummary,
    Event,
    ServerInstructions,
    Span,
    SystemMessage,
    ToolResult,
    TurnStart,
    UserMessage,
)
from addendum.log.values import Usage
from addendum.prompt.long_results import shown
from addendum.wire.endings import told
from addendum.wire.refusal import too_large

if TYPE_CHECKING:
    from addendum.agent.session import Session
    from addendum.routes import Route


class Compaction(Struct, frozen=True):
    """When a session is compacted by itself, and what stays.

    Attributes:
        at: Share of the window, more than 0 and at most 1, from which on it is compacted: by the
            tokens that the provider reported for the last request and its answer.
        keep_turns: How many of the newest turns stay as they are. On routes whose reasoning is
            bound to the exact prefix they stay without theirs.
        window: Tokens of prompt and output that the model takes; the route's own if None.

    Raises:
        ConfigurationError: A figure is out of its bounds.
    """

    at: Annotated[float, Meta(gt=0, le=1)] = 0.8
    keep_turns: AtLeastNone = 2
    window: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def limit(self, route: Route) -> int:
        """Return the tokens from which on a session on `route` is compacted.

        Raises:
            ConfigurationError: The model's window is not known and was not given.
        """
        return int(self.room(route) * self.at)

    def room(self, route: Route) -> int:
        """Return the tokens of prompt and output that the model of a route takes.

        Raises:
            ConfigurationError: That is not known and was not given.
        """
        window = self.window or route.window
        if not window:
            raise ConfigurationError(
                f"the window of {route.full_name} is not known; "
                "say Compaction(window=...) in tokens",
                route=route.name,
            )
        return window


def reported_size(events: Sequence[Event]) -> int | None:
    """Return the tokens that the next request has at least, or None if that is not known.

    Args:
        events: The session's log. What was reported before a part of it was replaced says nothing.
    """
    for event in reversed(events):
        if isinstance(event.surface_op, Span) and not isinstance(event.data, SystemMessage):
            return None
        if isinstance(event.data, AssistantMessage):
            usage = event.data.usage
            return None if usage.prompt is None else usage.prompt + (usage.output or 0)
    return None


def next_attempt(events: Sequence[Event], route: Route, window: int) -> int | None:
    """Return where a session is compacted by itself again, if the model last gave no summary.

    Such an answer is paid for like any other, so it is not asked for at every turn: half of the
    room that was left is used up first, and what fits no more is compacted in any case.

    Args:
        events: The session's log.
        route: The route; what another model gave says nothing of this one.
        window: Tokens of prompt and output that the model takes.

    Returns:
        The tokens; None if nothing was tried since a part of the log was replaced, or the request
        failed, which costs nothing.
    """
    for event in reversed(events):
        data = event.data
        if isinstance(event.surface_op, Span) and not isinstance(data, SystemMessage):
            return None
        if isinstance(data, CompactionFailed) and data.route == route.name:
            size = reported_size(events[: event.seq]) or 0
            return size + max(window - size, window // 10) // 2
    return None


def replaceable(nodes: Sequence[Event], keep_turns: int) -> Sequence[Event]:
    """Return the nodes that a compaction replaces: all but the prompt and the newest turns.

    Args:
        nodes: The surface.
        keep_turns: How many of the newest turns stay.
    """
    first = 1 if nodes and isinstance(nodes[0].data, SystemMessage) else 0
    places = [at for at, node in enumerate(nodes) if isinstance(node.data, UserMessage)]
    end = len(nodes)
    if keep_turns:
        end = places[-keep_turns] if keep_turns <= len(places) else first
        # A prompt that the first kept turn appended stays with it.
        while end > first and isinstance(nodes[end - 1].data, SystemMessage):
            end -= 1
    return nodes[first:end]


class Automatic:
    """Compacts a session in a turn, at most once in it.

    Args:
        session: The session.
        emit: Told of what happens.
        figures: Takes the figures of the request for a summary.
    """

    def __init__(
        self,
        session: Session,
        emit: Callable[[StreamEvent], None],
        figures: list[RequestFigures],
    ) -> None:
        self._session = session
        self._emit = emit
        self._figures = figures
        self._tried = False
        self._made_room = False

    async def run(self, *, within: bool) -> None:
        """Compact if it is time to. Whatever comes of it, the turn goes on.

        Args:
            within: Whether the turn's own message is on the surface; it stays whole.
        """
        session, wanted = self._session, self._session.agent.compaction
        if wanted is None or self._tried:
            return
        size, limit = reported_size(session.log.events), wanted.limit(session.route)
        keep = wanted.keep_turns + within
        if size is None or size < limit:
            return
        window = wanted.room(session.route)
        limit = next_attempt(session.log.events, session.route, window) or limit
        if size < limit:
            return
        if not any(
            isinstance(node.data, AssistantMessage)
            for node in replaceable(session.log.surface.nodes, keep)
        ):
            return  # A summary of a summary saves nothing.
        self._tried = True
        self._emit(Notice(f"compacting: {size:,} tokens, from {limit:,} on"))
        try:
            await compact(session, None, keep, emit=self._emit, figures=self._figures)
        except NoSummary as error:
            again = next_attempt(session.log.events, session.route, window)
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
        session = self._session
        if session.agent.compaction is None:
            raise error
        nodes = session.log.surface.nodes
        front = replaceable(nodes, 1)
        if self._made_room or not any(isinstance(node.data, AssistantMessage) for node in front):
            raise _too_long(session, "this turn alone is") from error
        self._made_room = self._tried = True
        self._emit(Notice("compacting: the turn does not fit behind what stands in front of it"))
        own = next(
            event.seq for event in reversed(session.log.events) if isinstance(event.data, TurnStart)
        )
        try:
            await compact(session, None, 1, emit=self._emit, figures=self._figures, until=own)
        except (ProviderError, NoSummary, UnsupportedContent, LimitReached) as failed:
            raise _too_long(session, "the conversation is") from failed


def _too_long(session: Session, what: str) -> LimitReached:
    return LimitReached(
        f"{what} larger than the window of {session.route.name}; go back with session.rewind() "
        "and ask for less at once, lower Limits(shown_bytes=...), or use a model with more room",
        session=session.id,
        route=session.route.name,
    )


class NoSummary(ConfigurationError):
    """The model's answer is no summary that could stand for the conversation."""


async def compact(
    session: Session,
    summary: str | None,
    keep_turns: int,
    *,
    emit: Callable[[StreamEvent], None] = lambda _: None,
    figures: list[RequestFigures] | None = None,
    until: int | None = None,
) -> str:
    """Replace all but the newest turns by a summary, asking the model for one if none is given.

    Args:
        session: The session; no round of calls is open.
        summary: The summary, if there is one.
        keep_turns: How many of the newest turns stay.
        emit: Told of notices and figures.
        figures: Takes the figures of the request.
        until: Seq of the first event that the request for a summary says nothing of.

    Raises:
        ConfigurationError: There is nothing to compact, or the summary given says nothing.
        NoSummary: What the model gave is none. All stays as it was, and the log says why.
        LimitReached: Not even the request for a summary fits. All stays as it was.
        ProviderError: The request failed. All stays as it was, and the log says why.
    """
    log = session.log
    nodes = replaceable(log.surface.nodes, keep_turns)
    # A cut or an update alone says nothing that a summary could stand for.
    if not any(_size(node, ()) for node in nodes):
        raise ConfigurationError("there is nothing to compact yet", session=session.id)
    usage, route = Usage(), None
    if summary is None:
        taken = [] if figures is None else figures
        summary, usage = await _asked(session, nodes, emit, taken, until)
        route = session.route.name
    elif not isinstance(summary, str) or not summary.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("the summary says nothing; give one with text", session=session.id)
    summary = encoding.clean(summary)
    log.append(
        CompactionSummary(summary, log.turns, route, usage), replace=(nodes[0].seq, nodes[-1].seq)
    )
    await session.flush()
    return summary


async def _asked(
    session: Session,
    nodes: Sequence[Event],
    emit: Callable[[StreamEvent], None],
    figures: list[RequestFigures],
    until: int | None,
) -> tuple[str, Usage]:
    context = outside_turns(session)

    def tell(event: StreamEvent) -> None:
        # The summary's own text is no part of an answer.
        if isinstance(event, Notice | RequestDone):
            emit(event)

    try:
        answer, _ = await ask(
            session,
            context,
            tell,
            lambda _: None,
            figures,
            lambda _: None,
            purpose="compaction",
            until=until,
        )
    except (ProviderError, UnsupportedContent) as error:
        await _failed(session, CompactionFailed(str(error)))
        if isinstance(error, ProviderError) and too_large(error):
            raise _too_long(session, "the conversation is") from error
        raise
    size = sum(_size(node, context.shows) for node in nodes)
    why = ""
    if not answer.text.strip():
        why = "the model gave no summary"
    elif answer.ending not in ("whole", "unknown"):
        why = f"the summary is not whole: {told(answer.stop, answer.ending, answer.details)}"
    elif len(answer.text.encode()) > size:
        why = "the summary is longer than what it would replace"
    if why:
        await _failed(session, CompactionFailed(why, session.route.name, answer.usage))
        raise NoSummary(f"{why}; the conversation stays as it was", session=session.id)
    return answer.text, answer.usage


async def _failed(session: Session, event: CompactionFailed) -> None:
    session.log.append(event)
    await session.flush()


def _size(node: Event, shows: Sequence[str]) -> int:
    """Return about how many bytes a node has in a request, its files included.

    Args:
        node: The node.
        shows: Media types that the request shows.
    """
    data = node.data
    if isinstance(data, AssistantMessage):
        own = sum(len(bytes(raw)) for raw in data.native)
        return own or len(data.text.encode()) + sum(len(call.arguments) for call in data.calls)
    if isinstance(data, ToolResult):
        files = sum(len(file.data) for file in data.media if file.media_type in shows)
        return len(shown(data.text, data.shown).encode()) + files
    if isinstance(data, UserMessage | AddedContext | ServerInstructions | CompactionSummary):
        return len(data.text.encode())
    return 0
