"""D9: the real engine says that dispatch keeps the prefix and that rebinding breaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner
from msgspec import structs
from tests.lab.engine.engine_here import common, needs_engine, rendered

from addendum import encoding
from addendum.cache.figures import judge
from addendum.cache.record import RequestRecord
from addendum.cli import demo
from addendum.lab.engine import run, server
from addendum.lab.engine.run import ROUTES, SCENARIO, run_on_engine
from addendum.lab.engine.server import open_engine
from addendum.lab.records import rules_of
from addendum.lab.report import Run
from addendum.lab.scenario import Say, Scenario, Toggle
from addendum.lab.scenario_file import find
from addendum.log.values import Usage

WIRES = tuple(ROUTES)


@cache
def played(wire: str, tool_changes: str = "auto") -> Run:
    """Each run once: two seconds."""
    return anyio.run(run_on_engine, find(SCENARIO), wire, tool_changes)


def pairs(done: Run) -> Iterator[tuple[int, int, int]]:
    """The prompt before, what was read, the prompt: in tokens, for each request but the first."""
    for before, row in pairwise(done.report.requests):
        assert before.prompt_tokens is not None and row.prompt_tokens is not None
        assert row.cache_read is not None
        yield before.prompt_tokens, row.cache_read, row.prompt_tokens


def test_the_scenario_has_the_shape_of_g2() -> None:
    ours, g2 = find(SCENARIO), find("g2")
    toggles = [[step for step in each.steps if isinstance(step, Toggle)] for each in (ours, g2)]
    assert toggles[0] == toggles[1]
    turns = [[step for step in each.steps if isinstance(step, Say)] for each in (ours, g2)]
    assert [len(step.entries) for step in turns[0]] == [len(step.entries) for step in turns[1]]
    assert [len(server.tools) for server in ours.servers] == [2, 3, 4]


@needs_engine
@pytest.mark.parametrize("wire", WIRES)
def test_d9_with_dispatch_every_request_reads_the_whole_prompt_before(wire: str) -> None:
    done = played(wire)
    assert done.context.projection == "dispatch"
    assert len(done.report.requests) == 29
    assert done.report.requests[0].cache_read == 0
    assert [before - 1 <= read < prompt for before, read, prompt in pairs(done)] == [True] * 28
    assert done.holds
    totals = done.report.totals
    assert (totals.misses, totals.unknown, totals.broken_tokens) == (0, 0, 0)
    assert totals.ceiling_share == totals.expected_share == 1.0


@needs_engine
@pytest.mark.parametrize("wire", WIRES)
def test_d9_rebinding_collapses_at_each_switch_and_only_there(wire: str) -> None:
    done = played(wire, "rebind")
    broken = [row.n for row in done.report.requests if row.miss is not None]
    assert broken == [3, 7, 11, 16, 20]
    for row, (before, read, _) in zip(done.report.requests[1:], pairs(done), strict=True):
        if row.n in broken:
            assert row.miss is not None
            assert (row.miss.declared, row.miss.reason) == (True, "rebinding")
            assert 0 < read < before / 2
        else:
            assert read >= before - 1
    assert not done.violations
    share = done.report.totals.expected_share
    assert share is not None and share < 0.95


@needs_engine
def test_what_rebinding_reads_is_the_part_in_front_of_the_change() -> None:
    done = played("openai_chat", "rebind")

    async def prompts() -> list[bytes]:
        async with open_engine() as engine:
            return [await rendered(engine, encoding.decode(each.body)) for each in done.records]

    texts = anyio.run(prompts)
    assert [len(text) for text in texts] == [row.prompt_tokens for row in done.report.requests]
    for at, (before, read, _) in enumerate(pairs(done), start=1):
        front = common(texts[at - 1], texts[at])
        # The token that the engine made in answer may by chance be the next one, too.
        assert read in ((front,) if front < before else (front, front + 1))


@needs_engine
def test_all_surfaces_read_the_same_share() -> None:
    for runs in (map(played, WIRES), (played(wire, "rebind") for wire in WIRES)):
        first, *others = [each.report.totals.share for each in runs]
        assert others == [pytest.approx(first, abs=0.005)] * 2


# -- the demo -----------------------------------------------------------------------------------


@pytest.fixture
def engine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo without the lab's routes; what the engine measured above is not measured again."""

    async def measured(scenario: Scenario, wire: str, tool_changes: str = "auto") -> Run:
        assert scenario == find(SCENARIO)
        async with open_engine():
            return await anyio.to_thread.run_sync(
                played, wire, *([tool_changes] if tool_changes != "auto" else [])
            )

    monkeypatch.setattr(demo, "ROUTES", ())
    monkeypatch.setattr(run, "run_on_engine", measured)


