"""The examples for other frameworks are tests themselves: they run in a process of their own."""

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


def test_the_examples_pass_as_they_stand() -> None:
    found = [name for name in sorted(NEEDS) if importlib.util.find_spec(NEEDS[name]) is not None]
    if not found:
        pytest.skip("no SDK is installed; pip install -r bench/peers/requirements.txt")
    # One process for all: to import an SDK takes longer than to use it.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *found],
        capture_output=True,
        text=True,
        check=False,
        cwd=FOLDER,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
