"""Bedrock Converse: from the prompt to body bytes.

The wire alternates strictly between user and assistant messages, so neighbours of one role share
a message. A mark is no property of a block but a block of its own, `cachePoint`, behind the one
it marks. The model is named in the address and not in the body.

Tools stand at the top level only: the shapes for tool changes are there, but no model took them
(stdapi-ai/stdapi.ai#104, 2026-09-10), so updates reach this wire as announcements.

Shapes: botocore 1.44.8, service model `bedrock-runtime`.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.events import RequestContext
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Key, Native, Prompt, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts
from addendum.wire.arguments import as_object
from addendum.wire.pieces import Declarations, Edit, Pieces

WIRE = "bedrock_converse"

_KINDS = {"reasoningContent": "reasoning", "toolUse": "tool_use", "text": "text"}
_fields = msgspec.json.Decoder(dict[str, Raw])


def kind(raw: Raw) -> str:
    """Return the kind of a content block in the projection's words; its one field tells."""
    name = next(iter(_fields.decode(raw)), "")
    return _KINDS.get(name, name)


FACTS = WireFacts(
    waits=False, string_arguments=False, marks=4, runs=False, needs_tools=True, kind=kind
)


class Renderer:
    """Renders the requests of one session; keeps encoded blocks of the current chain.

    Attributes:
        encoded: Blocks, prompt texts and declarations encoded so far; for tests that count them.
            Items sent back as they came are not.
    """

    def __init__(self) -> None:
        self.encoded = 0
        self._chain = -1
        self._pieces = Pieces()
        self._last = ""
        self._open: dict[Key, bytes] = {}
        self._tools: tuple[tuple[ToolSchema, ...], bytes] | None = None
        self._system: tuple[tuple[Text, ...], list[bytes]] = ((), [])
        self._tail: tuple[Text, bytes] | None = None

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        mark = _mark(prompt.context)
        messages = self._messages(prompt, mark)
        parts = [encoding.encode(_settings(config))[:-1]]
        if len(parts[0]) > 1:
            parts.append(b",")
        tools = self._declare(prompt)
        if tools:
            point = mark if prompt.marks.tools else b""
            parts += [b'"toolConfig":{"tools":[', tools, point, b"]},"]
        if prompt.system:
            parts += [b'"system":[', self._prompt_text(prompt, mark), b"],"]
        parts += [b'"messages":[', *messages]
        parts.append(b"]}]}" if prompt.count or prompt.open or prompt.tail else b"]}")
        return b"".join(parts)

    def _declare(self, prompt: Prompt) -> bytes:
        if self._tools is None or self._tools[0] is not prompt.tools:
            entries, fresh = _declarations(prompt.tools)
            self.encoded += fresh
            self._tools = (prompt.tools, b",".join(entries))
        return self._tools[1]

    def _prompt_text(self, prompt: Prompt, mark: bytes) -> bytes:
        if self._system[0] is not prompt.system:
            self.encoded += len(prompt.system)
            self._system = (prompt.system, [_text(text.text) for text in prompt.system])
        blocks = [*self._system[1]]
        for index in prompt.marks.system:
            blocks[index] += mark
        return b",".join(blocks)

    def _messages(self, prompt: Prompt, mark: bytes) -> list[bytes]:
        if prompt.chain != self._chain or prompt.count < len(self._pieces):
            self._chain, self._last, self._open = prompt.chain, "", {}
            self._pieces = Pieces()
        for index in range(len(self._pieces), prompt.count):
            block = prompt.settled[index]
            self._pieces.append(self._piece(block, self._last, self._open.get(block.key)))
            self._last = _role(block)
        last = self._last
        opened: list[bytes] = []
        fresh: dict[Key, bytes] = {}
        for block in prompt.open:
            fresh[block.key] = known = self._open.get(block.key) or self._encode(block)
            opened.append(self._piece(block, last, known))
            last = _role(block)
        self._open = fresh
        count = prompt.count
        edits: dict[int, Edit] = {}
        for index in prompt.marks.blocks:
            edits[index] = lambda piece: piece + mark
        if prompt.tail is not None:
            if self._tail is None or self._tail[0] != prompt.tail:
                self.encoded += 1
                self._tail = (prompt.tail, _text(prompt.tail.text))
            text = self._tail[1]
            if prompt.tail_at >= count + len(opened):
                opened.append(_separator("user", last) + text)
            else:
                marked = edits.get(prompt.tail_at, _same)
                edits[prompt.tail_at] = lambda piece: _with_tail(marked(piece), text)
        for index in [index for index in edits if index >= count]:
            opened[index - count] = edits.pop(index)(opened[index - count])
        return self._pieces.parts(edits) + opened

    def _piece(self, block: Block, last: str, known: bytes | None) -> bytes:
        encoded = known if known is not None else self._encode(block)
        return _separator(_role(block), last) + encoded

    def _encode(self, block: Block) -> bytes:
        if isinstance(block, Native):
            return bytes(block.raw)
        self.encoded += 1
        match block:
            case Text(role="system"):
                raise UnsupportedContent(
                    "Converse takes no system messages in the history; use tail 'auto'",
                    seq=block.seq,
                )
            case Text():
                return _text(block.text)
            case Result():
                # A blank text is refused.
                said = block.text if block.text.strip() else "(empty)"
                result: dict[str, Any] = {
                    "toolUseId": block.call_id,
                    "content": [
                        {"text": said},
                        *(_file(number, each) for number, each in enumerate(block.media, 1)),
                    ],
                    "status": "error" if block.is_error else "success",
                }
                return encoding.encode({"toolResult": result})
            case Use():
                use = {
                    "toolUseId": block.call_id,
                    "name": block.name,
                    "input": as_object(block.arguments),
                }
                return encoding.encode({"toolUse": use})
            case Change():
                raise UnsupportedContent(
                    "no model takes tool changes through Converse; use tool_changes='dispatch'",
                    seq=block.seq,
                )


