"""Gemini `generateContent`: from the prompt to body bytes.

Contents alternate between `user` and `model`, so neighbours of one role share a content. Tools
stand at the top level only, so updates reach this wire as announcements; they wait for the next
user message, since results of calls stand in a content of their own. The dispatcher takes its
arguments as JSON text: an object without properties is refused. The model is named in the address.

Thought signatures stand on the parts that they came with and go back with them. A model that asks
for them refuses a first call of a step without one; where a call was made elsewhere, the documented
stand-in takes its place, on the first call of its step and nowhere else.

Shapes: google-genai 3.6.1 types; ai.google.dev, "Thought signatures", "Function calling" (2026-10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Block, Change, Native, Prompt, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts
from addendum.routes.schemas import SchemaRules
from addendum.wire.arguments import as_object
from addendum.wire.definitions import NO_RULES, declarations
from addendum.wire.rendered import Group, Rendered, speaker, spliced, turn_opening, within

_fields = msgspec.json.Decoder(dict[str, Raw])


class _Made(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Part(msgspec.Struct):
    functionCall: _Made | None = None
    text: str | None = None
    thought: bool = False


_part = msgspec.json.Decoder(_Part)


def kind(raw: Raw) -> str:
    """Return the kind of a part in the projection's words."""
    part = _part.decode(raw)
    if part.thought:
        return "reasoning"
    if part.functionCall is not None:
        return "tool_use"
    return "text" if part.text is not None else next(iter(_fields.decode(raw)), "")


def unsigned(raw: Raw) -> Raw:
    """Return a part without its signature: nothing if that is all, itself if it has none."""
    if b'"thoughtSignature"' not in bytes(raw):
        return raw
    fields = _fields.decode(raw)
    kept = {name: value for name, value in fields.items() if name != "thoughtSignature"}
    if kept.keys() == {"text"} and bytes(kept["text"]) == b'""':
        return Raw(b"")
    return raw if len(kept) == len(fields) else Raw(encoding.encode(kept))


FACTS = WireFacts(waits=True, string_arguments=True, marks=0, kind=kind, bare=unsigned)


class Renderer:
    """Renders the requests of one session.

    Args:
        stand_in: What stands for the signature of a call that another route made; empty where
            the model asks for none.
        schemas: What the endpoint takes of a tool's definition.
        rendering: Number of the rendering.
    """

    def __init__(
        self, *, stand_in: str = "", schemas: SchemaRules = NO_RULES, rendering: int = 1
    ) -> None:
        declare = declarations(_declaration, schemas, rendering, None)
        self._rendered = Rendered(_Parts(stand_in), declare)

    @property
    def encoded(self) -> int:
        """What was encoded so far; see `Rendered`."""
        return self._rendered.encoded

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        parts = [encoding.encode(_settings(config))[:-1]]
        if len(parts[0]) > 1:
            parts.append(b",")
        if prompt.tools:
            front, rest = self._rendered.tools(prompt.tools)
            parts += [b'"tools":[{"functionDeclarations":[', front, rest, b"]}],"]
        if prompt.system:
            texts = self._rendered.prompt(prompt.system)
            parts += [b'"systemInstruction":{"parts":[', b",".join(texts), b"]},"]
        contents, last = self._rendered.messages(prompt)
        parts += [b'"contents":[', *contents, b"]}" if last is None else b"]}]}"]
        return b"".join(parts)


