"""Scenarios on Bedrock and Gemini: all that could be read is read, and nothing is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from addendum import encoding
from addendum.lab.report import Run
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find, load
from addendum.lab.tokens import segment
from addendum.log.events import AssistantMessage

pytestmark = pytest.mark.anyio

SONNET = "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"
OPUS = "bedrock:global.anthropic.claude-opus-5-5"
NOVA = "bedrock:us.amazon.nova-pro-v1:0"
GEMINI = "gemini:gemini-3.8-flash"
ROUTES = (SONNET, OPUS, NOVA, GEMINI, "gemini:gemini-2.5-pro", "vertex:gemini-4-argon")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", ["g2", "wide", "redefine", "tail", "flap", "prompt-and-tool"])
async def test_all_that_is_left_is_read(route: str, name: str) -> None:
    run = await run_scenario(find(name), route)
    totals = run.report.totals
    assert run.holds, (run.violations[:3], [r for r in run.report.requests if r.miss][:3])
    assert run.context.projection == "dispatch"
    assert (totals.undeclared_misses, totals.provider_misses, totals.unknown) == (0, 0, 0)
    assert totals.ceiling_share is not None and totals.ceiling_share >= 0.999
    if name != "prompt-and-tool":
        assert totals.misses == 0


@pytest.mark.parametrize("route", [SONNET, OPUS, NOVA, GEMINI])
async def test_rebinding_costs_more(route: str) -> None:
    rebinding = (await run_scenario(find("g2"), route, tool_changes="rebind")).report.totals
    assert rebinding.expected_share is not None and rebinding.expected_share < 0.95
    assert rebinding.undeclared_misses == 0


def bodies(run: Run) -> list[dict[str, Any]]:
    return [encoding.decode(record.body) for record in run.records]


async def test_t58_t59_marks_on_bedrock_are_few_and_never_on_a_tail() -> None:
    for route in (SONNET, OPUS, NOVA):
        for body in bodies(await run_scenario(find("tail"), route)):
            rows = [body["toolConfig"]["tools"], body["system"]]
            rows += [message["content"] for message in body["messages"]]
            assert sum("cachePoint" in each for row in rows for each in row) <= 4
            assert body["toolConfig"]["tools"]
            roles = [message["role"] for message in body["messages"]]
            assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
            if route == NOVA:
                assert not any("cachePoint" in each for each in body["toolConfig"]["tools"])


async def test_what_the_judge_counts_is_what_the_lab_counts() -> None:
    """Sizes are exact, so no boundary has to be estimated."""
    for route in (SONNET, GEMINI):
        run = await run_scenario(find("g2"), route)
        assert not any(row.estimated for row in run.report.requests)
    assert segment("assistant", {"text": "x"}).tokens == 6


STEPS = """
name: direct
instructions: Be brief.
servers:
  files: {tools: [{name: read, parameters: {properties: {q: {type: string}}}, result: text}]}
steps:
  - enable: files
  - user: One.
    model: [{calls: [{tool: read, arguments: {q: a}, form: direct}], thinking: t}, {text: First.}]
  - restart: true
  - user: Two.
    model: [{calls: [{tool: read, arguments: {q: b}}]}, {text: Second.}]
  - route: "anthropic:claude-opus-5-5"
  - user: Three.
    model: [{calls: [{tool: read, arguments: {q: c}}]}, {text: Third.}]
  - route: "ROUTE"
  - user: Four.
    model: [{calls: [{tool: read, arguments: {q: d}}]}, {text: Fourth.}]
"""


@pytest.mark.parametrize("route", [OPUS, NOVA, GEMINI])
async def test_direct_calls_moves_and_restarts(route: str, tmp_path: Path) -> None:
    file = tmp_path / "direct.yaml"
    file.write_text(STEPS.replace("ROUTE", route), "utf-8")
    run = await run_scenario(load(file), route)
    assert run.holds, run.violations
    first = next(
        event.data
        for event in run.sessions[0].events
        if isinstance(event.data, AssistantMessage) and event.data.calls
    )
    assert first.calls[0].name == "files__read"
    last = run.records[-1].body
    for raw in first.native:
        assert bytes(raw) in last
    if route == GEMINI:
        call = encoding.decode(bytes(first.native[-1]))["functionCall"]
        assert call["name"] == "call_tool"
        assert call["args"] == {"name": "files__read", "arguments": '{"q":"a"}'}
        # The call that Claude made stands with the documented stand-in.
        assert last.count(b"skip_thought_signature_validator") == 1


LAST_TOOL = """
name: last-tool
instructions: Be brief.
tools:
  - {name: look, parameters: {properties: {q: {type: string}}}, result: seen}
steps:
  - user: One.
    model: [{calls: [{tool: look, arguments: {q: a}}]}, {text: First.}]
  - remove_tool: look
  - user: Two.
    model: [{text: Second.}]
  - compact: {summary: "They talked."}
  - user: Three.
    model: [{text: Third.}]
"""


async def test_b17_a_history_with_calls_always_has_a_tool_configuration(tmp_path: Path) -> None:
    file = tmp_path / "last.yaml"
    file.write_text(LAST_TOOL, "utf-8")
    run = await run_scenario(load(file), SONNET)
    assert run.holds, run.violations
    assert run.context.projection == "rebind"
    declared = [
        [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"] if "toolSpec" in tool]
        for body in bodies(run)
    ]
    assert declared[:2] == [["look"], ["look"]]
    # It stays when the compaction has taken the calls away: one declared break, not two.
    assert declared[2:] == [["deferred_tools_placeholder"]] * 3


NO_TOOLS = """
name: no-tools
instructions: Be brief.
steps:
  - user: One.
    model: [{text: First.}]
"""


async def test_a_session_that_never_had_tools_declares_none(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    file.write_text(NO_TOOLS, "utf-8")
    for route in (SONNET, GEMINI):
        (body,) = bodies(await run_scenario(load(file), route))
        assert not {"toolConfig", "tools"} & set(body)


ONCE = """
name: once
instructions: {text: Be brief., tokens: 3000}
tools: [{name: look, parameters: {properties: {q: {type: string}}}, result: seen}]
servers:
  files: {tools: [{name: read, result: text}]}
turn_instructions: Only now.
steps:
  - user: One.
    model: [{text: First.}]
  - user: Two.
    model:
      - {calls: [CALLS]}
      - {text: Second.}
  - set: {turn_instructions: ""}
  - user: Three.
    model: [{text: Third.}]
"""


@pytest.mark.parametrize("route", [SONNET, NOVA, "anthropic:claude-sonnet-4-6"])
async def test_what_stood_behind_a_tail_is_not_looked_for_in_a_turn_without_one(
    route: str, tmp_path: Path
) -> None:
    """The lagging mark stands at the end of the history that the last turn stored (V10)."""
    file = tmp_path / "once.yaml"
    calls = ", ".join(["{tool: look, arguments: {q: a}}"] * 12)
    file.write_text(ONCE.replace("CALLS", calls), "utf-8")
    run = await run_scenario(load(file), route)
    assert run.holds, (run.violations, [row for row in run.report.requests if row.miss])
    assert run.report.totals.misses == 0
