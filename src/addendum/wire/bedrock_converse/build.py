"""Bedrock Converse: from the prompt to body bytes.

The wire alternates strictly between user and assistant messages, so neighbours of one role share
a message. A mark is no property of a block but a block of its own, `cachePoint`, behind the one
it marks. The model is named in the address and not in the body.

Tools stand at the top level only: the shapes for tool changes are there, but no model took them
(stdapi-ai/stdapi.ai#104, 2026-09-10), so updates reach this wire as announcements.

Shapes: botocore 1.44.8, service model `bedrock-runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.events import RequestContext
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Native, Prompt, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts
from addendum.routes.schemas import SchemaRules
from addendum.wire.arguments import as_object
from addendum.wire.definitions import NO_RULES, declarations
from addendum.wire.rendered import Group, Rendered, speaker, turn_opening, within
from addendum.wire.schemas import UNIONS

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
    """Renders the requests of one session.

    Args:
        schemas: What the endpoint takes of a tool's definition.
        rendering: Number of the rendering.
    """

    def __init__(self, *, schemas: SchemaRules = NO_RULES, rendering: int = 1) -> None:
        declare = declarations(_declaration, schemas, rendering, UNIONS)
        self._rendered = Rendered(_Blocks(), declare)

    @property
    def encoded(self) -> int:
        """What was encoded so far; see `Rendered`."""
        return self._rendered.encoded

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        mark = _mark(prompt.context)
        parts = [encoding.encode(_settings(config))[:-1]]
        if len(parts[0]) > 1:
            parts.append(b",")
        if prompt.tools:
            front, rest = self._rendered.tools(prompt.tools)
            point = mark if prompt.marks.tools else b""
            parts += [b'"toolConfig":{"tools":[', front, rest, point, b"]},"]
        if prompt.system:
            texts = self._rendered.prompt(prompt.system)
            for index in prompt.marks.system:
                texts[index] += mark
            parts += [b'"system":[', b",".join(texts), b"],"]
        messages, last = self._rendered.messages(prompt, mark)
        parts += [b'"messages":[', *messages, b"]}" if last is None else b"]}]}"]
        return b"".join(parts)


class _Blocks:
    """The dialect: neighbours of one role share a message."""

    def group(self, block: Block) -> str:
        return speaker(block, "assistant")

    def opening(self, block: Block, last: Group | None) -> bytes:
        return turn_opening(speaker(block, "assistant"), last, b"content")

    def encode(self, blocks: Sequence[Block]) -> bytes:
        block = blocks[0]
        match block:
            case Native():
                return bytes(block.raw)
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

    def prompt(self, texts: Sequence[Text]) -> list[bytes]:
        return [_text(text.text) for text in texts]

    def marked(self, piece: bytes, mark: bytes) -> bytes:
        return piece + mark

    def behind(self, tail: bytes, piece: bytes) -> bytes:
        return within(b'{"role":"user","content":[', tail, piece)


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
        "inputSchema": {"json": tool.parameters},
    }
    return encoding.encode({"toolSpec": spec})


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return an answer's content blocks with some calls under another name.

    Text, order, reasoning and every signature stay as they are.

    Args:
        native: The blocks.
        envelopes: Argument text of the renamed calls, by call id.
        name: What they are called.
    """
    return tuple(_renamed(raw, envelopes, name) for raw in native)


def _renamed(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    block = _fields.decode(raw)
    if "toolUse" not in block:
        return raw
    use = _fields.decode(block["toolUse"])
    envelope = envelopes.get(msgspec.json.decode(use["toolUseId"], type=str))
    if envelope is None:
        return raw
    changed = {**use, "name": name, "input": Raw(envelope.encode())}
    return Raw(encoding.encode({**block, "toolUse": changed}))
