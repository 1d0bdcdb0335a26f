"""Gemini `generateContent`: from stream chunks, or one body, to an `Answer`.

Sources of the wire facts: google-genai 3.6.1 types; ai.google.dev, "Thought signatures" (2026-10).

How a part becomes the item that is sent back:

- A part that came whole is its own text, byte for byte: calls, parts with a signature, unknown
  ones. An empty text with a signature is complete and stays.
- Text that came in pieces is joined once. A piece with a signature is never joined with another,
  since a signature belongs to the part that it stands on; thoughts and text are not joined.
- A call without an id (older models) gets one, made of the answer's id and the call's place, so
  that its result can name it.
- A call's `args` are the provider's own JSON text; none at all are `{}`.

An answer is whole when a `finishReason` has come. Counts that are zero are left out on this wire
(protocol buffers), so a count that is missing beside others is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import ProviderRefused, StreamBroken
from addendum.log.values import Call, Usage
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.reading import array, count, items, slices, table, text, values
from addendum.wire.refusal import one_line, stream_error
from addendum.wire.sse import SseEvent

_FAILED = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})
"""Reasons to end that leave nothing to go on with; the same request may well succeed."""


class GeminiParser:
    """Reads one streamed answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._calls = 0
        self._id = ""
        self._model = ""
        self._stop: str | None = None
        self._blocked = ""
        self._usage: Raw | None = None

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is no JSON, or no chunk of one answer.
            ProviderRefused: A chunk that reports an error and blames the request.
            ProviderBusy: A chunk that reports any other error.
        """
        if not event.data.strip():
            return ()
        value = values(event.data)
        if value.get("error"):
            raise stream_error(event.data)
        return tuple(self._chunk(value, event.data))

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: No `finishReason` came, or the model's call was malformed.
            ProviderRefused: The prompt was blocked.
        """
        if self._stop is None and self._blocked:
            raise ProviderRefused(
                f"the provider blocked the prompt ({one_line(self._blocked, 60)}); change what it "
                "holds",
                code=one_line(self._blocked, 60),
            )
        if self._stop is None:
            raise StreamBroken("the answer was cut before its finishReason; send it again")
        if self._stop in _FAILED and not any(part.name for part in self._parts):
            raise StreamBroken(f"the model's answer was unusable ({self._stop}); send it again")
        return self._answer(complete=True)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return tuple(Call(part.id, part.name, part.arguments) for part in self._parts if part.name)

    def _chunk(self, value: Mapping[str, Any], data: bytes) -> list[Delta]:
        self._id = self._id or text(value.get("responseId"))
        self._model = self._model or text(value.get("modelVersion"))
        self._blocked = text(table(value.get("promptFeedback")).get("blockReason"))
        fields = slices(data)
        if isinstance(value.get("usageMetadata"), dict):
            self._usage = fields["usageMetadata"]
        candidates = array(value.get("candidates"))
        if not candidates:
            return []
        candidate = table(candidates[0])
        if len(candidates) > 1 or candidate.get("index") not in (0, None):
            raise _broken("it holds several candidates")
        self._stop = text(candidate.get("finishReason")) or self._stop
        parts = array(table(candidate.get("content")).get("parts"))
        if not parts:
            return []
        content = slices(slices(items(fields["candidates"])[0])["content"])
        news: list[Delta] = []
        for part, raw in zip(parts, items(content["parts"]), strict=True):
            news += self._take(table(part), raw)
        return news

    def _take(self, part: Mapping[str, Any], raw: Raw) -> list[Delta]:
        call = part.get("functionCall")
        if call is not None:
            return self._call(table(call), raw)
        made = _Part(part, raw)
        if not (self._parts and self._parts[-1].absorb(made)):
            self._parts.append(made)
        if not made.text:
            return []
        return [ReasoningDelta(made.text) if made.thought else TextDelta(made.text)]

    def _call(self, call: Mapping[str, Any], raw: Raw) -> list[Delta]:
        name = text(call.get("name"))
        if not name:
            raise _broken("a function call has no name")
        if call.get("partialArgs") or call.get("willContinue"):
            raise _broken("a function call came in pieces, which was not asked for")
        if not isinstance(call.get("args", {}), dict):
            raise _broken("a function call's args are no object")
        place, self._calls = self._calls, self._calls + 1
        fields = slices(raw)
        inner = slices(fields["functionCall"])
        given = text(call.get("id"))
        if not given:
            seed = f"{self._id} {place} {bytes(raw).decode()}"
            given = f"call_{encoding.digest(seed)[:24]}"
            named = {"id": given, **{key: each for key, each in inner.items() if key != "id"}}
            raw = Raw(encoding.encode({**fields, "functionCall": named}))
        arguments = bytes(inner.get("args", Raw(b"{}"))).decode()
        made = _Part({}, raw)
        made.id, made.name, made.arguments = given, name, arguments
        self._parts.append(made)
        return [CallStarted(place, given, name), CallArguments(place, arguments)]

    def _answer(self, *, complete: bool) -> Answer:
        natives = [part.native() for part in self._parts] if complete else []
        return Answer(
            text="".join(part.text for part in self._parts if not part.thought),
            reasoning="".join(part.text for part in self._parts if part.thought),
            calls=tuple(
                Call(part.id, part.name, part.arguments) for part in self._parts if part.name
            ),
            native=tuple(native for native in natives if native is not None),
            stop=self._stop,
            usage=read_usage(self._usage),
            message_id=self._id or None,
            model=self._model or None,
            complete=complete,
        )


