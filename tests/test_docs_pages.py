"""The pages about caches and the harness: their code is a tested file, their commands exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[1]
PAGES = [
    "library",
    "why-a-cache-breaks",
    "projections",
    "routes",
    "harness",
    "when-you-do-not-need-this",
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = "\n".join(path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py"))


def text(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text("utf-8")


def commands(page: str) -> list[list[str]]:
    shown = [
        line
        for kind, body in FENCE.findall(text(page))
        if kind == "sh"
        for line in body.splitlines()
    ]
    prose = re.findall(r"`(addendum [^`\n]+)`", FENCE.sub("", text(page)))
    return [shlex.split(line)[1:] for line in (*shown, *prose) if line.startswith("addendum ")]


@pytest.mark.parametrize("page", PAGES)
def test_code_is_part_of_a_tested_example(page: str) -> None:
    for kind, body in FENCE.findall(text(page)):
        assert kind in ("sh", "python")
        if kind == "python":
            assert body in EXAMPLES


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    from addendum.app.main import main

    for words in commands(page):
        name, *rest = words
        found = main.get_command(
            main.make_context("addendum", ["--help"], resilient_parsing=True), name
        )
        assert found is not None, name
        asked = ["of", "--help"] if name == "tools" else ["--help"]
        shown = CliRunner().invoke(found, asked).output
        for option in [each for each in rest if each.startswith("--") and each != "--"]:
            assert option in shown, f"{name} {option}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_listed(page: str) -> None:
    assert len(text(page).splitlines()) <= 80
    assert f"({page}.md)" in (ROOT / "docs" / "index.md").read_text("utf-8")


def test_the_table_of_routes_is_what_their_data_say() -> None:
    from addendum.cli.demo import ROUTES
    from addendum.routes import resolve

    rows = [line for line in text("routes").splitlines() if line.startswith("| `")]
    for name, row in zip(ROUTES, rows, strict=True):
        route = resolve(name, environ={})
        told_by, cache = route.capabilities.tool_update or "dispatch", route.cache
        assert row == (
            f"| `{name}` | {route.wire} | {told_by} | {cache.kind} | {cache.minimum:,} | "
            f"{route.certainty} |"
        )


def test_the_table_of_rules_is_what_the_program_says_of_them() -> None:
    from addendum.cli.check import MEANING

    rows = re.findall(r"^\| (V\d+) \| (.*) \|$", text("harness"), re.MULTILINE)
    assert rows == list(MEANING.items())


def test_all_scenarios_that_come_along_are_named() -> None:
    from addendum.lab import scenario_file

    folder = Path(scenario_file.__file__).parent / "scenarios"
    names = {path.stem for path in folder.glob("*.yaml")}
    assert len(names) > 5
    assert [name for name in sorted(names) if f"`{name}`" not in text("scenarios")] == []


def test_variables_that_lead_to_the_lab_are_those_of_the_routes() -> None:
    from addendum.lab.server import PROVIDERS
    from addendum.routes.data import providers

    known = {
        variable
        for provider in providers().values()
        if provider.name in PROVIDERS
        for variable in provider.endpoint.base_url_variables
    }
    table = re.findall(r"^\| (`[A-Z].*?) \|", text("scenarios"), re.MULTILINE)
    named = set(re.findall(r"`([A-Z_]+)`", " ".join(table)))
    assert len(named) > 8 and named <= known


def test_the_file_of_servers_that_is_shown_is_the_example() -> None:
    shown = re.search(r"^    (\{\"mcpServers\".*?)\n\n", text("viewer"), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert json.loads(shown[1]) == json.loads((ROOT / "examples" / "mcp.json").read_text("utf-8"))


def test_scripts_that_are_named_exist() -> None:
    for page in PAGES:
        for path in re.findall(r"python (bench/[\w/]+\.py)", text(page)):
            assert (ROOT / path).exists()
