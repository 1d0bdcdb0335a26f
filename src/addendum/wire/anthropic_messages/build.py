"""Anthropic Messages: from the prompt to body bytes.

A block is encoded once; a mark is spliced into its bytes. The settled part is kept as ready
pieces, so a request is one join around what is new.

Shapes: Claude docs "Mid-conversation system messages and tool changes", "Prompt caching"
(2026-09-26).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never, cast

from msgspec import Raw

from addendum import encoding
from addendum.log.events import RequestContext
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Key, Native, Prompt, Result, Text, Use
from addendum.prompt.projector import WireFacts
from addendum.wire.arguments import as_object
from addendum.wire.pieces import Declarations, Edit, Pieces

WIRE = "anthropic_messages"

FACTS = WireFacts(waits=False, string_arguments=False, marks=4, images_count=True)

DEFAULT_MAX_TOKENS = 8_192

Group = tuple[str, int, str]
"""What keeps blocks in one message: the role, and for system messages what they come from."""

_USER: Group = ("user", 0, "")
_ASSISTANT: Group = ("assistant", 0, "")


class Renderer:
    """Renders the requests of one session; keeps encoded blocks of the current chain.

    Attributes:
        encoded: Blocks, prompt texts and declarations encoded so far; for tests that count them.
            Items sent back as they came are not.

    Args:
        version: Version that the body names, where the address names the model; else empty.
    """

    def __init__(self, *, version: str = "") -> None:
        self.encoded = 0
        self._version = version
        self._chain = -1
        self._pieces = Pieces()
        self._last: Group | None = None
        self._open: dict[Key, bytes] = {}
        self._tools: tuple[tuple[ToolSchema, ...], list[bytes], int] | None = None
        self._system: tuple[tuple[Text, ...], list[bytes]] = ((), [])
        self._tail: tuple[Text, bytes] | None = None

    def body(self, prompt: Prompt, config: Config, *, stream: bool = True) -> bytes:
        """Return the request body.

        Args:
            prompt: What to say.
            config: Sampling settings.
            stream: Whether the answer is asked for piece by piece.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        mark = _mark(prompt.context)
        parts = [
            _settings(config, stream, self._version),
            b',"tools":[',
            self._declare(prompt, mark),
            b"]",
        ]
        if not prompt.tools:
            parts = parts[:1]
        if prompt.system:
            parts.append(b',"system":[' + self._prompt_text(prompt, mark) + b"]")
        parts.append(b',"messages":[')
        parts.extend(self._messages(prompt, mark))
        parts.append(b"]}]}" if prompt.count or prompt.open or prompt.tail else b"]}")
        return b"".join(parts)

    def _declare(self, prompt: Prompt, mark: bytes) -> bytes:
        if self._tools is None or self._tools[0] is not prompt.tools:
            entries, fresh = _declarations(prompt.tools)
            self.encoded += fresh
            immediate = [place for place, tool in enumerate(prompt.tools) if not tool.defer_loading]
            self._tools = (prompt.tools, entries, immediate[-1] if immediate else -1)
        _, entries, last = self._tools
        if prompt.marks.tools and last >= 0:
            entries = [*entries]
            entries[last] = _marked(entries[last], mark)
        return b",".join(entries)

    def _prompt_text(self, prompt: Prompt, mark: bytes) -> bytes:
        if self._system[0] is not prompt.system:
            self.encoded += len(prompt.system)
            self._system = (prompt.system, [_text(text.text) for text in prompt.system])
        blocks = [*self._system[1]]
        for index in prompt.marks.system:
            blocks[index] = _marked(blocks[index], mark)
        return b",".join(blocks)

    def _messages(self, prompt: Prompt, mark: bytes) -> list[bytes]:
        if prompt.chain != self._chain or prompt.count < len(self._pieces):
            self._chain, self._last, self._open = prompt.chain, None, {}
            self._pieces = Pieces()
        for index in range(len(self._pieces), prompt.count):
            block = prompt.settled[index]
            known = self._open.get(block.key) if self._open else None
            piece, self._last = self._piece(block, self._last, known)
            self._pieces.append(piece)
        last = self._last
        opened: list[bytes] = []
        fresh: dict[Key, bytes] = {}
        for block in prompt.open:
            fresh[block.key] = known = self._open.get(block.key) or self._encode(block)
            piece, last = self._piece(block, last, known)
            opened.append(piece)
        self._open = fresh
        count = prompt.count
        edits: dict[int, Edit] = {}
        for index in prompt.marks.blocks:
            edits[index] = lambda piece: _marked(piece, mark)
        if prompt.tail is not None:
            if self._tail is None or self._tail[0] != prompt.tail:
                self.encoded += 1
                self._tail = (prompt.tail, _text(prompt.tail.text))
            text = self._tail[1]
            if prompt.tail_at >= count + len(opened):
                opened.append(_separator(("user", 0, ""), last) + text)
            else:
                marked = edits.get(prompt.tail_at, _same)
                edits[prompt.tail_at] = lambda piece: _with_tail(marked(piece), text)
        for index in [index for index in edits if index >= count]:
            opened[index - count] = edits.pop(index)(opened[index - count])
        return self._pieces.parts(edits) + opened

    def _piece(self, block: Block, last: Group | None, known: bytes | None) -> tuple[bytes, Group]:
        group = _group(block)
        encoded = known if known is not None else self._encode(block)
        scoped = isinstance(block, Text) and block.scoped
        return _separator(group, last, scoped=scoped) + encoded, group

    def _encode(self, block: Block) -> bytes:
        if isinstance(block, Native):
            return bytes(block.raw)
        self.encoded += 1
        match block:
            case Text():
                return _text(block.text)
            case Result():
                value: dict[str, Any] = {
                    "type": "tool_result",
                    "tool_use_id": block.call_id,
                    "content": block.text,
                }
                if block.media:
                    said = {"type": "text", "text": block.text}
                    value["content"] = [said, *map(_file, block.media)]
                if block.is_error:
                    value["is_error"] = True
                return encoding.encode(value)
            case Use():
                return encoding.encode(
                    {
                        "type": "tool_use",
                        "id": block.call_id,
                        "name": block.name,
                        "input": as_object(block.arguments),
                    }
                )
            case Change():
                return encoding.encode(_change(block))
            case _:
                assert_never(block)


