"""`scripts/check_names.py` over small sources, and over this one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.scripts.loading import ROOT, load

SCRIPT = load("check_names")

# One blank is one step in.
LIVES = {
    "a function": "def found():\n pass\n",
    "a private function": "def _found():\n pass\n",
    "a method": "class A:\n def found(self):\n  pass\n",
    "a class": "class data:\n pass\n",
    "a name of a module": "found = 1\n",
    "a field": "class A:\n found: int\n",
    "a field with a default": "class A:\n found = 1\n",
    "an attribute": "class A:\n def f(self):\n  self.found = 1\n",
    "a parameter": "def f(found):\n g(found)\n return found\n",
    "a parameter by keyword": "def f(*, found):\n g(found)\n return found\n",
    "a parameter of a method": "class A:\n def f(self, at):\n  if at:\n   g(at)\n",
    "a local": "def f():\n found = g()\n h()\n return found\n",
    "a local of several lines": "def f():\n found = g(\n  1,\n )\n h()\n i(found)\n",
    "one of two": "def f():\n a, found = g()\n h()\n return found\n",
    "a local that a closure uses": "def f():\n at = 1\n def g():\n  return at\n g()\n",
    "a loop's variable": "def f(rows):\n for each in rows:\n  g()\n  h(each)\n",
    "an open file": "def f():\n with g() as found:\n  h()\n  i(found)\n",
    "an error": "def f():\n try:\n  g()\n except E as what:\n  h()\n  i(what)\n",
    "a part of a pattern": ("def f(a):\n match a:\n  case A(b=found):\n   g()\n   h(found)\n"),
    "a walrus": "def f():\n if found := g():\n  h()\n  i(found)\n",
    "a comprehension over lines": "x = [\n g(each)\n for each in rows\n if each\n]\n",
}
PASSES = {
    "a parameter of one statement": "def f(found):\n return g(found, found)\n",
    "a parameter that nobody uses": "def f(found):\n pass\n",
    "a parameter of a lambda": "x = lambda each: each + 1\n",
    "a local of the next line": "def f():\n found = g()\n return found\n",
    "a comprehension on a line": "x = [g(each) for each in rows if each]\n",
    "a comprehension used on one of its lines": "x = [\n g(each, each)\n for each in rows\n]\n",
    "a loop's variable on the next line": "def f(rows):\n for each in rows:\n  g(each)\n",
    "a part of a longer name": "found_rows = seen_at = 1\n",
    "an imported name": "from a import found\n",
    "a use alone": "print(found)\nprint(found)\n",
    "self": "class A:\n def f(self):\n  g(self)\n  h(self)\n",
}


def vague(text: str) -> list[str]:
    names = SCRIPT.bound(ast.parse(text))
    return [name.name for name in names if name.lives and SCRIPT.is_vague(name.name)]


@pytest.mark.parametrize("text", LIVES.values(), ids=LIVES)
def test_what_outlives_a_line_is_counted_once(text: str) -> None:
    assert len(vague(text)) == 1


@pytest.mark.parametrize("text", PASSES.values(), ids=PASSES)
def test_what_does_not_passes(text: str) -> None:
    assert vague(text) == []


@pytest.mark.parametrize("word", sorted(SCRIPT.VAGUE - {"it", "this", "that"}))
def test_every_vague_word_is_counted(word: str) -> None:
    assert vague(f"{word} = 1\n_{word}_ = 2\n") == [word, f"_{word}_"]


def source(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "src" / "house" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_share_is_that_of_all_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(source(tmp_path, {"log/a": "found = row = column = 1\n", "top": "cell = 1\n"}))
    assert SCRIPT.main(["--vague", "25", root]) == 0
    assert capsys.readouterr().out.startswith("names: 1 of 4 vague (25.00 %), 0 class names")
    assert SCRIPT.main(["--vague", "24.9", "--list", root]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("log/a.py:1: found\n")
    assert shown.err == "names: 25.00 % vague, 24.9 % at most\n"


def test_a_class_name_belongs_to_one_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row, own = "class Row:\n    pass\n", "class _Own:\n    pass\n"
    files = {"log/a": row, "log/b": row, "cli/a": own, "wire/a": own}
    root = source(tmp_path, files)
    assert SCRIPT.main(["--shared", "0", str(root)]) == 0
    source(root, {"cli/deep/c": "def f():\n    class Row:\n        pass\n"})
    assert SCRIPT.main(["--shared", "1", str(root)]) == 0
    assert SCRIPT.main(["--shared", "0", "--list", str(root)]) == 1
    assert "class Row: cli, log\n" in capsys.readouterr().out


def test_an_empty_source_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert SCRIPT.main([str(tmp_path)]) == 1


def test_this_source_keeps_its_limits() -> None:
    assert SCRIPT.main([str(ROOT)]) == 0
