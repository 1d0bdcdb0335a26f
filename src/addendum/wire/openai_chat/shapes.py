"""An assistant message of Chat Completions as an endpoint takes it that refuses some shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, json

from addendum import encoding
from addendum.prompt.rounds import EMPTY_ANSWER
from addendum.wire.openai_chat.reasoning import FIELDS


def shaped(raw: Raw, avoids: Sequence[str], ids: Mapping[str, str]) -> Raw:
    """Return an answer without what an epoch avoids; the same object if it has nothing of that.

    Args:
        raw: The message.
        avoids: The shapes.
        ids: What the ids of its calls are sent as.
    """
    message = json.decode(raw, type=dict[str, Raw])
    kept = {name: own for name, own in message.items() if name not in FIELDS or name not in avoids}
    if "tool_calls" in kept:
        if any(known != sent for known, sent in ids.items()):
            kept["tool_calls"] = _under(ids, kept["tool_calls"])
    elif "empty-answer" in avoids and "refusal" not in kept and _is_blank(kept.get("content")):
        kept["content"] = Raw(encoding.encode(EMPTY_ANSWER))
    return raw if kept == message else Raw(encoding.encode(kept))


def _under(ids: Mapping[str, str], calls: Raw) -> Raw:
    renamed: list[dict[str, Any]] = []
    for call in json.decode(calls, type=list[dict[str, Raw]]):
        sent = ids.get(json.decode(call["id"], type=str))
        renamed.append(call if sent is None else {**call, "id": sent})
    return Raw(encoding.encode(renamed))


def _is_blank(content: Raw | None) -> bool:
    value = None if content is None else json.decode(content)
    return not value.strip() if isinstance(value, str) else not value
