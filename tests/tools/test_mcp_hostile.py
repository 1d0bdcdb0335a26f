"""What hostile servers can make a host hold: one list of attacks, driven over each transport.

Real processes and real HTTP; the host is a process of its own, whose peak of memory is looked at
for each row. A part of the matrix runs here, all of it with ADDENDUM_EVERY=1 (`make matrix`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.tools.hostile_server import METHODS, ROWS

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
WAYS = ("stdio", "json", "sse", "json+gzip", "sse+gzip", "json+deflate", "json+br", "sse+zstd")
UNASKED = ("json+br", "sse+zstd")
"""Ways of compressing that no request asks for; what comes so is refused."""

MOST = 64.0
"""MB that a hostile server may make us hold beside a harmless one."""

EVERY = os.environ.get("ADDENDUM_EVERY") == "1"
LARGEST = [row for row in ROWS if row.startswith("largest")]


def pairs() -> list[tuple[str, str]]:
    """Return the part of the matrix that is played, each row and each way in it."""
    matrix = [(way, row) for way in WAYS for row in ROWS]
    if EVERY:
        return matrix
    rows = list(ROWS)
    chosen = {(WAYS[place % len(WAYS)], row) for place, row in enumerate(rows)}
    return [pair for pair in matrix if pair in chosen]


def parts(played: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Cut what is played into what one host meets: what it freed stays with its process.

    The part that always runs is met by one host; all of the matrix would add up what the platform
    does not take back.
    """
    size = 12 if EVERY else len(played)
    for start in range(0, len(played), size):
        yield played[start : start + size]


@contextmanager
def serving() -> Generator[str]:
    command = [sys.executable, "-S", "-E", str(HERE / "hostile_server.py"), "http"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(10)


async def hosted(url: str, played: list[tuple[str, str]]) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / "hostile_host.py"), url]
    done = await anyio.run_process(
        [*command, *(f"{way}={row}" for way, row in played)], check=False, stderr=None
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_row_says_what_it_does_on_each_way() -> None:
    for name, row in ROWS.items():
        whole = row.message is not None or row.pages or row.head or name == "harmless"
        assert whole or set(row.raw) == {"stdio", "json", "sse"}, name
        assert not row.head or "stdio" in row.raw, name
    attacked = {row.method for row in ROWS.values()}
    assert {*METHODS, "unasked"} <= attacked
    played = pairs()
    assert {way for way, _ in played} == set(WAYS)
    assert {row for _, row in played} == set(ROWS)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's peak memory")
@pytest.mark.timeout(1800 if EVERY else 300)
async def test_no_server_makes_the_host_hold_more_than_it_may() -> None:
    harmless = [(way, "harmless") for way in ("stdio", "json", "sse")]
    rows: list[dict[str, Any]] = []
    over: list[dict[str, Any]] = []
    with serving() as url:
        for part in parts(pairs()):
            played = [*harmless, *part, *harmless]
            told = await hosted(url, played)
            assert [(each["way"], each["row"]) for each in told] == played
            usual = max(each["peak"] for each in told[: len(harmless)])
            over += [each for each in told if each["peak"] - usual > MOST]
            for each in (*told[: len(harmless)], *told[-len(harmless) :]):
                # After all of it a harmless server works as before.
                assert each["told"][:2] == ["ready 1 None", "None 'heard' 0"], each
            rows += told
    assert [(each["way"], each["row"], each["peak"]) for each in over] == []
    largest = [each for each in rows if each["row"] in LARGEST]
    assert largest
    for each in largest:
        # What is within the limits is taken, with all that it brings.
        assert each["told"][0].startswith("failed") == (each["way"] in UNASKED), each
