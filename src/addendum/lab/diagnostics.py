"""What providers tell of a cache miss themselves: two requests compared, and the first divergence.

Claude compares with the request whose answer had `diagnostics.previous_message_id`, OpenAI's
Responses with that of `prompt_cache_options.comparison_response_id`. Both look at what was asked,
not at what the cache held; both give one reason, the first in the order of their rendering.

Sources: Claude docs "Cache diagnostics" (2026-08-22), anthropic 2.14.0 types `BetaCacheMiss*`;
OpenAI guide "Prompt cache diagnostics" (2026-11), openai 3.57.0 type `PromptCacheDiagnostics`.
Where they are silent, marks, streaming and limits of the answer count nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from addendum import encoding
from addendum.lab.anthropic_shapes import Json
from addendum.lab.refusal import Refusal
from addendum.wire.segment import fields

BETA = "cache-diagnosis-2026-04-07"
MOST = 64
"""Requests that are remembered."""

_MARKS = ("cache_control", "prompt_cache_breakpoint")
_CLAUDE_PARTS = ("model", "tools", "system")
_CLAUDE_SETTINGS = ("tool_choice", "thinking", "output_config")


class Memory:
    """The requests that a provider remembers, by the ids of their answers."""

    def __init__(self) -> None:
        self._bodies: dict[str, Json] = {}

    def keep(self, answer: str, body: Json) -> None:
        """Remember a request by the id of its answer."""
        self._bodies[answer] = body
        if len(self._bodies) > MOST:
            self._bodies.pop(next(iter(self._bodies)))

    def find(self, answer: str) -> Json | None:
        """Return a request, or None."""
        return self._bodies.get(answer)


def claude_asks(body: Json, betas: Sequence[str]) -> tuple[Json, bool, str | None]:
    """Take the question out of a request to Claude.

    Args:
        body: The request's body.
        betas: Its beta flags.

    Returns:
        The body without it, whether it is asked, and the id of the message to compare with.

    Raises:
        Refusal: It is asked in another form.
    """
    if BETA not in betas or "diagnostics" not in body:
        return body, False, None
    asked = fields(body["diagnostics"])
    if set(asked) != {"previous_message_id"}:
        raise Refusal("diagnostics: Input should be an object with previous_message_id")
    rest = {name: each for name, each in body.items() if name != "diagnostics"}
    before = asked["previous_message_id"]
    return rest, True, before if isinstance(before, str) else None


def claude_says(memory: Memory, before: str | None, body: Json) -> Json | None:
    """Return Claude's `diagnostics`: why a prefix was not reused, None if nothing diverged."""
    if before is None:
        return None
    old = memory.find(before)
    if old is None:
        return {"cache_miss_reason": {"type": "previous_message_not_found"}}
    for name in _CLAUDE_PARTS:
        if _bare(old.get(name)) != _bare(body.get(name)):
            missed = _tokens(*(_bare(old.get(each)) for each in ("system", "tools", "messages")))
            reason = {"type": f"{name}_changed", "cache_missed_input_tokens": missed}
            return {"cache_miss_reason": reason}
    ours, theirs = _listed(old.get("messages")), _listed(body.get("messages"))
    at = _common(ours, theirs)
    if at < len(ours):
        missed = _tokens(*ours[at:])
        reason = {"type": "messages_changed", "cache_missed_input_tokens": missed}
        return {"cache_miss_reason": reason}
    if any(old.get(each) != body.get(each) for each in _CLAUDE_SETTINGS):
        return {"cache_miss_reason": {"type": "unavailable"}}
    return None


_OPENAI_PARTS: tuple[tuple[str, str, str | None], ...] = (
    ("model_changed", "model", None),
    ("service_tier_changed", "service_tier", None),
    ("prompt_cache_key_changed", "prompt_cache_key", None),
    ("tools_changed", "tools", None),
    ("text_format_changed", "text", "format"),
    ("verbosity_changed", "text", "verbosity"),
    ("reasoning_effort_changed", "reasoning", "effort"),
    ("input_changed", "instructions", None),
)


def openai_says(memory: Memory, before: str, body: Json) -> Json:
    """Return OpenAI's `prompt_cache_diagnostics` for a comparison with an earlier response."""
    old = memory.find(before)
    if old is None:
        return {"type": "comparison_response_not_found"}
    for reason, field, inner in _OPENAI_PARTS:
        sides = [each.get(field) for each in (old, body)]
        if inner is not None:
            sides = [fields(each).get(inner) for each in sides]
        if _bare(sides[0]) != _bare(sides[1]):
            return _missed(reason, _listed(old.get("input")), [])
    ours, theirs = _listed(old.get("input")), _listed(body.get("input"))
    at = _common(ours, theirs)
    if at == len(ours):
        return {"type": "cache_hit"}
    return _missed("input_changed", ours[at:], ours[:at])


def _missed(reason: str, behind: Sequence[bytes], reusable: Sequence[bytes]) -> Json:
    return {
        "type": "cache_miss",
        "reason": reason,
        "cache_missed_tokens": _tokens(*behind),
        "comparison_reusable_tokens": _tokens(*reusable),
    }


def _listed(value: Any) -> list[bytes]:
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    return [_bare(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    at = 0
    while at < min(len(old), len(new)) and old[at] == new[at]:
        at += 1
    return at


def _bare(value: Any) -> bytes:
    return encoding.encode(_unmarked(value))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _unmarked(each) for k, each in cast(Json, value).items() if k not in _MARKS}
    if isinstance(value, list):
        return [_unmarked(each) for each in cast("list[Any]", value)]
    return value


def _tokens(*parts: bytes) -> int:
    return -(-sum(map(len, parts)) // 4)