class _Part:
    """A part as it grows."""

    def __init__(self, value: Mapping[str, Any], raw: Raw) -> None:
        self.id = self.name = self.arguments = ""
        self.text = text(value.get("text"))
        self.thought = value.get("thought") is True
        self._raw = raw
        self._joinable = isinstance(value.get("text"), str) and not (
            value.keys() - {"text", "thought"}
        )
        self._joined = False

    def absorb(self, piece: _Part) -> bool:
        """Take a later piece of the same text in; return False if it is a part of its own."""
        if not (self._joinable and piece._joinable) or self.thought != piece.thought:
            return False
        if piece.text:
            self.text += piece.text
            self._joined = True
        return True

    def native(self) -> Raw | None:
        """Return the item that is sent back; None for an empty text that carries nothing."""
        if self._joinable and not self.text:
            return None
        if not self._joined:
            return self._raw
        value: dict[str, Any] = {"text": self.text}
        if self.thought:
            value["thought"] = True
        return Raw(encoding.encode(value))


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed: the same object as a chunk, whole.

    Args:
        body: The response's body.

    Raises:
        StreamBroken: It is no answer.
        ProviderRefused: It is an error that blames the request, or the prompt was blocked.
        ProviderBusy: It is any other error.
    """
    parser = GeminiParser()
    parser.feed(SseEvent(None, body))
    return parser.finish()


def read_usage(raw: Raw | None) -> Usage:
    """Return the tokens that a `usageMetadata` object states.

    What was read from the cache lies inside the prompt; writing is free and not counted.

    Args:
        raw: The object's own text; None if the provider sent none.
    """
    if raw is None:
        return Usage()
    said = values(bytes(raw))
    prompt = count(said.get("promptTokenCount"))
    spoken, thought = (
        count(said.get(name, 0)) for name in ("candidatesTokenCount", "thoughtsTokenCount")
    )
    return Usage(
        prompt=prompt,
        cache_read=None if prompt is None else count(said.get("cachedContentTokenCount", 0)),
        output=None if spoken is None or thought is None else spoken + thought,
        raw=raw,
    )


def _broken(what: str) -> StreamBroken:
    return StreamBroken(
        f"not an answer of generateContent: {what}; send it again or check the base URL"
    )
