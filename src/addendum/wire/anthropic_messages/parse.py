"""Anthropic Messages: from stream events, or one body, to an `Answer`.

Source of the wire facts: Anthropic's "Streaming messages", "Extended thinking" and "Handling stop
reasons" pages and the types of its Python SDK 2.14.0.

How a content block becomes the item that is sent back says
`addendum.wire.anthropic_messages.blocks`. Which block a delta belongs to: the one with its index,
if it is of that kind; else the last open one that is, if one of the two has no index; else a block
of its own, whose beginning may still come. A second beginning at an index is another block.

An answer has ended when `message_stop`, a `stop_reason`, or `[DONE]` has come. Unknown events and
pings are passed over, and what comes behind the end cannot spoil it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

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
from addendum.wire.anthropic_messages.blocks import Block, delta_kind
from addendum.wire.calls import Ids, assembled, settled
from addendum.wire.endings import details, graver, stopped
from addendum.wire.events import is_done, joined_usage, read
from addendum.wire.reading import array, count, items, number, slices, table, text, values
from addendum.wire.sse import SseEvent

_KINDS = frozenset(
    "message message_start message_delta message_stop"
    " content_block_start content_block_delta content_block_stop".split()
)


class AnthropicParser:
    """Reads one answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._ids = Ids()
        self._calls = 0
        self._id = ""
        self._model = ""
        self._seed = ""
        self._usage: Raw | None = None
        self._stop: str | None = None
        self._details: dict[str, Raw] = {}
        self._stopped = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is JSON that cannot be read.
            ProviderRefused: An `error` event that blames the request.
            ProviderBusy: Any other `error` event.
        """
        if is_done(event):
            self._stopped = self._stopped or bool(self._blocks)
            return ()
        found = read(event, ended=self._stopped)
        if found is None:
            return ()
        value, data = found
        self._seed = self._seed or bytes(data).decode()
        match _kind(value, event.event):
            case "message_start":
                if table(value.get("message")):
                    return self._message(table(value["message"]), slices(data)["message"])
            case "message":
                said = self._message(value, data)
                self._stopped = bool(self._blocks)
                return said
            case "content_block_start":
                return self._open(value, data)
            case "content_block_delta":
                return self._grow(value, data)
            case "content_block_stop":
                return self._close(value)
            case "message_delta":
                self._end(value, data)
            case "message_stop":
                self._stopped = True
                self._end(value, data)
            case _:
                pass
        return ()

    def finish(self, most: int | None = None) -> Answer:
        """Return the answer.

        Args:
            most: Tokens of output that the request allows, if it says so.

        Raises:
            StreamBroken: It was cut before its end, or the provider gave it up with nothing said.
        """
        if not self._stopped and self._stop is None:
            raise StreamBroken(
                "the answer was cut before message_stop; send the request again", again=True
            )
        return self._answer(complete=True, most=most)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return settled(block for block in self._blocks if block.number is not None)

    def _message(self, message: Mapping[str, Any], raw: Raw) -> tuple[Delta, ...]:
        """Take the beginning of a message in, or all of it."""
        self._id = self._id or text(message.get("id"))
        self._model = self._model or text(message.get("model"))
        self._end({"delta": message, "usage": message.get("usage")}, raw, whole=True)
        said: list[Delta] = []
        if array(message.get("content")) and not self._blocks:
            for value, own in zip(
                array(message["content"]), items(slices(raw)["content"]), strict=True
            ):
                if table(value):
                    said += self._begin(Block(), table(value), own, whole=True)
                    said += self._closed(self._blocks[-1])
        return tuple(said)

    def _end(self, value: Mapping[str, Any], raw: Raw, *, whole: bool = False) -> None:
        """Read how the answer ends, and what it cost."""
        delta = table(value.get("delta"))
        own = raw if whole else slices(raw).get("delta", Raw(b"{}"))
        if stop := text(delta.get("stop_reason")):
            self._stop = graver(self._stop, stop)
        if delta:
            self._details.update(details(delta, own, ("stop_details", "stop_sequence")))
        for usage, at in ((value.get("usage"), raw), (delta.get("usage"), own)):
            if isinstance(usage, dict):
                self._usage = joined_usage(self._usage, slices(at)["usage"])
                return

    def _open(self, value: Mapping[str, Any], raw: Raw) -> tuple[Delta, ...]:
        index = number(value.get("index"))
        known = None if index is None else self._by_index.get(index)
        own = slices(raw).get("content_block", Raw(b"{}"))
        given = table(value.get("content_block"))
        if known is not None and known.begins_again(own):
            return ()
        if known is not None and known.start(given, own):
            return tuple(self._announced(known))
        block = Block()
        if index is not None:
            self._by_index[index] = block
        return tuple(self._begin(block, given, own if given else Raw(b"{}")))

    def _begin(
        self, block: Block, value: Mapping[str, Any], raw: Raw, *, whole: bool = False
    ) -> list[Delta]:
        self._blocks.append(block)
        block.start(value, raw, whole=whole)
        return [*self._announced(block), *_said(block, block.text, block.thinking)]

    def _grow(self, value: Mapping[str, Any], raw: Raw) -> tuple[Delta, ...]:
        delta = table(value.get("delta"))
        if not delta:
            return ()
        block = self._owner(number(value.get("index")), delta_kind(delta))
        piece = block.grow(delta, raw)
        if block.kind == "tool_use":
            told = block.number is not None and piece
            return (CallArguments(block.number or 0, piece),) if told else ()
        return tuple(_said(block, piece, piece))

    def _owner(self, index: int | None, kind: str) -> Block:
        """Return the block that a delta belongs to, by the rule stated at the top."""
        named = None if index is None else self._by_index.get(index)
        if named is not None and named.fits(kind):
            return named
        near = [block for block in self._blocks if block.open and block.fits(kind)][-1:]
        if near and (index is None or named is not None):
            return near[0]
        unnumbered = bool(near) and near[0] not in self._by_index.values()
        block = near[0] if unnumbered else Block()
        if not unnumbered:
            self._blocks.append(block)
        if index is not None and named is None:
            self._by_index[index] = block
        return block

    def _close(self, value: Mapping[str, Any]) -> tuple[Delta, ...]:
        index = number(value.get("index"))
        opened = (block for block in reversed(self._blocks) if block.open)
        block = self._by_index.get(index) if index is not None else next(opened, None)
        return () if block is None else tuple(self._closed(block))

    def _closed(self, block: Block) -> list[Delta]:
        known = block.open and block.number is not None
        block.open = False
        # An input that came whole, or not at all, has not been told yet.
        untold = known and (block.mended or not block.pieces)
        return [CallArguments(block.number or 0, block.arguments)] if untold else []

    def _announced(self, block: Block) -> list[Delta]:
        """Tell of a call once it has begun; then it has an id."""
        if block.kind != "tool_use" or block.number is not None:
            return []
        block.number, self._calls = self._calls, self._calls + 1
        block.identify(
            self._ids.take(block.id, f"{self._id or self._seed} {block.number} {block.name}")
        )
        said: list[Delta] = [CallStarted(block.number, block.id, block.name)]
        if block.pieces and not block.mended:
            said.append(CallArguments(block.number, block.written))
        return said

    def _answer(self, *, complete: bool, most: int | None = None) -> Answer:
        blocks = self._blocks
        if complete:
            for block in blocks:
                self._announced(block)
        for block in blocks[-1:]:
            # Nothing stands behind it that would show that its server did not close it.
            block.open = block.open or block.mended
        gone = stopped(self._stop).ending in ("cut", "trouble", "withheld")
        kept = [
            block
            for block in blocks
            if not block.blank and not (gone and block is blocks[-1] and block.unsigned)
        ]
        return assembled(
            Answer(
                text="".join(block.text for block in blocks),
                reasoning="".join(block.thinking for block in blocks),
                native=tuple(block.native() for block in kept) if complete else (),
                stop=self._stop,
                usage=_usage(self._usage),
                message_id=self._id or None,
                model=self._model or None,
                left_out=("a block without a type",) if any(not b.kind for b in blocks) else (),
                complete=complete,
            ),
            [block for block in blocks if block.kind == "tool_use"],
            details=self._details,
            most=most,
        )


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: a `message` object.

    Returns:
        The answer; `native` holds its content blocks as exact slices of `body`.

    Raises:
        StreamBroken: It is no message.
        ProviderRefused: It is an error object that blames the request.
        ProviderBusy: It is any other error object.
    """
    parser = AnthropicParser()
    parser.feed(SseEvent(None, body))
    return parser.finish()


