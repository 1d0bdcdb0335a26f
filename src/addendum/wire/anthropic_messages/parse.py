"""Anthropic Messages: from stream events, or one body, to an `Answer`.

Source of the wire facts: Anthropic's "Streaming messages" and "Extended thinking" pages and the
types of its Python SDK 2.14.0.

How a content block becomes the item that is sent back:

- A block to which no delta was added is the text of its start block, byte for byte; so is every
  block of a body that was not streamed. Unknown types and unknown fields are thereby kept.
- A block with deltas is joined once. Known types begin with the keys of `_KEY_ORDER`; all other
  fields of the start block follow in the order received, as their own text.
- `text_delta`, `thinking_delta` and `input_json_delta` append; `signature_delta` sets (it comes
  once, before the block stops); `citations_delta` appends to the list. A delta of any other kind
  is merged field by field, in order: text is appended to text, list to list, null changes nothing,
  and anything else replaces what was there.
- An empty thinking text with a signature is complete and stays.
- A tool's input is the model's own JSON text, spaces and escapes included. Where that is no JSON
  object by the rules of `addendum.encoding`, the block carries `{}`, since a block must be legal
  to be sent back; `Call.arguments` keeps the text as it came, so that resolving the call can say
  what is wrong with it.
- A text block that is blank is left out: the API makes such blocks, and answers 400 to a request
  that holds one ("text content blocks must be non-empty", "... contain non-whitespace text").
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
from addendum.wire.reading import array, count, items, legal_object, slices, table, text, values
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_KEY_ORDER = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature"),
    "tool_use": ("type", "id", "name", "input"),
    "server_tool_use": ("type", "id", "name", "input"),
}
_EMPTY_INPUT = Raw(b"{}")


class AnthropicParser:
    """Reads one streamed answer (see `addendum.wire.answer.Parser`).

    An answer is whole when `message_stop` has come; events after it, unknown events and pings are
    skipped.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._message: Mapping[str, Any] | None = None
        self._usage: Raw | None = None
        self._stop: str | None = None
        self._stopped = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is no JSON, or stands where it cannot.
            ProviderRefused: An `error` event that blames the request.
            ProviderBusy: Any other `error` event.
        """
        if self._stopped or not event.data.strip():
            return ()
        value = values(event.data)
        kind = text(value.get("type")) or event.event or ""
        if kind == "error":
            raise stream_error(event.data)
        if kind == "message_start":
            self._start(value, event.data)
        elif kind.startswith(("content_block_", "message_")) and self._message is None:
            raise _broken(f"{kind} came before message_start")
        elif kind == "content_block_start":
            return self._open(value, event.data)
        elif kind == "content_block_delta":
            return self._grow(value, event.data)
        elif kind == "content_block_stop":
            return self._close(value)
        elif kind == "message_delta":
            self._stop = text(table(value.get("delta")).get("stop_reason")) or self._stop
            self._count(value, event.data)
        elif kind == "message_stop":
            self._stopped = True
        return ()

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: `message_stop` never came, or a block was left open.
        """
        if not self._stopped:
            raise StreamBroken("the answer was cut before message_stop; send the request again")
        if any(block.open for block in self._blocks.values()):
            raise _broken("the message stopped with a content block still open")
        return self._answer(complete=True)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return tuple(
            Call(block.id, block.name, block.arguments)
            for block in self._blocks.values()
            if block.kind == "tool_use" and not block.open
        )

    def _start(self, value: Mapping[str, Any], data: bytes) -> None:
        if self._message is not None:
            raise _broken("message_start came twice")
        self._message = table(value.get("message"))
        if isinstance(self._message.get("usage"), dict):
            self._usage = slices(slices(data)["message"])["usage"]

    def _open(self, value: Mapping[str, Any], data: bytes) -> tuple[Delta, ...]:
        index = value.get("index")
        if not isinstance(index, int) or index in self._blocks:
            raise _broken("content_block_start without an index of its own")
        block = _Block(slices(data).get("content_block", Raw(b"null")), value.get("content_block"))
        self._blocks[index] = block
        block.open = True
        if block.kind == "tool_use":
            block.call = self._calls
            self._calls += 1
            return (CallStarted(block.call, block.id, block.name),)
        return _said(block, block.text, block.thinking)

    def _grow(self, value: Mapping[str, Any], data: bytes) -> tuple[Delta, ...]:
        block = self._block(value)
        delta = table(value.get("delta"))
        match delta.get("type"):
            case "text_delta":
                piece = block.append("text", delta.get("text"))
                return _said(block, piece, "")
            case "thinking_delta":
                piece = block.append("thinking", delta.get("thinking"))
                return _said(block, "", piece)
            case "input_json_delta":
                piece = block.append("input", delta.get("partial_json"))
                return _argued(block, piece)
            case "signature_delta":
                block.replace("signature", delta.get("signature"))
            case "citations_delta":
                citation = slices(slices(data)["delta"]).get("citation")
                if citation is None:
                    raise _broken("a citations_delta holds no citation")
                block.extend("citations", [citation])
            case _:
                block.merge(delta, slices(slices(data).get("delta", _EMPTY_INPUT)))
        return ()

    def _close(self, value: Mapping[str, Any]) -> tuple[Delta, ...]:
        block = self._block(value)
        block.open = False
        # An input that came whole, or not at all, has not been told yet.
        return _argued(block, "" if block.input_pieces else block.arguments)

    def _block(self, value: Mapping[str, Any]) -> _Block:
        index = value.get("index")
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not block.open:
            raise _broken("an event names a content block that is not open")
        return block

    def _count(self, value: Mapping[str, Any], data: bytes) -> None:
        """Take the usage of a `message_delta`: cumulative, so it wins; null changes nothing."""
        later = value.get("usage")
        if not isinstance(later, dict):
            return
        raw = slices(data)["usage"]
        if self._usage is not None:
            stated = {k: v for k, v in slices(raw).items() if bytes(v) != b"null"}
            raw = Raw(encoding.encode({**slices(self._usage), **stated}))
        self._usage = raw

    def _answer(self, *, complete: bool) -> Answer:
        blocks = list(self._blocks.values())
        message = self._message or {}
        return _assemble(blocks, message, self._stop, self._usage, complete=complete)


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
    value = values(body)
    if value.get("type") == "error":
        raise stream_error(body)
    fields = slices(body)
    if not isinstance(value.get("content"), list):
        raise _broken("the body holds no list of content blocks")
    content = array(value["content"])
    blocks = [
        _Block(raw, block) for raw, block in zip(items(fields["content"]), content, strict=True)
    ]
    usage = fields["usage"] if isinstance(value.get("usage"), dict) else None
    return _assemble(blocks, value, text(value.get("stop_reason")) or None, usage, complete=True)


