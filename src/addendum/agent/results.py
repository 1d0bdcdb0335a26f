"""What a session hands back: stream events, figures of a request, the result of a turn."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Raw, Struct

from addendum.agent.calls.approval import Pending
from addendum.log.events import CacheBreak
from addendum.log.subagents import SubagentEnded
from addendum.log.values import Usage
from addendum.wire.endings import Ending


class TextPiece(Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningPiece(Struct, frozen=True):
    """More of the readable reasoning."""

    text: str


class ToolStarted(Struct, frozen=True):
    """A call is about to run, in its real form."""

    call_id: str
    name: str
    arguments: str


class ToolProgress(Struct, frozen=True):
    """A call says how far it is; at most ten times a second, and never behind its result.

    Attributes:
        call_id: The call.
        name: The tool.
        progress: How far it is.
        total: Of how much; None if the tool does not know.
        text: In its own words, one line; empty if it has none.
    """

    call_id: str
    name: str
    progress: float
    total: float | None = None
    text: str = ""


class ToolFinished(Struct, frozen=True):
    """A call has its result."""

    call_id: str
    name: str
    text: str
    is_error: bool


class Notice(Struct, frozen=True):
    """Something a person should know: a break, a retry, a downgrade, a server that is not there."""

    text: str


class RequestFigures(Struct, frozen=True):
    """What one request cost in the cache.

    Attributes:
        number: Requests of the session so far, this one included.
        turn: Its turn.
        route: `provider:model`.
        usage: What the provider reported.
        breaks: Breaks declared before it left.
        stop: Why its answer ended, in the wire's own word; None if nothing was said.
        ending: How its answer ended: `whole`, `cut` (by a limit), `withheld` (by a filter, or by
            the model), `trouble` (of the provider), `paused`, or `unknown`.
        empty: Whether its answer holds no text and no call.
        details: What else the provider said of how it ended, one JSON object; None if nothing.
    """

    number: int
    turn: int
    route: str
    usage: Usage
    breaks: tuple[CacheBreak, ...] = ()
    stop: str | None = None
    ending: Ending = "unknown"
    empty: bool = False
    details: Raw | None = None


class RequestDone(Struct, frozen=True):
    """A request was answered."""

    figures: RequestFigures


class TurnResult(Struct, frozen=True):
    """What a turn gave.

    Attributes:
        text: The last answer's text.
        turn: The turn's number.
        usage: Sums over its requests; None where one did not say.
        requests: Figures of each request, in order; behind a decision, of those since then.
        waiting: Calls that a person has to decide before the turn goes on; none if it is over.
        subagents: Child sessions that its calls opened, and what each of them cost: it is not in
            `usage`.
        notices: What a person should know of it, as the stream tells it; behind a decision, since
            then.
        ending: How the last answer ended, as in `RequestFigures`: what is not `whole` is not all.
        empty: Whether the last answer holds no text and no call.
    """

    text: str
    turn: int
    usage: Usage
    requests: tuple[RequestFigures, ...]
    waiting: tuple[Pending, ...] = ()
    subagents: tuple[SubagentEnded, ...] = ()
    notices: tuple[str, ...] = ()
    ending: Ending = "unknown"
    empty: bool = False


class TurnDone(Struct, frozen=True):
    """The turn is over, or waits for a person; the last event of a stream."""

    result: TurnResult


StreamEvent: TypeAlias = (
    TextPiece
    | ReasoningPiece
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Notice
    | RequestDone
    | TurnDone
)


def not_there(server: str, why: str) -> str:
    """Return what a person reads of a server that is on and whose tools are not there."""
    return (
        f"server {server} {why}; its tools join when it is there: put right what is wrong, or "
        "switch it off"
    )


def total(usages: list[Usage]) -> Usage:
    """Add usages up; a figure that one of them does not know is not known."""

    def add(name: str) -> int | None:
        values: list[int | None] = [getattr(usage, name) for usage in usages]
        return None if not values or None in values else sum(v for v in values if v is not None)

    return Usage(add("prompt"), add("cache_read"), add("cache_write"), add("output"))
