"""Chat Completions: from the prompt to body bytes.

The unit here is a message. Tools stand at the top level; where a provider takes tools inside the
history, in system messages that hold `tools` and no `content` (Kimi). Everywhere else updates
reach this wire as announcements.

Marks are OpenRouter's `cache_control`, on entries of `tools` and on text parts of what goes in.
Where they are taken all such text is sent in parts, so that a mark changes nothing but itself.

Shapes: openai-python 3.57.0 and openrouter 0.11.46 types (2026-11); platform.kimi.ai.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.events import RequestContext
from addendum.log.values import Config, Media, ToolSchema
from addendum.prompt.blocks import Block, Change, Key, Native, Prompt, Result, Text, Use
from addendum.prompt.projector import WireFacts
from addendum.wire.openai_chat.reasoning import without_reasoning
from addendum.wire.pieces import Declarations, Edit, Pieces

_ALONE = (Native, Result)
"""Blocks that never share a message with another one."""

WIRE = "openai_chat"


def kind(raw: Raw) -> str:
    """Return the kind of a native item: none here, each is a whole message."""
    return ""


FACTS = WireFacts(
    waits=True,
    string_arguments=False,
    marks=4,
    runs=False,
    input_marks=True,
    bare=without_reasoning,
    kind=kind,
    media_apart=True,
)


class Renderer:
    """Renders the requests of one session; keeps encoded messages of the current chain.

    Attributes:
        encoded: Messages, prompt texts and declarations encoded so far; for tests that count them.
            Items sent back as they came are not.

    Args:
        cache_key: Field for the prompt's cache key; empty where none is taken.
        max_tokens_field: Field for the output limit.
        parts: Whether marks are taken, and text goes out in parts.
        reasoning_stand_in: What stands in `reasoning_content` of answers with calls that have none.
    """

    def __init__(
        self,
        *,
        cache_key: str = "",
        max_tokens_field: str = "max_tokens",
        parts: bool = False,
        reasoning_stand_in: str = "",
    ) -> None:
        self.encoded = 0
        self._cache_key = cache_key
        self._max_tokens_field = max_tokens_field
        self._say = _Messages(parts, reasoning_stand_in)
        self._chain = -1
        self._pieces = Pieces()
        self._starts: list[int] = []
        self._open: dict[tuple[Key, ...], bytes] = {}
        self._tools: tuple[tuple[ToolSchema, ...], list[bytes]] | None = None
        self._system: tuple[tuple[Text, ...], list[bytes]] = ((), [])
        self._tail: tuple[Text, bytes] | None = None

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        keyed = self._cache_key and prompt.context.caching
        key = {self._cache_key: prompt.cache_key} if keyed else {}
        parts = [_settings(config, key, self._max_tokens_field)]
        mark = _mark(prompt.context)
        if prompt.tools:
            if self._tools is None or self._tools[0] is not prompt.tools:
                entries, fresh = _declarations(prompt.tools)
                self.encoded += fresh
                self._tools = (prompt.tools, entries)
            entries = self._tools[1]
            if prompt.marks.tools:
                entries = [*entries[:-1], entries[-1][:-1] + mark + b"}"]
            parts += [b',"tools":[', b",".join(entries), b"]"]
        parts += [b',"messages":[', *self._messages(prompt, mark), b"]}"]
        return b"".join(parts)

    def _messages(self, prompt: Prompt, mark: bytes) -> list[bytes]:
        if prompt.chain != self._chain or prompt.count < len(self._starts):
            self._chain, self._open = prompt.chain, {}
            self._pieces, self._starts = Pieces(), []
        settled = prompt.settled[len(self._starts) : prompt.count]
        for message, run in self._encoded(settled, self._open):
            self._starts.extend([len(self._pieces)] * run)
            self._pieces.append((b"," if len(self._pieces) else b"") + message)
        fresh: dict[tuple[Key, ...], bytes] = {}
        opened: list[bytes] = []
        starts: list[int] = []
        for message, run in self._encoded(prompt.open, self._open, fresh):
            starts.extend([len(opened)] * run)
            opened.append(message)
        self._open = fresh
        count = prompt.count
        edits: dict[int, Edit] = {}
        for at in prompt.marks.blocks:
            if at < count:
                edits[self._starts[at]] = lambda piece: _marked(piece, mark)
            else:
                place = starts[at - count]
                opened[place] = _marked(opened[place], mark)
        if prompt.tail is not None:
            if self._tail is None or self._tail[0] != prompt.tail:
                self.encoded += 1
                self._tail = (prompt.tail, self._say.text("user", prompt.tail.text))
            tail = self._tail[1]
            if prompt.tail_at < count:
                place = self._starts[prompt.tail_at]
                edit = edits.get(place, _same)
                edits[place] = lambda piece: _behind(tail, edit(piece))
            else:
                at = prompt.tail_at - count
                opened.insert(starts[at] if at < len(starts) else len(opened), tail)
        system = self._prompt_text(prompt, mark)
        parts = self._pieces.parts(edits)
        between = [b","] if system and (parts or opened) else []
        behind = [b","] if parts and opened else []
        return [*system, *between, *parts, *behind, b",".join(opened)]

    def _prompt_text(self, prompt: Prompt, mark: bytes) -> list[bytes]:
        if self._system[0] is not prompt.system:
            self.encoded += bool(prompt.system)
            self._system = (prompt.system, self._say.system(prompt.system))
        parts = [*self._system[1]]
        for index in prompt.marks.system:
            parts[index] = parts[index][:-1] + mark + b"}"
        if not parts or parts[-1].startswith(b'{"role":"system","content":"'):
            return parts
        return [b",".join(parts) + b"]}"]

    def _encoded(
        self,
        blocks: Sequence[Block],
        known: dict[tuple[Key, ...], bytes],
        fresh: dict[tuple[Key, ...], bytes] | None = None,
    ) -> Iterator[tuple[bytes, int]]:
        """Yield the messages of `blocks`, each with the number of blocks it holds."""
        place = 0
        while place < len(blocks):
            block = blocks[place]
            run = 1
            # One message: text and calls of one answer, or additions of one update.
            if not isinstance(block, _ALONE):
                while place + run < len(blocks) and _together(block, blocks[place + run]):
                    run += 1
            together = blocks[place : place + run]
            keys = tuple(each.key for each in together) if known or fresh is not None else ()
            encoded = known.get(keys)
            if encoded is None:
                self.encoded += not isinstance(block, Native)
                encoded = self._say.blocks(together)
            if fresh is not None:
                fresh[keys] = encoded
            yield encoded, run
            place += run


class _Messages:
    """Says blocks as messages of one route.

    Args:
        parts: Whether the text of what goes in is sent in parts, which marks can stand on.
        reasoning_stand_in: What stands in `reasoning_content` of answers with calls that have none.
    """

    def __init__(self, parts: bool, reasoning_stand_in: str) -> None:
        self._parts = parts
        self._stand_in = reasoning_stand_in

    def _content(self, text: str) -> Any:
        if not self._parts:
            return text
        # Anthropic behind a gateway refuses what has no text, and a mark may have to stand on it.
        return [{"type": "text", "text": text if text.strip() else "(empty)"}]

    def text(self, role: str, text: str) -> bytes:
        """Return a message that is a text."""
        return encoding.encode({"role": role, "content": self._content(text)})

    def system(self, texts: tuple[Text, ...]) -> list[bytes]:
        """Return the prompt as one message, in pieces between which a mark may stand."""
        if not texts:
            return []
        if len(texts) == 1 and not self._parts:
            return [self.text("system", texts[0].text)]
        parts = [encoding.encode({"type": "text", "text": text.text}) for text in texts]
        parts[0] = b'{"role":"system","content":[' + parts[0]
        return parts

    def blocks(self, blocks: Sequence[Block]) -> bytes:
        """Return the message that blocks make together."""
        first = blocks[0]
        match first:
            case Text(role="assistant") | Use():
                return self._answer(blocks)
            case Text(media=media) if media:
                parts = [{"type": "text", "text": first.text}, *map(_file, media)]
                return encoding.encode({"role": first.role, "content": parts})
            case Text():
                return self.text(first.role, first.text)
            case Result():
                return encoding.encode(
                    {
                        "role": "tool",
                        "tool_call_id": first.call_id,
                        "content": self._content(first.text),
                    }
                )
            case Native():
                raw = bytes(first.raw)
                if (
                    self._stand_in
                    and b'"tool_calls":' in raw
                    and b'"reasoning_content":' not in raw
                ):
                    stand_in = encoding.encode(self._stand_in)
                    return raw[:-1] + b',"reasoning_content":' + stand_in + b"}"
                return raw
            case Change():
                tools = [_defined(each) for each in blocks if isinstance(each, Change)]
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
        value: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls and self._stand_in:
            value["reasoning_content"] = self._stand_in
        if calls:
            value["tool_calls"] = calls
        return encoding.encode(value)


def _together(block: Block, other: Block) -> bool:
    """Say whether two blocks that follow each other make one message."""
    if isinstance(block, Change):
        return isinstance(other, Change)
    return _neutral(block) and _neutral(other) and block.seq == other.seq


def _neutral(block: Block) -> bool:
    return isinstance(block, Use) or (isinstance(block, Text) and block.role == "assistant")


def _settings(config: Config, cache_key: dict[str, str], max_tokens_field: str) -> bytes:
    value: dict[str, Any] = {
        "model": config.model,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
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


def _marked(piece: bytes, mark: bytes) -> bytes:
    """Splice a mark into the last part of a message, which ends with `}]}`."""
    return piece[:-3] + mark + piece[-3:]


def _same(piece: bytes) -> bytes:
    return piece


def _behind(tail: bytes, piece: bytes) -> bytes:
    """Put the turn's instructions in front of a message."""
    return b"," + tail + piece if piece[:1] == b"," else tail + b"," + piece


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


_declarations = Declarations(_declaration)


def _defined(block: Change) -> bytes:
    if block.definition is None:
        raise UnsupportedContent(
            "Chat Completions has no message that takes a tool away or names it only; use "
            "tool_changes='auto'",
            seq=block.seq,
        )
    return _declaration(block.definition)
