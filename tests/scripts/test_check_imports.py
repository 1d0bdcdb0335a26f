"""`scripts/check_imports.py` over small packages, and over this one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scripts.loading import ROOT, load

SCRIPT = load("check_imports")
PYPROJECT = """
[tool.importlinter]
root_package = "house"
[[tool.importlinter.contracts]]
type = "forbidden"
[[tool.importlinter.contracts]]
type = "layers"
layers = ["house.top : house.page", "house.left | house.right", "house.low"]
"""


def house(root: Path, files: dict[str, str]) -> Path:
    """Write a package `house` with empty files a, b, c in each room, and `files` over them."""
    (root / "pyproject.toml").write_text(PYPROJECT)
    empty = {
        f"{room}/{name}": ""
        for room in ("top", "page", "left", "right", "low")
        for name in ("__init__", "a", "b", "c")
    }
    for name, text in {"__init__": "", "version": "", **empty, **files}.items():
        path = root / "src" / "house" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run(root: Path, *limits: int) -> int:
    options = zip(("--circles", "--room-circles", "--up"), limits, strict=True)
    return SCRIPT.main([*(str(word) for option in options for word in option), str(root)])


TYPES_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.low.a import X\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import house.low.a", id="plain"),
        pytest.param("from house.low import a", id="from_room"),
        pytest.param("from house.low.a import x", id="name_in_it"),
        pytest.param("from . import a", id="relative"),
        pytest.param("from .a import x", id="relative_name"),
        pytest.param("from ..low import a", id="relative_above"),
        pytest.param("def f():\n    from house.low import a\n", id="lazy"),
        pytest.param("class C:\n    def f(self):\n        import house.low.a\n", id="lazier"),
        pytest.param(TYPES_ONLY, id="types_only"),
        pytest.param("try:\n    import house.low.a\nexcept ImportError:\n    pass\n", id="tried"),
        pytest.param("import importlib\nimportlib.import_module('house.low.a')\n", id="by_name"),
        pytest.param("load(importlib.import_module, 'house.low.a')\n", id="by_name_elsewhere"),
    ],
)
def test_every_way_to_import_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    root = house(tmp_path, {"low/a": "import house.low.b", "low/b": text})
    assert run(root, 2, 0, 0) == 0
    assert "circle of 2: house.low.a house.low.b\n" in capsys.readouterr().out
    assert run(root, 1, 0, 0) == 1
    assert capsys.readouterr().err == "imports: circles: 2, 1 at most\n"


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        pytest.param({"low/a": "import house.low.b"}, (0, 0, 0), id="one_way"),
        pytest.param({"low/a": "import house.low.a"}, (0, 0, 0), id="itself"),
        pytest.param({"low/a": "import os.path, house"}, (0, 0, 0), id="others"),
        pytest.param(
            {f"low/{a}": f"import house.low.{b}" for a, b in ("ab", "bc", "ca")},
            (3, 0, 0),
            id="three_in_a_row",
        ),
        pytest.param(
            {
                "low/a": "from house.low import b, c",
                "low/b": "from house.low import a",
                "low/c": "from house.low import a",
            },
            (3, 0, 0),
            id="two_that_share_a_file",
        ),
        pytest.param(
            {f"{r}/{a}": f"import house.{r}.{b}" for r in ("low", "top") for a, b in ("ab", "ba")},
            (4, 0, 0),
            id="two_apart",
        ),
        pytest.param(
            {"__init__": "import house.top.a", "top/a": "from house import version, b"},
            (2, 0, 0),
            id="through_a_file_of_no_room",
        ),
        pytest.param({"top/a": "import house.low.a"}, (0, 0, 0), id="down"),
        pytest.param({"low/a": "import house.top.a, house.top.b"}, (0, 0, 2), id="up"),
        pytest.param({"top/a": "import house.page.a"}, (0, 0, 0), id="to_the_second_sibling"),
        pytest.param({"page/a": "import house.top.a"}, (0, 0, 1), id="to_the_first_sibling"),
        pytest.param({"left/a": "import house.right.a"}, (0, 0, 1), id="apart"),
        pytest.param({"right/a": "import house.left.a"}, (0, 0, 1), id="apart_the_other_way"),
        pytest.param(
            {"top/a": "import house.low.a", "low/b": "import house.top.c"},
            (0, 2, 1),
            id="rooms_in_a_circle",
        ),
    ],
)
def test_circles_and_arrows_up_are_counted(
    tmp_path: Path, files: dict[str, str], counts: tuple[int, int, int]
) -> None:
    root = house(tmp_path, files)
    assert run(root, *counts) == 0
    for place, count in enumerate(counts):
        lower = [*counts]
        lower[place] = count - 1
        assert run(root, *lower) == 1


def test_a_limit_that_can_be_lowered_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(house(tmp_path, {}), 0, 3, 0) == 0
    assert "imports: room-circles: 0, less than 3: lower LIMITS\n" in capsys.readouterr().out


def test_an_empty_folder_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    assert run(tmp_path, 0, 0, 0) == 1


def test_this_package_keeps_its_limits() -> None:
    assert SCRIPT.main([str(ROOT)]) == 0
