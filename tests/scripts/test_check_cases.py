"""`scripts/check_cases.py`, run as `make cases` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_cases.py"
REQUIRED = [
    *map(str, range(1, 97)),
    *(f"t{n}" for n in range(1, 81)),
]


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False
    )


def write(folder: Path, *parts: str, but: str = "") -> None:
    complete = [f"def test_case_{n}_x(): ...\n" for n in REQUIRED if n != but]
    (folder / "deep").mkdir()
    (folder / "deep" / "test_all.py").write_text("".join(complete))
    (folder / "test_more.py").write_text("import pytest\n" + "".join(parts))


def test_a_complete_set_passes_and_is_printed(tmp_path: Path) -> None:
    write(tmp_path, "async def test_case_95_lives_here(): ...\n", but="95")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ +7  deep/test_all\.py::test_case_7_x$", done.stdout, re.MULTILINE)
    assert "  95  test_more.py::test_case_95_lives_here" in done.stdout
    assert done.stdout.endswith(f"{len(REQUIRED)} of {len(REQUIRED)} required cases have a test\n")


def test_a_missing_number_fails(tmp_path: Path) -> None:
    write(tmp_path, "def helper_case_16(): ...\n", but="16")
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "no test for case 16\n"


def test_a_doubled_number_fails(tmp_path: Path) -> None:
    write(tmp_path, "def test_case_16_again(): ...\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "case 16 has 2 tests" in done.stderr


def test_the_dispatchers_cases_may_have_several_tests(tmp_path: Path) -> None:
    write(tmp_path, "def test_case_t16_again(): ...\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        " T16  deep/test_all.py::test_case_t16_x, test_more.py::test_case_t16_again" in done.stdout
    )
    write_again = tmp_path / "deep" / "test_all.py"
    write_again.write_text(write_again.read_text().replace("case_t48_x", "x"))
    assert run(tmp_path).stderr == "no test for case T48\n"


def test_ids_kept_under_a_name_count_where_the_name_is_used(tmp_path: Path) -> None:
    write(
        tmp_path,
        "ROWS = [pytest.param('N', id='case_t9_N')]\n",
        "@pytest.mark.parametrize('mode', ROWS)\n",
        "def test_rows(mode): ...\n",
        but="t9",
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "  T9  test_more.py::test_rows" in done.stdout


def test_a_number_in_the_id_of_a_parameter_set_counts_once_a_test(tmp_path: Path) -> None:
    write(
        tmp_path,
        "@pytest.mark.parametrize('mode', [\n",
        "    pytest.param('N', id='case_43_N'), pytest.param('H', id='case_43_H')])\n",
        "def test_projection(mode): ...\n",
        but="43",
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "  43  test_more.py::test_projection" in done.stdout


def test_two_numbers_in_one_name_fail(tmp_path: Path) -> None:
    write(tmp_path, "def test_case_64_and_case_66(): ...\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "one number a test, not 2" in done.stderr


def test_a_number_outside_the_table_fails(tmp_path: Path) -> None:
    write(tmp_path, "def test_case_97_x(): ...\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "the table has no case 97" in done.stderr
