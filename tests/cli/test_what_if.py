"""`addendum tools ID`: weights, and what a switch would cost before it is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call, complaint, told
from tests.cli.histories import CHAT, CLAUDE, url

TEXT = """
name: NAME
instructions: {text: Be brief., tokens: 1600}
tools:
  - {name: look, parameters: {properties: {q: {type: string}}}, result: {text: seen, tokens: 300}}
servers:
  files: {tools: [{name: read, result: text}, {name: write}]}
steps:
  - user: One.
    model: [{calls: [{tool: look, arguments: {q: a}}]}, {text: First.}]
  - enable: files
  - user: Two.
    model: [{calls: [{tool: read}]}, {text: Second.}]
  - disable: files
  - user: Three.
    model: [{text: Third.}]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("what-if")
    for name, route, *more in (
        ("native", CLAUDE),
        ("dispatch", CHAT),
        ("rebound", CHAT, "--tool-changes", "rebind"),
    ):
        file = folder / f"{name}.yaml"
        file.write_text(TEXT.replace("NAME", name), "utf-8")
        told("run", str(file), "--route", route, "--store", url(folder), *more)
    return url(folder)


def states(store: str, session: str, *more: str) -> dict[str, Any]:
    found = told("tools", session, *more, "--store", store)
    return {tool["name"]: tool for tool in found["tools"]}


def middle(store: str, session: str) -> str:
    """The last event of the turn in which the server was on."""
    since = states(store, session)["files__read"]["since_seq"]
    return str(since - 1)


def test_d8_a_tool_that_the_model_calls_by_name_is_active_on_a_native_route(store: str) -> None:
    at = middle(store, "native-")
    assert states(store, "native-", "--at", at)["files__read"]["state"] == "active"
    assert states(store, "dispatch-", "--at", middle(store, "dispatch-"))["files__read"][
        "state"
    ] == ("deferred")
    assert states(store, "rebound-", "--at", middle(store, "rebound-"))["files__read"]["state"] == (
        "active"
    )


def test_d8_weight_is_dead_where_a_definition_is_sent_for_nothing(store: str) -> None:
    now = told("tools", "native-", "--at", middle(store, "native-"), "--store", store)
    weights = {tool["name"]: (tool["weight"] > 0, tool["dead"]) for tool in now["tools"]}
    assert weights == {
        "look": (True, False),
        "files__read": (True, False),
        "files__write": (True, True),
    }
    assert now["weight"] == sum(tool["weight"] for tool in now["tools"])
    # What was told in the history stays in it; a list that is written anew forgets.
    after, rebound = states(store, "native-"), states(store, "rebound-")
    assert after["files__read"]["state"] == "removed" and after["files__read"]["dead"]
    assert rebound["files__read"]["weight"] == 0 and not rebound["files__read"]["dead"]
    shown = call("tools", "native-", "--store", store).stdout.splitlines()
    dead = after["files__read"]["weight"] + after["files__write"]["weight"]
    assert shown[-1] == f"dead weight, removed or never called: {dead}"
    assert max(map(len, shown)) <= 80


def test_figures_of_a_request_are_shown_whole(store: str) -> None:
    shown = call("show", "native-", "--store", store).stdout
    assert max(map(len, shown.splitlines())) <= 80
    costs = re.sub(r"\n {18}", " ", shown)
    assert re.search(r"rebinding about \$\S+ more, dead weight about \d+$", costs, re.M)


@pytest.mark.parametrize(
    ("session", "strategy", "whole"),
    [
        ("native-", "in-history", False),
        ("dispatch-", "dispatch", False),
        ("rebound-", "rebind", True),
    ],
)
def test_a_switch_is_told_before_it_is_made(
    store: str, session: str, strategy: str, whole: bool
) -> None:
    found = told("tools", session, "--what-if", "enable:files", "--store", store)
    assert (found["server"], found["on"], found["strategy"]) == ("files", True, strategy)
    assert found["tools"] == 2 and found["weight"] > 20
    cost = found["cost"]
    assert cost["again"] == (cost["held"] if whole else 0) and cost["held"] > 1000
    assert ("rebinding" in cost["reasons"]) == whole
    # Nothing of it has reached the session.
    assert states(store, session)["files__read"]["state"] == "removed"
    shown = call("tools", session, "--what-if", "enable:files", "--store", store).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert f"told as {strategy}" in shown


def test_another_route_is_estimated_as_if_it_had_answered(store: str) -> None:
    for route, strategy in ((CHAT, "dispatch"), ("openai:gpt-6.1-sol", "addition-only")):
        found = told(
            "tools", "native-", "--what-if", "enable:files", "--route", route, "--store", store
        )
        assert (found["route"], found["strategy"]) == (route, strategy)
        assert found["cost"]["again"] == 0 and found["cost"]["estimated"]
        assert found["cost"]["rebinding"] == found["cost"]["prompt"] > 1000
        assert found["cost"]["rebinding_cost"] > 0


def test_a_server_that_was_never_on_may_be_asked_about(store: str, tmp_path: Path) -> None:
    servers = tmp_path / "servers.json"
    servers.write_text('{"mcpServers": {"news": {"command": "news"}}}', "utf-8")
    asked = ("--what-if", "enable:news", "--mcp", str(servers), "--store", store)
    shown = call("tools", "native-", *asked).stdout
    assert "its tools are not in this log" in shown and "  0 of " in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what-if", "files"], "'files' is no switch; write enable:SERVER"),
        (["--what-if", "enable:"], "is no switch"),
        (["--what-if", "disable:files"], "server files is off already"),
        (["--what-if", "disable:news"], "server news is off already"),
        (["--what-if", "enable:files", "--route", "nobody:x"], "nobody"),
        (["--what-if", "enable:news"], "never had a server 'news'; correct the name, or name the"),
        (["--route", CHAT], "add --what-if"),
        (["--mcp", "none.json"], "--mcp goes with a switch only"),
    ],
)
def test_what_cannot_be_asked_is_one_line(store: str, arguments: list[str], said: str) -> None:
    assert said in complaint("tools", "native-", *arguments, "--store", store)
