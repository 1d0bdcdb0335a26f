"""See that every requirement has a row in docs/requirements.md, and every named test exists.

    python scripts/check_requirements.py [ROOT]      ROOT holds docs/ and tests/; `.` if left out

A row's last cell names one or more tests as `folder/file.py::name`, relative to tests/, or begins
with "not done".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LAST = {"A": 19, "B": 9, "C": 9, "D": 15, "E": 19}
"""The highest number of each part."""

WANTED = [f"{part}{number}" for part, last in LAST.items() for number in range(1, last + 1)]
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([^`\s]+\.py)::(\w+)`")


@cache
def tests(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file; none if there is no such file."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"), str(path))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def wrong(root: Path) -> Iterator[str]:
    """Yield what is wrong with the table, a line each."""
    rows = ROW.findall((root / "docs" / "requirements.md").read_text("utf-8"))
    ids = [row[0] for row in rows]
    if ids != WANTED:
        strange = [each for each in WANTED if ids.count(each) != 1]
        strange += [each for each in ids if each not in WANTED]
        yield f"each requirement has one row, in order: {', '.join(strange) or 'wrong order'}"
    for number, _, cell in rows:
        named = NAMED.findall(cell)
        if not named and not cell.strip().startswith("not done"):
            yield f"{number} names no test and does not say that it is not done"
        for file, name in named:
            if name not in tests(root / "tests" / file):
                yield f"{number}: there is no test tests/{file}::{name}"


def main(root: Path) -> int:
    """Print what is wrong; return the exit status."""
    found = list(wrong(root))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
