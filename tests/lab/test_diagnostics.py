"""What Claude and Responses tell of a miss themselves, as the lab plays it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from addendum.lab.server import Lab, open_lab

pytestmark = pytest.mark.anyio

BETA = "cache-diagnosis-2026-04-07"
HEADERS = {"x-api-key": "any", "authorization": "Bearer any", "anthropic-version": "2023-06-01"}


def claude(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": messages,
        **more,
    }


def responses(**more: Any) -> dict[str, Any]:
    schema = {"type": "object"}
    tools = [{"type": "function", "name": "look", "parameters": schema, "strict": False}]
    items = [{"role": "user", "content": "hello"}]
    return {
        "model": "gpt-6.1-sol",
        "instructions": "Be brief.",
        "tools": tools,
        "input": items,
    } | more


async def post(lab: Lab, body: dict[str, Any], beta: str = BETA) -> httpx2.Response:
    async with httpx2.AsyncClient(headers={**HEADERS, "anthropic-beta": beta}) as client:
        if body["model"].startswith("claude"):
            return await client.post(f"{lab.base_url('anthropic')}/v1/messages", json=body)
        return await client.post(f"{lab.base_url('openai')}/responses", json=body)


MARKED = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
OTHER = {"name": "read", "input_schema": {"type": "object"}}
READ = {"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({}, None, id="same"),
        pytest.param({"system": [MARKED]}, None, id="marks-count-nothing"),
        pytest.param({"model": "claude-opus-5"}, "model_changed", id="model"),
        pytest.param({"tools": [OTHER]}, "tools_changed", id="tools"),
        pytest.param(
            {"system": [{"type": "text", "text": "Be kind."}]}, "system_changed", id="sys"
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "bye"}]}, "messages_changed", id="m"
        ),
        pytest.param({"tool_choice": {"type": "none"}}, "unavailable", id="settings"),
    ],
)
async def test_claude_says_what_diverged_first(change: dict[str, Any], reason: str | None) -> None:
    async with open_lab() as lab:
        first = (await post(lab, claude(diagnostics={"previous_message_id": None}))).json()
        assert first["diagnostics"] is None
        asked = {"diagnostics": {"previous_message_id": first["id"]}}
        said = (await post(lab, claude(**change, **asked))).json()["diagnostics"]
    if reason is None:
        assert said is None
        return
    assert said["cache_miss_reason"]["type"] == reason
    assert (said["cache_miss_reason"].get("cache_missed_input_tokens", 0) > 0) == (
        reason != "unavailable"
    )


async def test_claude_is_asked_with_a_beta_and_remembers_only_who_asked() -> None:
    async with open_lab() as lab:
        asked = claude(diagnostics={"previous_message_id": None})
        refused = await post(lab, asked, beta="other-2026-01-01")
        assert refused.status_code == 400
        odd = await post(lab, claude(diagnostics={"why": True}))
        assert odd.status_code == 400 and "diagnostics" in odd.json()["error"]["message"]
        silent = (await post(lab, claude())).json()
        assert "diagnostics" not in silent
        later = claude(diagnostics={"previous_message_id": silent["id"]})
        said = (await post(lab, later)).json()["diagnostics"]
        assert said == {"cache_miss_reason": {"type": "previous_message_not_found"}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({}, None, id="same"),
        pytest.param({"model": "gpt-6.1-terra"}, "model_changed", id="model"),
        pytest.param({"prompt_cache_key": "k"}, "prompt_cache_key_changed", id="key"),
        pytest.param({"tools": [READ]}, "tools_changed", id="tools"),
        pytest.param({"reasoning": {"effort": "high"}}, "reasoning_effort_changed", id="effort"),
        pytest.param({"instructions": "Be kind."}, "input_changed", id="instructions"),
        pytest.param({"input": "bye"}, "input_changed", id="input"),
    ],
)
async def test_responses_says_what_diverged(change: dict[str, Any], reason: str | None) -> None:
    async with open_lab() as lab:
        first = (await post(lab, responses())).json()
        assert "prompt_cache_diagnostics" not in first
        options = {"comparison_response_id": first["id"]}
        answer = await post(lab, responses(prompt_cache_options=options, **change))
        said = answer.json()["prompt_cache_diagnostics"]
        unknown = {"comparison_response_id": "resp_x"}
        lost = (await post(lab, responses(prompt_cache_options=unknown))).json()
    assert lost["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}
    assert said.get("reason") == reason
    assert said["type"] == ("cache_hit" if reason is None else "cache_miss")
