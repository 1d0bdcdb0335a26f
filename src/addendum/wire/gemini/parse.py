"""Gemini `generateContent`: from stream chunks, or one body, to an `Answer`.

Sources of the wire facts: google-genai 3.6.1 types; ai.google.dev, "Thought signatures" (2026-10).

How a part becomes the item that is sent back:

- A part that came whole is its own text, byte for byte: calls, parts with a signature, unknown
  ones. An empty text with a signature is complete and stays.
- Text that came in pieces is joined once. A piece with a signature is never joined with another,
  since a signature belongs to the part that it stands on; thoughts and text are not joined.
- A call without an id (older models), or with that of another call, gets one, made of the answer's
  id and the call's place, so that its result can name it.
- A call's `args` are the provider's own JSON text; none at all are `{}`. A call that comes in
  pieces was not asked for, and counts as cut.
- What is no part, or a text that is none, is passed over.

An answer has ended when a `finishReason` has come, or `[DONE]` behind something. Counts that are
zero are left out on this wire (protocol buffers), so a count that is missing beside others is 0. Of
several candidates, one was asked for: the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import ProviderRefused, StreamBroken
from addendum.lines import one_line
from addendum.log.values import Call, Usage
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.calls import Draft, Ids, assembled, settled
from addendum.wire.endings import details, graver
from addendum.wire.events import is_done, joined_usage, read
from addendum.wire.reading import (
    array,
    count,
    items,
    legal_object,
    number,
    slices,
    sound,
    spoken,
    table,
    text,
    values,
)
from addendum.wire.sse import SseEvent

_ENDS = ("finishMessage", "safetyRatings", "stop_details")


class GeminiParser:
    """Reads one answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._ids = Ids()
        self._calls = 0
        self._id = ""
        self._model = ""
        self._index: int | None = None
        self._foreign = False
        self._stop: str | None = None
        self._blocked = ""
        self._usage: Raw | None = None
        self._details: dict[str, Raw] = {}
        self._done = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is JSON that cannot be read.
            ProviderRefused: A chunk that reports an error and blames the request.
            ProviderBusy: A chunk that reports any other error.
        """
        if is_done(event):
            self._done = self._done or bool(self._parts)
            return ()
        found = read(event, ended=self._done and self._stop is not None)
        if found is None:
            return ()
        value, data = found
        if "candidates" not in value and table(value.get("response")):
            # As some gateways of Google's own wrap it.
            value, data = table(value["response"]), slices(data)["response"]
        return tuple(self._chunk(value, data))

    def finish(self, most: int | None = None) -> Answer:
        """Return the answer.

        Args:
            most: Tokens of output that the request allows, if it says so.

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
        if self._stop is None and not self._done:
            raise StreamBroken(
                "the answer was cut before its finishReason; send it again", again=True
            )
        return self._answer(complete=True, most=most)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return settled(part.call for part in self._parts if part.call is not None)

    def _chunk(self, value: Mapping[str, Any], data: Raw) -> list[Delta]:
        self._id = self._id or text(value.get("responseId"))
        self._model = self._model or text(value.get("modelVersion"))
        self._blocked = self._blocked or text(table(value.get("promptFeedback")).get("blockReason"))
        self._count(value, data)
        self._details.update(details(value, data, ("promptFeedback",)))
        candidates = value.get("candidates")
        raw = slices(data).get("candidates", Raw(b"{}"))
        candidate = table(candidates)
        if array(candidates):
            candidate, raw = table(array(candidates)[0]), items(raw)[0]
        index = number(candidate.get("index"))
        self._index = index if self._index is None else self._index
        foreign = index is not None and index != self._index
        self._foreign = self._foreign or foreign or len(array(candidates)) > 1
        if foreign or not candidate:
            return []
        self._count(candidate, raw)
        self._details.update(details(candidate, raw, _ENDS))
        if stop := text(candidate.get("finishReason")):
            self._stop = graver(self._stop, stop)
        content = table(candidate.get("content"))
        parts = content.get("parts")
        own = slices(slices(raw)["content"]).get("parts", Raw(b"[]")) if content else Raw(b"[]")
        alone = [(parts, own)] if table(parts).keys() & {"text", "functionCall"} else []
        pairs = zip(array(parts), items(own), strict=True) if array(parts) else alone
        news: list[Delta] = []
        for part, its in pairs:
            if table(part):
                news += self._take(table(part), its)
        return news

    def _count(self, value: Mapping[str, Any], raw: Raw) -> None:
        if table(value.get("usageMetadata")):
            self._usage = joined_usage(self._usage, slices(raw)["usageMetadata"])

    def _take(self, part: Mapping[str, Any], raw: Raw) -> list[Delta]:
        if table(part.get("functionCall")):
            return self._call(table(part["functionCall"]), raw)
        if "functionCall" in part:
            return []
        made = _Part(part, raw)
        if not (self._parts and self._parts[-1].absorb(made)):
            self._parts.append(made)
        if not made.text:
            return []
        return [ReasoningDelta(made.text) if made.thought else TextDelta(made.text)]

    def _call(self, call: Mapping[str, Any], raw: Raw) -> list[Delta]:
        name = text(call.get("name"))
        pieces = bool(call.get("partialArgs") or call.get("willContinue"))
        last = self._parts[-1].call if self._parts else None
        if not name and last is not None and last.cut:
            return []  # More of a call that is not put together here.
        place, self._calls = self._calls, self._calls + 1
        fields = slices(raw)
        inner = sound(slices(fields["functionCall"]), {"id": '"', "name": '"'})
        given, arguments = text(call.get("id")), call.get("args")
        own = inner.get("args", Raw(b"{}"))
        draft = Draft(self._ids.take(given, f"{self._id} {place} {bytes(raw).decode()}"), name)
        draft.open, draft.cut = False, pieces
        draft.pieces = [arguments if isinstance(arguments, str) else bytes(own).decode()]
        changed: dict[str, Any] = {}
        if draft.id != given:
            changed["id"] = draft.id
        if pieces or not ("args" not in call or isinstance(arguments, dict)):
            changed["args"] = legal_object(draft.arguments) or Raw(b"{}")
        if "name" not in inner:
            changed["name"] = name
        if changed:
            kept = {key: each for key, each in inner.items() if key not in _PIECES | changed.keys()}
            first = {"id": changed.pop("id")} if "id" in changed else {}
            raw = Raw(encoding.encode({**fields, "functionCall": {**first, **kept, **changed}}))
        made = _Part({}, raw)
        made.call = draft
        self._parts.append(made)
        return [CallStarted(place, draft.id, name), CallArguments(place, draft.arguments)]

    def _answer(self, *, complete: bool, most: int | None = None) -> Answer:
        natives = [part.native() for part in self._parts] if complete else []
        return assembled(
            Answer(
                text="".join(part.text for part in self._parts if not part.thought),
                reasoning="".join(part.text for part in self._parts if part.thought),
                native=tuple(native for native in natives if native is not None),
                stop=self._stop,
                usage=read_usage(self._usage),
                message_id=self._id or None,
                model=self._model or None,
                left_out=("a second candidate",) if self._foreign else (),
                complete=complete,
            ),
            [part.call for part in self._parts if part.call is not None],
            details=self._details,
            most=most,
        )


