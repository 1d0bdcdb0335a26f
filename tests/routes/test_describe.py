"""The table of routes, as `addendum routes --json` prints it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from addendum import encoding
from addendum.errors import UnknownRoute
from addendum.routes import data, describe, resolve

KEYS = [
    "route",
    "wire",
    "models",
    "tool_update",
    "definitions",
    "removals",
    "readd",
    "redefine",
    "cache",
    "schemas",
    "shapes",
    "source",
    "checked",
    "certainty",
    "forms",
]


def test_every_row_of_the_data_is_an_entry_with_exactly_the_keys() -> None:
    entries = describe()
    folder = Path(data.__file__).parent
    written = [
        provider
        for file in data.FILES
        for provider in tomllib.loads((folder / file).read_text("utf-8"))["provider"]
    ]
    assert [entry["route"].split(":")[0] for entry in entries] == [
        provider["name"] for provider in written for _ in provider["model"]
    ]
    for entry in entries:
        assert list(entry) == KEYS
        assert entry["models"]
        assert entry["certainty"] in ("documented", "reported", "probed")
    assert json.loads(encoding.encode(entries)) == json.loads(json.dumps(entries))


def test_each_entry_can_be_resolved_and_agrees() -> None:
    for entry in describe():
        for model in entry["models"]:
            if entry["route"].endswith(":MODEL"):
                continue
            route = resolve(f"{entry['route'].split(':')[0]}:{model}", environ={})
            assert route.capabilities.tool_update == entry["tool_update"]
            assert route.cache.minimum == entry["cache"]["minimum"]


def test_one_provider_or_one_route() -> None:
    assert {entry["wire"] for entry in describe("deepseek")} == {"anthropic_messages"}
    (entry,) = describe("anthropic:claude-opus-5-5+by-reference")
    assert entry["route"] == "anthropic:claude-opus-5-5+by-reference"
    assert entry["models"] == ["claude-opus-5-5"]
    assert (entry["definitions"], entry["redefine"]) == ("by-reference", False)
    (unknown,) = describe("compatible:anything")
    assert (unknown["tool_update"], unknown["cache"]["kind"]) == (None, "none")


def test_the_table_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example.com")
    (entry,) = describe("anthropic:claude-opus-5-5")
    assert entry["tool_update"] == "in-history"


@pytest.mark.parametrize("name", ["nobody", "nobody:x", "anthropic:gpt-4.1"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownRoute):
        describe(name)
