"""OpenAI Responses: from the prompt to body bytes, without state at the provider.

The unit here is an item of `input`. The prompt's text is the first developer message, never
`instructions`: newer models put those behind the input. Where changes are told natively the head is
an item too, in front of that message, and `tools` stays empty: a later item can replace what an
earlier one defined, but not what `tools` did.

Items are encoded once; the definitions of one update share an item. Marks are spliced into user
messages and results, the only ones of ours that may carry one.

Shapes: openai-python 3.57.0 types; OpenAI guides "Prompt caching", "Tool search", "Keep the prefix
unchanged" (2026-11).
"""

from __future__ import annotations

from typing import Any, assert_never, cast

from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Key, Native, Prompt, Result, Text, Use
from addendum.prompt.projector import WireFacts
from addendum.wire.openai_responses.items import without_id
from addendum.wire.pieces import Declarations, Edit, Pieces

WIRE = "openai_responses"

FACTS = WireFacts(marks=3, implicit=True)

_ITEM = b'{"type":"additional_tools","role":"developer","tools":['
_MARK = b',"prompt_cache_breakpoint":{"mode":"explicit"}'
_PLAIN = -1
"""What was last: an item that is closed; else the update whose definitions are being listed."""


class Renderer:
    """Renders the requests of one session; keeps encoded items of the current chain.

    Args:
        encrypted_reasoning: Whether reasoning is asked for in a form that can be sent back.
        breakpoints: Whether the endpoint takes `prompt_cache_options`.

    Attributes:
        encoded: Items, prompt texts and declarations encoded so far; for tests that count them.
    """

    def __init__(self, *, encrypted_reasoning: bool = False, breakpoints: bool = False) -> None:
        self.encoded = 0
        self._encrypted_reasoning = encrypted_reasoning
        self._breakpoints = breakpoints
        self._chain = -1
        self._pieces = Pieces()
        self._last: int | None = None
        self._open: dict[Key, bytes] = {}
        self._tools: tuple[tuple[ToolSchema, ...], bytes] = ((), b"")
        self._system: tuple[tuple[Text, ...], list[bytes]] = ((), [])
        self._tail: tuple[Text, bytes] | None = None

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt or the settings hold what this wire cannot say.
        """
        parts = [self._settings(prompt, config)]
        front: list[bytes] = []
        if prompt.tools:
            entries = self._declare(prompt.tools)
            if prompt.context.projection == "addition-only":
                front += [_ITEM + entries + b"]}"]
            else:
                parts += [b',"tools":[', entries, b"]"]
        if prompt.system:
            front.append(self._prompt_text(prompt))
        items = self._items(prompt)
        between = [b","] if front and items else []
        return b"".join([*parts, b',"input":[', b",".join(front), *between, *items, b"]}"])

    def _settings(self, prompt: Prompt, config: Config) -> bytes:
        if config.stop:
            raise UnsupportedContent(
                "the Responses API takes no stop sequences; leave them out or use openai-chat:",
                route=prompt.context.route,
            )
        value: dict[str, Any] = {"model": config.model, "stream": True, "store": False}
        if self._encrypted_reasoning:
            value["include"] = ["reasoning.encrypted_content"]
        if config.max_tokens is not None:
            value["max_output_tokens"] = config.max_tokens
        if config.effort is not None:
            value["reasoning"] = {"effort": config.effort}
        if config.temperature is not None:
            value["temperature"] = config.temperature
        if prompt.context.caching:
            value["prompt_cache_key"] = prompt.cache_key
        elif self._breakpoints:
            # Explicit mode without a mark stores nothing.
            value["prompt_cache_options"] = {"mode": "explicit"}
        return encoding.encode(value)[:-1]

    def _declare(self, tools: tuple[ToolSchema, ...]) -> bytes:
        if self._tools[0] is not tools:
            entries, fresh = _declarations(tools)
            self.encoded += fresh
            self._tools = (tools, b",".join(entries))
        return self._tools[1]

    def _prompt_text(self, prompt: Prompt) -> bytes:
        if self._system[0] is not prompt.system:
            self.encoded += len(prompt.system)
            self._system = (prompt.system, [_part(text.text) for text in prompt.system])
        parts = [*self._system[1]]
        for index in prompt.marks.system:
            parts[index] = parts[index][:-1] + _MARK + b"}"
        opening = b'{"type":"message","role":"developer","content":['
        return opening + b",".join(parts) + b"]}"

    def _items(self, prompt: Prompt) -> list[bytes]:
        if prompt.chain != self._chain or prompt.count < len(self._pieces):
            self._chain, self._last, self._open = prompt.chain, None, {}
            self._pieces = Pieces()
        for index in range(len(self._pieces), prompt.count):
            block = prompt.settled[index]
            known = self._open.get(block.key) if self._open else None
            encoded = known if known is not None else self._encode(block)
            self._pieces.append(_opening(block, self._last) + encoded)
            self._last = _group(block)
        last, count = self._last, prompt.count
        opened: list[bytes] = []
        fresh: dict[Key, bytes] = {}
        for block in prompt.open:
            known = self._open.get(block.key) if self._open else None
            fresh[block.key] = encoded = known if known is not None else self._encode(block)
            opened.append(_opening(block, last) + encoded)
            last = _group(block)
        self._open = fresh
        edits: dict[int, Edit] = dict.fromkeys(prompt.marks.blocks, _marked)
        if prompt.tail is not None:
            if self._tail is None or self._tail[0] != prompt.tail:
                self.encoded += 1
                self._tail = (prompt.tail, _message("user", prompt.tail.text))
            tail = self._tail[1]
            if prompt.tail_at >= count + len(opened):
                opened.append(_closing(last) + tail)
                last = _PLAIN
            else:
                edit = edits.get(prompt.tail_at, _same)
                edits[prompt.tail_at] = lambda piece: _behind(tail, edit(piece))
        for index in [index for index in edits if index >= count]:
            opened[index - count] = edits.pop(index)(opened[index - count])
        end = [] if last is None or last == _PLAIN else [b"]}"]
        return [*self._pieces.parts(edits), *opened, *end]

    def _encode(self, block: Block) -> bytes:
        self.encoded += 1
        match block:
            case Text(role="assistant"):
                return encoding.encode(
                    {"type": "message", "role": "assistant", "content": block.text}
                )
            case Text():
                return _message("developer" if block.role == "system" else "user", block.text)
            case Result():
                # A mark may have to stand on it.
                said = block.text if block.text.strip() else "(empty)"
                return encoding.encode(
                    {
                        "type": "function_call_output",
                        "call_id": block.call_id,
                        "output": [Raw(_part(said)), *map(_file, block.media)],
                    }
                )
            case Use():
                return encoding.encode(
                    {
                        "type": "function_call",
                        "call_id": block.call_id,
                        "name": block.name,
                        "arguments": block.arguments,
                    }
                )
            case Native():
                return bytes(without_id(block.raw) if block.unpaired else block.raw)
            case Change(definition=definition):
                if definition is None:
                    raise UnsupportedContent(
                        "the Responses API has no item that takes a tool away or names it only; "
                        "use tool_changes='auto'",
                        seq=block.seq,
                    )
                return _declaration(definition)
            case _:
                assert_never(block)


def body(
    prompt: Prompt,
    config: Config,
    *,
    encrypted_reasoning: bool = False,
    breakpoints: bool = False,
) -> bytes:
    """Return the body of one request, from nothing; a `Renderer` gives the same bytes."""
    renderer = Renderer(encrypted_reasoning=encrypted_reasoning, breakpoints=breakpoints)
    return renderer.body(prompt, config)


def _group(block: Block) -> int:
    return block.seq if isinstance(block, Change) else _PLAIN


def _closing(last: int | None) -> bytes:
    """Return what stands between what was last and a new item."""
    if last is None:
        return b""
    return b"," if last == _PLAIN else b"]},"


def _opening(block: Block, last: int | None) -> bytes:
    group = _group(block)
    if group == _PLAIN:
        return _closing(last)
    return b"," if group == last else _closing(last) + _ITEM


def _marked(piece: bytes) -> bytes:
    """Splice a mark into the last part of an item of ours, which ends with `"}]}`."""
    return piece[:-3] + _MARK + piece[-3:]


def _same(piece: bytes) -> bytes:
    return piece


def _behind(tail: bytes, piece: bytes) -> bytes:
    """Put the turn's instructions in front of a human message, behind what closes the one before.

    That is at most three bytes, and has no opening brace.
    """
    at = piece.index(b"{")
    return piece[:at] + tail + b"," + piece[at:]


def _part(text: str) -> bytes:
    return encoding.encode({"type": "input_text", "text": text})


def _file(media: Media) -> dict[str, Any]:
    # What is last ends with its longest field: a mark is spliced in behind it.
    url = f"data:{media.media_type};base64,{media.data}"
    if media.media_type.startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": url}
    return {"type": "input_file", "filename": "document.pdf", "file_data": url}


def _message(role: str, text: str) -> bytes:
    return encoding.encode({"type": "message", "role": role, "content": [Raw(_part(text))]})


def _declaration(tool: ToolSchema) -> bytes:
    return encoding.encode(
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": parameters(tool.parameters),
            # Absent means true on this wire, and few schemas are written for that.
            "strict": False,
        }
    )


_declarations = Declarations(_declaration)

_REFUSED = ("oneOf", "anyOf", "allOf", "enum", "not")


def parameters(schema: Raw) -> Raw:
    """Return the schema as this wire takes it.

    The provider refuses a schema whose top level is no object or holds a union, an enumeration or
    a negation. Such a schema goes out without it; the whole one still decides whether a call is
    valid.
    """
    raw = bytes(schema)
    if raw.startswith(b'{"type":"object"') and not any(word.encode() in raw for word in _REFUSED):
        return schema
    decoded = encoding.decode(raw)
    if not isinstance(decoded, dict):
        return Raw(b'{"type":"object"}')
    value = cast("dict[str, Any]", decoded)
    if value.get("type") == "object" and not any(word in value for word in _REFUSED):
        return schema
    kept = {name: part for name, part in value.items() if name not in _REFUSED}
    return Raw(encoding.encode({**kept, "type": "object"}))
