"""List which test covers which numbered case; fail on a missing one, and on a doubled one.

There are two tables: tool updates (`16`) and the dispatcher (`T16`). A test says its case in its
name (`test_case_16_tools_added`, `test_case_t16_nested`) or, where several cases share one
parametrised test, in the id of a parameter set (`pytest.param(..., id="case_43_added")`). A case of
the dispatcher may have several tests: what a call comes to, and how each wire carries it.

    python scripts/check_cases.py [FOLDER]      FOLDER holds the tests; `tests` if left out
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """A line of a table: `""` or `"T"`, and its number."""

    table: str
    number: int

    def __str__(self) -> str:
        return f"{self.table}{self.number}"


LAST = {"": 96, "T": 80}
"""The highest number in each table."""


REQUIRED = frozenset(Case(table, n) for table, last in LAST.items() for n in range(1, last + 1))
"""The cases that must have a test: all of them."""

NUMBER = re.compile(r"(?<![a-z0-9])case_(t?)(\d+)(?!\d)")


def labels(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield what may name a case: the test's name and the ids of its parameter sets."""
    yield test.name
    for decorator in test.decorator_list:
        yield from ids(decorator)


def ids(tree: ast.AST) -> Iterator[str]:
    """Yield the ids of the parameter sets in a piece of source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "id":
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node.value.value


def shared(module: ast.Module) -> dict[str, list[str]]:
    """Return the ids in parameter sets that a module keeps under a name, by that name."""
    return {
        target.id: list(ids(node.value))
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def collect(folder: Path) -> tuple[dict[Case, list[str]], list[str]]:
    """Return the tests of each case under `folder`, and what is wrong with single tests.

    A case counts once for a test, however many of its parameter sets carry it.
    """
    found: defaultdict[Case, list[str]] = defaultdict(list)
    wrong: list[str] = []
    for path in sorted(folder.rglob("test_*.py")):
        module = ast.parse(path.read_text("utf-8"), str(path))
        named = shared(module)
        for node in ast.walk(module):
            if not isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            ) or not node.name.startswith("test_"):
                continue
            place = f"{path.relative_to(folder).as_posix()}::{node.name}"
            used = [
                label
                for decorator in node.decorator_list
                for name in ast.walk(decorator)
                if isinstance(name, ast.Name)
                for label in named.get(name.id, ())
            ]
            cases: set[Case] = set()
            for label in (*labels(node), *used):
                here = [Case(t.upper(), int(number)) for t, number in NUMBER.findall(label)]
                if len(here) > 1:
                    wrong.append(f"{place}: one number a test, not {len(here)} ({label})")
                cases.update(here)
            for case in sorted(cases):
                found[case].append(place)
                if not 1 <= case.number <= LAST[case.table]:
                    wrong.append(f"{place}: the table has no case {case}")
    return found, wrong


def main(folder: Path) -> int:
    """Print the tables and what is wrong; return the exit status."""
    found, wrong = collect(folder)
    for case in sorted(found):
        print(f"{case!s:>4}  {', '.join(found[case])}")
    wrong += [
        f"case {case} has {len(tests)} tests: {', '.join(tests)}"
        for case, tests in sorted(found.items())
        if len(tests) > 1 and not case.table
    ]
    missing = sorted(REQUIRED - found.keys())
    if missing:
        wrong.append(f"no test for case {', '.join(map(str, missing))}")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(REQUIRED) - len(missing)} of {len(REQUIRED)} required cases have a test")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "tests")))
