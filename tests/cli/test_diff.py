from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import call, complaint, told
from tests.cli.histories import CHAT, CLAUDE, play, url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diff")
    play(folder, "told", CLAUDE)
    play(folder, "rebound", CHAT, "--tool-changes", "rebind")
    return folder


def test_d8_an_addition_stands_behind_all_that_was_there(folder: Path) -> None:
    found = told("diff", "told-", "2", "3", "--store", url(folder))
    assert found["extends"] and found["first"] is None and found["settings"] == []
    states = [each["state"] for each in found["segments"]]
    assert states == ["same"] * states.count("same") + ["added"] * states.count("added")
    added = [each["type"] for each in found["segments"] if each["state"] == "added"]
    assert added[-2:] == ["tool_addition", "tool_addition"]
    assert found["tokens"] == "estimated"
    prompt = found["b"]["prompt_tokens"]
    whole = sum(each["tokens"] for each in found["segments"] if each["in_prefix"])
    assert whole == pytest.approx(prompt, abs=len(states))


def test_a_changed_tool_list_is_the_first_difference(folder: Path) -> None:
    found = told("diff", "rebound-", "2", "3", "--store", url(folder))
    assert not found["extends"]
    assert found["first"]["area"] == "tools"
    assert (found["first"]["state"], found["first"]["path"]) == ("added", "tools[1]")
    named = {each["name"]: each["state"] for each in found["segments"] if each["kind"] == "tool"}
    assert named == {"look": "same", "files__read": "added", "files__write": "added"}
    # What stands behind it is the same content, and is shown so.
    assert all(
        each["state"] == "same"
        for each in found["segments"]
        if each["kind"] != "tool" and each["before"] is not None
    )
    assert [each["reason"] for each in found["b"]["declared"]] == ["rebinding"]
    back = told("diff", "rebound-", "3", "5", "--store", url(folder))
    assert (back["first"]["state"], back["first"]["after"]) == ("removed", None)


def test_a_request_beside_itself_is_the_same(folder: Path) -> None:
    found = told("diff", "told-", "2", "2", "--store", url(folder))
    assert found["extends"] and {each["state"] for each in found["segments"]} == {"same"}


def test_the_text_fits_80_columns_and_folds_what_is_the_same(folder: Path) -> None:
    shown = call("diff", "rebound-", "2", "3", "--store", url(folder)).stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any(" segments" in line and line.startswith(" same") for line in lines)
    assert any(line.startswith("+ added") and "files__read" in line for line in lines)
    assert "first difference: tools[1]" in lines
    assert "~tokens" in shown and "~" in lines[-5]
    behind = call("diff", "told-", "2", "3", "--store", url(folder)).stdout
    assert behind.endswith("request 3 begins with all of request 2\n")


def test_requests_that_are_not_there_are_named(folder: Path) -> None:
    message = complaint("diff", "told-", "2", "99", "--store", url(folder))
    assert "has requests 1 to 7, not 99" in message
    complaint("diff", "told-", "0", "1", "--store", url(folder))
