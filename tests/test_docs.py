"""What the pages promise: shown code is a tested file, and named commands and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[1]
READMES = ["README.md", "README.zh.md"]
NOTES = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(read(name)) if found == language]


def commands(name: str) -> str:
    """Return what a page shows as commands: its shell blocks and its code between backticks."""
    shell = [re.sub(r" #.*", "", block) for block in blocks(name, "sh")]
    return "\n".join([*shell, *re.findall(r"`([^`\n]+)`", FENCE.sub("", read(name)))])


@pytest.mark.parametrize("name", READMES)
def test_python_in_a_readme_is_the_example_file(name: str) -> None:
    _, example, _ = re.split(
        r"^# \[/?readme\]\n", read("examples/switch_on.py"), flags=re.MULTILINE
    )
    assert blocks(name, "python") == [example]


@pytest.mark.parametrize("name", [*READMES, "CONTRIBUTING.md"])
def test_make_targets_that_are_named_exist(name: str) -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)", commands(name)))
    targets = set(re.findall(r"^([a-z-]+):.* ## ", read("Makefile"), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_the_list_of_make_targets_fits_eighty_columns() -> None:
    helps = re.findall(r"^([a-z-]+):.* ## (.*)$", read("Makefile"), re.MULTILINE)
    assert helps
    assert [name for name, text in helps if len(f"  make {name:11} {text}") > 80] == []


@pytest.mark.parametrize("name", READMES)
def test_subcommands_that_are_named_exist(name: str) -> None:
    from addendum.app.main import main

    named = set(re.findall(r"(?<![\w/])addendum ([a-z]+)\b", commands(name)))
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    assert "demo" in named
    assert named <= set(re.findall(r"^  ([a-z]+)\b", shown.output, re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_links_to_files_lead_somewhere(name: str) -> None:
    prose = FENCE.sub("", read(name))
    targets = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose)]
    local = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (ROOT / name).parent.joinpath(target).exists()] == []


def test_the_readmes_have_the_same_shape_and_fit_two_screens() -> None:
    english, chinese = (re.findall(r"^(#+ |\||- )", read(name), re.MULTILINE) for name in READMES)
    assert english == chinese
    assert all(len(read(name).splitlines()) <= 100 for name in READMES)


@pytest.mark.parametrize("name", NOTES)
def test_a_decision_note_is_short_complete_and_listed(name: str) -> None:
    text = read(f"docs/decisions/{name}")
    parts = ["Evidence", "Decision", "Rejected", "Consequences"]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == parts
    assert len(text.splitlines()) <= 40
    assert f"[{name[:4]}]({name})" in read("docs/decisions/README.md")


def test_decision_notes_are_numbered_without_gaps() -> None:
    assert NOTES
    assert [int(name[:4]) for name in NOTES] == list(range(1, len(NOTES) + 1))
