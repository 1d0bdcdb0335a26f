"""OpenAI Chat Completions: from stream chunks, or one body, to an `Answer`.

Sources of the wire facts: the types of OpenAI's Python SDK 3.57.0 for the standard fields; the
providers' own pages for `reasoning_content` (DeepSeek: must be sent back on tool turns) and
`reasoning_details` (OpenRouter: the array goes back unmodified); for the irregular streams below,
public bug reports about servers that claim compatibility.

The item that is sent back is one assistant message with keys in this order: `role`, `content`,
`refusal`, `reasoning_content` or `reasoning`, `reasoning_details`, `tool_calls`. Only these: strict
servers refuse the other fields of their own answers. `content` is null if there are calls and no
text. Of the two reasoning fields the one that came is kept, under its own name, but none where
`reasoning_details` came, which hold the same. An empty `reasoning_content` is kept beside calls:
DeepSeek asks for the field even where the model did not think (EverMind-AI/Raven#297).

How a stream is put together:

- A piece of a call belongs to the call that was last begun at its `index`; where the server sends
  no index, to the call with its id, else to the last one. A piece with another id AND a name
  begins a new call even at a known index, since some servers number all calls 0.
- Id and name may come in different pieces, and later pieces may repeat them, or hold null or ''.
  The first id counts. A name is joined from its pieces until arguments begin; a repeated one is
  skipped; another one after that breaks the stream.
- Arguments are joined as they come and sent back as they are, since on this wire they are a
  string; none at all are `{}`.
- Pieces of `reasoning_details` with the same type and index, and ids that agree, are one entry
  (the signature often comes last and alone): their text is joined, other fields are set. An
  entry that came whole keeps its own text.
- An answer is whole when `finish_reason` has come. `[DONE]` and the chunk with the usage may be
  missing: then the usage is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.log.values import Call
from addendum.wire.answer import (
    Answer,
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from addendum.wire.openai_chat.usage import read_usage
from addendum.wire.reading import array, items, slices, table, text, values
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_JOINED_DETAILS = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ChatParser:
    """Reads one streamed answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._message = _Message()
        self._id: str | None = None
        self._model: str | None = None
        self._stop: str | None = None
        self._usage: Raw | None = None
        self._done = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is no JSON, or no chunk of one answer.
            ProviderRefused: A chunk that reports an error and blames the request.
            ProviderBusy: A chunk that reports any other error.
        """
        data = event.data.strip()
        if self._done or not data:
            return ()
        if data == b"[DONE]":
            self._done = True
            return ()
        value = values(data)
        if value.get("error") or value.get("object") == "error" or event.event == "error":
            raise stream_error(data)
        self._id = self._id or text(value.get("id")) or None
        self._model = self._model or text(value.get("model")) or None
        choice, raw = _choice(value, data)
        self._count(value, data, choice, raw)
        if raw is None:
            return ()
        stop = text(choice.get("finish_reason"))
        self._stop = stop or self._stop
        delta = table(choice.get("delta"))
        delta_raw = slices(raw)["delta"] if delta else None
        return self._message.take(delta, delta_raw, ended=bool(stop))

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: No `finish_reason` came, it is `error`, or a call has no id or no name.
        """
        if self._stop is None:
            raise StreamBroken("the answer was cut before its finish_reason; send it again")
        if self._stop == "error":
            raise StreamBroken("the provider ended its answer with an error; send it again")
        return self._answer(complete=True)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        # A piece may belong to any earlier call, until the answer says that it has ended.
        return () if self._stop is None else self.partial().calls

    def _count(
        self, value: Mapping[str, Any], data: bytes, choice: Mapping[str, Any], raw: Raw | None
    ) -> None:
        """Keep the latest usage, from the top level or from the choice (Kimi)."""
        if isinstance(value.get("usage"), dict):
            self._usage = slices(data)["usage"]
        elif raw is not None and isinstance(choice.get("usage"), dict):
            self._usage = slices(raw)["usage"]

    def _answer(self, *, complete: bool) -> Answer:
        return self._message.answer(
            self._id, self._model, self._stop, self._usage, complete=complete
        )


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: a `chat.completion` object.

    Raises:
        StreamBroken: It is no chat completion, or a call has no id or no name.
        ProviderRefused: It is an error object that blames the request.
        ProviderBusy: It is any other error object.
    """
    value = values(body)
    if value.get("error") or value.get("object") == "error":
        raise stream_error(body)
    choice, raw = _choice(value, body)
    given = table(choice.get("message"))
    if raw is None or not given:
        raise _broken("the body holds no message")
    message = _Message()
    message.take(given, slices(raw)["message"], ended=True)
    return message.answer(
        text(value.get("id")) or None,
        text(value.get("model")) or None,
        text(choice.get("finish_reason")) or None,
        slices(body)["usage"] if isinstance(value.get("usage"), dict) else None,
        complete=True,
    )


def _choice(value: Mapping[str, Any], data: bytes) -> tuple[Mapping[str, Any], Raw | None]:
    """Return the only choice, as values and as text; nothing for a chunk without one."""
    choices = array(value.get("choices"))
    if not choices:
        return {}, None
    choice = table(choices[0])
    if len(choices) > 1 or choice.get("index") not in (0, None):
        raise _broken("it holds several choices, and one was asked for")
    return choice, items(slices(data)["choices"])[0]


class _Message:
    """An assistant message as it grows."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._empty = False
        self._details: list[_Detail] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def take(self, delta: Mapping[str, Any], raw: Raw | None, *, ended: bool) -> tuple[Delta, ...]:
        """Add a delta, or a whole message, and return what is new in it."""
        said: list[Delta] = []
        for field, parts in (("content", self._content), ("refusal", self._refusal)):
            piece = delta.get(field)
            if piece is not None and not isinstance(piece, str):
                raise _broken(f"its {field} is no text")
            if piece:
                parts.append(piece)
                said.append(TextDelta(piece))
        thought = ""
        for field in ("reasoning_content", "reasoning"):
            if field == "reasoning_content" and delta.get(field) == "":
                self._empty = True
            if piece := text(delta.get(field)):
                self._reasoning.setdefault(field, []).append(piece)
                # Servers that send both fields say the same in both.
                thought = thought or piece
        if thought:
            said.append(ReasoningDelta(thought))
        if raw is not None and array(delta.get("reasoning_details")):
            self._detail(items(slices(raw)["reasoning_details"]))
        if raw is not None and array(delta.get("tool_calls")):
            pieces = items(slices(raw)["tool_calls"])
            for value, piece_raw in zip(delta["tool_calls"], pieces, strict=True):
                self._call(table(value)).take(table(value), piece_raw)
        for place, call in enumerate(self._calls):
            said.extend(call.news(place, ended=ended))
        return tuple(said)

    def answer(
        self,
        ident: str | None,
        model: str | None,
        stop: str | None,
        usage: Raw | None,
        *,
        complete: bool,
    ) -> Answer:
        if complete and any(not (call.id and call.name) for call in self._calls):
            raise _broken("a tool call has no id or no name")
        named = [call for call in self._calls if call.name]
        field = next(iter(self._reasoning), "")
        return Answer(
            text="".join(self._content + self._refusal),
            reasoning="".join(self._reasoning.get(field, ())),
            calls=tuple(Call(call.id, call.name, call.arguments) for call in named),
            native=(self._native(),) if complete else (),
            stop=stop,
            usage=read_usage(usage),
            message_id=ident,
            model=model,
            complete=complete,
        )

    def _call(self, piece: Mapping[str, Any]) -> _Call:
        """Return the call that a piece belongs to, by the rule stated at the top."""
        index, ident = piece.get("index"), text(piece.get("id"))
        name = text(table(piece.get("function")).get("name"))
        if isinstance(index, int):
            call = self._by_index.get(index)
        elif ident:
            call = next((known for known in self._calls if known.id == ident), None)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (ident and name and call.id and ident != call.id):
            call = _Call()
            self._calls.append(call)
            if isinstance(index, int):
                self._by_index[index] = call
        return call

    def _detail(self, pieces: list[Raw]) -> None:
        for raw in pieces:
            piece = _Detail(raw)
            if not any(known.absorb(piece) for known in reversed(self._details)):
                self._details.append(piece)

    def _native(self) -> Raw:
        content = "".join(self._content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not self._calls else None,
        }
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._details:
            message["reasoning_details"] = [detail.native() for detail in self._details]
        else:
            for field, pieces in list(self._reasoning.items())[:1]:
                message[field] = "".join(pieces)
            if self._empty and self._calls and not self._reasoning:
                message["reasoning_content"] = ""
        if self._calls:
            message["tool_calls"] = [call.native() for call in self._calls]
        return Raw(encoding.encode(message))


