"""Anthropic Messages: from the prompt to body bytes.

Shapes: Claude docs "Mid-conversation system messages and tool changes", "Prompt caching"
(2026-09-26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.log.events import RequestContext
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Native, Prompt, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts
from addendum.routes.schemas import SchemaRules
from addendum.wire.arguments import as_object
from addendum.wire.definitions import NO_RULES, declarations
from addendum.wire.pieces import Declarations
from addendum.wire.rendered import Group, Rendered, spliced, within
from addendum.wire.schemas import UNIONS

FLAG_HEADER = "anthropic-beta"

UNKNOWABLE = {
    "add": (b'"type":"tool_addition"', b'"type":"%s"'),
    "remove": (b'"type":"tool_removal"', b'"type":"%s"'),
    "defer": (b'"defer_loading":', b'"%s":'),
}

_UNMARKED = ("thinking", "redacted_thinking", "reasoning", "server_", "code_execution_", "web_")


def takes_mark(kind: str, raw: Raw) -> bool:
    """Say whether a mark may stand on a block of an answer.

    Not on reasoning or an empty text, nor on what the provider's own tools called or gave
    (langchain-ai/langchain#34542).
    """
    if kind == "text":
        return b'"text":""' not in bytes(raw)
    return not kind.startswith(_UNMARKED) and b'"caller":{"type":"code' not in bytes(raw)


FACTS = WireFacts(
    waits=False, string_arguments=False, marks=4, images_count=True, takes_mark=takes_mark
)

DEFAULT_MAX_TOKENS = 8_192

_fields = msgspec.json.Decoder(dict[str, Raw])

_Group = tuple[str, int, str]
"""What keeps blocks in one message: the role, and for system messages what they come from."""

_USER: _Group = ("user", 0, "")
_ASSISTANT: _Group = ("assistant", 0, "")


class Renderer:
    """Renders the requests of one session.

    Args:
        version: Version that the body names, where the address names the model; else empty.
        schemas: What the endpoint takes of a tool's definition.
        rendering: Number of the rendering.
    """

    def __init__(
        self,
        *,
        version: str = "",
        schemas: SchemaRules = NO_RULES,
        rendering: int = 1,
    ) -> None:
        self._version = version
        declare = declarations(_declaration, schemas, rendering, UNIONS)
        self._rendered = Rendered(_Blocks(declare), declare)

    @property
    def encoded(self) -> int:
        """What was encoded so far; see `Rendered`."""
        return self._rendered.encoded

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
        parts = [_settings(config, stream, self._version)]
        if prompt.tools:
            front, rest = self._rendered.tools(prompt.tools)
            if prompt.marks.tools and front:
                front = spliced(front, mark)
            parts += [b',"tools":[', front, rest, b"]"]
        if prompt.system:
            texts = self._rendered.prompt(prompt.system)
            for index in prompt.marks.system:
                texts[index] = spliced(texts[index], mark)
            parts += [b',"system":[', b",".join(texts), b"]"]
        messages, last = self._rendered.messages(prompt, mark)
        parts += [b',"messages":[', *messages, b"]}" if last is None else b"]}]}"]
        return b"".join(parts)


class _Blocks:
    """The dialect: blocks of one role share a message; a system message is one update or text.

    Args:
        declare: Encodes definitions.
    """

    def __init__(self, declare: Declarations) -> None:
        self._declare = declare

    def group(self, block: Block) -> _Group:
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

    def opening(self, block: Block, last: Group | None) -> bytes:
        group = self.group(block)
        if last == group:
            return b","
        scoped = isinstance(block, Text) and block.scoped
        clear = b'"clear_at":"next_user_message",' if scoped else b""
        opening = b'{"role":"' + group[0].encode() + b'",' + clear + b'"content":['
        return opening if last is None else b"]}," + opening

    def encode(self, blocks: Sequence[Block]) -> bytes:
        block = blocks[0]
        match block:
            case Native():
                return bytes(block.raw)
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
                return encoding.encode(_change(block, self._declare))

    def prompt(self, texts: Sequence[Text]) -> list[bytes]:
        return [_text(text.text) for text in texts]

    def marked(self, piece: bytes, mark: bytes) -> bytes:
        return spliced(piece, mark)

    def behind(self, tail: bytes, piece: bytes) -> bytes:
        return within(b'{"role":"user","content":[', tail, piece)


def body(prompt: Prompt, config: Config, *, stream: bool = True) -> bytes:
    """Return the body of one request, from nothing; a `Renderer` gives the same bytes."""
    return Renderer().body(prompt, config, stream=stream)


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
    return b',"cache_control":{"type":"ephemeral"' + ttl + b"}"


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
        "input_schema": tool.parameters,
    }
    if tool.defer_loading:
        value["defer_loading"] = True
    return encoding.encode(value)


def _change(block: Change, declare: Declarations) -> dict[str, Any]:
    if not block.added:
        return {
            "type": "tool_removal",
            "tool": {"type": "tool_reference", "name": block.name},
        }
    tool: dict[str, Any] = {"type": "tool_reference", "name": block.name}
    if block.definition is not None:
        tool = {"type": "tool_definition", "definition": Raw(declare.one(block.definition))}
    return {"type": "tool_addition", "tool": tool}


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
    if bytes(block.get("type", b"")) != b'"tool_use"':
        return raw
    envelope = envelopes.get(msgspec.json.decode(block["id"], type=str))
    if envelope is None:
        return raw
    changed: dict[str, Any] = {**block, "name": name, "input": Raw(envelope.encode())}
    return Raw(encoding.encode(changed))
