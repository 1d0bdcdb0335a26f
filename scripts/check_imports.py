"""Count the files that import each other in a circle, and the imports of a room above one's own.

Counted is every import of the package by itself: at the top of a file, inside a function, for types
only (`if TYPE_CHECKING:`), and by `import_module("name")`. The rooms and their order are the layers
that pyproject.toml gives import-linter, which itself looks at less.

    python scripts/check_imports.py [--circles N] [--room-circles N] [--up N] [ROOT]

ROOT holds pyproject.toml and src/; `.` if left out. More than N fails.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LIMITS = {"circles": 0, "room-circles": 0, "up": 0}
"""What is there today: files in circles, rooms in circles, arrows up. Lower them, never raise."""

Graph = Mapping[str, frozenset[str]]
"""Who imports whom, by full name; no name is without an entry."""


class Rooms(NamedTuple):
    """The rooms of a package.

    Attributes:
        package: The package's name.
        rank: Rooms by full name, 0 is the highest. Of siblings that may import each other
            (`a : b`) the one named first is the higher.
        apart: Pairs of rooms that may not import each other either way (`a | b`).
    """

    package: str
    rank: dict[str, int]
    apart: frozenset[frozenset[str]]

    def of(self, module: str) -> str | None:
        """Return the room that a module stands in; None for one outside all layers."""
        room = ".".join(module.split(".")[:2])
        return room if room in self.rank else None


def rooms(pyproject: Path) -> Rooms:
    """Read the rooms from import-linter's contract of layers, the highest first."""
    linter = tomllib.loads(pyproject.read_text("utf-8"))["tool"]["importlinter"]
    layers = next(
        contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers"
    )
    names: list[str] = []
    apart: set[frozenset[str]] = set()
    for layer in layers:
        siblings = [name.strip() for name in layer.replace("|", ":").split(":")]
        names += siblings
        if "|" in layer:
            apart |= {frozenset((a, b)) for a in siblings for b in siblings if a != b}
    rank = {name: number for number, name in enumerate(names)}
    return Rooms(linter["root_package"], rank, frozenset(apart))


def sources(root: Path, package: str) -> dict[str, Path]:
    """Return the package's files by the full name of the module."""
    folder = root / "src"
    modules: dict[str, Path] = {}
    for path in sorted((folder / package).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield the full names that a file imports; `from a import b` yields `a.b`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    above = module.split(".")
                    above = above[: len(above) - node.level + is_package]
                    base = ".".join([*above, base]).rstrip(".")
                yield from (f"{base}.{alias.name}" for alias in node.names)
            case ast.Call(func, arguments) if any(map(_is_import_module, [func, *arguments])):
                for argument in arguments:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield argument.value
            case _:
                pass


def _is_import_module(node: ast.expr) -> bool:
    return "import_module" in (getattr(node, "attr", None), getattr(node, "id", None))


def graph(modules: Mapping[str, Path]) -> Graph:
    """Return who imports whom. A name inside a module counts as the module."""
    arrows: dict[str, frozenset[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text("utf-8"), str(path))
        targets: set[str] = set()
        for name in imported(tree, module, is_package=path.name == "__init__.py"):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                targets.add(name)
        arrows[module] = frozenset(targets - {module})
    return arrows


def reachable(arrows: Graph, start: str) -> frozenset[str]:
    """Return what can be reached from a name by one arrow or more."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = arrows[waiting.pop()] - reached
        reached |= fresh
        waiting += fresh
    return frozenset(reached)


def circles(arrows: Graph) -> list[list[str]]:
    """Return the strongly connected components of more than one member, the largest first."""
    reach = {name: reachable(arrows, name) for name in arrows}
    components = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in arrows
    }
    return sorted((sorted(c) for c in components if len(c) > 1), key=lambda c: (-len(c), c))


def inside(arrows: Graph, house: Rooms) -> Graph:
    """Keep the arrows between files of one room, and those of files that stand in none."""
    return {
        module: frozenset(
            target
            for target in targets
            if house.of(target) == house.of(module) or None in (house.of(target), house.of(module))
        )
        for module, targets in arrows.items()
    }


def between(arrows: Graph, house: Rooms) -> Graph:
    """Return the arrows between rooms."""
    targets_by_room: dict[str, set[str]] = {room: set() for room in house.rank}
    for module, targets in arrows.items():
        if room := house.of(module):
            targets_by_room[room] |= {other for t in targets if (other := house.of(t))} - {room}
    return {room: frozenset(targets) for room, targets in targets_by_room.items()}


def up(arrows: Graph, house: Rooms) -> list[tuple[str, str]]:
    """Return the imports, file by file, that go to a higher room, or to one that stands apart."""
    rising: list[tuple[str, str]] = []
    for module, targets in arrows.items():
        for target in sorted(targets):
            room, other = house.of(module), house.of(target)
            if room is None or other is None or room == other:
                continue
            if house.rank[other] < house.rank[room] or {room, other} in house.apart:
                rising.append((module, target))
    return rising


def report(arrows: Graph, house: Rooms) -> tuple[dict[str, int], list[str]]:
    """Return the counts by the name of their limit, and what is counted, in lines."""
    room_circles = circles(between(arrows, house))
    file_circles = circles(inside(arrows, house))
    rising = up(arrows, house)
    counts = {
        "circles": sum(map(len, file_circles)),
        "room-circles": sum(map(len, room_circles)),
        "up": len(rising),
    }
    lines = [f"circle of {len(c)}: {' '.join(c)}" for c in (*room_circles, *file_circles)]
    lines += [f"up: {module} -> {target}" for module, target in rising]
    return counts, lines


def main(arguments: Iterable[str]) -> int:
    """Print what is counted; return the exit status."""
    parser = argparse.ArgumentParser(description="Count import circles and arrows up.")
    for name, limit in LIMITS.items():
        parser.add_argument(f"--{name}", type=int, default=limit, metavar="N")
    parser.add_argument("root", nargs="?", type=Path, default=Path(), metavar="ROOT")
    options = parser.parse_args(list(arguments))
    house = rooms(options.root / "pyproject.toml")
    arrows = graph(sources(options.root, house.package))
    counts, lines = report(arrows, house)
    print(
        *lines,
        f"imports: {counts['circles']} files and {counts['room-circles']} rooms in circles, "
        f"{counts['up']} arrows up, in {len(arrows)} files",
        sep="\n",
    )
    broken = False
    for name, count in counts.items():
        limit = getattr(options, name.replace("-", "_"))
        if count > limit:
            print(f"imports: {name}: {count}, {limit} at most", file=sys.stderr)
            broken = True
        elif count < limit:
            print(f"imports: {name}: {count}, less than {limit}: lower LIMITS")
    return int(broken or not arrows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
