"""Adding a vendor is a row: the example's file is used as it is, by name and by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.commands import told

from addendum.errors import ConfigurationError
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.lab.server import open_lab
from addendum.routes import describe, load, resolve
from addendum.routes.data import FILE_VARIABLE, MAX_FILE, providers

EXAMPLE = Path(__file__).parents[2] / "examples" / "vendor.toml"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(EXAMPLE))


def test_the_page_and_the_file_belong_together() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "adding-a-vendor.md").read_text("utf-8")
    assert "examples/vendor.toml" in page and FILE_VARIABLE in page
    route = resolve("acme:acme-large", known=load(EXAMPLE.read_text("utf-8")), environ={})
    assert route.url == "https://api.acme.example/v1/chat/completions"
    assert (route.cache.kind, route.cache.step) == ("steps", 128)
    assert route.capabilities.tool_update is None
    unknown = resolve("acme:acme-next", known=load(EXAMPLE.read_text("utf-8")), environ={})
    assert unknown.cache.kind == "none"


@pytest.mark.usefixtures("named")
def test_its_routes_are_listed_beside_ours() -> None:
    assert "acme" in providers() and "anthropic" in providers()
    shown = [entry["route"] for entry in describe("acme")]
    assert shown == ["acme:acme-large", "acme:MODEL"]
    (entry,) = told("routes", "acme:acme-small")["routes"]
    assert (entry["wire"], entry["tool_update"]) == ("openai_chat", None)
    assert entry["source"].startswith("docs.acme.example")


@pytest.mark.anyio
@pytest.mark.usefixtures("named")
async def test_a_scenario_runs_on_it() -> None:
    scenario = find("g2")
    async with open_lab(scenario.script()) as lab:
        run = await run_scenario(scenario, "acme:acme-large", base_url=lab.base_url("vllm"))
    totals = run.report.totals
    assert run.holds, run.violations[:3]
    assert run.context.projection == "dispatch"
    assert totals.undeclared_misses == 0
    assert totals.ceiling_share is not None and totals.ceiling_share >= 0.999


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no toml", "route data cannot be read"),
        ('provider = "acme"', "route data cannot be read"),
        (EXAMPLE.read_text("utf-8").replace("acme", "openai"), "a provider 'openai' already"),
        ("#" * (MAX_FILE + 1), "correct ADDENDUM_ROUTES"),
        ("\udcff", "no text in UTF-8"),
    ],
    ids=["no toml", "no provider", "a name of ours", "too big", "no text"],
)
def test_a_file_that_cannot_be_used_is_one_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vendor.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    with pytest.raises(ConfigurationError, match=said) as raised:
        providers()
    assert str(file) in str(raised.value)


def test_a_file_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(ConfigurationError, match=f"correct {FILE_VARIABLE}"):
        resolve("anthropic:claude-opus-5", environ={})


def test_a_file_is_read_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vendor.toml"
    file.write_text(EXAMPLE.read_text("utf-8"), "utf-8")
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    assert "acme" in providers()
    file.write_text(EXAMPLE.read_text("utf-8").replace('"acme"', '"other"'), "utf-8")
    # The clock of a file system may be coarse.
    os.utime(file, ns=(1, 1))
    assert "other" in providers()
