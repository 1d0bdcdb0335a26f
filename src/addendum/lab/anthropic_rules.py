"""The Anthropic wire, across fields: order of messages, pairs of calls and results, marks, choices.

Sources: platform.claude.com, "Mid-conversation system messages and tool changes", "Prompt caching"
and "Thinking" (2026-09-26), and 400 answers seen by their users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from addendum.lab.anthropic_shapes import Asked, Json, Message, marks_of
from addendum.lab.facts import CLAUDE_LATE_TOOLS, CLAUDE_MARKS, ClaudeModel
from addendum.lab.refusal import Refusal


def check_messages(messages: Sequence[Message]) -> None:
    """Check the order of messages and the pairs of calls and results.

    Raises:
        Refusal: The message names the place.
    """
    if messages[0].role == "system" and not messages[0].effort:
        raise Refusal(
            "messages.0: role 'system' cannot be the first message; use the top-level `system`"
            " parameter"
        )
    _system_groups(messages)
    first = next((m for m in messages if m.role != "system"), None)
    if first is None or first.role != "user":
        raise Refusal('messages: first message must use the "user" role')
    _pairs(messages)


def check_tools(tools: Sequence[Json]) -> None:
    """Check the list of tools as a whole.

    Raises:
        Refusal: A name stands twice, all tools are deferred, or there are too many.
    """
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        raise Refusal("tools: Tool names must be unique.")
    deferred = [tool for tool in tools if tool.get("defer_loading")]
    if tools and len(deferred) == len(tools):
        raise Refusal(
            "tools: at least one tool must not have `defer_loading`; all tools are deferred"
        )
    if len(deferred) > CLAUDE_LATE_TOOLS.value:
        raise Refusal(
            f"tools: more than {CLAUDE_LATE_TOOLS.value:,} deferred tools",
            code="available_tools_limit_exceeded",
        )


def check_marks(asked: Asked) -> None:
    """Check how many marks there are, where they stand and the order of their lifetimes.

    Raises:
        Refusal: More than four, or a longer lifetime behind a shorter one.
    """
    marks = [*_marks(asked.tools), *_marks(asked.system)]
    for message in asked.messages:
        marks += _marks(message.blocks)
    automatic = asked.body.get("cache_control")
    found = len(marks) + (1 if automatic else 0)
    if found > CLAUDE_MARKS.value:
        raise Refusal(
            f"A maximum of {CLAUDE_MARKS.value} blocks with cache_control may be provided. Found"
            f" {found}."
        )
    lifetimes = [mark.get("ttl", "5m") for mark in (*marks, *([automatic] if automatic else []))]
    if "5m" in lifetimes and "1h" in lifetimes[lifetimes.index("5m") :]:
        raise Refusal(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            " (order: tools, system, messages)"
        )


def check_choice(asked: Asked, model: ClaudeModel) -> None:
    """Check `tool_choice`, `max_tokens: 0` and an assistant message at the end.

    Raises:
        Refusal: The model or another setting forbids it.
    """
    choice: dict[str, Any] = asked.body.get("tool_choice") or {}
    forced = choice.get("type") in ("any", "tool")
    if choice and not asked.tools:
        raise Refusal("tool_choice: may only be specified while providing `tools`")
    if forced and not model.forced_choice:
        raise Refusal(f"tool_choice: '{choice['type']}' is not supported on this model")
    manual = asked.thinking.get("type") == "enabled"
    if forced and manual:
        raise Refusal("Thinking may not be enabled when tool_choice forces tool use.")
    if choice.get("type") == "tool" and all(choice["name"] != t["name"] for t in asked.tools):
        raise Refusal(f"tool_choice: Tool '{choice['name']}' not found in provided tools")
    if asked.body["max_tokens"] == 0 and (forced or manual or asked.body.get("stream")):
        raise Refusal("max_tokens: 0 cannot be combined with stream, thinking or a forced tool")
    speaking = [m for m in asked.messages if m.role != "system"]
    if speaking[-1].role == "assistant" and not model.prefill:
        raise Refusal(
            "This model does not support assistant message prefill. The conversation must end with"
            " a user message."
        )
    if manual:
        _starts_with_thinking(speaking)


def _starts_with_thinking(speaking: Sequence[Message]) -> None:
    """In manual mode, the assistant turn that waits for results has to begin with its thinking."""
    last = max((at for at, m in enumerate(speaking) if m.role == "assistant"), default=None)
    if last is None or not any(b["type"] == "tool_use" for b in speaking[last].blocks):
        return
    if any(b["type"] != "tool_result" for m in speaking[last + 1 :] for b in m.blocks):
        return
    kind = speaking[last].blocks[0]["type"]
    if kind not in ("thinking", "redacted_thinking"):
        raise Refusal(
            f"Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is"
            " enabled, a final `assistant` message must start with a thinking block."
        )


def _system_groups(messages: Sequence[Message]) -> None:
    """Check every run of system messages: behind a user message, in front of an assistant's."""
    at = 0
    while at < len(messages):
        if messages[at].role != "system":
            at += 1
            continue
        start = at
        while at < len(messages) and messages[at].role == "system":
            at += 1
        if all(m.effort and not m.blocks for m in messages[start:at]):
            continue
        if start == 0 or messages[start - 1].role != "user":
            raise Refusal(f"messages.{start}: role 'system' must follow a 'user' message")
        if at < len(messages) and messages[at].role != "assistant":
            raise Refusal(
                f"messages.{at - 1}: role 'system' must precede an 'assistant' message or end the"
                " array"
            )


def _turns(messages: Sequence[Message]) -> list[tuple[str, int, list[Json]]]:
    """Combine neighbours of one role, as the provider does: role, first index, blocks."""
    turns: list[tuple[str, int, list[Json]]] = []
    for at, message in enumerate(messages):
        if turns and turns[-1][0] == message.role:
            turns[-1][2].extend(message.blocks)
        else:
            turns.append((message.role, at, list(message.blocks)))
    return turns


def _pairs(messages: Sequence[Message]) -> None:
    used: set[str] = set()
    waiting: list[str] = []
    for role, at, blocks in _turns([m for m in messages if m.blocks]):
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        orphan = next((each for each in results if each not in waiting), None)
        missing = [each for each in waiting if each not in results]
        if missing:
            raise Refusal(
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately"
                f" after: {', '.join(missing)}. Each `tool_use` block must have a corresponding"
                " `tool_result` block in the next message."
            )
        if orphan is not None:
            raise Refusal(
                f"messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {orphan}."
                " Each `tool_result` block must have a corresponding `tool_use` block in the"
                " previous message."
            )
        if len(set(results)) != len(results):
            raise Refusal(
                f"messages.{at}: each `tool_use` must have a single result. Found multiple"
                " `tool_result` blocks with one id."
            )
        if role == "user" and any(b["type"] != "tool_result" for b in blocks[: len(results)]):
            raise Refusal(
                f"messages.{at}: `tool_result` blocks must come first in the message that follows"
                " `tool_use` blocks"
            )
        if used & set(calls) or len(set(calls)) != len(calls):
            raise Refusal(f"messages.{at}: `tool_use` ids must be unique")
        used |= set(calls)
        waiting = calls
    if waiting:
        raise Refusal(
            "messages: `tool_use` ids were found without `tool_result` blocks immediately after:"
            f" {', '.join(waiting)}."
        )


def _marks(blocks: Sequence[Json]) -> list[Json]:
    return [mark for block in blocks for mark in marks_of(block)]
