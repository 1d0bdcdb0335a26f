"""The comparison with other frameworks: what needs no framework of it runs here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from addendum.lab.scenario_file import find

FOLDER = Path(__file__).parents[1] / "bench" / "peers"


@pytest.fixture(scope="module")
def bench() -> Any:
    """The module `bench/peers/run.py`, which finds its neighbour as a script does."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("peers_run", FOLDER / "run.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["peers_run"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("peers_run", None)
        sys.modules.pop("hand_made", None)


def test_every_framework_is_pinned_and_its_version_named(bench: Any) -> None:
    lines = (FOLDER / "requirements.txt").read_text("utf-8").split()
    assert all(line.count("==") == 1 for line in lines)
    pinned = {line.partition("==")[0].partition("[")[0]: line.partition("==")[2] for line in lines}
    named = {
        "pydantic-ai": pinned["pydantic-ai-slim"],
        "langchain": pinned["langchain"],
        "openai-agents": pinned["openai-agents"],
    }
    for subject in bench.SUBJECTS:
        name, _, version = subject.name.partition(" ")
        if subject.script:
            assert (FOLDER / subject.script).exists()
            assert name.rstrip(",") in named
            assert version in (named[name.rstrip(",")], "deltas by hand", "changes mid-run")


def test_the_plan_is_the_scenario(bench: Any) -> None:
    plan = bench.plan(find("g2"))
    assert len(plan["tools"]) == 1
    assert [len(tools) for tools in plan["servers"].values()] == [4, 12, 25]
    switches = [step for step in plan["steps"] if "user" not in step]
    assert len(plan["steps"]) - len(switches) == 14 and len(switches) == 5
    assert plan["servers"]["files"][0]["name"] == "files__list_files"


def test_in_the_middle_of_a_run_each_switch_is_a_call_more(bench: Any) -> None:
    (first, *_) = [step for step in bench.mid_run(find("g2")).steps if hasattr(step, "server")]
    says = [step for step in bench.mid_run(find("g2")).steps if hasattr(step, "entries")]
    assert sum(len(step.entries) for step in says) == 29 + 5
    call = says[1].entries[0].calls[0]
    assert (call.tool, call.arguments) == ("switch_server", {"server": first.server, "on_": True})


@pytest.mark.parametrize("wire", ["anthropic", "responses", "chat"])
def test_what_is_made_by_hand_misses_nothing_and_is_near_the_other_meter(
    bench: Any, wire: str
) -> None:
    (subject,) = [s for s in bench.SUBJECTS if s.name.startswith("made by") and s.wire == wire]
    outcome = anyio.run(bench.played, subject, find("g2"))
    totals = outcome.report.totals
    assert (totals.requests, totals.misses) == (29, 0)
    assert abs(100 * totals.share - subject.share) <= 2
    assert not [each for each in outcome.examined.findings if each.rule in ("V1", "V2", "V3")]


def test_a_rebound_tool_list_costs_what_the_other_meter_says(bench: Any) -> None:
    (subject,) = [s for s in bench.SUBJECTS if "rebound" in s.name and s.wire == "anthropic"]
    totals = anyio.run(bench.played, subject, find("g2")).report.totals
    assert totals.misses == 4 and abs(100 * totals.share - subject.share) <= 2