class _Block:
    """A content block as it grows.

    Attributes:
        start: Text of the start block.
        kind: Its type.
        open: Whether its stop has not come yet.
        call: Its place among the calls, for `tool_use`.
    """

    def __init__(self, start: Raw, value: Any) -> None:
        known = table(value)
        self.kind = text(known.get("type"))
        if not self.kind:
            raise _broken("a content block has no type")
        self.start = start
        self.open = False
        self.call = 0
        self.id = text(known.get("id"))
        self.name = text(known.get("name"))
        if self.kind == "tool_use" and not (self.id and self.name):
            raise _broken("a tool_use block has no id or no name")
        self._fields: dict[str, Raw] = slices(start)
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Raw]] = {}
        self._changed = False

    @property
    def text(self) -> str:
        return self._joined("text")

    @property
    def thinking(self) -> str:
        return self._joined("thinking")

    @property
    def input_pieces(self) -> str:
        return "".join(self._texts.get("input", ()))

    @property
    def arguments(self) -> str:
        """Argument text as the model wrote it; `{}` if there is none."""
        return self.input_pieces or bytes(self._fields.get("input", _EMPTY_INPUT)).decode()

    @property
    def blank(self) -> bool:
        return self.kind == "text" and not self.text.strip()

    def append(self, field: str, piece: Any) -> str:
        """Add text to a field and return what was added."""
        if not isinstance(piece, str):
            raise _broken(f"a delta for {field} holds no text")
        if field not in self._texts:
            # An input that is under way replaces the start block's `{}`; other text goes on.
            begun = "" if field == "input" else self._joined(field)
            self._texts[field] = [begun] if begun else []
        self._texts[field].append(piece)
        self._changed = True
        return piece

    def replace(self, field: str, whole: Any) -> None:
        if not isinstance(whole, str):
            raise _broken(f"a delta for {field} holds no text")
        self._texts[field] = [whole]
        self._changed = True

    def extend(self, field: str, more: list[Raw]) -> None:
        if field not in self._lists:
            begun = self._fields.get(field)
            self._lists[field] = (
                items(begun) if begun is not None and bytes(begun)[:1] == b"[" else []
            )
        self._lists[field].extend(more)
        self._changed = True

    def merge(self, delta: Mapping[str, Any], raw: Mapping[str, Raw]) -> None:
        """Merge a delta of an unknown kind, by the rule stated at the top."""
        for field, value in delta.items():
            if field == "type" or value is None:
                continue
            if isinstance(value, str) and self._holds(field, self._texts, b'"'):
                self.append(field, value)
            elif isinstance(value, list) and self._holds(field, self._lists, b"["):
                self.extend(field, items(raw[field]))
            else:
                self._texts.pop(field, None)
                self._lists.pop(field, None)
                self._fields[field] = raw[field]
                self._changed = True

    def native(self) -> Raw:
        """Return the item that is sent back."""
        if self.kind == "tool_use" or "input" in self._texts:
            legal = legal_object(self.arguments)
            if not self._changed and legal is not None and "input" in self._fields:
                return self.start
            given: dict[str, Raw | str | list[Raw]] = {"input": legal or _EMPTY_INPUT}
        elif not self._changed:
            return self.start
        else:
            given = {}
        joined = {field: "".join(pieces) for field, pieces in self._texts.items()}
        whole = {**self._fields, **joined, **self._lists, **given}
        first = _KEY_ORDER.get(self.kind, ())
        ordered = {key: whole[key] for key in first if key in whole}
        return Raw(encoding.encode({**ordered, **whole}))

    def _joined(self, field: str) -> str:
        if field in self._texts:
            return "".join(self._texts[field])
        raw = bytes(self._fields.get(field, b""))
        return encoding.decode(raw) if raw[:1] == b'"' else ""

    def _holds(self, field: str, grown: Mapping[str, Any], opening: bytes) -> bool:
        """Whether a field holds a kind of value that can grow, or nothing yet."""
        if field in self._texts or field in self._lists:
            return field in grown
        return bytes(self._fields.get(field, b"null"))[:1] in (opening, b"n")


