"""What a provider answered, in one neutral form that every wire API is parsed into.

Deltas are for people who watch; the `Answer` at the end is what the log keeps.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from msgspec import Raw, Struct

from addendum.log.values import Call, Usage
from addendum.wire.endings import Ending
from addendum.wire.sse import SseEvent


class TextDelta(Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """More of the readable reasoning."""

    text: str


class CallStarted(Struct, frozen=True):
    """The model began a call.

    Attributes:
        index: The call's place in `Answer.calls`.
        id: The model's call id.
        name: The name as the model wrote it.
    """

    index: int
    id: str
    name: str


class CallArguments(Struct, frozen=True):
    """More of a call's argument text.

    Attributes:
        index: The call's place in `Answer.calls`.
        text: A piece of JSON text; the pieces of a call joined are its `arguments`.
    """

    index: int
    text: str


Delta: TypeAlias = TextDelta | ReasoningDelta | CallStarted | CallArguments


class Answer(Struct, frozen=True):
    """A model's answer.

    Attributes:
        text: Its text, joined (a refusal's text too).
        reasoning: Its readable reasoning, joined.
        calls: Its calls in order, in model form: name and argument text as the model wrote them,
            origin `direct`. Argument text may be any text; whoever resolves the call judges it.
            No arguments at all are `{}`, and an object in a string is that object. No two
            calls have the same id, and one that came without has one of ours.
        native: The wire's own items exactly as they are to be sent back, one JSON value each. An
            item that came as one text is that text; one that came in pieces is joined by us once,
            in a fixed key order. Empty in a partial answer: nothing of it is ever sent back.
        stop: Why it ended, in the wire's own word; None if nothing was said.
        ending: How it ended, by `addendum.wire.endings`.
        cut: Ids of the calls whose arguments may not have come whole. They must not run.
        details: What else the provider said of how it ended, one JSON object.
        usage: What the provider counted.
        left_out: What came and was not understood, for people.
        message_id: The provider's id of the answer.
        model: The model that says it answered.
        complete: False for what `Parser.partial` returns.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    native: tuple[Raw, ...] = ()
    stop: str | None = None
    ending: Ending = "unknown"
    cut: tuple[str, ...] = ()
    details: Raw | None = None
    usage: Usage = Usage()
    left_out: tuple[str, ...] = ()
    message_id: str | None = None
    model: str | None = None
    complete: bool = True


class Parser(Protocol):
    """Reads one streamed answer; a new one for each request."""

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is not in the provider's format.
            ProviderRefused: The provider reports, in the stream, an error of the request.
            ProviderBusy: It reports an error of its own.
        """
        ...

    def finish(self, most: int | None = None) -> Answer:
        """Return the answer.

        Args:
            most: Tokens of output that the request allows, if it says so.

        Raises:
            StreamBroken: The stream was cut, or the provider gave up with nothing said.
        """
        ...

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        ...

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole, in order.

        Nothing later changes one of them, and none is among those that were cut.
        """
        ...
