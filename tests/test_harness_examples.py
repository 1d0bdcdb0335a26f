"""The examples for other frameworks are tests themselves: each runs in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "harness"
NEEDS = {
    "test_anthropic_sdk.py": "anthropic",
    "test_openai_sdk.py": "openai",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_langchain.py": "langchain_anthropic",
}


def test_each_example_is_known() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_an_example_passes_as_it_stands(name: str) -> None:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed; pip install -r bench/peers/requirements.txt")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(FOLDER / name)],
        capture_output=True,
        text=True,
        check=False,
        cwd=FOLDER.parents[1],
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
