"""A real browser in front of a real `addendum serve`, behind it the lab and real MCP servers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Dialog, Page, Request

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str:
    """Return the browser of this machine; skip where there is none."""
    pytest.importorskip("playwright", reason="no playwright here: pip install playwright")
    named = os.environ.get("ADDENDUM_CHROMIUM")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(
            "no Chromium on this machine: apt-get install chromium", allow_module_level=True
        )
    return found


@contextmanager
def served(folder: Path, *options: str, store: str | None = None) -> Generator[str]:
    """Run `addendum serve` on a free port; gives its address."""
    repository = folder / "repository"
    if not repository.exists():
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "init", "-q", repository], check=True)
        (repository / "notes.txt").write_text("first\n")
        subprocess.run([*git, "-C", repository, "add", "."], check=True)
        subprocess.run([*git, "-C", repository, "commit", "-qm", "Take notes"], check=True)
    servers = {
        "time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]},
        "git": {
            "command": sys.executable,
            "args": ["-m", "mcp_server_git", "--repository", str(repository)],
        },
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    command = [sys.executable, "-m", "addendum.app.main", "serve", "--lab", "--port", "0"]
    command += [
        "--mcp",
        str(file),
        "--store",
        store or f"sqlite:///{folder / 'viewer.db'}",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        yield found.group()
    finally:
        process.terminate()
        said = process.communicate(timeout=30)[1]
        assert process.returncode == 0, said
        assert "internal error" not in said, said


class Watch:
    """What a browser complains of, and where it goes."""

    def __init__(self, page: Page) -> None:
        self.wrong: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob", "about") and url.hostname != "127.0.0.1":
            self.wrong.append(f"request: {request.url}")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append("a dialog opened")
        dialog.dismiss()
