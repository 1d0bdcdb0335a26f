"""The short form of `make crash`: twenty kills, and nothing acknowledged is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_twenty_kills_lose_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.crash", "--kills", "20", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.endswith("Nothing acknowledged was lost, and no call ran twice.\n")
    histogram = dict(re.findall(r"^  ([a-z-]+/[a-z-]+) +(\d+)$", done.stdout, re.MULTILINE))
    assert sum(map(int, histogram.values())) >= 20
