"""Count the names that say nothing and live on, and the class names that two rooms share.

    python scripts/check_names.py [--vague PERCENT] [--shared N] [--list] [ROOT]

ROOT holds src/; `.` if left out. More than a limit fails; `--list` prints what is counted.

A vague name is one of `VAGUE`. It is counted where it outlives a line: a function or class, an
attribute, a name of a module; a parameter that more than one statement uses; a local name that is
used later than on the line behind the statement that binds it; the variable of a comprehension that
is used on more than one line. The share is that of all names bound.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

LIMITS = {"vague": 3.3, "shared": 38}
"""What is there today, in percent and in names. Lower them, never raise."""

VAGUE = frozenset(
    "found said told each given place at seen what thing things stuff it this that data info obj"
    " tmp temp res ret var misc".split()
)

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Bound(NamedTuple):
    """A name that is bound somewhere, and whether it outlives a line there."""

    name: str
    line: int
    lives: bool


def bound(tree: ast.Module) -> Iterator[Bound]:
    """Yield every name that a module binds, once a scope."""
    yield from _lasting(tree.body)
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield from _lasting(node.body)
                yield from _attributes(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _parameters(node)
                yield from _locals(node)
            case ast.Lambda():
                yield from _parameters(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                yield from _variables(node)
            case _:
                pass


def _lasting(body: list[ast.stmt]) -> Iterator[Bound]:
    """Yield what a module or a class binds: all of it lives on."""
    first: dict[str, int] = {}
    for statement in body:
        for node in _own(statement):
            for name, line in _binds(node):
                first.setdefault(name, line)
    yield from (Bound(name, line, lives=True) for name, line in first.items())


def _attributes(owner: ast.ClassDef) -> Iterator[Bound]:
    """Yield the attributes that methods set on `self`."""
    first: dict[str, int] = {}
    for node in ast.walk(owner):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                first.setdefault(name, node.lineno)
            case _:
                pass
    yield from (Bound(name, line, lives=True) for name, line in first.items())


def _parameters(function: Function) -> Iterator[Bound]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    users = _users(function)
    for argument in every:
        if argument.arg not in ("self", "cls"):
            yield Bound(argument.arg, argument.lineno, len(users[argument.arg]) > 1)


def _users(function: Function) -> dict[str, set[int]]:
    """Return the lines of the innermost statements that use each name."""
    users: dict[str, set[int]] = defaultdict(set)

    def visit(node: ast.AST, line: int) -> None:
        line = node.lineno if isinstance(node, ast.stmt) else line
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            users[node.id].add(line)
        for child in ast.iter_child_nodes(node):
            visit(child, line)

    body = function.body if isinstance(function.body, list) else [function.body]
    for node in body:
        visit(node, function.lineno)
    return users


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Bound]:
    first: dict[str, tuple[int, int]] = {}
    for statement in function.body:
        for node in _own(statement):
            for name, line in _binds(node):
                first.setdefault(name, (line, _end(node)))
    last: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            last[node.id] = max(last.get(node.id, 0), node.lineno)
    for name, (line, end) in first.items():
        yield Bound(name, line, last.get(name, 0) > end + 1)


def _variables(comprehension: Comprehension) -> Iterator[Bound]:
    lines: dict[str, set[int]] = defaultdict(set)
    for node in ast.walk(comprehension):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            lines[node.id].add(node.lineno)
    for generator in comprehension.generators:
        for node in ast.walk(generator.target):
            if isinstance(node, ast.Name):
                yield Bound(node.id, node.lineno, len(lines[node.id]) > 1)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is inside it, but for functions, classes and comprehensions."""
    yield node
    if isinstance(node, Scope):
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, COMPREHENSION):
            yield from _own(child)


def _binds(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node by itself binds, with their lines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node.lineno
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _targets(target)
        case ast.AnnAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            yield from _targets(target)
        case ast.NamedExpr(target=target):
            yield from _targets(target)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    yield from _targets(item.optional_vars)
        case ast.ExceptHandler(name=str(name)):
            yield name, node.lineno
        case ast.match_case(pattern=pattern):
            for inner in ast.walk(pattern):
                if isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name:
                    yield inner.name, inner.lineno
        case _:
            pass


def _targets(target: ast.expr) -> Iterator[tuple[str, int]]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def _end(node: ast.AST) -> int:
    """Return the last line of the part of a statement that binds."""
    match node:
        case ast.For() | ast.AsyncFor():
            return node.iter.end_lineno or node.lineno
        case ast.With() | ast.AsyncWith():
            return node.items[-1].context_expr.end_lineno or node.lineno
        case ast.ExceptHandler():
            return node.lineno
        case ast.match_case():
            return node.pattern.end_lineno or 0
        case ast.stmt() | ast.expr():
            return node.end_lineno or node.lineno
        case _:
            return 0


def is_vague(name: str) -> bool:
    """Say whether a name says nothing; underscores around it do not count."""
    return name.strip("_") in VAGUE


def shared_classes(trees: Iterable[tuple[Path, ast.Module]]) -> dict[str, list[str]]:
    """Return the rooms of each public class name that more than one room has."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees:
        room = path.parts[0] if len(path.parts) > 1 else path.stem
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].add(room)
    return {name: sorted(own) for name, own in sorted(rooms.items()) if len(own) > 1}


def main(arguments: Iterable[str]) -> int:
    """Print what is counted; return the exit status."""
    parser = argparse.ArgumentParser(description="Count vague names and shared class names.")
    parser.add_argument("--vague", type=float, default=LIMITS["vague"], metavar="PERCENT")
    parser.add_argument("--shared", type=int, default=LIMITS["shared"], metavar="N")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("root", nargs="?", type=Path, default=Path(), metavar="ROOT")
    options = parser.parse_args(list(arguments))
    source = options.root / "src"
    trees = [
        (path.relative_to(package), ast.parse(path.read_text("utf-8"), str(path)))
        for package in sorted(source.iterdir())
        for path in sorted(package.rglob("*.py"))
    ]
    names = [(path, name) for path, tree in trees for name in bound(tree)]
    vague = [(path, name) for path, name in names if name.lives and is_vague(name.name)]
    shared = shared_classes(trees)
    if options.list:
        for path, name in vague:
            print(f"{path.as_posix()}:{name.line}: {name.name}")
        for class_name, rooms in shared.items():
            print(f"class {class_name}: {', '.join(rooms)}")
    share = 100 * len(vague) / max(1, len(names))
    print(
        f"names: {len(vague)} of {len(names)} vague ({share:.2f} %), "
        f"{len(shared)} class names in several rooms"
    )
    broken = not names
    if share > options.vague:
        print(f"names: {share:.2f} % vague, {options.vague} % at most", file=sys.stderr)
        broken = True
    if len(shared) > options.shared:
        print(f"names: {len(shared)} class names shared, {options.shared} at most", file=sys.stderr)
        broken = True
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
