"""List which test covers which case of the tool-updates table; fail on a missing or doubled one.

A test says its case in its name (`test_case_16_tools_added`) or, where several cases share one
parametrised test, in the id of a parameter set (`pytest.param(..., id="case_43_added")`).

    python scripts/check_cases.py [FOLDER]      FOLDER holds the tests; `tests` if left out
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

LAST = 96
"""The highest number in the table."""

REQUIRED = frozenset([*range(1, 64), 65, *range(69, 77), 80, 85, 86, 96])
"""The numbers that must have a test; others may have one."""

NUMBER = re.compile(r"(?<![a-z0-9])case_(\d+)(?!\d)")


def labels(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield what may name a case: the test's name and the ids of its parameter sets."""
    yield test.name
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.keyword) and node.arg == "id":
                if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                    yield node.value.value


def collect(folder: Path) -> tuple[dict[int, list[str]], list[str]]:
    """Return the tests of each number under `folder`, and what is wrong with single tests.

    A number counts once for a test, however many of its parameter sets carry it.
    """
    found: defaultdict[int, list[str]] = defaultdict(list)
    wrong: list[str] = []
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
            if not isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            ) or not node.name.startswith("test_"):
                continue
            place = f"{path.relative_to(folder).as_posix()}::{node.name}"
            numbers: set[int] = set()
            for label in labels(node):
                cases = [int(number) for number in NUMBER.findall(label)]
                if len(cases) > 1:
                    wrong.append(f"{place}: one number a test, not {len(cases)} ({label})")
                numbers.update(cases)
            for number in sorted(numbers):
                found[number].append(place)
                if not 1 <= number <= LAST:
                    wrong.append(f"{place}: the table has no case {number}")
    return found, wrong


def main(folder: Path) -> int:
    """Print the table and what is wrong; return the exit status."""
    found, wrong = collect(folder)
    for number in sorted(found):
        print(f"{number:>4}  {', '.join(found[number])}")
    wrong += [
        f"case {number} has {len(tests)} tests: {', '.join(tests)}"
        for number, tests in sorted(found.items())
        if len(tests) > 1
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