def body(prompt: Prompt, config: Config) -> bytes:
    """Return the body of one request, from nothing; a `Renderer` gives the same bytes."""
    return Renderer().body(prompt, config)


def _settings(config: Config) -> dict[str, Any]:
    inference: dict[str, Any] = {}
    if config.max_tokens is not None:
        inference["maxTokens"] = config.max_tokens
    if config.temperature is not None:
        inference["temperature"] = config.temperature
    if config.stop:
        inference["stopSequences"] = config.stop
    value: dict[str, Any] = {"inferenceConfig": inference} if inference else {}
    if config.effort is not None:
        # Passed on to the model as they are; both are Claude's.
        value["additionalModelRequestFields"] = {
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": config.effort},
        }
    return value


def _mark(context: RequestContext) -> bytes:
    ttl = b',"ttl":"1h"' if context.ttl == "1h" else b""
    return b',{"cachePoint":{"type":"default"' + ttl + b"}}"


def _same(piece: bytes) -> bytes:
    return piece


_OPENING = b'{"role":"user","content":['


def _with_tail(piece: bytes, text: bytes) -> bytes:
    """Put the turn's instructions in front of a human message, in one user message."""
    place = piece.find(_OPENING)
    if 0 <= place <= 4:
        cut = place + len(_OPENING)
        return piece[:cut] + text + b"," + piece[cut:]
    # It continues a user message: results of an interrupted turn, or an earlier try.
    return b"," + text + piece


def _text(text: str) -> bytes:
    return encoding.encode({"text": text})


def _file(number: int, media: Media) -> dict[str, Any]:
    kind = media.media_type.partition("/")[2]
    source = {"bytes": media.data}
    if media.media_type.startswith("image/"):
        return {"image": {"format": kind, "source": source}}
    # The model reads the name, so it is ours; it has to differ within a message.
    return {"document": {"format": kind, "name": f"file {number}", "source": source}}


def _declaration(tool: ToolSchema) -> bytes:
    spec: dict[str, Any] = {
        "name": tool.name,
        # At least one character is asked for.
        "description": tool.description or tool.name,
        "inputSchema": {"json": input_schema(tool.parameters)},
    }
    return encoding.encode({"toolSpec": spec})


_declarations = Declarations(_declaration)

_UNIONS = ("oneOf", "anyOf", "allOf")


def input_schema(parameters: Raw) -> Raw:
    """Return the schema as this wire takes it: an object at the top, and no union there.

    The whole schema still decides whether a call is valid.
    """
    decoded = encoding.decode(bytes(parameters))
    if not isinstance(decoded, dict):
        return Raw(b'{"type":"object"}')
    value = cast("dict[str, Any]", decoded)
    if value.get("type") == "object" and not any(word in value for word in _UNIONS):
        return parameters
    kept = {key: part for key, part in value.items() if key not in _UNIONS}
    return Raw(encoding.encode({**kept, "type": "object"}))


def _role(block: Block) -> str:
    match block:
        case Text():
            return "assistant" if block.role == "assistant" else "user"
        case Result() | Change():
            return "user"
        case Native() | Use():
            return "assistant"


def _separator(role: str, last: str) -> bytes:
    if role == last:
        return b","
    opening = b'{"role":"' + role.encode() + b'","content":['
    return b"]}," + opening if last else opening
