"""A wire API is a package, a row of data, and what the lab has of it; nothing else names it."""

from __future__ import annotations

import re
from pathlib import Path

import addendum
from addendum.routes.data import providers
from addendum.routes.wires import wires
from addendum.wire.apis import WIRES
from addendum.wire.captured import CAPTURED

SOURCE = Path(addendum.__file__).parent
OWN = ("wire", "lab")
"""Rooms that may name a wire."""


def test_no_wire_is_named_outside_wire_lab_and_data() -> None:
    """A sixth wire touches these only."""
    named = re.compile("['\"](" + "|".join(WIRES) + ")['\"]")
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in OWN
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if named.search(line)
    ]
    assert found == []


def test_no_package_of_a_wire_is_imported_outside_wire_and_lab() -> None:
    own = re.compile(r"addendum\.wire\.(" + "|".join(WIRES) + r")\b|addendum\.wire import")
    found = [
        f"{path.relative_to(SOURCE)}: {line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in OWN
        for line in path.read_text().splitlines()
        if own.search(line)
    ]
    assert found == []


def test_each_wire_is_known_everywhere() -> None:
    """Code that builds, code that reads captures, data, and a provider that speaks it."""
    assert set(WIRES) == set(CAPTURED) == set(wires())
    assert {provider.wire for provider in providers().values()} == set(WIRES)
    assert {name: each.name for name, each in WIRES.items()} == {name: name for name in WIRES}
