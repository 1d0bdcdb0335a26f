"""OpenAI Responses: from the prompt to body bytes, without state at the provider.

The unit here is an item of `input`. The prompt's text is the first developer message, never
`instructions`: newer models put those behind the input. Where changes are told natively the head is
an item too, in front of that message, and `tools` stays empty: a later item can replace what an
earlier one defined, but not what `tools` did.

Marks are spliced into user messages and results, the only items of ours that may carry one.

Shapes: openai-python 3.57.0 types; OpenAI guides "Prompt caching", "Tool search", "Keep the prefix
unchanged" (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Native, Prompt, Result, Text, Use
from addendum.prompt.wire_facts import WireFacts
from addendum.routes.schemas import SchemaRules
from addendum.wire.definitions import NO_RULES, declarations
from addendum.wire.openai_responses.items import without_id, without_reasoning
from addendum.wire.pieces import Declarations
from addendum.wire.rendered import Group, Rendered, spliced
from addendum.wire.schemas import CHOICES

UNKNOWABLE = {"add": (b'"type":"additional_tools"', b'"type":"%s"')}

FACTS = WireFacts(marks=3, implicit=True, keyed=True)

_fields = msgspec.json.Decoder(dict[str, Raw])

_ITEM = b'{"type":"additional_tools","role":"developer","tools":['
_MARK = b',"prompt_cache_breakpoint":{"mode":"explicit"}'
_PLAIN = -1
"""Group of an item that is closed; the definitions of one update share the update's seq."""


class Renderer:
    """Renders the requests of one session.

    Args:
        encrypted_reasoning: Whether reasoning is asked for in a form that can be sent back.
        breakpoints: Whether the endpoint takes `prompt_cache_options`.
        schemas: What the endpoint takes of a tool's definition.
        rendering: Number of the rendering.
    """

    def __init__(
        self,
        *,
        encrypted_reasoning: bool = False,
        breakpoints: bool = False,
        schemas: SchemaRules = NO_RULES,
        rendering: int = 1,
    ) -> None:
        self._encrypted_reasoning = encrypted_reasoning
        self._breakpoints = breakpoints
        declare = declarations(_declaration, schemas, rendering, CHOICES)
        self._rendered = Rendered(_Items(declare), declare)

    @property
    def encoded(self) -> int:
        """What was encoded so far; see `Rendered`."""
        return self._rendered.encoded

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt or the settings hold what this wire cannot say.
        """
        parts = [self._settings(prompt, config)]
        front: list[bytes] = []
        if prompt.tools:
            entries = b"".join(self._rendered.tools(prompt.tools))
            if prompt.context.projection == "addition-only":
                front += [_ITEM + entries + b"]}"]
            else:
                parts += [b',"tools":[', entries, b"]"]
        if prompt.system:
            texts = self._rendered.prompt(prompt.system)
            for index in prompt.marks.system:
                texts[index] = spliced(texts[index], _MARK)
            opening = b'{"type":"message","role":"developer","content":['
            front.append(opening + b",".join(texts) + b"]}")
        items, last = self._rendered.messages(prompt, _MARK)
        if last not in (None, _PLAIN):
            items.append(b"]}")
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


class _Items:
    """The dialect: each block is an item, and the definitions of one update share one.

    Args:
        declare: Encodes definitions.
    """

    def __init__(self, declare: Declarations) -> None:
        self._declare = declare

    def group(self, block: Block) -> int:
        return block.seq if isinstance(block, Change) else _PLAIN

    def opening(self, block: Block, last: Group | None) -> bytes:
        group = self.group(block)
        if group != _PLAIN and group == last:
            return b","
        closing = b"" if last is None else b"," if last == _PLAIN else b"]},"
        return closing if group == _PLAIN else closing + _ITEM

    def encode(self, blocks: Sequence[Block]) -> bytes:
        block = blocks[0]
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
                return self._declare.one(definition)
            case _:
                assert_never(block)

    def prompt(self, texts: Sequence[Text]) -> list[bytes]:
        return [_part(text.text) for text in texts]

    def marked(self, piece: bytes, mark: bytes) -> bytes:
        # On the last part of an item of ours.
        return spliced(piece, mark, closing=3)

    def behind(self, tail: bytes, piece: bytes) -> bytes:
        # What closes the item before is at most three bytes, and has no opening brace.
        at = piece.index(b"{")
        return piece[:at] + tail + b"," + piece[at:]


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
            "parameters": tool.parameters,
            # Absent means true on this wire, and few schemas are written for that.
            "strict": False,
        }
    )


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return an answer's output items with some calls under another name.

    A call that says something else is not the item its reasoning led to, so it loses its id; and
    with it go the reasoning of the answer and the ids that depend on that.

    Args:
        native: The items.
        envelopes: Argument text of the renamed calls, by call id.
        name: What they are called.
    """
    return tuple(_renamed(raw, envelopes, name) for raw in without_reasoning(native))


def _renamed(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    item = _fields.decode(raw)
    if bytes(item.get("type", b"")) != b'"function_call"':
        return raw
    envelope = envelopes.get(msgspec.json.decode(item["call_id"], type=str))
    if envelope is None:
        return raw
    changed: dict[str, Any] = {**item, "name": name, "arguments": envelope}
    return Raw(encoding.encode(changed))
