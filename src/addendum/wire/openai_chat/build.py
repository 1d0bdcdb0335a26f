"""Chat Completions: from the prompt to body bytes.

The unit here is a message. Tools stand at the top level only and nothing in the history can
change them, so updates reach this wire as announcements.

Shapes: openai-python 3.57.0 types (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from addendum import encoding
from addendum.errors import UnsupportedContent
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Block, Change, Key, Native, Prompt, Result, Text, Use
from addendum.prompt.projector import WireFacts
from addendum.wire.pieces import Declarations, Edit, Pieces

WIRE = "openai_chat"

FACTS = WireFacts(waits=True, string_arguments=False, marks=0)


class Renderer:
    """Renders the requests of one session; keeps encoded messages of the current chain.

    Attributes:
        encoded: Messages, prompt texts and declarations encoded so far; for tests that count them.
            Items sent back as they came are not.
    """

    def __init__(self, *, cache_key: bool = False, max_tokens_field: str = "max_tokens") -> None:
        self.encoded = 0
        self._cache_key = cache_key
        self._max_tokens_field = max_tokens_field
        self._chain = -1
        self._pieces = Pieces()
        self._starts: list[int] = []
        self._open: dict[Key, bytes] = {}
        self._tools: tuple[tuple[ToolSchema, ...], list[bytes]] | None = None
        self._system: tuple[tuple[Text, ...], list[bytes]] = ((), [])
        self._tail: tuple[Text, bytes] | None = None

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body.

        Raises:
            UnsupportedContent: The prompt holds what this wire cannot say.
        """
        key = prompt.cache_key if self._cache_key else None
        parts = [_settings(config, key, self._max_tokens_field)]
        if prompt.tools:
            if self._tools is None or self._tools[0] is not prompt.tools:
                entries, fresh = _declarations(prompt.tools)
                self.encoded += fresh
                self._tools = (prompt.tools, entries)
            parts += [b',"tools":[', b",".join(self._tools[1]), b"]"]
        parts += [b',"messages":[', *self._messages(prompt), b"]}"]
        return b"".join(parts)

    def _messages(self, prompt: Prompt) -> list[bytes]:
        if prompt.chain != self._chain or prompt.count < len(self._starts):
            self._chain, self._open = prompt.chain, {}
            self._pieces, self._starts = Pieces(), []
        settled = prompt.settled[len(self._starts) : prompt.count]
        for message, run in self._encoded(settled, self._open):
            self._starts.extend([len(self._pieces)] * run)
            self._pieces.append((b"," if len(self._pieces) else b"") + message)
        fresh: dict[Key, bytes] = {}
        opened: list[bytes] = []
        starts: list[int] = []
        for message, run in self._encoded(prompt.open, self._open, fresh):
            starts.extend([len(opened)] * run)
            opened.append(message)
        self._open = fresh
        edits: dict[int, Edit] = {}
        if prompt.tail is not None:
            if self._tail is None or self._tail[0] != prompt.tail:
                self.encoded += 1
                self._tail = (prompt.tail, _message("user", prompt.tail.text))
            tail = self._tail[1]
            if prompt.tail_at < prompt.count:
                edits[self._starts[prompt.tail_at]] = lambda piece: (
                    b"," + tail + piece if piece[:1] == b"," else tail + b"," + piece
                )
            else:
                at = prompt.tail_at - prompt.count
                opened.insert(starts[at] if at < len(starts) else len(opened), tail)
        if self._system[0] is not prompt.system:
            self.encoded += bool(prompt.system)
            self._system = (prompt.system, [_system(prompt.system)] if prompt.system else [])
        system = self._system[1]
        parts = self._pieces.parts(edits)
        between = [b","] if system and (parts or opened) else []
        behind = [b","] if parts and opened else []
        return [*system, *between, *parts, *behind, b",".join(opened)]

    def _encoded(
        self,
        blocks: Sequence[Block],
        known: dict[Key, bytes],
        fresh: dict[Key, bytes] | None = None,
    ) -> Iterator[tuple[bytes, int]]:
        """Yield the messages of `blocks`, each with the number of blocks it holds."""
        place = 0
        while place < len(blocks):
            block = blocks[place]
            run = 1
            if _neutral(block):
                # One assistant message: text and calls of one answer.
                while place + run < len(blocks) and (
                    _neutral(blocks[place + run]) and blocks[place + run].key[0] == block.key[0]
                ):
                    run += 1
            encoded = known.get(block.key)
            if encoded is None:
                self.encoded += not isinstance(block, Native)
                encoded = _encode(blocks[place : place + run])
            if fresh is not None:
                fresh[block.key] = encoded
            yield encoded, run
            place += run


def body(prompt: Prompt, config: Config, *, cache_key: bool = False) -> bytes:
    """Return the body of one request, from nothing; a `Renderer` gives the same bytes."""
    return Renderer(cache_key=cache_key).body(prompt, config)


def _neutral(block: Block) -> bool:
    return isinstance(block, Use) or (isinstance(block, Text) and block.role == "assistant")


def _settings(config: Config, cache_key: str | None, max_tokens_field: str) -> bytes:
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
    if cache_key is not None:
        value["prompt_cache_key"] = cache_key
    return encoding.encode(value)[:-1]


def _system(texts: tuple[Text, ...]) -> bytes:
    if len(texts) == 1:
        return _message("system", texts[0].text)
    parts = [{"type": "text", "text": text.text} for text in texts]
    return encoding.encode({"role": "system", "content": parts})


def _message(role: str, text: str) -> bytes:
    return encoding.encode({"role": role, "content": text})


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


def _encode(blocks: Sequence[Block]) -> bytes:
    first = blocks[0]
    if _neutral(first):
        return _answer(blocks)
    match first:
        case Text():
            return _message(first.role, first.text)
        case Result():
            return encoding.encode(
                {"role": "tool", "tool_call_id": first.call_id, "content": first.text}
            )
        case Native():
            return bytes(first.raw)
        case Change():
            raise UnsupportedContent(
                "Chat Completions has no message for tool changes; use tool_changes='dispatch'",
                seq=first.key[0],
            )
        case Use():  # pragma: no cover - neutral
            return _answer(blocks)


def _answer(blocks: Sequence[Block]) -> bytes:
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
    if calls:
        value["tool_calls"] = calls
    return encoding.encode(value)