class _Call:
    """A tool call as it grows."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self._arguments: list[str] = []
        self._extra: Raw | None = None
        self._told: int | None = None

    @property
    def arguments(self) -> str:
        return "".join(self._arguments) or "{}"

    def take(self, piece: Mapping[str, Any], raw: Raw) -> None:
        function = table(piece.get("function"))
        self.id = self.id or text(piece.get("id"))
        name = text(function.get("name"))
        if name and name != self.name:
            if self._arguments:
                raise _broken("a tool call changed its name")
            self.name += name
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            raise _broken("a tool call's arguments are no text")
        if arguments:
            self._arguments.append(arguments)
        if piece.get("extra_content") is not None:
            # Gemini's compatible endpoint keeps the call's signature here and wants it back.
            self._extra = slices(raw)["extra_content"]

    def news(self, place: int, *, ended: bool) -> list[Delta]:
        """Return what has not been told yet; nothing before the call has its id and its name."""
        if not (self.id and self.name and (self._arguments or ended)):
            return []
        news: list[Delta] = (
            [] if self._told is not None else [CallStarted(place, self.id, self.name)]
        )
        fresh = "".join(self._arguments[self._told or 0 :])
        if not self._arguments:
            fresh = "{}" if self._told is None else ""
        self._told = len(self._arguments)
        return [*news, CallArguments(place, fresh)] if fresh else news

    def native(self) -> dict[str, Any]:
        item: dict[str, Any] = {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }
        if self._extra is not None:
            item["extra_content"] = self._extra
        return item


class _Detail:
    """An entry of `reasoning_details` as it grows."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._value = values(bytes(raw))
        self._fields = slices(raw)
        self._field = _JOINED_DETAILS.get(text(self._value.get("type")))
        self._pieces: list[str] = []

    def absorb(self, piece: _Detail) -> bool:
        """Take a later piece of the same entry in; return False if it is another entry."""
        mine, its = self._value, piece._value
        if self._field is None or self._field != piece._field or "index" not in its:
            return False
        if mine.get("index") != its.get("index"):
            return False
        if mine.get("id") and its.get("id") and mine["id"] != its["id"]:
            return False
        if not self._pieces:
            self._pieces.append(text(mine.get(self._field)))
        self._pieces.append(text(its.get(self._field)))
        stated = {k: v for k, v in piece._fields.items() if bytes(v) != b"null"}
        self._fields.update(stated)
        self._value = {**mine, **{name: its[name] for name in stated}}
        return True

    def native(self) -> Raw:
        if self._field is None or not self._pieces:
            return self._raw
        return Raw(encoding.encode({**self._fields, self._field: "".join(self._pieces)}))


def _broken(what: str) -> StreamBroken:
    return StreamBroken(
        f"not an answer of the Chat Completions API: {what}; send it again or check the base URL"
    )
