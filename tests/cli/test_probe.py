from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.cli.commands import call, complaint, told

from addendum.lab.exchange import Switches
from addendum.lab.server import Lab, open_lab
from addendum.routes import resolve
from addendum.routes.probed import Facts, Probed, keep

OPENAI = "openai:gpt-6.1-sol"


@pytest.fixture
def portal() -> Generator[BlockingPortal]:
    with start_blocking_portal("asyncio") as opened:
        yield opened


@pytest.fixture
def lab(portal: BlockingPortal) -> Generator[Lab]:
    with portal.wrap_async_context_manager(open_lab()) as opened:
        yield opened


def arguments(lab: Lab, out: Path, *more: str) -> tuple[str, ...]:
    base_url = lab.base_url("openai")
    return ("routes", "probe", OPENAI, "--base-url", base_url, "--out", str(out), *more)


def test_a_probe_shows_a_table_and_keeps_its_results(lab: Lab, tmp_path: Path) -> None:
    shown = call(*arguments(lab, tmp_path)).stdout
    lines = shown.splitlines()
    (kept,) = tmp_path.iterdir()
    # Only the place of the file may be longer than a line.
    assert max(len(line) for line in lines if str(kept) not in line) <= 80
    assert "A server on this machine answered: these are not a provider's figures." in lines
    add = next(line for line in lines if line.startswith("items  add "))
    assert add.split()[:5] == ["items", "add", "taken", "yes", "refused"]
    assert add.split()[-1] == "kept"
    assert "New sessions go on by addition-only, by-value;" in shown
    stored = json.loads(kept.read_bytes())
    assert stored["facts"]["tool_update"] == "addition-only"
    assert stored["date"] and stored["version"] and stored["endpoint"] == lab.base_url("openai")


def test_as_json_with_tasks(lab: Lab, tmp_path: Path) -> None:
    found = told(*arguments(lab, tmp_path, "--tasks"))
    assert [each["way"] for each in found["tasks"]] == ["bind", "native", "dispatch"]
    # The free model obeys where it is told what to call, and nothing else.
    assert {(each["succeeded"], each["tasks"]) for each in found["tasks"]} == {(2, 6)}
    assert found["requests"] == sum(each.status == 200 for each in lab.captures)
    assert json.loads(Path(found["kept"]).read_bytes())["tasks"] == found["tasks"]


def test_an_endpoint_that_does_otherwise_is_exit_code_1(lab: Lab, tmp_path: Path) -> None:
    lab.switches = Switches(drops_unknown=True)
    shown: dict[str, Any] = told(*arguments(lab, tmp_path), code=1)
    assert shown["facts"]["tool_update"] is None
    assert shown["forms"][0]["checks"][0]["verdict"] == "dropped"
    assert "new sessions use the dispatcher" in call(*arguments(lab, tmp_path), code=1).stdout


def test_a_wire_that_has_no_tool_changes(lab: Lab, tmp_path: Path) -> None:
    base_url = lab.base_url("gemini")
    named = ("gemini:gemini-4-argon", "--base-url", base_url, "--out", str(tmp_path))
    assert "has no form of tool changes" in call("routes", "probe", *named).stdout.replace(
        "\n", " "
    )
    assert not lab.captures


def test_what_was_probed_is_shown_among_the_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADDENDUM_PROBES", str(tmp_path))
    route = resolve(OPENAI, environ={})
    keep(route, Probed(route.name, route.endpoint.base_url, "2026-11-29", "1", Facts(None)))
    (one,) = told("routes", OPENAI)["routes"]
    assert (one["certainty"], one["checked"], one["tool_update"]) == ("probed", "2026-11-29", None)


def test_what_cannot_be_probed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    claude = "anthropic:claude-opus-5-5"
    assert "ANTHROPIC_API_KEY" in complaint("routes", "probe", claude)
    assert "leave +FACT out" in complaint("routes", "probe", f"{claude}+by-reference")
    assert "--max-cost" in complaint("routes", "probe", claude, "--max-cost", "0")
    assert "no provider 'nope'" in complaint("routes", "probe", "nope:x")
