"""`addendum serve`: where it listens, what it refuses, and that it ends when it is told to."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.cli.commands import call, complaint
from tests.viewer.staged import long_log, stored

from addendum.log.events import TurnStart, UserMessage
from addendum.stores import open_store

SECRET = "a-secret-of-some-length"


def started(folder: Path, *options: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start the command; return the process, the line that it printed, and its address."""
    command = [sys.executable, "-m", "addendum.app.main", "serve", "--port", "0"]
    command += ["--store", f"sqlite:///{folder / 'kept.db'}", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, line + process.communicate()[1]
    return process, line, found.group()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "end"])
def test_it_prints_its_address_and_ends_by_a_signal(tmp_path: Path, number: int) -> None:
    process, line, address = started(tmp_path, "--lab")
    try:
        assert line.startswith(f"addendum on {address} (the lab answers")
        page = httpx2.get(address)
        assert page.status_code == 200 and "addendum-token" in page.text
        # A stream that is open does not hold it up.
        token = re.search(r'addendum-token" content="([^"]+)"', page.text)
        assert token
        answer = httpx2.post(
            f"{address}/new",
            json={"text": "hi", "route": "anthropic:claude-opus-5-5"},
            headers={"x-addendum-token": token.group(1)},
        )
        with httpx2.stream("GET", f"{address}{answer.json()['url']}/events?view=chat") as stream:
            assert next(stream.iter_lines()).startswith(("retry", "id"))
            began = time.monotonic()
            process.send_signal(number)
            assert process.wait(timeout=20) == 0
            assert time.monotonic() - began < 15
    finally:
        process.kill()
        assert process.communicate()[1] == ""


def test_it_reads_what_is_stored_without_a_route_or_a_key(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await open_store(f"sqlite:///{tmp_path / 'kept.db'}")
        await stored(store, long_log(3))
        await store.aclose()

    anyio.run(fill)
    process, line, address = started(tmp_path)
    try:
        assert "lab" not in line
        assert "Question 3" in httpx2.get(f"{address}/s/long").text
        assert "Question 1" in httpx2.get(f"{address}/s/long/trajectory").text
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_other_machines_are_let_in_by_flag_and_token_alone(tmp_path: Path) -> None:
    assert "--token" in complaint("serve", "--host", "0.0.0.0")
    assert "too short" in complaint("serve", "--host", "0.0.0.0", "--token", "short")
    process, _, address = started(tmp_path, "--lab", "--host", "0.0.0.0", "--token", SECRET)
    try:
        own = address.replace("0.0.0.0", "127.0.0.1")
        assert httpx2.get(own).status_code == 401
        with httpx2.Client(base_url=own, follow_redirects=True) as client:
            assert client.get(f"/?access={SECRET}").status_code == 200
    finally:
        process.terminate()
        said = process.communicate(timeout=20)
        assert SECRET not in said[0] + said[1]


def test_a_port_that_is_taken_and_a_route_that_is_none_are_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = complaint("serve", "--lab", "--port", port, "--store", "memory://")
        assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "no provider" in complaint("serve", "--lab", "--route", "x:y", "--store", "memory://")
    assert "cannot read" in complaint("serve", "--lab", "--mcp", "nothing.json")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in [name for name in sys.modules if name.startswith("addendum.viewer")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "nh3", None)
    url = f"sqlite:///{tmp_path / 'kept.db'}"

    async def fill() -> None:
        store = await open_store(url)
        await stored(store, long_log(2))
        await store.aclose()

    anyio.run(fill)
    for command in (("serve", "--lab"), ("export", "long", "--html")):
        assert complaint(*command, "--store", url) == (
            'addendum: this needs nh3; pip install "addendum[viewer]", '
            'or in a checkout pip install ".[viewer]"\n'
        )
    # What needs no page goes on.
    assert call("export", "long", "--jsonl", "--store", url).stdout


def test_a_page_is_exported_whole_and_without_credentials(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    key = "sk-" + "made-up-" * 4

    async def fill() -> None:
        store = await open_store(url)
        log = long_log(2)
        log.append(TurnStart(3))
        log.append(UserMessage(3, f"my key is {key} <script>alert(1)</script>"))
        await stored(store, log)
        await store.aclose()

    anyio.run(fill)
    page = call("export", "long", "--html", "--store", url).stdout
    assert page.startswith("<!doctype html>") and "Question 2" in page and "Answer 2" in page
    assert key not in page and "[redacted " in page
    assert "<script" not in page and 'http-equiv="content-security-policy"' in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page)
    assert "Request 4" in page and "messages[" in page
    chinese = call("export", "long", "--html", "--language", "zh", "--store", url).stdout
    assert 'lang="zh"' in chinese and "第 2 轮" in chinese
    # Without redaction the page still shows no credential as such, but its neighbours.
    assert (
        "[redacted " not in call("export", "long", "--html", "--unredacted", "--store", url).stdout
    )
