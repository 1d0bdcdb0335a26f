"""DeepSeek on loopback: its Anthropic surface, and a cache of whole units.

The surface takes what its compatibility table names and refuses the rest: no `tool_removal`, no
definitions by value, no `clear_at`. `anthropic-beta` and `cache_control` are ignored. A deferred
entry of `tools` stands outside the prefix, and an addition is read at its block (certainty
`reported`); a switch plays the other reading.

The cache stores prefixes as indivisible units: at the end of a request's input, at the end of the
model's output, at a beginning that two requests were seen to share, and at fixed intervals. A
request reads the longest unit that is a whole prefix of it.

Source: api-docs.deepseek.com, "Context Caching" and "Using the Anthropic API".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from addendum import encoding
from addendum.lab import anthropic_answer, anthropic_rules, facts
from addendum.lab.anthropic import heard
from addendum.lab.anthropic_render import Rendered, render
from addendum.lab.anthropic_shapes import Asked, Dialect, Fields, Json, Role, fields, read
from addendum.lab.anthropic_thinking import thought
from addendum.lab.exchange import Call, Reply, Switches, json_body
from addendum.lab.refusal import Refusal
from addendum.lab.script import Spoken, speak
from addendum.lab.token_history import TokenHistory
from addendum.lab.tokens import Segment, count, segment, stream

_TOP = fields(
    "model messages max_tokens",
    "system tools tool_choice stream thinking metadata stop_sequences temperature top_p"
    " output_config cache_control",
)
_TOOL = fields("name input_schema", "description cache_control defer_loading")
_TEXT = fields("text", "cache_control")
_USER = {
    "text": _TEXT,
    "tool_result": fields("tool_use_id", "content is_error cache_control"),
}
_ASSISTANT = {
    "text": _TEXT,
    "thinking": fields("thinking", "signature"),
    "tool_use": fields("id name input", "cache_control"),
}

UNITS = facts.CacheFacts(
    minimum=facts.DEEPSEEK_MINIMUM_TOKENS.value,
    step=facts.DEEPSEEK_INTERVAL_TOKENS.value,
    lifetime=facts.DEEPSEEK_LIFETIME_SECONDS.value,
)
"""How all of its models are cached."""


class UnitCache:
    """Units by key and size; each is the digest of a row of tokens, with its last use."""

    def __init__(self) -> None:
        self._units: dict[bytes, dict[int, dict[bytes, float]]] = {}
        self._history = TokenHistory()

    def read(self, key: bytes, row: bytes, now: float) -> int:
        """Return the tokens of the longest unit that is a whole prefix of a request.

        Args:
            key: Account and model.
            row: The request's tokens, four bytes each.
            now: Time of the request in seconds; the unit's lifetime begins anew.
        """
        units = self._units.get(key, {})
        found = 0
        for size, digest in _digests(row, units):
            last = units[size].get(digest)
            if last is not None and now < last + UNITS.lifetime:
                units[size][digest] = now
                found = size
        return found

    def shared(self, key: bytes, row: bytes, now: float) -> int:
        """Return the tokens that a request shares with an earlier one: the end of a new unit."""
        return self._history.common(key, row, now)

    def store(self, key: bytes, row: bytes, ends: Iterable[int], now: float) -> None:
        """Store units of a row.

        Args:
            key: Account and model.
            row: The tokens.
            ends: Where units end, in tokens; those at fixed intervals are added.
            now: Time of the request in seconds.
        """
        interval = UNITS.step
        whole = range(interval, len(row) // 4 + 1, interval)
        units = self._units.setdefault(key, {})
        sizes = {size for size in (*ends, *whole) if size >= UNITS.minimum}
        for size, digest in _digests(row, sizes):
            units.setdefault(size, {})[digest] = now
        self._history.add(key, row, now + UNITS.lifetime)


def _digests(row: bytes, sizes: Iterable[int]) -> list[tuple[int, bytes]]:
    """Return the digest of each prefix of `row` with one of the sizes, shortest first."""
    state = hashlib.sha256()
    at = 0
    found: list[tuple[int, bytes]] = []
    for size in sorted(sizes):
        if 4 * size > len(row):
            break
        state.update(row[at : 4 * size])
        at = 4 * size
        found.append((size, state.copy().digest()))
    return found


class DeepSeek:
    """DeepSeek's Anthropic surface."""

    def __init__(self) -> None:
        self._cache = UnitCache()

    def caches(self, model: str) -> facts.CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        return None if facts.deepseek_model(model) is None else UNITS

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        return anthropic_answer.refusal(refusal)

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        credential = _credential(call)
        body = json_body(call)
        name = str(body.get("model"))
        changes = facts.deepseek_model(name)
        if changes is None:
            raise Refusal(
                f"model: {name!r} is not supported; use deepseek-flash or deepseek-v4-pro"
            )
        asked = read(body, _dialect(changes, body, call.switches))
        anthropic_rules.check_tools(asked.tools)
        anthropic_rules.check_messages(asked.messages)
        anthropic_rules.check_choice(asked, facts.ClaudeModel(minimum=0))
        rendered = _render(asked, call.switches)
        key = encoding.canonical([credential, name])
        row = stream(block.segment for block in rendered.blocks)
        hit = self._cache.read(key, row, call.now)
        shared = self._cache.shared(key, row, call.now)
        spoken = speak(call.script, heard(asked), rendered.offered)
        if asked.thinking.get("type") == "disabled":
            spoken = Spoken(spoken.text, "", spoken.calls)
        blocks = anthropic_answer.content(spoken.text, spoken.calls, call.body)
        said = [segment("assistant", block) for block in blocks]
        if spoken.thinking:
            said.insert(0, thought(spoken.thinking))
            signature = encoding.digest(call.body)
            blocks.insert(
                0, {"type": "thinking", "thinking": spoken.thinking, "signature": signature}
            )
        usage: Json = {
            "input_tokens": len(row) // 4 - hit,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": hit,
            "output_tokens": count(said),
        }
        reply = anthropic_answer.answer(
            model=name,
            blocks=blocks,
            usage=usage,
            stop_reason="tool_use" if spoken.calls else "end_turn",
            stream=body.get("stream", False),
            seed=call.body,
        )
        whole = row + stream(said)
        return replace(
            reply,
            begin=lambda: self._cache.store(key, row, (len(row) // 4, shared), call.now),
            end=lambda: self._cache.store(key, whole, (len(whole) // 4,), call.now),
        )


def _dialect(changes: bool, body: Json, switches: Switches) -> Dialect:
    blocks: dict[Role, dict[str, Fields]] = {"user": _USER, "assistant": _ASSISTANT}
    no_system = "unknown variant `system`, expected `user` or `assistant`"
    if not changes and b'"tool_addition"' in encoding.encode(body.get("messages")):
        no_system = "unknown variant `tool_addition`, expected `text`"
    if changes:
        blocks["system"] = {"text": _TEXT}
        if switches.deepseek_tool_changes:
            blocks["system"]["tool_addition"] = fields("tool", "cache_control")
    return Dialect(
        top=_TOP,
        tool=_TOOL if changes else (_TOOL[0], _TOOL[1] - {"defer_loading"}),
        hosted=frozenset(),
        blocks=blocks,
        budget=False,
        marks=False,
        forced_name=False,
        no_system=no_system,
        misplaced_changes=changes and not switches.deepseek_tool_changes,
    )


def _render(asked: Asked, switches: Switches) -> Rendered:
    def reads(at: int, number: int) -> Segment:
        return thought(asked.messages[at].blocks[number]["thinking"])

    # Marks are ignored, wherever they stand and whatever they hold.
    body = {name: value for name, value in asked.body.items() if name != "cache_control"}
    return render(
        msgspec.structs.replace(asked, body=body),
        reads_thinking=reads,
        deferred_outside=switches.deepseek_deferred_outside,
        hidden=False,
    )


def _credential(call: Call) -> str:
    bearer = call.headers.get("authorization", "").removeprefix("Bearer ").strip()
    key = call.headers.get("x-api-key") or bearer
    if not key:
        raise Refusal("Authentication Fails (no such user)", status=401)
    return encoding.digest(key)
