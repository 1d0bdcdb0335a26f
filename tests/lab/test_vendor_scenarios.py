"""Scenarios on gateways and vendors: all that could be read is read, and nothing is refused."""

from __future__ import annotations

from typing import Any

import pytest

from addendum import encoding
from addendum.lab.report import Run
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find

pytestmark = pytest.mark.anyio

KIMI = "moonshot:kimi-k3"
BOUND = "openrouter:anthropic/claude-opus-5.5"
CLAUDE = "openrouter:anthropic/claude-opus-5"
DEEPSEEK = "deepseek-chat:deepseek-flash"
VERTEX = "vertex-claude:claude-opus-5-5"

STRATEGIES = {
    KIMI: ("addition-only", "by-value", "text", "kept"),
    BOUND: ("dispatch", "by-value", "text", "kept"),
    CLAUDE: ("dispatch", "by-value", "text", "kept"),
    DEEPSEEK: ("dispatch", "by-value", "text", "kept"),
    VERTEX: ("in-history", "by-reference", "block", "kept"),
    "bedrock-claude:anthropic.claude-opus-5": ("in-history", "by-reference", "block", "kept"),
}
OTHERS = (
    "openrouter:openai/gpt-6.1-sol",
    "openrouter:openai/gpt-5",
    "openrouter:qwen/qwen3-max",
    "azure:gpt-5",
    "azure-chat:gpt-4.1",
    "xai:grok-4.7",
    "groq:openai/gpt-oss-120b",
    "mistral:mistral-large-4",
    "zai:glm-5.3",
    "qwen:qwen3-max",
    "vllm:any/model",
    "sglang:any/model",
    "llamacpp:any/model",
)


def whole(run: Run) -> None:
    totals = run.report.totals
    assert run.holds, (run.violations[:3], [r for r in run.report.requests if r.miss][:3])
    assert (totals.undeclared_misses, totals.provider_misses, totals.unknown) == (0, 0, 0)
    assert totals.ceiling_share is not None and totals.ceiling_share >= 0.999


@pytest.mark.parametrize("route", [*STRATEGIES, *OTHERS])
async def test_g2_reads_all_that_is_left(route: str) -> None:
    run = await run_scenario(find("g2"), route)
    whole(run)
    assert run.report.totals.misses == 0
    told = run.context.projection, run.context.definitions, run.context.removals, run.context.tail
    assert told == STRATEGIES.get(route, ("dispatch", "by-value", "text", "kept"))


@pytest.mark.parametrize("route", STRATEGIES)
@pytest.mark.parametrize("name", ["wide", "tail", "flap", "prompt-and-tool", "empty-head"])
async def test_each_kind_of_change_on_each_kind_of_route(route: str, name: str) -> None:
    run = await run_scenario(find(name), route)
    whole(run)
    if name != "prompt-and-tool":
        assert run.report.totals.misses == 0


async def test_d7_a_redefinition_breaks_once_on_kimi_and_not_by_dispatch() -> None:
    """Two tools are redefined: a later one, and one of the head."""
    run = await run_scenario(find("redefine"), KIMI)
    whole(run)
    misses = [row.miss for row in run.report.requests if row.miss]
    assert [(miss.declared, miss.reason, miss.at) for miss in misses] == [
        (True, "redefinition", "messages"),
        (True, "redefinition", "tools"),
    ]
    for route in (BOUND, DEEPSEEK):
        run = await run_scenario(find("redefine"), route)
        whole(run)
        assert run.report.totals.misses == 0


@pytest.mark.parametrize("route", [KIMI, CLAUDE, DEEPSEEK, "mistral:mistral-large-4"])
async def test_rebinding_costs_more(route: str) -> None:
    rebinding = (await run_scenario(find("g2"), route, tool_changes="rebind")).report.totals
    assert rebinding.expected_share is not None and rebinding.expected_share < 0.95
    assert rebinding.undeclared_misses == 0


def bodies(run: Run) -> list[dict[str, Any]]:
    return [encoding.decode(record.body) for record in run.records]


async def test_marks_of_openrouter_are_few_and_stand_on_what_goes_in() -> None:
    for body in bodies(await run_scenario(find("tail"), CLAUDE, tail="moved")):
        marked = [tool for tool in body["tools"] if "cache_control" in tool]
        for message in body["messages"]:
            if message["role"] == "assistant":
                assert "cache_control" not in str(message)
                continue
            # Text goes out in parts wherever a mark may come to stand.
            marked += [part for part in message["content"] if "cache_control" in part]
        assert 1 <= len(marked) <= 4


async def test_the_first_tail_stands_behind_its_message_on_openrouter() -> None:
    first, *later = bodies(await run_scenario(find("tail"), CLAUDE, tail="moved"))
    texts = [message["content"][0]["text"] for message in first["messages"][1:]]
    assert texts[1].startswith("<turn_instructions>")
    assert not texts[0].startswith("<turn_instructions>")
    for body in later:
        message = body["messages"][1]["content"][0]["text"]
        assert message == texts[0], "the first message tells the conversation"


async def test_a_key_is_the_same_in_every_request_of_a_session() -> None:
    for route, field in (
        (KIMI, "prompt_cache_key"),
        (CLAUDE, "session_id"),
        ("mistral:mistral-large-4", "prompt_cache_key"),
    ):
        run = await run_scenario(find("prompt-and-tool"), route)
        assert len({body[field] for body in bodies(run)}) == 1
    run = await run_scenario(find("flap"), "xai:grok-4.7")
    keys = {capture.headers["x-grok-conv-id"] for capture in run.captures}
    assert len(keys) == 1 and "" not in keys


async def test_usage_is_read_where_each_vendor_reports_it() -> None:
    for route in (KIMI, DEEPSEEK, "mistral:mistral-large-4"):
        run = await run_scenario(find("flap"), route)
        reads = [record.usage.cache_read for record in run.records]
        assert None not in reads and any(reads)
    # A server that does not say is not known, which is no zero.
    run = await run_scenario(find("flap"), "groq:llama-3.3-70b")
    assert {record.usage.cache_read for record in run.records} == {None}
    assert run.report.totals.share is None
