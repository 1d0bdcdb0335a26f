"""The pages about caches and the harness: their code is a tested file, their commands exist."""

from __future__ import annotations

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
    from addendum.cli.main import main

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


def test_scripts_that_are_named_exist() -> None:
    for page in PAGES:
        for path in re.findall(r"python (bench/[\w/]+\.py)", text(page)):
            assert (ROOT / path).exists()
