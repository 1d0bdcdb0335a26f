"""One session's log: append, checks, fork, replay, and the barrier to the store.

An event is committed the moment `append` returns: it has a seq, and every fold sees it. It is
durable when `flush` returns. Nothing already in the log is ever changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import anyio

from addendum import encoding
from addendum.errors import AppendRefused, Conflict, ContentError, LogError
from addendum.log import codec
from addendum.log.approvals import AddedContext, ApprovalAsked, ApprovalDecided
from addendum.log.events import (
    FORMAT,
    SURFACE_TYPES,
    AssistantMessage,
    DeveloperMessage,
    EndSeed,
    Event,
    EventData,
    RequestHeader,
    ServerInstructions,
    SessionStart,
    Span,
    StepEnd,
    StepStart,
    SurfaceOp,
    ToolCall,
    ToolPolicy,
    ToolResult,
    ToolSwitch,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.store import Lease, Store
from addendum.log.surface import Surface
from addendum.log.values import ToolAddition, ToolRemoval, ToolSchema

_IN_STEP = (
    DeveloperMessage,
    AssistantMessage,
    ToolResult,
    ToolCall,
    ServerInstructions,
    ApprovalAsked,
    ApprovalDecided,
    AddedContext,
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
        turn: The open turn, or None.
        step: The open step, or None.
        turns: How many turns were opened so far.
        inherited: How many events came from a parent.
        disabled: Names of tools that are bound and refused.
        asked: The batch that waits for a person, or None.
        switched_on: Whether a tool or server was ever switched on by hand.
    """

    def __init__(self, session: str, *, clock: Callable[[], int] = now_ms) -> None:
        self.session = session
        self.surface = Surface()
        self.turn: int | None = None
        self.step: int | None = None
        self.turns = 0
        self.inherited = 0
        self.disabled: tuple[str, ...] = ()
        self.asked: ApprovalAsked | None = None
        self.switched_on = False
        self._events: list[Event] = []
        self._clock = clock
        self._headers: dict[int, RequestHeader] = {}
        self._waiting: list[str] = []
        self._durable = 0
        self._encoded: dict[int, bytes] = {}
        self._unsure = False
        self._flushing = anyio.Lock(fast_acquire=True)

    @property
    def events(self) -> Sequence[Event]:
        """All events so far; not to be changed."""
        return self._events

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of calls that have no result yet, in the model's order."""
        return tuple(self._waiting)

    @property
    def durable(self) -> int:
        """How many events the store has acknowledged."""
        return self._durable

    def __len__(self) -> int:
        return len(self._events)

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
            raise self._refuse(event, str(error)) from error
        self._admit(event)
        self._encoded[seq] = encoded
        return event

    def _admit(self, event: Event) -> None:
        try:
            self._check(event)
            self.surface.check(event)
        except AppendRefused as refused:
            refused.session = self.session
            raise
        self._events.append(event)
        self.surface.apply(event)
        self._follow(event)

    def _refuse(self, event: Event, why: str) -> AppendRefused:
        return AppendRefused(f"{event.type} refused: {why}", session=self.session, seq=event.seq)

    def _check(self, event: Event) -> None:
        data = event.data
        if isinstance(data, _IN_STEP) and (data.turn, data.step) != (self.turn, self.step):
            raise self._refuse(
                event,
                f"turn {data.turn} step {data.step} is not open "
                f"(open: turn {self.turn} step {self.step})",
            )
        match data:
            case SessionStart():
                if event.seq != 0:
                    raise self._refuse(event, "a session starts once, at seq 0")
                if data.format > FORMAT:
                    raise LogError(
                        f"session {self.session!r} is stored in format {data.format}, and this "
                        f"release reads up to {FORMAT}; open it with a newer addendum",
                        session=self.session,
                        seq=0,
                    )
            case TurnStart():
                if self.turn is not None:
                    raise self._refuse(event, f"turn {self.turn} is still open")
                if data.turn != self.turns + 1:
                    raise self._refuse(event, f"the next turn is {self.turns + 1}")
            case TurnEnd():
                if data.turn != self.turn:
                    raise self._refuse(event, f"turn {data.turn} is not open")
                if self.step is not None:
                    raise self._refuse(event, f"step {self.step} is still open")
                if self._waiting:
                    raise self._refuse(event, f"call {self._waiting[0]} has no result")
            case StepStart():
                if data.turn != self.turn or self.step is not None:
                    raise self._refuse(event, "its turn is not open, or a step still is")
            case StepEnd():
                if (data.turn, data.step) != (self.turn, self.step):
                    raise self._refuse(event, "it is not the open step")
                if self._waiting:
                    raise self._refuse(event, f"call {self._waiting[0]} has no result")
            case UserMessage():
                if data.turn != self.turn:
                    raise self._refuse(event, f"turn {data.turn} is not open")
            case DeveloperMessage():
                self._check_developer(event, data)
            case AssistantMessage():
                self._check_calls(event, data)
            case ToolResult():
                if data.call_id not in self._waiting:
                    raise self._refuse(event, f"no call {data.call_id!r} waits for a result")
            case ApprovalAsked():
                if self.asked is not None or [c.call_id for c in data.calls] != self._waiting:
                    raise self._refuse(event, "it is not all of the calls that wait for a result")
            case ApprovalDecided():
                asked = () if self.asked is None else self.asked.calls
                if not {d.call_id for d in data.decisions} <= {c.call_id for c in asked}:
                    raise self._refuse(event, "it decides what was not asked")
                if self.asked is None:
                    raise self._refuse(event, "nothing was asked")
            case AddedContext():
                if self._waiting:
                    raise self._refuse(event, f"call {self._waiting[0]} has no result")
            case _:
                pass

    def _check_calls(self, event: Event, data: AssistantMessage) -> None:
        if self._waiting:
            raise self._refuse(event, f"call {self._waiting[0]} has no result")
        ids = [call.id for call in data.calls]
        if not all(ids) or not all(call.name for call in data.calls):
            raise self._refuse(event, "a call has no id or no name")
        if len(set(ids)) != len(ids):
            raise self._refuse(event, "two calls have the same id")

    def _check_developer(self, event: Event, data: DeveloperMessage) -> None:
        added = [block.tool_name for block in data.content if isinstance(block, ToolAddition)]
        removed = [block.tool_name for block in data.content if isinstance(block, ToolRemoval)]
        names = added + removed
        if len(set(names)) != len(names):
            raise self._refuse(event, "a name stands in it twice")
        if bool(added) != (data.header_seq is not None):
            raise self._refuse(event, "header_seq must be there with an addition, and only then")
        if data.header_seq is None:
            return
        header = self._headers.get(data.header_seq)
        if header is None:
            raise self._refuse(event, f"event {data.header_seq} is no earlier header")
        there: dict[str, list[ToolSchema]] = {}
        for tool in header.header.tools:
            there.setdefault(tool.name, []).append(tool)
        for name in added:
            matches = there.get(name, [])
            if len(matches) != 1:
                raise self._refuse(
                    event, f"header {data.header_seq} has {len(matches)} tools named {name!r}"
                )
            problem = _definition_problem(matches[0].parameters, matches[0].defer_loading)
            if problem:
                raise self._refuse(event, f"the definition of {name!r} {problem}")

    def _follow(self, event: Event) -> None:
        data = event.data
        match data:
            case TurnStart():
                self.turn = data.turn
                self.turns = data.turn
            case TurnEnd():
                self.turn = None
            case StepStart():
                self.step = data.step
            case StepEnd():
                self.step = self.asked = None
            case ApprovalAsked():
                self.asked = data
            case ApprovalDecided():
                self.asked = None
            case RequestHeader():
                self._headers[event.seq] = data
            case AssistantMessage():
                self._waiting = [call.id for call in data.calls]
            case ToolResult():
                self._waiting.remove(data.call_id)
            case EndSeed():
                self.inherited = data.inherited
            case ToolPolicy():
                self.disabled = data.disabled
            case ToolSwitch():
                self.switched_on = self.switched_on or data.on
            case _:
                pass

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
        for place, raw in enumerate(stored):
            event = codec.decode_event(raw)
            if event.seq != place:
                raise LogError(
                    f"session {session!r}: event {place} is missing; restore the store from a copy",
                    session=session,
                    seq=place,
                )
            log._admit(event)
        log._durable = len(log._events)
        return log

    def until(self, seq: int) -> SessionLog:
        """Return the log as it was before the event with this seq was appended."""
        earlier = SessionLog(self.session, clock=self._clock)
        for event in self._events[:seq]:
            earlier._admit(event)
        return earlier

    @property
    def header(self) -> RequestHeader | None:
        """The latest header."""
        return next(reversed(self._headers.values()), None)

    @property
    def header_seq(self) -> int | None:
        """Seq of the latest header."""
        return next(reversed(self._headers), None)

    def fork(self, session: str, upto: int | None = None) -> SessionLog:
        """Return a child log with the same events up to and including seq `upto`.

        Seqs stay valid in the child. What is open at the cut is closed there.

        Args:
            session: Id of the child.
            upto: Last inherited seq; all if None.
        """
        end = len(self._events) if upto is None else upto + 1
        child = SessionLog(session, clock=self._clock)
        for event in self._events[:end]:
            child._admit(event)
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


def _definition_problem(parameters: bytes, flag: bool | None) -> str:
    if flag is False:
        return "carries a deferral flag that is false; leave it out"
    try:
        value = encoding.decode(bytes(parameters))
    except ContentError:
        return "has parameters that are no JSON"
    return "" if isinstance(value, dict) else "has parameters that are no object"