def _said(block: _Block, written: str, thought: str) -> tuple[Delta, ...]:
    if block.kind == "text" and written:
        return (TextDelta(written),)
    if block.kind == "thinking" and thought:
        return (ReasoningDelta(thought),)
    return ()


def _argued(block: _Block, piece: str) -> tuple[Delta, ...]:
    return (CallArguments(block.call, piece),) if block.kind == "tool_use" and piece else ()


def _assemble(
    blocks: list[_Block],
    message: Mapping[str, Any],
    stop: str | None,
    usage: Raw | None,
    *,
    complete: bool,
) -> Answer:
    return Answer(
        text="".join(block.text for block in blocks if block.kind == "text"),
        reasoning="".join(block.thinking for block in blocks if block.kind == "thinking"),
        calls=tuple(
            Call(block.id, block.name, block.arguments)
            for block in blocks
            if block.kind == "tool_use"
        ),
        native=tuple(block.native() for block in blocks if complete and not block.blank),
        stop=stop,
        usage=_usage(usage),
        message_id=text(message.get("id")) or None,
        model=text(message.get("model")) or None,
        complete=complete,
    )


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


def _broken(what: str) -> StreamBroken:
    return StreamBroken(
        f"not an answer of the Messages API: {what}; send the request again or check the base URL"
    )
