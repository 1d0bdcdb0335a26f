"""Chat Completions: from the prompt to body bytes.

The unit here is a message. Tools stand at the top level; where a provider takes tools inside the
history, in system messages that hold `tools` and no `content` (Kimi). Everywhere else updates
reach this wire as announcements.

Marks are OpenRouter's `cache_control`, on entries of `tools` and on text parts of what goes in.
Where they are taken all such text is sent in parts, so that a mark changes nothing but itself.

Shapes: openai-python 3.57.0 and openrouter 0.11.46 types (2026-11); platform.kimi.ai.
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
from addendum.wire.definitions import NO_RULES, declarations
from addendum.wire.openai_chat.reasoning import without_reasoning
from addendum.wire.openai_chat.shapes import shaped
from addendum.wire.pieces import Declarations
from addendum.wire.rendered import Group, Rendered, spliced
from addendum.wire.schemas import CHOICES

_TEXT = len(b'{"type":"text","text":')
_fields = msgspec.json.Decoder(dict[str, Raw])


def kind(raw: Raw) -> str:
    """Return the kind of a native item: none here, each is a whole message."""
    return ""


UNKNOWABLE = {"add": (b'{"role":"system","tools":', b'{"role":"system","%s":')}

FACTS = WireFacts(
    waits=True,
    string_arguments=False,
    marks=4,
    runs=False,
    input_marks=True,
    bare=without_reasoning,
    kind=kind,
    media_apart=True,
    shaped=shaped,
)


class Renderer:
    """Renders the requests of one session.

    Args:
        cache_key: Field for the prompt's cache key; empty where none is taken.
        max_tokens_field: Field for the output limit.
        parts: Whether marks are taken, and text goes out in parts.
        reasoning_stand_in: What stands in `reasoning_content` of answers with calls that have none.
        schemas: What the endpoint takes of a tool's definition.
        rendering: Number of the rendering.
        avoids: Shapes of a history that are avoided.
    """

    def __init__(
        self,
        *,
        cache_key: str = "",
        max_tokens_field: str = "max_tokens",
        parts: bool = False,
        reasoning_stand_in: str = "",
        schemas: SchemaRules = NO_RULES,
        rendering: int = 1,
        avoids: Sequence[str] = (),
    ) -> None:
        self._cache_key = cache_key
        self._max_tokens_field = max_tokens_field
        self._parts = parts
        declare = declarations(_declaration, schemas, rendering, CHOICES)
        self._joined = not parts and "text-parts" in avoids
        self._asks_usage = "usage-option" not in avoids
        messages = _Messages(
            parts,
            reasoning_stand_in,
            declare,
            named="nameless-result" in avoids,
            no_text="" if "null-content" in avoids else None,
        )
        apart = "user-after-user" not in avoids
        self._rendered = Rendered(messages, declare, _together if apart else _merged)

    @property
    def encoded(self) -> int:
        """What was encoded so far; see `Rendered`."""
        return self._rendered.encoded

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        keyed = self._cache_key and prompt.context.caching
        key = {self._cache_key: prompt.cache_key} if keyed else {}
        parts = [_settings(config, key, self._max_tokens_field, self._asks_usage)]
        mark = _mark(prompt.context)
        if prompt.tools:
            front, rest = self._rendered.tools(prompt.tools)
            if prompt.marks.tools:
                front = spliced(front, mark)
            parts += [b',"tools":[', front, rest, b"]"]
        system = self._prompt_text(prompt, mark)
        messages, _ = self._rendered.messages(prompt, mark)
        between = [b","] if system and messages else []
        return b"".join([*parts, b',"messages":[', system, *between, *messages, b"]}"])

    def _prompt_text(self, prompt: Prompt, mark: bytes) -> bytes:
        """Return the system message; nothing without a prompt."""
        texts = self._rendered.prompt(prompt.system)
        if not texts:
            return b""
        if self._joined:
            whole = "\n\n".join(text.text for text in prompt.system)
            return encoding.encode({"role": "system", "content": whole})
        if len(texts) == 1 and not self._parts:
            return b'{"role":"system","content":' + texts[0][_TEXT:-1] + b"}"
        for index in prompt.marks.system:
            texts[index] = spliced(texts[index], mark)
        return b'{"role":"system","content":[' + b",".join(texts) + b"]}"


class _Messages:
    """The dialect of one route: each message is a piece, of text and calls together.

    Args:
        parts: Whether the text of what goes in is sent in parts, which marks can stand on.
        reasoning_stand_in: What stands in `reasoning_content` of answers with calls that have none.
        declare: Encodes definitions.
        named: Whether results name their tools.
        no_text: The content of an answer that has calls alone.
    """

    def __init__(
        self,
        parts: bool,
        reasoning_stand_in: str,
        declare: Declarations,
        *,
        named: bool,
        no_text: str | None,
    ) -> None:
        self._named = named
        self._no_text = no_text
        self._names: dict[str, str] = {}
        self._declare = declare
        self._parts = parts
        self._stand_in = reasoning_stand_in

    def group(self, block: Block) -> str:
        return "message"

    def opening(self, block: Block, last: Group | None) -> bytes:
        return b"" if last is None else b","

    def _content(self, *blocks: Text | Result) -> Any:
        media = [each for block in blocks if isinstance(block, Text) for each in block.media]
        if not (self._parts or media):
            return "\n\n".join(block.text for block in blocks)
        parts: list[dict[str, Any]] = []
        for block in blocks:
            # Anthropic behind a gateway refuses what has no text, and a mark may have to stand on
            # it.
            text = block.text if media or block.text.strip() else "(empty)"
            parts.append({"type": "text", "text": text})
            parts += map(_file, block.media if isinstance(block, Text) else ())
        return parts

    def prompt(self, texts: Sequence[Text]) -> list[bytes]:
        return [encoding.encode({"type": "text", "text": text.text}) for text in texts]

    def marked(self, piece: bytes, mark: bytes) -> bytes:
        # On the last part of a message.
        return spliced(piece, mark, closing=3)

    def behind(self, tail: bytes, piece: bytes) -> bytes:
        return b"," + tail + piece if piece[:1] == b"," else tail + b"," + piece

    def encode(self, blocks: Sequence[Block]) -> bytes:
        first = blocks[0]
        match first:
            case Text(role="assistant") | Use():
                return self._answer(blocks)
            case Text():
                texts = [block for block in blocks if isinstance(block, Text)]
                return encoding.encode({"role": first.role, "content": self._content(*texts)})
            case Result():
                name = {"name": self._names.get(first.call_id, first.name)} if self._named else {}
                return encoding.encode(
                    {
                        "role": "tool",
                        "tool_call_id": first.call_id,
                        **name,
                        "content": self._content(first),
                    }
                )
            case Native():
                raw = bytes(first.raw)
                if self._named and b'"tool_calls":' in raw:
                    self._names |= _called(first.raw)
                if (
                    self._stand_in
                    and b'"tool_calls":' in raw
                    and b'"reasoning_content":' not in raw
                ):
                    stand_in = encoding.encode(self._stand_in)
                    return raw[:-1] + b',"reasoning_content":' + stand_in + b"}"
                return raw
            case Change():
                changes = [each for each in blocks if isinstance(each, Change)]
                tools = [self._declare.one(_defined(each)) for each in changes]
                return b'{"role":"system","tools":[' + b",".join(tools) + b"]}"

    def _answer(self, blocks: Sequence[Block]) -> bytes:
        text = "".join(block.text for block in blocks if isinstance(block, Text))
        calls = [
            {
                "id": block.call_id,
                "type": "function",
                "function": {"name": block.name, "arguments": block.arguments},
            }
            for block in blocks
            if isinstance(block, Use)
        ]
        self._names |= {block.call_id: block.name for block in blocks if isinstance(block, Use)}
        value: dict[str, Any] = {"role": "assistant", "content": text or self._no_text}
        if calls and self._stand_in:
            value["reasoning_content"] = self._stand_in
        if calls:
            value["tool_calls"] = calls
        return encoding.encode(value)


def _together(block: Block, other: Block) -> bool:
    """Say whether two blocks that follow each other make one message.

    Those are text and calls of one answer, or additions of one update.
    """
    if isinstance(block, Change):
        return isinstance(other, Change)
    return _neutral(block) and _neutral(other) and block.seq == other.seq


def _merged(block: Block, other: Block) -> bool:
    """As `_together`, where neighbours of the user's role make one message as well."""
    if isinstance(block, Text) and isinstance(other, Text) and block.role == other.role == "user":
        return True
    return _together(block, other)


