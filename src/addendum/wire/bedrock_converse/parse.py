"""Bedrock Converse: from stream events, or one body, to an `Answer`.

Source of the wire facts: the service model `bedrock-runtime` of botocore 1.44.8, and what clients
met (named below).

How a content block becomes the item that is sent back:

- A block of a body that was not streamed is its own text, byte for byte. A streamed block is joined
  once, with keys in the order of the service model.
- Only tool use is announced by `contentBlockStart`; other blocks begin with their first delta.
- Reasoning is text with a signature, or redacted content. Without a signature it is left out: it
  is optional in the shape and asked for on replay (client reports, 2026).
- A tool's input is the model's own JSON text. Where that is no JSON object by the rules of
  `addendum.encoding`, the block carries `{}`, since a block must be legal to be sent back;
  `Call.arguments` keeps the text as it came.
- A blank text block is left out: a request that holds one is refused. So is a streamed block of
  another kind: its pieces cannot be put together here.

Which block a delta belongs to: the one with its index, if it is of that kind; else the last open
one that is, if one of the two has no index; else one of its own, whose beginning may still come.

An answer has ended when `messageStop` has come. `metadata`, which follows it, may be missing: then
the usage is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from addendum.wire.aws_event_stream import EXCEPTION
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
    spoken,
    table,
    text,
    values,
)
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_NOTHING: Mapping[str, Any] = {}
_ENDS = ("additionalModelResponseFields", "stop_details", "trace")


class ConverseParser:
    """Reads one answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._ids = Ids()
        self._calls = 0
        self._seed = ""
        self._stop: str | None = None
        self._usage: Raw | None = None
        self._details: dict[str, Raw] = {}
        self._done = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is JSON that cannot be read.
            ProviderRefused: An exception that blames the request.
            ProviderBusy: Any other exception.
        """
        if is_done(event):
            self._done = self._done or bool(self._blocks)
            return ()
        if event.event == EXCEPTION and self._stop is None:
            raise stream_error(event.data)
        found = read(event, ended=self._stop is not None)
        # An event of AWS may say all with its name.
        value, data = found or (_NOTHING, Raw(b"{}"))
        self._seed = self._seed or bytes(data).decode("utf-8", "replace")
        if table(value.get("usage")):
            self._usage = joined_usage(self._usage, slices(data)["usage"])
        self._details.update(details(value, data, _ENDS))
        stop = text(value.get("stopReason"))
        if stop or event.event == "messageStop":
            self._stop = graver(self._stop, stop or "unknown")
        message = table(table(value.get("output")).get("message"))
        if message:
            self._done = True
            return tuple(self._body(message, slices(slices(data)["output"])["message"]))
        match _kind(value, event.event):
            case "contentBlockStart":
                return tuple(self._open(value))
            case "contentBlockDelta":
                return tuple(self._grow(value, data))
            case "contentBlockStop":
                return tuple(self._close(value))
            case _:
                return ()

    def finish(self, most: int | None = None) -> Answer:
        """Return the answer.

        Args:
            most: Tokens of output that the request allows, if it says so.

        Raises:
            StreamBroken: It was cut before its end, or the provider gave it up with nothing said.
        """
        if self._stop is None and not self._done:
            raise StreamBroken(
                "the answer was cut before messageStop; send the request again", again=True
            )
        return self._answer(complete=True, most=most)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return settled(block for block in self._blocks if block.number is not None)

    def _body(self, message: Mapping[str, Any], raw: Raw) -> list[Delta]:
        """Take the message of a body in."""
        said: list[Delta] = []
        if self._blocks or not array(message.get("content")):
            return said
        pairs = zip(array(message["content"]), items(slices(raw)["content"]), strict=True)
        for value, own in pairs:
            if not table(value):
                continue
            block = _Block()
            block.take(table(value), own)
            self._blocks.append(block)
            said += self._announced(block)
            block.open = False
            said += [TextDelta(block.text)] if block.text else []
            said += [ReasoningDelta(block.reasoning)] if block.reasoning else []
        return said

    def _open(self, value: Mapping[str, Any]) -> list[Delta]:
        start = table(value.get("start"))
        index = number(value.get("contentBlockIndex"))
        block = None if index is None else self._by_index.get(index)
        if block is not None and (block.begun or block.kind not in ("", *start)):
            if block.begun == start and block.open and not block.grown:
                return []  # Told twice.
            block = None
        block = block or self._new(index)
        block.begin(start)
        return self._announced(block)

    def _new(self, index: int | None) -> _Block:
        block = _Block()
        self._blocks.append(block)
        if index is not None:
            self._by_index[index] = block
        return block

    def _grow(self, value: Mapping[str, Any], data: Raw) -> list[Delta]:
        delta = table(value.get("delta"))
        kind = next((kind for kind in _FIELDS if kind in delta), next(iter(delta), ""))
        if not kind:
            return []
        block = self._owner(number(value.get("contentBlockIndex")), kind)
        if kind == "text":
            piece = block.append("text", spoken(delta["text"]))
            return [TextDelta(piece)] if piece else []
        if kind == "reasoningContent":
            piece = block.think(table(delta["reasoningContent"]))
            return [ReasoningDelta(piece)] if piece else []
        if kind == "toolUse":
            own = slices(slices(data)["delta"])["toolUse"]
            piece = block.argue(table(delta["toolUse"]).get("input"), own)
            told = block.number is not None and piece
            return [CallArguments(block.number or 0, piece)] if told else []
        return []

    def _owner(self, index: int | None, kind: str) -> _Block:
        """Return the block that a delta belongs to, by the rule stated at the top."""
        named = None if index is None else self._by_index.get(index)
        fitting = ("", kind)
        if kind == "citation":
            fitting = ("", "text")
        if named is not None and named.kind in fitting:
            return named
        near = [block for block in self._blocks if block.open and block.kind in fitting][-1:]
        if near and (index is None or named is not None):
            return near[0]
        if near and index is not None and near[0] not in self._by_index.values():
            self._by_index[index] = near[0]
            return near[0]
        return self._new(index if named is None else None)

    def _close(self, value: Mapping[str, Any]) -> list[Delta]:
        index = number(value.get("contentBlockIndex"))
        opened = (block for block in reversed(self._blocks) if block.open)
        block = self._by_index.get(index) if index is not None else next(opened, None)
        if block is None:
            return []
        # Arguments that never came are `{}`, and have not been told yet.
        untold = block.open and block.number is not None and not block.pieces
        block.open = False
        return [CallArguments(block.number or 0, "{}")] if untold else []

    def _announced(self, block: _Block) -> list[Delta]:
        """Tell of a call once it has begun; then it has an id."""
        if block.kind != "toolUse" or block.number is not None:
            return []
        block.number, self._calls = self._calls, self._calls + 1
        block.identify(self._ids.take(block.id, f"{self._seed} {block.number} {block.name}"))
        said: list[Delta] = [CallStarted(block.number, block.id, block.name)]
        return [*said, CallArguments(block.number, block.written)] if block.pieces else said

    def _answer(self, *, complete: bool, most: int | None = None) -> Answer:
        blocks = self._blocks
        if complete:
            for block in blocks:
                self._announced(block)
        for block in blocks[-1:]:
            # Nothing stands behind it that would show that its server did not close it.
            block.open = block.open or block.mended
        natives = [block.native() for block in blocks] if complete else []
        return assembled(
            Answer(
                text="".join(block.text for block in blocks),
                reasoning="".join(block.reasoning for block in blocks),
                native=tuple(native for native in natives if native is not None),
                stop=self._stop,
                usage=read_usage(self._usage),
                left_out=tuple(
                    block.kind or "a block without content"
                    for block, native in zip(blocks, natives, strict=False)
                    if native is None and block.kind not in _FIELDS
                ),
                complete=complete,
            ),
            [block for block in blocks if block.kind == "toolUse"],
            details=self._details,
            most=most,
        )


_FIELDS = ("toolUse", "reasoningContent", "text")


class _Block(Draft):
    """A content block as it grows; its kind is what its beginning or its first delta says.

    Attributes:
        kind: `text`, `toolUse`, `reasoningContent`, or another key; '' while none is known.
        number: Its place among the calls; None before it was told of.
        begun: What its `contentBlockStart` held.
        grown: Whether a delta has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kind = ""
        self.number: int | None = None
        self.begun: Mapping[str, Any] = {}
        self.grown = False
        self._raw: Raw | None = None
        self._texts: dict[str, list[str]] = {}

    @property
    def text(self) -> str:
        return self._joined("text") if self.kind == "text" else ""

    @property
    def reasoning(self) -> str:
        return self._joined("reasoning")

    def begin(self, start: Mapping[str, Any]) -> None:
        """Take a `contentBlockStart` in, behind its first deltas too."""
        self.begun = start
        use = table(start.get("toolUse"))
        self.kind = self.kind or next(iter(start), "")
        self.id, self.name = text(use.get("toolUseId")), text(use.get("name"))

    def take(self, value: Mapping[str, Any], raw: Raw) -> None:
        """Take a whole block in."""
        self._raw = raw
        self.kind = next((kind for kind in _FIELDS if kind in value), next(iter(value), ""))
        if self.kind == "toolUse":
            self.begin(value)
            self.argue(table(value["toolUse"]).get("input"), slices(raw)["toolUse"])
        elif self.kind == "text":
            self.append("text", spoken(value["text"]))
        elif self.kind == "reasoningContent":
            inner = table(value["reasoningContent"])
            self.think({**inner, **table(inner.get("reasoningText"))})

    def append(self, field: str, piece: str) -> str:
        """Add text to a field and return what was added."""
        self.kind, self.grown = self.kind or field, True
        if piece:
            self._texts.setdefault(field, []).append(piece)
        return piece

    def think(self, delta: Mapping[str, Any]) -> str:
        """Add reasoning and return what of it people can read."""
        self.kind, self.grown = "reasoningContent", True
        for field in ("signature", "redactedContent"):
            self.append(field, text(delta.get(field)))
        return self.append("reasoning", spoken(delta.get("text")))

    def argue(self, piece: Any, raw: Raw) -> str:
        """Add input and return what was added."""
        self.kind, self.grown = "toolUse", True
        if piece is None:
            return ""
        written = piece if isinstance(piece, str) else bytes(slices(raw)["input"]).decode()
        if written:
            if self.mended:
                self.restart()
            self.mended = not isinstance(piece, str)
            self.pieces.append(written)
        return written

    def identify(self, own: str) -> None:
        """Give it the id that it goes back under."""
        if own != self.id:
            self._raw = None
        self.id = own

    def native(self) -> Raw | None:
        """Return the item that is sent back; None if there is nothing to send."""
        match self.kind:
            case "text":
                if not self.text.strip():
                    return None
                return self._raw or Raw(encoding.encode({"text": self.text}))
            case "toolUse":
                given = legal_object(self.arguments)
                if self._raw is not None and given is not None and self.name:
                    own = slices(slices(self._raw)["toolUse"]).get("input", Raw(b""))
                    if bytes(own) == bytes(given):
                        return self._raw
                use = {"toolUseId": self.id, "name": self.name, "input": given or Raw(b"{}")}
                return Raw(encoding.encode({"toolUse": use}))
            case "reasoningContent":
                return self._reasoning()
            case _:
                return self._raw

    def _reasoning(self) -> Raw | None:
        inner: dict[str, Any] = {}
        if signature := self._joined("signature"):
            # A text that was left out by the model's choice stays an empty one.
            inner["reasoningText"] = {"text": self.reasoning, "signature": signature}
        elif redacted := self._joined("redactedContent"):
            inner["redactedContent"] = redacted
        if not inner:
            return None
        return self._raw or Raw(encoding.encode({"reasoningContent": inner}))

    def _joined(self, field: str) -> str:
        return "".join(self._texts.get(field, ()))


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: an object with `output`, `stopReason` and `usage`.

    Returns:
        The answer; `native` holds its content blocks as exact slices of `body`.

    Raises:
        StreamBroken: It is no answer of Converse.
        ProviderRefused: It is an error object that blames the request.
        ProviderBusy: It is any other error object.
    """
    parser = ConverseParser()
    parser.feed(SseEvent(None, body))
    return parser.finish()


def _kind(value: Mapping[str, Any], name: str | None) -> str:
    """Return what an event is: by its name, or what it holds."""
    if name:
        return name
    if table(value.get("start")):
        return "contentBlockStart"
    if table(value.get("delta")):
        return "contentBlockDelta"
    return "contentBlockStop" if "contentBlockIndex" in value else ""


def read_usage(raw: Raw | None) -> Usage:
    """Return the tokens that a `usage` object states.

    `inputTokens` is what was neither read nor written: the prompt is the sum of the three. A model
    that says nothing of a cache has said the whole prompt.

    Args:
        raw: The object's own text; None if the provider sent none.
    """
    if raw is None:
        return Usage()
    said = values(bytes(raw))
    fresh = count(said.get("inputTokens"))
    read = count(said.get("cacheReadInputTokens"))
    written = count(said.get("cacheWriteInputTokens"))
    return Usage(
        prompt=None if fresh is None else fresh + (read or 0) + (written or 0),
        cache_read=read,
        cache_write=written,
        output=count(said.get("outputTokens")),
        raw=raw,
    )
