"""Measure `addendum check` on a large file of captured requests: seconds and peak memory.

Two files of 300 MB: one conversation that grows for ever, and many that are told side by side.
`python bench/large_capture.py [MEGABYTES]` measures another size.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import json

MARK = {"cache_control": {"type": "ephemeral"}}
TEXT = "What was said before is said again with every request that follows. " * 14


def growing(size: int, conversations: int, turns: int) -> Iterator[bytes]:
    """Yield lines of about `size` bytes in all, `conversations` side by side, then others."""
    written, first = 0, 0
    while written < size:
        talks = [[] for _ in range(conversations)]
        for turn in range(turns):
            for number, messages in enumerate(talks):
                question = {"type": "text", "text": f"{first + number}/{turn} {TEXT}"}
                body = {
                    "model": "claude-opus-5-5",
                    "max_tokens": 1000,
                    "system": [{"type": "text", "text": TEXT, **MARK}],
                    "messages": [*messages, {"role": "user", "content": [{**question, **MARK}]}],
                }
                messages.append({"role": "user", "content": [question]})
                messages.append({"role": "assistant", "content": [{"type": "text", "text": TEXT}]})
                line = json.encode(body) + b"\n"
                written += len(line)
                yield line
                if written >= size:
                    return
        first += conversations


def measured(path: Path) -> tuple[float, int, str]:
    """Check a file in a process of its own; return seconds, peak bytes and its last line."""
    command = [sys.executable, "-m", "addendum.app.main", "check", str(path)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read().splitlines()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - began, usage.ru_maxrss * 1024, said[-1] if said else "nothing"


def main(megabytes: int = 300) -> None:
    """Print a row for each file."""
    print(f"{'file':<32}{'MB':>6}{'seconds':>10}{'peak MB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.jsonl"
        for name, shape in (("one conversation", (1, 600)), ("400 at once", (400, 12))):
            with path.open("wb") as file:
                file.writelines(growing(megabytes * 1_000_000, *shape))
            seconds, peak, said = measured(path)
            size = path.stat().st_size / 1e6
            print(f"{name:<32}{size:>6.0f}{seconds:>10.1f}{peak / 1e6:>10.0f}   {said}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
