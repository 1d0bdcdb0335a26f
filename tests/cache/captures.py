"""Bodies whose tokens can be added up by hand: a block made with `tokens=100` counts as 100.

The counting rule of these tests is four bytes of a segment's JSON a token, and every block is
padded to a multiple of four bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from addendum import encoding
from addendum.cache.capture import Capture
from addendum.cache.capture_files import iter_captures
from addendum.cache.record import Declared, RequestRecord
from addendum.cache.rules import CacheRules
from addendum.log.events import Usage
from addendum.wire.segment import Segment

Json = dict[str, Any]
Message = tuple[str, Sequence[Json]]

CLAUDE = CacheRules("marks", minimum=512)
STEPS = CacheRules("steps", minimum=1024, step=128, lifetime=300.0)
GPT56 = CacheRules("boundaries", minimum=1024, lifetime=1800.0)
DEEPSEEK = CacheRules("units", lifetime=3600.0)

MARK: Json = {"type": "ephemeral"}
HOUR: Json = {"type": "ephemeral", "ttl": "1h"}


def count(segment: Segment) -> int:
    return segment.size // 4


def read_captures(path: Path) -> list[Capture]:
    """Read a file of requests whole."""
    return [each for each in iter_captures(path) if isinstance(each, Capture)]


def _padded(make: Callable[[str], Json], word: str, tokens: int) -> Json:
    room = 4 * tokens - len(encoding.encode(make(word)))
    assert room >= 0, f"{word!r} does not fit into {tokens} tokens"
    return make(word + "." * room)


def text(word: str, tokens: int = 100) -> Json:
    return _padded(lambda fill: {"type": "text", "text": fill}, word, tokens)


def tool(name: str, tokens: int = 100, **more: Any) -> Json:
    def make(fill: str) -> Json:
        return {"name": name, "description": fill, "input_schema": {"type": "object"}, **more}

    return _padded(make, "", tokens)


def function(name: str, tokens: int = 100) -> Json:
    def make(fill: str) -> Json:
        return {"type": "function", "function": {"name": name, "description": fill}}

    return _padded(make, "", tokens)


def use(call: str, name: str, tokens: int = 40) -> Json:
    return _padded(
        lambda fill: {"type": "tool_use", "id": call, "name": name, "input": {"q": fill}},
        "",
        tokens,
    )


def result(call: str, tokens: int = 40) -> Json:
    return _padded(
        lambda fill: {"type": "tool_result", "tool_use_id": call, "content": fill}, "", tokens
    )


def addition(name: str) -> Json:
    return {"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}}


def inline(definition: Json) -> Json:
    return {
        "type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": definition},
    }


def removal(name: str) -> Json:
    return {"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}}


def marked(block: Json, mark: Json = MARK) -> Json:
    return {**block, "cache_control": mark}


def claude(
    messages: Sequence[Message],
    *,
    tools: Sequence[Json] = (),
    system: Sequence[Json] = (),
    **more: Any,
) -> bytes:
    """An Anthropic body; a role `scoped` is a system message with `clear_at`."""
    sent: list[Json] = []
    for role, blocks in messages:
        if role == "scoped":
            sent.append(
                {"role": "system", "clear_at": "next_user_message", "content": list(blocks)}
            )
        else:
            sent.append({"role": role, "content": list(blocks)})
    body: Json = {"model": "m", "max_tokens": 1, **more}
    if tools:
        body["tools"] = list(tools)
    if system:
        body["system"] = list(system)
    return encoding.encode({**body, "messages": sent})


def chat(messages: Sequence[Json], *, tools: Sequence[Json] = (), **more: Any) -> bytes:
    body: Json = {"model": "m", **more}
    if tools:
        body["tools"] = list(tools)
    return encoding.encode({**body, "messages": list(messages)})


def record(
    n: int,
    body: bytes,
    prompt: int | None = None,
    read: int | None = None,
    *,
    written: int | None = None,
    output: int | None = None,
    breaks: Sequence[tuple[str, str]] = (),
    **more: Any,
) -> RequestRecord:
    """A record of session `s` on route `r`; sent at second `n` unless stated."""
    fields: Json = {
        "turn": n,
        "session": "s",
        "route": "r",
        "wire": "anthropic_messages",
        "usage": Usage(prompt=prompt, cache_read=read, cache_write=written, output=output),
        "time_sent": float(n),
        "declared": tuple(msgspec.convert(each, Declared) for each in _declared(breaks)),
        **more,
    }
    return RequestRecord(n=n, body=body, **fields)


def _declared(breaks: Sequence[tuple[str, str]]) -> list[Json]:
    return [{"reason": reason, "at": at} for reason, at in breaks]
