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

from typing import Any

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Block, Change, Key, Native, Prompt, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts
from addendum.wire.arguments import as_object
from addendum.wire.pieces import Declarations, Edit, Pieces

WIRE = "gemini"

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
    """Renders the requests of one session; keeps encoded parts of the current chain.

    Args:
        stand_in: What stands for the signature of a call that another route made; empty where
            the model asks for none.

    Attributes:
        encoded: Blocks, prompt texts and declarations encoded so far; for tests that count them.
            Items sent back as they came are not.
    """

    def __init__(self, *, stand_in: str = "") -> None:
        self.encoded = 0
        self._stand_in = stand_in
        self._signature = b',"thoughtSignature":' + encoding.encode(stand_in) + b"}"
        self._chain = -1
        self._pieces = Pieces()
        self._last = ""
        self._names: dict[str, str] = {}
        self._open: dict[Key, bytes] = {}
        self._tools: tuple[tuple[ToolSchema, ...], bytes] | None = None
        self._system: tuple[tuple[Text, ...], bytes] = ((), b"")
        self._tail: tuple[Text, bytes] | None = None

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        parts = [encoding.encode(_settings(config))[:-1]]
        if len(parts[0]) > 1:
            parts.append(b",")
        if prompt.tools:
            if self._tools is None or self._tools[0] is not prompt.tools:
                entries, fresh = _declarations(prompt.tools)
                self.encoded += fresh
                self._tools = (prompt.tools, b",".join(entries))
            parts += [b'"tools":[{"functionDeclarations":[', self._tools[1], b"]}],"]
        if prompt.system:
            if self._system[0] is not prompt.system:
                self.encoded += len(prompt.system)
                texts = b",".join(_text(text.text) for text in prompt.system)
                self._system = (prompt.system, texts)
            parts += [b'"systemInstruction":{"parts":[', self._system[1], b"]},"]
        parts += [b'"contents":[', *self._contents(prompt)]
        parts.append(b"]}]}" if prompt.count or prompt.open or prompt.tail else b"]}")
        return b"".join(parts)

    def _contents(self, prompt: Prompt) -> list[bytes]:
        if prompt.chain != self._chain or prompt.count < len(self._pieces):
            self._chain, self._last, self._open, self._names = prompt.chain, "", {}, {}
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
        edits: dict[int, Edit] = {}
        if prompt.tail is not None:
            if self._tail is None or self._tail[0] != prompt.tail:
                self.encoded += 1
                self._tail = (prompt.tail, _text(prompt.tail.text))
            text = self._tail[1]
            at = prompt.tail_at - prompt.count
            if at >= len(opened):
                opened.append(_separator("user", last) + text)
            elif at >= 0:
                opened[at] = _with_tail(opened[at], text)
            else:
                edits[prompt.tail_at] = lambda piece: _with_tail(piece, text)
        return self._pieces.parts(edits) + opened

    def _piece(self, block: Block, last: str, known: bytes | None) -> bytes:
        if isinstance(block, Use):
            self._names[block.call_id] = block.name
        elif isinstance(block, Native) and block.kind == "tool_use":
            made = _part.decode(block.raw).functionCall or _Made()
            self._names[made.id] = made.name
        encoded = known if known is not None else self._encode(block)
        return _separator(_role(block), last) + encoded

    def _encode(self, block: Block) -> bytes:
        if isinstance(block, Native):
            if self._stand_in and block.reasons and block.unpaired and block.kind == "tool_use":
                # It was signed, so it is the first of its step.
                return bytes(block.raw)[:-1] + self._signature
            return bytes(block.raw)
        self.encoded += 1
        match block:
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
                    # The name that the call has on this wire, so that the two belong together.
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


_OPENING = b'{"role":"user","parts":['


def _with_tail(piece: bytes, text: bytes) -> bytes:
    """Put the turn's instructions in front of a human message, in one content."""
    place = piece.find(_OPENING)
    if 0 <= place <= 4:
        cut = place + len(_OPENING)
        return piece[:cut] + text + b"," + piece[cut:]
    # It continues a content: results of an interrupted turn, or an earlier try.
    return b"," + text + piece


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


_declarations = Declarations(_declaration)


def _role(block: Block) -> str:
    match block:
        case Text():
            return "model" if block.role == "assistant" else "user"
        case Result() | Change():
            return "user"
        case Native() | Use():
            return "model"


def _separator(role: str, last: str) -> bytes:
    if role == last:
        return b","
    opening = b'{"role":"' + role.encode() + b'","parts":['
    return b"]}," + opening if last else opening