def body(prompt: Prompt, config: Config, *, stream: bool = True) -> bytes:
    """Return the body of one request, from nothing; a `Renderer` gives the same bytes."""
    return Renderer().body(prompt, config, stream=stream)


def betas(prompt: Prompt, block_betas: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the beta flags of a request.

    Args:
        prompt: The request.
        block_betas: Flags sent only where update blocks occur (DeepSeek).
    """
    flags = prompt.context.betas
    if block_betas and prompt.changes:
        flags = (*flags, *(flag for flag in block_betas if flag not in flags))
    return flags


def _settings(config: Config, stream: bool, version: str) -> bytes:
    value: dict[str, Any] = {
        **({"anthropic_version": version} if version else {"model": config.model}),
        "max_tokens": config.max_tokens or DEFAULT_MAX_TOKENS,
        "stream": stream,
    }
    if config.effort is not None:
        value["thinking"] = {"type": "adaptive"}
        value["output_config"] = {"effort": config.effort}
    if config.temperature is not None:
        value["temperature"] = config.temperature
    if config.stop:
        value["stop_sequences"] = config.stop
    return encoding.encode(value)[:-1]


def _mark(context: RequestContext) -> bytes:
    ttl = b',"ttl":"1h"' if context.ttl == "1h" else b""
    return b',"cache_control":{"type":"ephemeral"' + ttl + b"}}"


def _same(piece: bytes) -> bytes:
    return piece


def _with_tail(piece: bytes, text: bytes) -> bytes:
    """Put the turn's instructions in front of a human message, in one user message."""
    opening = b'{"role":"user","content":['
    place = piece.find(opening)
    if 0 <= place <= 4:
        cut = place + len(opening)
        return piece[:cut] + text + b"," + piece[cut:]
    # It continues a user message: results of an interrupted turn, or an earlier try.
    return b"," + text + piece


def _marked(piece: bytes, mark: bytes) -> bytes:
    """Splice a mark into a piece that ends with the block's closing brace."""
    return piece[:-1] + mark


def _text(text: str) -> bytes:
    return encoding.encode({"type": "text", "text": text})


def _file(media: Media) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    return {
        "type": "image" if media.media_type.startswith("image/") else "document",
        "source": source,
    }


def _declaration(tool: ToolSchema) -> bytes:
    value: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": input_schema(tool.parameters),
    }
    if tool.defer_loading:
        value["defer_loading"] = True
    return encoding.encode(value)


_declarations = Declarations(_declaration)

_UNIONS = ("oneOf", "anyOf", "allOf")


def input_schema(parameters: Raw) -> Raw:
    """Return the schema as this wire takes it.

    The provider refuses a schema whose top level is a union or no object. Such a schema goes out
    without the union; the whole one still decides whether a call is valid.
    """
    raw = bytes(parameters)
    if raw.startswith(b'{"type":"object"') and not any(word.encode() in raw for word in _UNIONS):
        return parameters
    decoded = encoding.decode(raw)
    if not isinstance(decoded, dict):
        return Raw(b'{"type":"object"}')
    value = cast("dict[str, Any]", decoded)
    if value.get("type") == "object" and not any(word in value for word in _UNIONS):
        return parameters
    kept = {key: part for key, part in value.items() if key not in _UNIONS}
    return Raw(encoding.encode({**kept, "type": "object"}))


def _change(block: Change) -> dict[str, Any]:
    if not block.added:
        return {
            "type": "tool_removal",
            "tool": {"type": "tool_reference", "name": block.name},
        }
    tool: dict[str, Any] = {"type": "tool_reference", "name": block.name}
    if block.definition is not None:
        tool = {"type": "tool_definition", "definition": Raw(_declaration(block.definition))}
    return {"type": "tool_addition", "tool": tool}


def _group(block: Block) -> Group:
    match block:
        case Text(role="system"):
            return ("system", block.seq, block.purpose)
        case Text():
            return _USER if block.role == "user" else _ASSISTANT
        case Result():
            return _USER
        case Change():
            return ("system", block.seq, "change")
        case Native() | Use():
            return _ASSISTANT


def _separator(group: Group, last: Group | None, *, scoped: bool = False) -> bytes:
    if last == group:
        return b","
    clear = b'"clear_at":"next_user_message",' if scoped else b""
    opening = b'{"role":"' + group[0].encode() + b'",' + clear + b'"content":['
    return opening if last is None else b"]}," + opening