def _neutral(block: Block) -> bool:
    return isinstance(block, Use) or (isinstance(block, Text) and block.role == "assistant")


def _settings(
    config: Config, cache_key: dict[str, str], max_tokens_field: str, asks_usage: bool
) -> bytes:
    value: dict[str, Any] = {"model": config.model, "stream": True}
    if asks_usage:
        value["stream_options"] = {"include_usage": True}
    if config.max_tokens is not None:
        value[max_tokens_field] = config.max_tokens
    if config.effort is not None:
        value["reasoning_effort"] = config.effort
    if config.temperature is not None:
        value["temperature"] = config.temperature
    if config.stop:
        value["stop"] = config.stop
    return encoding.encode(value | cache_key)[:-1]


def _mark(context: RequestContext) -> bytes:
    ttl = b',"ttl":"1h"' if context.ttl == "1h" else b""
    return b',"cache_control":{"type":"ephemeral"' + ttl + b"}"


def _file(media: Media) -> dict[str, Any]:
    url = f"data:{media.media_type};base64,{media.data}"
    if media.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}


def _declaration(tool: ToolSchema) -> bytes:
    return encoding.encode(
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
    )


def _defined(block: Change) -> ToolSchema:
    if block.definition is None:
        raise UnsupportedContent(
            "Chat Completions has no message that takes a tool away or names it only; use "
            "tool_changes='auto'",
            seq=block.seq,
        )
    return block.definition


def rewrite(native: tuple[Raw, ...], envelopes: Mapping[str, str], name: str) -> tuple[Raw, ...]:
    """Return an answer's message with some calls under another name.

    Args:
        native: The message, alone.
        envelopes: Argument text of the renamed calls, by call id.
        name: What they are called.
    """
    return tuple(_renamed(raw, envelopes, name) for raw in native)


def _called(raw: Raw) -> dict[str, str]:
    """Return the names of what an answer calls, by call id."""
    calls = msgspec.json.decode(_fields.decode(raw)["tool_calls"], type=list[dict[str, Any]])
    return {call["id"]: call["function"]["name"] for call in calls}


def _renamed(raw: Raw, envelopes: Mapping[str, str], name: str) -> Raw:
    message = _fields.decode(raw)
    if "tool_calls" not in message:
        return raw
    calls: list[Any] = []
    for call in msgspec.json.decode(message["tool_calls"], type=list[dict[str, Any]]):
        envelope = envelopes.get(call["id"])
        if envelope is not None:
            call["function"] = {"name": name, "arguments": envelope}
        calls.append(call)
    return Raw(encoding.encode({**message, "tool_calls": calls}))
