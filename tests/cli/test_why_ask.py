"""`addendum why --ask`: the endpoint's own diagnostics beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import call, complaint, told
from tests.cli.histories import CHAT, CLAUDE, play, rewritten, unread, url

from addendum.pytest_plugin import CacheLab

RESPONSES = "openai:gpt-6.1-sol"
KEYS = {"ANTHROPIC_API_KEY": "any", "OPENAI_API_KEY": "any"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask")
    play(folder, "claude", CLAUDE, "--tool-changes", "rebind")
    play(folder, "responses", RESPONSES, "--tool-changes", "rebind")
    play(folder, "chat", CHAT, "--tool-changes", "rebind")
    rewritten(folder, "claude-", "lost", unread(2))
    return folder


@pytest.mark.parametrize(("name", "provider"), [("claude", "anthropic"), ("responses", "openai")])
def test_the_endpoint_is_asked_about_each_miss_and_agrees(
    folder: Path, cache_lab: CacheLab, name: str, provider: str
) -> None:
    base = cache_lab.base_url(provider)
    arguments = ("why", f"{name}-", "--ask", "--base-url", base, "--store", url(folder))
    found = told(*arguments, env=KEYS)
    assert [each["n"] for each in found["asked"]] == [each["n"] for each in found["misses"]]
    assert found["asked"] and all(each["agrees"] for each in found["asked"])
    assert found["asked"][0]["word"] == "tools_changed"
    # Both requests of a miss were sent, each with the shortest answer.
    assert len(cache_lab.captures) == 2 * len(found["asked"])
    shown = call(*arguments, env=KEYS).stdout.splitlines()
    count = len(found["asked"])
    assert shown[-1] == f"the endpoint agrees on {count} of {count} asked"
    assert max(map(len, shown)) <= 80


def test_what_a_provider_lost_shows_in_no_comparison(folder: Path, cache_lab: CacheLab) -> None:
    base = cache_lab.base_url("anthropic")
    arguments = ("why", "lost", "--request", "2", "--ask", "--base-url", base)
    (asked,) = told(*arguments, "--store", url(folder), env=KEYS)["asked"]
    assert asked == {"n": 2, "word": None, "agrees": True}


def test_a_route_without_diagnostics_is_said_so(folder: Path) -> None:
    shown = call("why", "chat-", "--ask", "--store", url(folder)).stdout.splitlines()
    assert shown[-2] == "the endpoint agrees on 0 of 0 asked"
    assert shown[-1].endswith("could not be asked: their routes have no diagnostics")


def test_an_endpoint_that_refuses_is_one_line(folder: Path, cache_lab: CacheLab) -> None:
    arguments = ("why", "claude-", "--ask", "--store", url(folder))
    env = {"ANTHROPIC_API_KEY": ""}
    assert "ANTHROPIC_API_KEY" in complaint(*arguments, env=env)
    cache_lab.lab.fail_next("anthropic", status=403)
    base = cache_lab.base_url("anthropic")
    said = complaint(*arguments, "--base-url", base, env=KEYS)
    assert "refused to be asked (403)" in said
    assert "cannot be reached" in complaint(
        *arguments, "--base-url", "http://127.0.0.1:9", env=KEYS
    )