def _kind(value: Mapping[str, Any], name: str | None) -> str:
    """Return what an event is: by its type, its name, or what it holds."""
    said = text(value.get("type"))
    if said in _KINDS or (name or "") in _KINDS:
        return said if said in _KINDS else name or ""
    if said:
        return said
    if isinstance(value.get("content"), list):
        return "message"
    if table(value.get("message")):
        return "message_start"
    if table(value.get("content_block")):
        return "content_block_start"
    if "index" in value or delta_kind(table(value.get("delta"))):
        return "content_block_delta" if "delta" in value else "content_block_stop"
    return "message_delta" if table(value.get("delta")) or table(value.get("usage")) else ""


def _said(block: Block, written: str, thought: str) -> list[Delta]:
    if block.kind == "text" and written:
        return [TextDelta(written)]
    if block.kind == "thinking" and thought:
        return [ReasoningDelta(thought)]
    return []


def _usage(raw: Raw | None) -> Usage:
    """Count an answer's tokens.

    `input_tokens` is only what stands behind the last breakpoint: the prompt is its sum with what
    was read and written. A provider that says nothing of a cache has said the whole prompt.
    """
    if raw is None:
        return Usage()
    said = values(bytes(raw))
    fresh = count(said.get("input_tokens"))
    read = count(said.get("cache_read_input_tokens"))
    written = count(said.get("cache_creation_input_tokens"))
    return Usage(
        prompt=None if fresh is None else fresh + (read or 0) + (written or 0),
        cache_read=read,
        cache_write=written,
        output=count(said.get("output_tokens")),
        raw=raw,
    )