class _Parts:
    """The dialect: neighbours of one role share a content.

    It remembers the names that calls have on this wire, so that a result has its call's.

    Args:
        stand_in: As for `Renderer`.
    """

    def __init__(self, stand_in: str) -> None:
        self._stand_in = stand_in
        self._signature = b',"thoughtSignature":' + encoding.encode(stand_in)
        self._names: dict[str, str] = {}

    def group(self, block: Block) -> str:
        return speaker(block, "model")

    def opening(self, block: Block, last: Group | None) -> bytes:
        return turn_opening(speaker(block, "model"), last, b"parts")

    def encode(self, blocks: Sequence[Block]) -> bytes:
        block = blocks[0]
        match block:
            case Native():
                return self._native(block)
            case Text(role="system"):
                raise UnsupportedContent(
                    "Gemini takes no system messages in the history; use tail 'auto'",
                    seq=block.seq,
                )
            case Text():
                return _text(block.text)
            case Result():
                response: dict[str, Any] = {
                    "id": block.call_id,
                    "name": self._names.get(block.call_id, block.name),
                    "response": {"error" if block.is_error else "output": block.text},
                }
                if block.media:
                    response["parts"] = [
                        {"inlineData": {"mimeType": each.media_type, "data": each.data}}
                        for each in block.media
                    ]
                return encoding.encode({"functionResponse": response})
            case Use():
                self._names[block.call_id] = block.name
                call = {
                    "id": block.call_id,
                    "name": block.name,
                    "args": as_object(block.arguments),
                }
                value: dict[str, Any] = {"functionCall": call}
                if self._stand_in and block.part == 1:
                    value["thoughtSignature"] = self._stand_in
                return encoding.encode(value)
            case Change():
                raise UnsupportedContent(
                    "generateContent has no part for tool changes; use tool_changes='dispatch'",
                    seq=block.seq,
                )

    def _native(self, block: Native) -> bytes:
        if block.kind != "tool_use":
            return bytes(block.raw)
        made = _part.decode(block.raw).functionCall or _Made()
        self._names[made.id] = made.name
        if self._stand_in and block.reasons and block.unpaired:
            # It was signed, so it is the first of its step.
            return spliced(bytes(block.raw), self._signature)
        return bytes(block.raw)

    def prompt(self, texts: Sequence[Text]) -> list[bytes]:
        return [_text(text.text) for text in texts]

    def marked(self, piece: bytes, mark: bytes) -> bytes:
        return piece

    def behind(self, tail: bytes, piece: bytes) -> bytes:
        return within(b'{"role":"user","parts":[', tail, piece)


def body(prompt: Prompt, config: Config, *, stand_in: str = "") -> bytes:
    """Return the body of one request, from nothing; a `Renderer` gives the same bytes."""
    return Renderer(stand_in=stand_in).body(prompt, config)


def _settings(config: Config) -> dict[str, Any]:
    value: dict[str, Any] = {}
    if config.max_tokens is not None:
        value["maxOutputTokens"] = config.max_tokens
    if config.temperature is not None:
        value["temperature"] = config.temperature
    if config.stop:
        value["stopSequences"] = config.stop
    if config.effort is not None:
        value["thinkingConfig"] = {"thinkingLevel": config.effort}
    return {"generationConfig": value} if value else {}


def _text(text: str) -> bytes:
    return encoding.encode({"text": text})


def _declaration(tool: ToolSchema) -> bytes:
    value: dict[str, Any] = {"name": tool.name, "description": tool.description or tool.name}
    schema = encoding.decode(bytes(tool.parameters))
    # A function without parameters has no schema; an object without properties is refused.
    if isinstance(schema, dict) and schema.keys() - {"type", "additionalProperties", "$schema"}:
        if schema.get("properties") != {}:  # pyright: ignore[reportUnknownMemberType]
            value["parametersJsonSchema"] = tool.parameters
    return encoding.encode(value)


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return an answer's parts with some calls under another name.

    Text, order and every signature stay as they are, that of a renamed call too.

    Args:
        native: The parts.
        envelopes: Argument text of the renamed calls, by call id.
        name: What they are called.
    """
    return tuple(_renamed(raw, envelopes, name) for raw in native)


def _renamed(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    part = _fields.decode(raw)
    if "functionCall" not in part:
        return raw
    call = _fields.decode(part["functionCall"])
    envelope = envelopes.get(msgspec.json.decode(call["id"], type=str))
    if envelope is None:
        return raw
    changed = {**call, "name": name, "args": Raw(envelope.encode())}
    return Raw(encoding.encode({**part, "functionCall": changed}))
