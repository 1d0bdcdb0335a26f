"""`scripts/check_words.py`, run as `make check` runs it.

The words looked for are written in two pieces here, or this file would be found too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_words.py"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("see /wor" + "k/main/x.py", "a path of one machine"),
        ("cd '/roo" + "t/.cache'", "a path of one machine"),
        ("file:///opt/pyp" + "i/simple", "a path of one machine"),
        ("as shar" + "ed/notes says", "a folder that the project does not have"),
        ("see desig" + "n.md section 4", "a document that the project does not have"),
        ("pip --index" + "-url x", "the address of a package index"),
        ("fixes iss" + "ue 12", "a number without its owner/repo#n"),
        ("fixes P" + "R #12", "a number without its owner/repo#n"),
        ("fixes " + "#12", "a number without its owner/repo#n"),
        ("# TO" + "DO later", "unfinished work"),
    ],
)
def test_what_does_not_belong_is_found_with_its_place(
    tmp_path: Path, line: str, reason: str
) -> None:
    (tmp_path / "page.md").write_text(f"first line\n{line}\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"page.md:2: {reason}: ")


@pytest.mark.parametrize(
    "line",
    [
        "earendil-works/pi#583 says so",
        "https://example.com/network/roots/",
        "the loop issues 2 requests",
        "colour: &#12; and [a](#12-words)",
        "a workspace, a shared folder, a tool",
    ],
)
def test_what_belongs_passes(tmp_path: Path, line: str) -> None:
    (tmp_path / "page.md").write_text(line)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_bare_number_is_looked_for_in_prose_only(tmp_path: Path) -> None:
    (tmp_path / "page.css").write_text("a { color: #123; }")
    assert run(tmp_path).returncode == 0


@pytest.mark.parametrize(("lines", "status"), [(700, 0), (701, 1)])
def test_a_source_file_has_at_most_700_lines(tmp_path: Path, lines: int, status: int) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "long.py").write_text("x = 1\n" * lines)
    (tmp_path / "long.py").write_text("x = 1\n" * 501)
    done = run(tmp_path)
    assert done.returncode == status
    assert ("src/long.py: 701 lines, 700 at most" in done.stderr) == bool(status)


def test_bytes_that_are_not_text_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe" + b"TO" + b"DO")
    (tmp_path / "page.md").write_text("fine")
    done = run(tmp_path)
    assert done.returncode == 0
    assert done.stdout == "words: 0 problems in 1 files\n"


def test_an_empty_folder_does_not_pass(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 1


def test_without_version_control_caches_are_left_out(tmp_path: Path) -> None:
    for folder in (".venv", "build", ".ci"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.txt").write_text("FIX" + "ME")
    done = run(tmp_path)
    assert done.stderr == ".ci/page.txt:1: unfinished work: FIX" + "ME\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_with_version_control_ignored_files_are_left_out(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    for name in ("ignored.txt", "new.txt"):
        (tmp_path / name).write_text("FIX" + "ME")
    done = run(tmp_path)
    assert done.stderr == "new.txt:1: unfinished work: FIX" + "ME\n"
