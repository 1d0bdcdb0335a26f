"""The web page on long sessions: time to answer, first paint, bytes sent, memory of the server.

A session of 1,000 turns and one of 100,000 events are put into a store; a process of its own serves
them, and each page is asked for twice: first when nothing of the session is in memory yet.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import httpx2
from playwright.sync_api import sync_playwright

from addendum.stores import open_store

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.viewer.staged import long_log, stored

TURNS = {"1,000 turns": 1_000, "100,000 events": 100_000 // 13}
PAGES = {
    "chat": "",
    "trajectory": "/trajectory",
    "a request": "/requests/{last}",
    "timeline": "/tools",
    "usage": "/usage",
    "search": "/trajectory?q=Question+77:",
}
LIMIT = 300_000
"""Bytes that a first view may have."""


def memory(process: int) -> float:
    """Return what a process holds in memory, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found.group(1)) / 1024 if found else 0.0


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'long.db'}"

        async def fill() -> None:
            store = await open_store(url)
            for turns in TURNS.values():
                await stored(store, long_log(turns, f"long{turns}"))
            await store.aclose()

        anyio.run(fill)
        command = [sys.executable, "-m", "addendum.app.main", "serve", "--port", "0"]
        server = subprocess.Popen([*command, "--store", url], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found
            measure(found.group(), server.pid)
        finally:
            server.terminate()
            server.wait(30)


def measure(address: str, process: int) -> None:
    """Ask for each page, and print what it took."""
    print(f"server at its start: {memory(process):.0f} MB")
    print(f"{'session':16}{'page':12}{'first':>10}{'again':>10}{'bytes':>10}{'server':>9}")
    worst = 0
    with httpx2.Client(base_url=address, timeout=120) as client:
        for name, turns in TURNS.items():
            for page, path in PAGES.items():
                target = f"/s/long{turns}{path.format(last=turns * 2)}"
                spent: list[float] = []
                size = 0
                for _ in range(2):
                    start = time.perf_counter()
                    answer = client.get(target)
                    spent.append(time.perf_counter() - start)
                    answer.raise_for_status()
                    size = len(answer.content)
                worst = max(worst, size)
                print(
                    f"{name:16}{page:12}{spent[0] * 1000:>7.0f} ms{spent[1] * 1000:>7.0f} ms"
                    f"{size:>10,}{memory(process):>6.0f} MB"
                )
    paint(address)
    print(f"largest page: {worst:,} bytes, {LIMIT:,} allowed")
    if worst > LIMIT:
        sys.exit(1)


def paint(address: str) -> None:
    """Print when a browser first shows something, where there is one."""
    executable = shutil.which("chromium")
    if executable is None:
        print("first paint: no Chromium on this machine")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for name, turns in TURNS.items():
            for view in ("", "/trajectory"):
                page = browser.new_page()
                page.goto(f"{address}/s/long{turns}{view}")
                shown = page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
                )
                print(f"{name:16}{view or '/chat':12}first paint after {shown:.0f} ms")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
