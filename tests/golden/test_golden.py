"""A rendering number stands for bytes: an epoch that was begun under it is continued by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.make import (
    GOLDEN,
    HERE,
    bodies,
    definitions,
    numbers,
    paths,
    screened_definitions,
)

from addendum.agent.context.sent import KNOWN_RENDERINGS, RENDERING

CASES = sorted((int(path.parent.name), path.name[:-10]) for path in HERE.glob("*/*.log.jsonl"))

KINDS = {
    "anthropic-by-value": (
        '"clear_at":"next_user_message"',
        '"type":"tool_definition"',
        '"type":"tool_removal"',
        '"type":"thinking"',
        '"type":"tool_use"',
        '"type":"tool_result"',
        '"cache_control":{"type":"ephemeral"}',
        '"defer_loading":true',
        "<server_instructions",
        "<conversation_summary>",
        "In French.",
        "<_turn_instructions>",
        "Tool web version 1",
    ),
    "anthropic-kept": ("<turn_instructions>\\nBe brief.", "<turn_instructions>\\nBe thorough."),
    "anthropic-by-reference": ('"type":"tool_addition"', '"type":"tool_reference"'),
    "anthropic-dispatch": (
        '<tool_update>{\\"added\\"',
        '<tool_update>{\\"changed\\"',
        '{\\"removed\\"',
        '"name":"call_tool"',
        "<turn_instructions>",
    ),
    "openai-chat": ("<tool_update>", '"tool_call_id"', "call_tool", "prompt_cache_key"),
    "openai-responses": ('"additional_tools"', '"function_call_output"', '"reasoning"'),
    "bedrock-converse": ('"cachePoint"', '"toolUse"', '"toolResult"', '"reasoningContent"'),
    "kimi": (
        '{"role":"system","tools":[{"type":"function"',
        "Available again: ",
        "do not call: ",
        '"reasoning_content"',
        "prompt_cache_key",
    ),
    "openrouter-kept": (
        '"cache_control":{"type":"ephemeral"}',
        '"reasoning_details":[{"type":"reasoning.text"',
        '"session_id"',
        "<turn_instructions>\\nBe brief.",
    ),
    "openrouter-moved": (
        '"cache_control":{"type":"ephemeral"}',
        # Behind the first message of all, in front of every later one.
        '"text":"one","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"text",'
        '"text":"<turn_instructions>',
        "call_tool",
    ),
    "deepseek-chat": ('"reasoning_content"', '"tool_calls"', "call_tool"),
    "vertex-claude": (
        '"anthropic_version":"vertex-2023-10-16"',
        '"type":"tool_reference"',
        '"defer_loading":true',
    ),
    "gemini": ('"functionCall"', '"functionResponse"', '"thoughtSignature"'),
    "files-anthropic": ('"type":"image","source"', '"type":"document","source"'),
    "files-bedrock": ('"image":{"format":"png"', '"document":{"format":"pdf","name":"file 1"'),
    "files-chat": (
        '"type":"image_url"',
        '"file":{"filename":"document.pdf"',
        "[not shown: 2; this model",
    ),
    "files-deepseek": ("[not shown: 1, 2; this model is shown no such files here]",),
    "files-gemini": ('"parts":[{"inlineData":{"mimeType":"image/png"', "application/pdf"),
    "files-responses": ('"type":"input_image"', '"type":"input_file"'),
}
"""What each conversation has to show, so that it pins what it is there for."""


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


@pytest.mark.parametrize(("number", "name"), CASES)
def test_a_rendering_number_keeps_its_bytes(number: int, name: str) -> None:
    log, made = paths(number, name)
    stored, golden = lines(log), lines(made)
    assert numbers(stored) == {number}
    now = bodies(stored)
    assert len(now) == len(golden)
    for n, (one, other) in enumerate(zip(now, golden, strict=True), 1):
        if one != other:
            at = next(
                (i for i, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), 0
            )
            was, is_now = (each[max(0, at - 40) : at + 40] for each in (other, one))
            pytest.fail(
                f"bytes of rendering {number} changed: give it a new number "
                f"({name}, request {n}, byte {at}: it was {was!r} and is {is_now!r})",
                pytrace=False,
            )


def test_every_known_number_has_a_log_for_every_wire() -> None:
    assert RENDERING in KNOWN_RENDERINGS
    wanted = {(number, each.name) for number in KNOWN_RENDERINGS for each in GOLDEN}
    assert wanted <= set(CASES)


def test_a_rendering_number_keeps_what_endpoints_get_of_strange_definitions() -> None:
    """What is sent of a definition stands in the head of every conversation."""
    assert screened_definitions() == lines(definitions(RENDERING)), "give it a new number"


@pytest.mark.parametrize("number", KNOWN_RENDERINGS)
@pytest.mark.parametrize("name", [each.name for each in GOLDEN])
def test_the_logs_show_what_they_are_there_for(name: str, number: int) -> None:
    text = paths(number, name)[1].read_text()
    missing = [kind for kind in KINDS[name] if kind not in text]
    assert not missing
