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
- A blank text block is left out: a request that holds one is refused.

An answer is whole when `messageStop` has come. `metadata`, which follows it, may be missing: then
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
from addendum.wire.reading import array, count, items, legal_object, slices, table, text, values
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent


class ConverseParser:
    """Reads one streamed answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._begun = False
        self._stop: str | None = None
        self._usage: Raw | None = None

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is no JSON, or stands where it cannot.
            ProviderRefused: An exception that blames the request.
            ProviderBusy: Any other exception.
        """
        if event.event == EXCEPTION:
            raise stream_error(event.data)
        value = values(event.data or b"{}")
        match event.event:
            case "messageStart":
                self._begun = True
            case "contentBlockStart":
                return self._open(value)
            case "contentBlockDelta":
                return self._grow(value)
            case "contentBlockStop":
                return self._close(value)
            case "messageStop":
                self._stop = text(value.get("stopReason")) or "unknown"
            case "metadata":
                if isinstance(value.get("usage"), dict):
                    self._usage = slices(event.data)["usage"]
            case _:
                pass
        return ()

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: `messageStop` never came, or a block was left open.
        """
        if self._stop is None:
            raise StreamBroken("the answer was cut before messageStop; send the request again")
        if any(block.open for block in self._blocks.values()):
            raise _broken("the message stopped with a content block still open")
        return self._answer(complete=True)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return tuple(
            Call(block.id, block.name, block.joined("input") or "{}")
            for _, block in sorted(self._blocks.items())
            if block.kind == "toolUse" and not block.open
        )

    def _open(self, value: Mapping[str, Any]) -> tuple[Delta, ...]:
        start = table(value.get("start"))
        use = table(start.get("toolUse"))
        if "toolUse" not in start:
            raise _broken(f"a content block of kind {sorted(start)[:1]} cannot be sent back")
        block = self._block(value, new=True)
        block.begin(text(use.get("toolUseId")), text(use.get("name")), self._calls)
        self._calls += 1
        return (CallStarted(block.call, block.id, block.name),)

    def _grow(self, value: Mapping[str, Any]) -> tuple[Delta, ...]:
        block = self._block(value)
        delta = table(value.get("delta"))
        match next(iter(delta), ""):
            case "text":
                return (TextDelta(block.append("text", delta["text"])),)
            case "toolUse":
                piece = block.append("input", table(delta["toolUse"]).get("input"))
                return (CallArguments(block.call, piece),) if piece else ()
            case "reasoningContent":
                return self._think(block, table(delta["reasoningContent"]))
            case name:
                raise _broken(f"a content block of kind {name[:40]!r} cannot be sent back")

    def _think(self, block: _Block, delta: Mapping[str, Any]) -> tuple[Delta, ...]:
        block.think()
        for field in ("signature", "redactedContent"):
            if field in delta:
                block.append(field, delta[field])
        if "text" not in delta:
            return ()
        piece = block.append("reasoning", delta["text"])
        return (ReasoningDelta(piece),) if piece else ()

    def _close(self, value: Mapping[str, Any]) -> tuple[Delta, ...]:
        block = self._block(value)
        block.open = False
        # Arguments that never came are `{}`, and have not been told yet.
        untold = block.kind == "toolUse" and not block.joined("input")
        return (CallArguments(block.call, "{}"),) if untold else ()

    def _block(self, value: Mapping[str, Any], *, new: bool = False) -> _Block:
        index = value.get("contentBlockIndex")
        if not self._begun:
            raise _broken("a content block came before messageStart")
        if not isinstance(index, int) or isinstance(index, bool):
            raise _broken("an event names no content block")
        if index not in self._blocks:
            self._blocks[index] = _Block()
        elif new or not self._blocks[index].open:
            raise _broken("an event names a content block that is not open")
        return self._blocks[index]

    def _answer(self, *, complete: bool) -> Answer:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        natives = [block.native() for block in blocks] if complete else []
        return Answer(
            text="".join(block.joined("text") for block in blocks),
            reasoning="".join(block.joined("reasoning") for block in blocks),
            calls=tuple(
                Call(block.id, block.name, block.joined("input") or "{}")
                for block in blocks
                if block.kind == "toolUse"
            ),
            native=tuple(native for native in natives if native is not None),
            stop=self._stop,
            usage=read_usage(self._usage),
            complete=complete,
        )


class _Block:
    """A content block as it grows; its kind is what its first delta says."""

    def __init__(self) -> None:
        self.kind = ""
        self.open = True
        self.id = self.name = ""
        self.call = 0
        self._texts: dict[str, list[str]] = {}

    def begin(self, call_id: str, name: str, call: int) -> None:
        """Make it a tool use.

        Raises:
            StreamBroken: It has no id or no name.
        """
        if not (call_id and name):
            raise _broken("a tool use has no id or no name")
        self.kind, self.id, self.name, self.call = "toolUse", call_id, name, call

    def think(self) -> None:
        self._be("reasoningContent")

    def append(self, field: str, piece: Any) -> str:
        """Add text to a field and return what was added."""
        if field in ("text", "input"):
            self._be("text" if field == "text" else "toolUse")
        if not isinstance(piece, str):
            raise _broken(f"a delta for {field} holds no text")
        self._texts.setdefault(field, []).append(piece)
        return piece

    def joined(self, field: str) -> str:
        return "".join(self._texts.get(field, ()))

    def native(self) -> Raw | None:
        """Return the item that is sent back; None if there is nothing to send."""
        match self.kind:
            case "text":
                said = self.joined("text")
                return Raw(encoding.encode({"text": said})) if said.strip() else None
            case "toolUse":
                given = legal_object(self.joined("input") or "{}") or Raw(b"{}")
                use = {"toolUseId": self.id, "name": self.name, "input": given}
                return Raw(encoding.encode({"toolUse": use}))
            case "reasoningContent":
                return self._reasoning()
            case _:
                return None

    def _reasoning(self) -> Raw | None:
        inner: dict[str, Any] = {}
        if signature := self.joined("signature"):
            # A text that was left out by the model's choice stays an empty one.
            inner["reasoningText"] = {"text": self.joined("reasoning"), "signature": signature}
        elif redacted := self.joined("redactedContent"):
            inner["redactedContent"] = redacted
        return Raw(encoding.encode({"reasoningContent": inner})) if inner else None

    def _be(self, kind: str) -> None:
        if self.kind not in ("", kind):
            raise _broken("a content block changed its kind")
        if not self.kind and kind == "toolUse":
            raise _broken("a tool use was not begun")
        self.kind = kind


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: an object with `output`, `stopReason` and `usage`.

    Returns:
        The answer; `native` holds its content blocks as exact slices of `body`.

    Raises:
        StreamBroken: It is no answer of Converse.
    """
    value = values(body)
    message = table(table(value.get("output")).get("message"))
    if not isinstance(message.get("content"), list):
        raise _broken("the body holds no list of content blocks")
    fields = slices(body)
    content = items(slices(slices(fields["output"])["message"])["content"])
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    natives: list[Raw] = []
    for raw, each in zip(content, array(message["content"]), strict=True):
        block = table(each)
        if "text" in block:
            texts.append(text(block["text"]))
            if not texts[-1].strip():
                continue
        elif "toolUse" in block:
            use = table(block["toolUse"])
            if not (text(use.get("toolUseId")) and text(use.get("name"))):
                raise _broken("a tool use has no id or no name")
            given = bytes(slices(slices(raw)["toolUse"]).get("input", Raw(b"{}"))).decode()
            calls.append(Call(use["toolUseId"], use["name"], given))
        elif "reasoningContent" in block:
            inner = table(table(block["reasoningContent"]).get("reasoningText"))
            thoughts.append(text(inner.get("text")))
            if inner and not inner.get("signature"):
                continue
        natives.append(raw)
    return Answer(
        text="".join(texts),
        reasoning="".join(thoughts),
        calls=tuple(calls),
        native=tuple(natives),
        stop=text(value.get("stopReason")) or None,
        usage=read_usage(fields["usage"] if isinstance(value.get("usage"), dict) else None),
    )


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


def _broken(what: str) -> StreamBroken:
    return StreamBroken(
        f"not an answer of Converse: {what}; send the request again or check the base URL"
    )
