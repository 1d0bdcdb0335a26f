"""`scripts/check_requirements.py`, run as `make check` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "check_requirements.py"
TABLE = (ROOT / "docs" / "requirements.md").read_text("utf-8")


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True, check=False
    )


def test_every_named_test_exists() -> None:
    assert (ROOT / "docs" / "index.md").read_text("utf-8").count("(requirements.md)") == 1
    done = run(ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param("::test_d1_a", "::test_gone_a", "D1: there is no test", id="renamed"),
        pytest.param("| D6 |", "| D5 |", "one row, in order: D5, D6", id="doubled"),
        pytest.param(
            "`agent/test_five_routes.py::test_d1_a_session_moves_between_five_routes_and_back`",
            "soon",
            "D1 names no test",
            id="no_test",
        ),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in TABLE
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.md").write_text(TABLE.replace(old, new), "utf-8")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    done = run(tmp_path)
    assert done.returncode == 1
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_row_may_say_that_it_is_not_done(tmp_path: Path) -> None:
    at = TABLE.index("`agent/test_five_routes.py")
    end = TABLE.index(" |", at)
    (tmp_path / "docs").mkdir()
    text = TABLE[:at] + "not done: no second route" + TABLE[end:]
    (tmp_path / "docs" / "requirements.md").write_text(text, "utf-8")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert run(tmp_path).returncode == 0
