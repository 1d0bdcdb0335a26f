"""One session's log: append, checks, fork, replay, and the barrier to the store.

An event is committed the moment `append` returns: it has a seq, and every fold sees it. It is
durable when `flush` returns. Nothing already in the log is ever changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import anyio

from addendum.errors import AppendRefused, Conflict, ContentError, LogError, UnknownEvent
from addendum.log import codec
from addendum.log.approvals import ApprovalAsked
from addendum.log.checks import CHECKED, check, refuse
from addendum.log.events import (
    SURFACE_TYPES,
    AssistantMessage,
    EndSeed,
    Event,
    EventData,
    RequestHeader,
    RequestSent,
    Span,
    StepEnd,
    StepStart,
    SurfaceOp,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.seal import Seal
from addendum.log.state import LASTING, Fold, Folds, LogState
from addendum.log.store import Lease, Store
from addendum.log.surface import ON_SURFACE, Surface

_COMMON = frozenset(
    {
        TurnStart,
        TurnEnd,
        StepStart,
        StepEnd,
        UserMessage,
        AssistantMessage,
        ToolCall,
        ToolResult,
        RequestSent,
    }
)
OUTCOME_UNKNOWN = (
    "TOOL_OUTCOME_UNKNOWN",
    "the session was interrupted after this tool was started; whether it had an effect is unknown. "
    "Look before you call it again.",
)
"""Code and text of the result of a call that was cut off."""

NOT_STARTED = (
    "TOOL_NOT_STARTED",
    "the session was interrupted before this tool was started; call it again if it is still "
    "needed.",
)
"""Code and text of the result of a call that never ran."""


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class SessionLog:
    """The events of one session, with what appending needs to know.

    Attributes:
        session: The session's id.
        surface: The live nodes.
        state: What follows from them that appending needs to know.
        rare: The events that are no message, turn, step, call or request: few, and asked for
            where nothing else counts. Those that replace something are among them.
        seal: Running checksum of all events.
        altered: Seqs of requests in front of which the log is not what it was when they left.
        changed: Seqs of events that are not what was appended, as far as their store can tell.
    """

    def __init__(self, session: str, *, clock: Callable[[], int] = now_ms) -> None:
        self.session = session
        self.surface = Surface()
        self.state = LogState(session)
        self.rare: list[Event] = []
        self.altered: set[int] = set()
        self.changed: set[int] = set()
        self.seal = Seal()
        self._events: list[Event] = []
        self._clock = clock
        self._folds = Folds()
        self._folds.register(self.state)
        self._followed = False
        self._durable = 0
        self._encoded: dict[int, bytes] = {}
        self._unsure = False
        self._flushing = anyio.Lock(fast_acquire=True)

    @property
    def events(self) -> Sequence[Event]:
        """All events so far; not to be changed."""
        return self._events

    @property
    def turn(self) -> int | None:
        """The open turn, or None."""
        return self.state.turn

    @property
    def step(self) -> int | None:
        """The open step, or None."""
        return self.state.step

    @property
    def turns(self) -> int:
        """How many turns were opened so far."""
        return self.state.turns

    @property
    def asked(self) -> ApprovalAsked | None:
        """The batch that waits for a person, or None."""
        return self.state.asked

    @property
    def disabled(self) -> tuple[str, ...]:
        """Names of tools that are bound and refused."""
        return self.state.disabled

    @property
    def inherited(self) -> int:
        """How many events came from a parent."""
        return self.state.inherited

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of calls that have no result yet, in the model's order."""
        return tuple(self.state.waiting)

    @property
    def durable(self) -> int:
        """How many events the store has acknowledged."""
        return self._durable

    def __len__(self) -> int:
        return len(self._events)

    def follow(self, *folds: Fold) -> None:
        """Tell folds of every event so far, and of each that comes."""
        self._followed = True
        for fold in folds:
            past = self._events if fold.kinds & _COMMON else self.rare
            self._folds.register(fold, past)

    # -- append -----------------------------------------------------------------------------

    def append(
        self,
        data: EventData,
        *,
        replace: tuple[int, int] | None = None,
        expected: int | None = None,
    ) -> Event:
        """Add an event at the end.

        Args:
            data: What happened.
            replace: For surface events, the seqs of the first and last node it replaces.
            expected: The seq it must get; compare-and-set.

        Raises:
            Conflict: The log has grown past `expected`.
            AppendRefused: It breaks a rule, or no store could hold it; the log is unchanged.
        """
        seq = len(self._events)
        if expected is not None and expected != seq:
            raise Conflict(
                f"event {expected} was expected next, but the log has {seq}; read it again",
                session=self.session,
                seq=seq,
            )
        operation: SurfaceOp | None = None
        sources: tuple[int, ...] = ()
        if replace is not None:
            operation = Span(*replace)
            sources = self.surface.span(*replace)
        elif isinstance(data, SURFACE_TYPES):
            operation = "append"
        event = Event(seq, self._clock(), data, operation, sources)
        # Encoded now: an event that cannot be written would block every one behind it for good.
        try:
            encoded = codec.encode_event(event)
        except ContentError as error:
            raise refuse(self.state, event, str(error)) from error
        self._admit(event)
        self._encoded[seq] = encoded
        self.seal.add(encoded)
        return event

    def _admit(self, event: Event) -> None:
        kind, placed = type(event.data), event.surface_op
        try:
            if kind in CHECKED:
                check(self.state, event)
            # An append of what belongs on the surface is right in any case.
            if placed != "append" or kind not in ON_SURFACE:
                self.surface.check(event)
        except AppendRefused as refused:
            refused.session = self.session
            raise
        self._take(event, kind, placed)

    def _take(self, event: Event, kind: type, placed: SurfaceOp | None) -> None:
        """Take in an event that was checked, now or in the log it comes from."""
        self._events.append(event)
        if placed is not None:
            self.surface.apply(event)
        if kind not in _COMMON or (placed is not None and placed != "append"):
            self.rare.append(event)
        self._folds.take(event)

    # -- the store --------------------------------------------------------------------------

    async def flush(self, store: Store, lease: Lease) -> None:
        """Make every event so far durable; the barrier in front of requests and tools.

        A flush that was cancelled or failed may still have reached the store: the next one looks
        there first.

        Raises:
            Conflict: Somebody else appended to the stored session.
            StoreError: The store failed; the events are kept and a later flush tries again.
        """
        if self._durable == len(self._events):
            return
        async with self._flushing:
            start, end = self._durable, len(self._events)
            if start == end:
                return
            waiting = [
                self._encoded.get(event.seq) or codec.encode_event(event)
                for event in self._events[start:end]
            ]
            if self._unsure:
                stored = await store.read(self.session, start)
                if stored == waiting[: len(stored)]:
                    start += len(stored)
            self._unsure = True
            if start < end:
                await store.append(lease, start, waiting[start - end :])
            self._unsure = False
            for seq in range(self._durable, end):
                self._encoded.pop(seq, None)
            self._durable = end

    @classmethod
    def load(
        cls, session: str, stored: Iterable[bytes], *, clock: Callable[[], int] = now_ms
    ) -> SessionLog:
        """Read a log back, checking every event as when it was appended.

        Raises:
            UnknownEvent: It holds a required type of a later release.
            LogError: It is damaged; the message names the event.
        """
        log = cls(session, clock=clock)
        log.extend(stored)
        return log

    def extend(self, stored: Iterable[bytes]) -> None:
        """Take in stored events that follow on this log's own: those of another writer.

        Raises:
            UnknownEvent: One is of a required type of a later release.
            LogError: One is damaged or missing; the message names it.
        """
        rows, first = tuple(stored), len(self._events)
        try:
            requests = self._replay(codec.decode_events(rows, first))
        except AppendRefused as error:
            raise self._damaged(len(self._events), AppendRefused, error) from None
        except UnknownEvent as error:
            error.session = self.session
            raise
        except LogError as error:
            if error.session is not None:
                raise
            raise self._damaged(error.seq, LogError, error) from None
        self.altered |= self.seal.broken(rows, requests, first)
        self._durable = len(self._events)

    def _damaged(self, seq: int | None, kind: type[LogError], error: LogError) -> LogError:
        return kind(
            f"session {self.session!r}: event {seq} is damaged ({error}); "
            "restore the store from a copy",
            session=self.session,
            seq=seq,
        )

    def _replay(self, events: Iterable[Event]) -> list[Event]:
        """Take in stored events, each checked as when it was appended; return the requests.

        Nearly all events of a long log are a turn's usual ones, where they must stand. These are
        told by a glance; whatever else comes, right or wrong, goes the way of an append.
        """
        taken, nodes = self._events, self.surface.nodes
        state = self.state
        turn, step, waiting, turns = state.turn, state.step, state.waiting, state.turns
        requests: list[Event] = []
        for event in events:
            if event.seq != len(taken):
                raise LogError(
                    f"session {self.session!r}: event {len(taken)} is missing; "
                    "restore the store from a copy",
                    session=self.session,
                    seq=len(taken),
                )
            data: Any = event.data
            kind: type[Any] = data.__class__
            placed = event.surface_op
            if self._followed:
                if kind is RequestSent:
                    requests.append(event)
            elif placed is None:
                if kind is RequestSent:
                    requests.append(event)
                    taken.append(event)
                    state.take(event)
                    continue
                if kind is ToolCall:
                    if data.step == step and data.turn == turn:
                        taken.append(event)
                        continue
                elif kind is StepStart:
                    if step is None and data.turn == turn:
                        step = data.step
                        taken.append(event)
                        continue
                elif kind is StepEnd:
                    if data.step == step and data.turn == turn and not waiting and not state.asked:
                        step = None
                        taken.append(event)
                        continue
                elif kind is TurnStart:
                    if turn is None and data.turn == turns + 1:
                        turn = turns = data.turn
                        taken.append(event)
                        continue
                elif kind is TurnEnd and data.turn == turn and step is None and not waiting:
                    turn = None
                    taken.append(event)
                    continue
            elif placed == "append":
                if kind is AssistantMessage:
                    calls = data.calls
                    if (
                        data.step == step
                        and data.turn == turn
                        and not waiting
                        and (not calls or (len(calls) == 1 and calls[0].id and calls[0].name))
                    ):
                        waiting = [calls[0].id] if calls else []
                        taken.append(event)
                        nodes.append(event)
                        continue
                elif kind is ToolResult:
                    if data.step == step and data.turn == turn and data.call_id in waiting:
                        waiting.remove(data.call_id)
                        taken.append(event)
                        nodes.append(event)
                        continue
                elif kind is UserMessage and data.turn == turn:
                    taken.append(event)
                    nodes.append(event)
                    continue
            state.turn, state.step, state.waiting, state.turns = turn, step, waiting, turns
            self._admit(event)
            nodes = self.surface.nodes
            turn, step, waiting, turns = state.turn, state.step, state.waiting, state.turns
        state.turn, state.step, state.waiting, state.turns = turn, step, waiting, turns
        return requests

    def until(self, seq: int) -> SessionLog:
        """Return the log as it was before the event with this seq was appended."""
        earlier = SessionLog(self.session, clock=self._clock)
        start = seq - 1
        while start > 0 and not isinstance(self._events[start].data, TurnStart):
            start -= 1
        if start > 0 and not any(
            isinstance(event.surface_op, Span) and event.seq >= start for event in self.rare
        ):
            # Nothing is open in front of a turn, so what was there needs no replay.
            earlier._begin(self, start)
        earlier._replay(self._events[len(earlier) : seq])
        return earlier

    def _begin(self, later: SessionLog, seq: int) -> None:
        """Take in what a log says up to a turn's start, where nothing was replaced since."""
        self._events = later._events[:seq]
        self.rare = [event for event in later.rare if event.seq < seq]
        headers = later.state.headers.items()
        self.state.headers = {at: header for at, header in headers if at < seq}
        self.surface = later.surface.until(seq)
        start = later._events[seq].data
        assert isinstance(start, TurnStart)
        self.state.turns = start.turn - 1
        for event in reversed(self._events):
            if isinstance(event.data, RequestSent) and event.data.purpose == "turn":
                self.state.take(event)
                break
        for event in self.rare:
            if type(event.data) in LASTING:
                self.state.take(event)

    @property
    def header(self) -> RequestHeader | None:
        """The latest header."""
        return next(reversed(self.state.headers.values()), None)

    def header_at(self, seq: int) -> RequestHeader | None:
        """Return the header with this seq, if there is one."""
        return self.state.headers.get(seq)

    @property
    def header_seq(self) -> int | None:
        """Seq of the latest header."""
        return next(reversed(self.state.headers), None)

    def fork(self, session: str, upto: int | None = None) -> SessionLog:
        """Return a child log with the same events up to and including seq `upto`.

        Seqs stay valid in the child. What is open at the cut is closed there.

        Args:
            session: Id of the child.
            upto: Last inherited seq; all if None.
        """
        end = len(self._events) if upto is None else upto + 1
        child = SessionLog(session, clock=self._clock)
        requests = child._replay(self._events[:end])
        rows = [codec.encode_event(event) for event in child._events]
        child.altered, child._encoded = child.seal.broken(rows, requests, 0), dict(enumerate(rows))
        child.append(EndSeed(session, self.session, end))
        child.close_open()
        return child

    def close_open(
        self,
        error: str = "the session was interrupted",
        reason: Literal["interrupted", "failed", "limit"] = "interrupted",
    ) -> bool:
        """Answer calls without a result and close an open step and turn, as after a crash.

        Args:
            error: Why, for people; in `turn/end`.
            reason: The same as one word.

        Returns:
            Whether there was anything to close.
        """
        if self.turn is None:
            return False
        turn, step = self.turn, self.step
        started: set[str] = set()
        names: dict[str, str] = {}
        # What belongs to the open step, however many calls it has: ids may repeat in others.
        for event in reversed(self._events):
            if isinstance(event.data, StepStart):
                break
            if isinstance(event.data, ToolCall):
                started.add(event.data.call_id)
            elif isinstance(event.data, AssistantMessage):
                names = {call.id: call.name for call in event.data.calls}
        for call_id in self.unanswered:
            code, text = OUTCOME_UNKNOWN if call_id in started else NOT_STARTED
            assert step is not None
            self.append(ToolResult(turn, step, call_id, names.get(call_id, ""), text, True, code))
        if step is not None:
            self.append(StepEnd(turn, step))
        self.append(TurnEnd(turn, reason, error))
        return True
