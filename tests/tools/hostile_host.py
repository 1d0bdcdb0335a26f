"""A host that uses hostile servers one after another and says what each made it hold.

    hostile_host.py URL WAY=ROW...     WAY is `stdio` (URL is not used) or as in hostile_server.py

One line of JSON for each: way, row, the peak of memory (MB), seconds, and what was told.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio

from addendum.tools.mcp.pool import ServerPool, Timings
from addendum.tools.mcp.values import CallOutcome, ServerSpec

SERVER = Path(__file__).with_name("hostile_server.py")
FAST = Timings(
    connect=4, fetch=4, first_pause=5, quiet=0.01, confirm=0.1, demand=2, probe=0.5, grace=0.3
)


def peak() -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def use(way: str, url: str, row: str) -> list[str]:
    """Do what a session does with a server; return what it is told."""
    if way == "stdio":
        spec = ServerSpec(name="s", command=(sys.executable, "-S", "-E", str(SERVER), "stdio", row))
    else:
        spec = ServerSpec(name="s", url=f"{url}/{quote(row, safe='')}/{way}")
    told: list[str] = []
    pool = ServerPool(timings=FAST)
    try:
        connection = await pool.acquire(spec)
        state = await connection.ready(6)
        told.append(f"{state.status} {len(state.tools)} {state.error}")
        if state.status == "failed":
            return told
        answers: list[Any] = [await connection.call("echo", b"{}", timeout=3)]
        if "prompts" in row or "resources" in row or "offers" in row or row == "harmless":
            answers.append(await connection.ask(lambda link: link.prompts(), 3))
            answers.append(await connection.ask(lambda link: link.prompt("p", {}), 3))
            answers.append(await connection.ask(lambda link: link.resources(), 3))
            answers.append(await connection.ask(lambda link: link.resource("mem://a"), 3))
        for answer in answers:
            if isinstance(answer, CallOutcome):
                told.append(f"{answer.code} {answer.text[:100]!r} {len(answer.media)}")
            else:
                told.append(f"{len(answer)}")
        return told
    finally:
        with anyio.CancelScope(shield=True):
            await pool.aclose()


async def main(url: str, pairs: list[str]) -> None:
    for pair in pairs:
        way, _, row = pair.partition("=")
        # Begins the peak anew.
        await anyio.Path("/proc/self/clear_refs").write_text("5")
        began = time.monotonic()
        told = await use(way, url, row)
        seconds = time.monotonic() - began
        shown = {"way": way, "row": row, "peak": peak(), "seconds": seconds, "told": told}
        print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
