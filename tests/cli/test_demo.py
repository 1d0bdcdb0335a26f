from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.commands import call, complaint, told

from addendum.cli.demo import ROUTES
from addendum.prompt import projector
from addendum.prompt.marks import Marks


def test_the_demo_shows_each_way_beside_rebinding_in_80_columns() -> None:
    shown = call("demo").stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "14 turns, 29 requests; simulated by published rules" in lines[0]
    for route in ROUTES:
        at = lines.index(route)
        assert lines[at + 2].split()[0] == "rebinding"
    for told_by in ("in-history, by value", "in-history, by reference", "dispatch"):
        ours = [line for line in lines if line.strip().startswith(told_by)]
        assert ours
        # Expected and ceiling are whole; nothing was missed, nothing undeclared.
        assert all(line.count("100.0 %") == 2 for line in ours)
        assert all(line.split()[-2:] == ["0", "0"] for line in ours)
    assert "openai:gpt-6.1-sol: its tool changes are reported, not documented" in lines
    assert lines[-1] == "All rules hold."
    written_down(lines)


ROOT = Path(__file__).parents[2]


def written_down(lines: list[str]) -> None:
    """Compare the figures that the pages repeat with those of a demo."""

    def rows(route: str) -> list[list[str]]:
        at = lines.index(route)
        return [re.findall(r"[\d.,]+(?= %)|(?<= )[\d,]+(?= |$)", lines[at + n]) for n in (1, 2)]

    def cells(page: str, first: str) -> list[str]:
        text = (ROOT / page).read_text("utf-8")
        table = next(part for part in text.split("\n\n") if part.startswith(f"| {first} |"))
        return table.splitlines()[2:]

    engine = next((each for each in lines if each.startswith("compatible:")), None)
    routes = ["anthropic:claude-opus-5-5", "openai-chat:gpt-4.1", *([engine] if engine else [])]
    demo = [row for route in routes for row in rows(route)]
    for page, first in (("README.md", "route"), ("README.zh.md", "路由")):
        for said, row in zip(cells(page, first), demo, strict=engine is not None):
            share, expected, _, unread, misses, _ = row
            expected = expected.replace("100.0", "100")
            tail = f"| {share} % | {expected} % | {unread} | {misses} |"
            assert said.endswith(tail), f"{page}: {said} is now {tail}"
    page = "docs/when-you-do-not-need-this.md"
    told_on = ("anthropic:claude-opus-5-5", "openai:gpt-6.1-sol", "openai-chat:gpt-4.1")
    for said, route in zip(cells(page, "route"), told_on, strict=True):
        ours, anew = rows(route)
        assert f", {ours[3]} |" in said and f", {anew[3]} |" in said, f"{page}: {said}"


def test_the_demo_as_json_has_every_run_and_its_rebinding() -> None:
    runs = told("demo", "--scenario", "empty-head")["runs"]
    assert [(run["route"], run["tool_changes"]) for run in runs] == [
        (route, mode) for route in ROUTES for mode in ("auto", "rebind")
    ]
    for run in runs:
        assert run["scenario"] == "empty-head"
        assert run["simulated"] and run["holds"]
        if run["tool_changes"] == "rebind":
            assert run["strategy"] == "rebind"
            assert run["totals"]["expected_share"] < 0.95


def test_other_scenarios_and_routes_can_be_asked_for() -> None:
    routes = ("--route", "anthropic:claude-opus-4-8", "--route", "openai-chat:gpt-6.1-sol")
    runs = told("demo", "--scenario", "wide", "--set", "count=3", *routes)["runs"]
    assert {run["route"] for run in runs} == {routes[1], routes[3]}
    assert "no scenario 'nope'" in complaint("demo", "--scenario", "nope")
    vendor = {"ADDENDUM_ROUTES": str(Path(__file__).parents[2] / "examples" / "vendor.toml")}
    said = complaint("demo", "--route", "acme:acme-large", env=vendor)
    assert "the lab has no provider 'acme'; `addendum lab` lists" in said


def test_a_broken_rule_is_shown_and_makes_the_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without marks nothing of a request can be found again.
    monkeypatch.setattr(projector, "plan_marks", lambda *_, **__: Marks())
    file = tmp_path / "broken.yaml"
    file.write_text(
        "name: broken\ninstructions: {text: Be brief., tokens: 1200}\ntools: [{name: look}]\n"
        "steps:\n  - user: One.\n    model: [{calls: [{tool: look}]}, {text: First.}]\n",
        "utf-8",
    )
    arguments = ("--scenario", str(file), "--route", "anthropic:claude-opus-5-5")
    shown = call("demo", *arguments, code=1).stdout
    assert "V10 broken by request 1" in shown
    assert shown.splitlines()[-1] == "Not all rules hold."
    runs = told("demo", *arguments, code=1)["runs"]
    assert [run["holds"] for run in runs] == [False, False]


def test_an_unknown_share_is_not_shown_as_a_number() -> None:
    shown = call("demo", "--scenario", "empty-head", "--route", "compatible:model").stdout
    row = next(line for line in shown.splitlines() if line.startswith("  dispatch"))
    assert row.split() == ["dispatch", "-", "-", "-", "-", "0", "0"]


@pytest.mark.parametrize("arguments", [["--set", "size=1"], ["--set", "size"]])
def test_a_variable_that_is_not_there_is_one_line(arguments: list[str]) -> None:
    complaint("demo", "--scenario", "wide", *arguments)
