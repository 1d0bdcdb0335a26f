"""Whatever stands in the signature of a public name is public itself, and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import addendum

PAGE = Path(__file__).parents[1] / "docs" / "names.md"

INSIDE = {
    "Session.__init__",  # an agent makes it
    "TurnStream.__init__",  # a session makes it
    "Opening.__init__",  # an agent makes it
    "Session.registry",  # for the page, which shows what servers are there
    "ServerPool.acquire",  # for registries
    "ServerPool.release",
}
"""What has a public name for the rooms beside it, and is promised to nobody."""


def lower_level() -> tuple[str, ...]:
    """Return the modules that the page lists as the lower level."""
    section = PAGE.read_text("utf-8").partition("## The lower level")[2]
    return tuple(re.findall(r"^- `(addendum\.[a-z.]+)`", section, re.M))


def names_of(module: Any) -> dict[str, Any]:
    """Return the names of a module, with those that are imported for types only."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    home = importlib.import_module(line.module)
                    for alias in line.names:
                        names.setdefault(alias.asname or alias.name, getattr(home, alias.name))
    return names


def types_in(annotation: Any) -> Iterator[type]:
    """Yield the project's own classes that an annotation names, at any depth."""
    if isinstance(annotation, list | tuple):
        for part in annotation:
            yield from types_in(part)
        return
    for part in typing.get_args(annotation):
        yield from types_in(part)
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and kind.__module__.startswith("addendum"):
        yield kind


def signatures(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield where each annotation of a class or function stands, and the annotation."""
    if not isinstance(value, type):
        parts = [("", inspect.unwrap(value))] if inspect.isroutine(value) else []
    else:
        own = typing.get_type_hints(value, names_of(sys.modules[value.__module__]))
        yield from ((f"{value.__name__}.{n}", h) for n, h in own.items() if not n.startswith("_"))
        parts = []
        for name, member in vars(value).items():
            if name.startswith("_") and name != "__init__":
                continue
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function):
                parts.append((f"{value.__name__}.{name}", inspect.unwrap(function)))
    for where, function in parts:
        hints = typing.get_type_hints(function, names_of(sys.modules[function.__module__]))
        yield from ((where or value.__name__, hint) for hint in hints.values())


def leaks(value: Any, public: set[int], below: tuple[str, ...]) -> list[str]:
    """Return what a public value names that is neither public nor of the lower level."""
    return [
        f"{where}: {kind.__module__}.{kind.__name__}"
        for where, annotation in signatures(value)
        if where not in INSIDE
        for kind in types_in(annotation)
        if id(kind) not in public
        and not any(kind.__module__ == m or kind.__module__.startswith(f"{m}.") for m in below)
    ]


@pytest.mark.parametrize("name", sorted({*addendum.__all__} - {"__version__"}))
def test_a_public_name_leads_to_public_names_only(name: str) -> None:
    public = {id(getattr(addendum, each)) for each in addendum.__all__}
    value = getattr(addendum, name)
    assert leaks(value, public, lower_level()) == []
    # An alias of several classes names public ones.
    for kind in types_in(value):
        assert id(kind) in public, kind


def test_a_name_that_is_left_out_is_noticed() -> None:
    public = {id(getattr(addendum, n)) for n in addendum.__all__ if n not in ("Outcome", "Hints")}
    found = leaks(addendum.Hook, public, lower_level())
    assert "Hook.after: addendum.tools.servers.Outcome" in found
    assert leaks(addendum.ToolEntry, public, lower_level()) != []


def test_each_name_is_on_the_page_once_and_no_other() -> None:
    text = PAGE.read_text("utf-8").partition("## The lower level")[0]
    listed = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert sorted(listed) == sorted({*addendum.__all__} - {"__version__"})


def test_what_is_public_for_the_rooms_beside_it_is_there() -> None:
    for name in INSIDE:
        owner, _, member = name.partition(".")
        hinted = typing.get_type_hints(getattr(addendum, owner).__init__)
        kind = getattr(addendum, owner)
        assert hasattr(kind, member) or member in hinted or member in kind.__annotations__


def test_every_error_is_public() -> None:
    errors = importlib.import_module("addendum.errors")
    own = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert own <= {*addendum.__all__}
