"""OpenAI Responses: from stream events, or one body, to an `Answer`.

Source of the wire facts: the types of OpenAI's Python SDK 3.57.0.

An item that is sent back is the text of `output_item.done`, byte for byte, in the order of
`output_index`; `output_item.added` is not complete (its `encrypted_content` is another one). An
item whose `done` did not come is taken from the `output` of the last event. Two kinds of items are
left out, since the provider would refuse them: see `addendum.wire.openai_responses.items`.

An answer is whole when `response.completed` or `response.incomplete` has come; what ended the
latter (`max_output_tokens`, `content_filter`) is its stop word. Events that are not known are
passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.log.values import Call, Usage
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.openai_responses.items import replayable
from addendum.wire.reading import array, count, items, slices, table, text, values
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_LAST = ("response.completed", "response.incomplete")


class ResponsesParser:
    """Reads one streamed answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._items: dict[int, _Item] = {}
        self._calls = 0
        self._response: Mapping[str, Any] = {}
        self._usage: Raw | None = None
        self._stop: str | None = None

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is no JSON, or no event of one answer.
            ProviderRefused: An error event that blames the request.
            ProviderBusy: Any other error event, or a response that failed.
        """
        data = event.data.strip()
        if self._stop is not None or not data or data == b"[DONE]":
            return ()
        value = values(data)
        kind = text(value.get("type")) or event.event or ""
        if kind == "error" or (not kind and value.get("error")):
            raise stream_error(data)
        response = table(value.get("response"))
        if response:
            self._response = response
        if kind == "response.failed":
            raise stream_error(encoding.encode({"error": response.get("error")}))
        if kind in _LAST and response:
            return self._finish(kind, slices(data)["response"])
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._item(value).take(
                table(value.get("item")), slices(data).get("item"), done=kind.endswith("done")
            )
        piece = text(value.get("delta"))
        if not piece:
            return ()
        if kind in _TEXT:
            return self._item(value).say(piece)
        if kind in _REASONING:
            return self._item(value).think(piece)
        if kind == "response.function_call_arguments.delta":
            return self._item(value).argue(piece)
        return ()

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: The last event did not come, or a call has no id or no name.
        """
        if self._stop is None:
            raise StreamBroken("the answer was cut before response.completed; send it again")
        return self._answer(complete=True)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return tuple(
            Call(item.id, item.name, item.arguments)
            for _, item in sorted(self._items.items())
            if item.kind == "function_call" and item.name and item.done
        )

    def _item(self, value: Mapping[str, Any]) -> _Item:
        index = count(value.get("output_index"))
        if index is None:
            raise _broken("an event names no output_index")
        return self._items.setdefault(index, _Item(self._next_call))

    def _next_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    def _finish(self, kind: str, raw: Raw) -> tuple[Delta, ...]:
        fields = slices(raw)
        response = self._response
        said: list[Delta] = []
        if array(response.get("output")):
            listed = items(fields["output"])
            for index, (given, own) in enumerate(zip(response["output"], listed, strict=True)):
                item = self._items.setdefault(index, _Item(self._next_call))
                if not item.done:
                    said += item.take(table(given), own, done=True)
        if isinstance(response.get("usage"), dict):
            self._usage = fields["usage"]
        reason = text(table(response.get("incomplete_details")).get("reason"))
        self._stop = reason or kind.removeprefix("response.")
        return tuple(said)

    def _answer(self, *, complete: bool) -> Answer:
        ordered = [self._items[index] for index in sorted(self._items)]
        return _assemble(ordered, self._response, self._stop, self._usage, complete=complete)


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: a `response` object.

    Raises:
        StreamBroken: It is no response, or a call has no id or no name.
        ProviderRefused: It is an error object that blames the request.
        ProviderBusy: It is any other error object, or a response that failed.
    """
    value = values(body)
    if value.get("error") or value.get("object") == "error":
        raise stream_error(body)
    if not isinstance(value.get("output"), list):
        raise _broken("the body holds no output")
    kind = "response.incomplete" if value.get("status") == "incomplete" else "response.completed"
    parser = ResponsesParser()
    parser.feed(SseEvent(kind, encoding.encode({"type": kind, "response": Raw(body)})))
    return parser.finish()


class _Item:
    """An output item as it grows."""

    def __init__(self, next_call: Callable[[], int]) -> None:
        self.kind = ""
        self.raw: Raw | None = None
        self.id = ""
        self.name = ""
        self._next_call = next_call
        self._call: int | None = None
        self._text: list[str] = []
        self._thought: list[str] = []
        self._arguments: list[str] = []

    @property
    def done(self) -> bool:
        """Whether the whole item has come."""
        return self.raw is not None

    @property
    def text(self) -> str:
        """Its text, as far as it has come."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """Its readable reasoning, as far as it has come."""
        return "".join(self._thought)

    @property
    def arguments(self) -> str:
        """Its argument text, as far as it has come; none at all are `{}`."""
        return "".join(self._arguments) or "{}"

    def take(self, item: Mapping[str, Any], raw: Raw | None, *, done: bool) -> tuple[Delta, ...]:
        """Take an item, whole or as it begins, and return what is new in it."""
        self.kind = text(item.get("type"))
        said: list[Delta] = []
        if self.kind == "function_call":
            self.id, self.name = text(item.get("call_id")), text(item.get("name"))
            said += self._start()
        if not done:
            return tuple(said)
        if raw is None or not self.kind:
            raise _broken("an output item has no type")
        self.raw = raw
        if self.kind == "function_call":
            if not (self.id and self.name):
                raise _broken("a function call has no call_id or no name")
            said += self.argue(_rest(text(item.get("arguments")), self._arguments))
            if not self._arguments:
                said += self.argue("{}")
        elif self.kind == "message":
            said += self.say(_rest(_said(item.get("content")), self._text))
        elif self.kind == "reasoning":
            whole = _said(item.get("summary")) + _said(item.get("content"))
            said += self.think(_rest(whole, self._thought))
        return tuple(said)

    def say(self, piece: str) -> tuple[Delta, ...]:
        """Take a piece of text."""
        if not piece:
            return ()
        self._text.append(piece)
        return (TextDelta(piece),)

    def think(self, piece: str) -> tuple[Delta, ...]:
        """Take a piece of readable reasoning."""
        if not piece:
            return ()
        self._thought.append(piece)
        return (ReasoningDelta(piece),)

    def argue(self, piece: str) -> tuple[Delta, ...]:
        """Take a piece of argument text."""
        if not piece or self._call is None:
            return ()
        self._arguments.append(piece)
        return (CallArguments(self._call, piece),)

    def _start(self) -> tuple[Delta, ...]:
        if self._call is not None or not (self.id and self.name):
            return ()
        self._call = self._next_call()
        return (CallStarted(self._call, self.id, self.name),)


def _said(parts: Any) -> str:
    """Return the text of content parts, refusals included."""
    found = [table(part) for part in array(parts)]
    return "".join(text(part.get("text")) or text(part.get("refusal")) for part in found)


def _rest(whole: str, pieces: Sequence[str]) -> str:
    """Return what the whole item holds beyond the pieces that came."""
    came = "".join(pieces)
    return whole[len(came) :] if whole.startswith(came) else ""


def _assemble(
    found: Sequence[_Item],
    response: Mapping[str, Any],
    stop: str | None,
    usage: Raw | None,
    *,
    complete: bool,
) -> Answer:
    calls = [item for item in found if item.kind == "function_call" and item.name]
    whole = [item.raw for item in found if item.raw is not None] if complete else []
    return Answer(
        text="".join(item.text for item in found),
        reasoning="".join(item.reasoning for item in found),
        calls=tuple(Call(item.id, item.name, item.arguments) for item in calls),
        native=replayable(whole),
        stop=stop,
        usage=_usage(usage),
        message_id=text(response.get("id")) or None,
        model=text(response.get("model")) or None,
        complete=complete,
    )


def _usage(raw: Raw | None) -> Usage:
    """Count an answer's tokens: what was read and written lies inside `input_tokens`."""
    if raw is None:
        return Usage()
    said = values(bytes(raw))
    details = table(said.get("input_tokens_details"))
    return Usage(
        prompt=count(said.get("input_tokens")),
        cache_read=count(details.get("cached_tokens")),
        cache_write=count(details.get("cache_write_tokens")),
        output=count(said.get("output_tokens")),
        raw=raw,
    )


def _broken(what: str) -> StreamBroken:
    return StreamBroken(
        f"not an answer of the Responses API: {what}; send it again or check the base URL"
    )