def shown(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(demo.demo, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


@needs_engine
def test_the_demo_has_rows_of_the_engine_with_what_it_reported(engine_only: None) -> None:
    code, output = shown("--json")
    assert code == 0
    told = json.loads(output)
    assert list(told) == ["runs"]
    strategies = [(each["route"].partition(":")[0], each["strategy"]) for each in told["runs"]]
    assert strategies == [
        ("compatible", "dispatch"),
        ("compatible", "rebind"),
        ("anthropic-compatible", "dispatch"),
        ("anthropic-compatible", "rebind"),
        ("responses-compatible", "dispatch"),
        ("responses-compatible", "rebind"),
    ]
    for each in told["runs"]:
        assert (each["engine"], each["simulated"]) == (True, False)
        assert each["engine_version"].startswith("llama-server ")
    chat, messages = told["runs"][0], told["runs"][2]
    for request in chat["requests"]:
        raw = request["usage_raw"]
        assert raw["prompt_tokens"] == request["prompt_tokens"]
        assert raw["prompt_tokens_details"]["cached_tokens"] == request["cache_read"]
    for request in told["runs"][4]["requests"]:
        raw = request["usage_raw"]
        assert raw["input_tokens"] == request["prompt_tokens"]
        assert raw["input_tokens_details"]["cached_tokens"] == request["cache_read"]
    for request in messages["requests"]:
        raw = request["usage_raw"]
        assert raw["cache_read_input_tokens"] == request["cache_read"]
        assert raw["input_tokens"] == request["prompt_tokens"] - request["cache_read"]


@needs_engine
def test_the_table_says_who_measured(engine_only: None) -> None:
    code, output = shown()
    assert code == 0
    assert "a real engine; the script speaks" in output
    assert "a token is a byte" in output
    assert max(map(len, output.splitlines())) <= 80


def test_elsewhere_the_demo_says_in_one_line_why_not(
    engine_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(server.PROGRAM_VARIABLE, raising=False)
    monkeypatch.setattr(server.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(server.platform, "machine", lambda: "arm64")
    why = "it is for Linux on x86_64, this is Darwin on arm64"
    code, output = shown()
    assert code == 0
    assert [line for line in output.splitlines() if "engine" in line] == [f"No real engine: {why}"]
    code, output = shown("--json")
    assert (code, json.loads(output)) == (0, {"runs": [], "engine_unavailable": why})


def test_a_demo_of_something_else_does_not_ask_for_the_engine(
    engine_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(server.PROGRAM_VARIABLE, "/nowhere")
    code, output = shown("--scenario", SCENARIO, "--json")
    assert (code, json.loads(output)) == (0, {"runs": []})


# -- its rule -----------------------------------------------------------------------------------


def test_gemini_trap_4_a_prompt_that_is_sent_again_reads_all_but_its_last_token() -> None:
    body = encoding.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    first = RequestRecord(
        1, 1, "s", "compatible:m", "openai_chat", body, usage=Usage(prompt=40, cache_read=0)
    )
    for read, misses in ((39, 0), (38, 1)):
        again = structs.replace(first, n=2, usage=Usage(prompt=40, cache_read=read))
        judged = judge([first, again], rules_of(ROUTES["openai_chat"].cache))
        assert judged.requests[1].expected == 39
        assert judged.totals.misses == misses
