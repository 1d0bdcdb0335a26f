"""`addendum why` on a session in which everything happens once.

A conversation that writes its tool list anew before each turn, with the reasons in its log
replaced: one of each that can be declared, one taken out, and one prefix that the provider lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs
from tests.cli.commands import call, told
from tests.cli.histories import CHAT, rewritten, unread, url

from addendum.cache.causes import CAUSES
from addendum.log.events import CacheBreak, Event, ToolPolicy
from addendum.log.values import BreakReason

REASONS: tuple[str, ...] = get_args(BreakReason)
SILENT = len(REASONS) + 1
"""Number of the break that is taken out."""


def scenario() -> str:
    servers = "\n".join(f"  s{at}: {{tools: [{{name: go, result: x}}]}}" for at in range(SILENT))
    turns = "\n".join(
        f"  - enable: s{at}\n  - user: Turn {at}.\n    model: [{{text: Said {at}.}}]"
        for at in range(SILENT)
    )
    return f"""
name: all
instructions: {{text: Be brief., tokens: 1600}}
tools: [{{name: look, result: seen}}]
servers:
{servers}
steps:
  - user: First.
    model: [{{text: Begun.}}]
{turns}
  - user: Last.
    model: [{{text: Ended.}}]
"""


def with_all_reasons() -> Callable[[Event], Event]:
    seen = 0
    lose = unread(SILENT + 2)

    def change(event: Event) -> Event:
        nonlocal seen
        if not isinstance(event.data, CacheBreak):
            return lose(event)
        seen += 1
        if seen == SILENT:
            return structs.replace(event, data=ToolPolicy())
        reason = REASONS[seen - 1]
        # Of these two our bytes show nothing.
        at = "none" if reason in ("reasoning stripped", "lifetime passed") else "tools"
        return structs.replace(event, data=structs.replace(event.data, reason=reason, at=at))

    return change


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("all")
    file = folder / "all.yaml"
    file.write_text(scenario(), "utf-8")
    rebind = ("--route", CHAT, "--tool-changes", "rebind")
    told("run", str(file), *rebind, "--store", url(folder))
    rewritten(folder, "all-", "every", with_all_reasons())
    return url(folder)


def test_every_reason_that_can_be_declared_is_explained(store: str) -> None:
    misses = told("why", "every", "--store", store, code=1)["misses"]
    declared = [each for each in misses if each["verdict"] == "declared"]
    assert [each["reason"] for each in declared] == list(REASONS)
    for each in declared:
        assert (each["text"], each["advice"]) == (
            CAUSES[each["reason"]].text,
            CAUSES[each["reason"]].advice,
        )
        assert each["lost"] > 0 and each["cost"] > 0 and each["anthropic"] and each["openai"]
    assert [each["verdict"] for each in misses[len(REASONS) :]] == ["undeclared", "provider"]
    undeclared, provider = misses[-2:]
    assert undeclared["text"] == CAUSES["tools"].text
    assert undeclared["first"]["path"].startswith("tools[")
    assert provider["first"] is None and provider["text"] == CAUSES["provider"].text


def test_all_of_it_fits_a_terminal_and_reads_line_by_line(store: str) -> None:
    shown = call("why", "every", "--store", store, code=1).stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    count = len(REASONS) + 2
    assert lines[0].endswith(f"{count} read less than expected, 1 undeclared")
    heads = [line for line in lines[1:] if line.startswith("request ")]
    assert len(heads) == count
    assert sum(line.startswith("  declared: ") for line in lines) == len(REASONS)
    assert sum(line.startswith("  UNDECLARED: ") for line in lines) == 1
    assert sum(line.startswith("  provider: ") for line in lines) == 1
    assert sum(line.startswith("    what to do: ") for line in lines) == count
    assert sum(line.startswith("    providers call it ") for line in lines) == count
    for cause in REASONS:
        text = CAUSES[cause].text
        assert text in " ".join(shown.split()), cause