_SOUND = {"text": '"', "thought": "tf", "thoughtSignature": '"', "functionCall": "{"}
"""What known fields of a part begin with."""

_BESIDE = frozenset({"thought", "thoughtSignature"})
"""Fields that say something of a part and are none by themselves."""

_PIECES = frozenset({"partialArgs", "willContinue"})


class _Part:
    """A part as it grows.

    Attributes:
        text: Its text.
        thought: Whether that is readable reasoning.
        call: The call that it is.
    """

    def __init__(self, value: Mapping[str, Any], raw: Raw) -> None:
        self.call: Draft | None = None
        self.text = spoken(value.get("text"))
        self.thought = value.get("thought") is True
        self._raw = raw
        self._joinable = "text" in value and not (value.keys() - {"text", "thought"})
        self._joined = "text" in value and not isinstance(value["text"], str)

    def absorb(self, piece: _Part) -> bool:
        """Take a later piece of the same text in; return False if it is a part of its own."""
        if not (self._joinable and piece._joinable) or self.thought != piece.thought:
            return False
        if piece.text:
            self.text += piece.text
            self._joined = True
        return True

    def native(self) -> Raw | None:
        """Return the item that is sent back; None for what carries nothing."""
        fields = slices(self._raw)
        if not fields.keys() - _BESIDE or (self._joinable and not self.text):
            return None
        value: dict[str, Any] = sound(fields, _SOUND)
        if not self._joined and len(value) == len(fields):
            return self._raw
        value = {} if self._joinable else value
        if "text" in fields:
            value["text"] = self.text
        if not value:
            return None
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
