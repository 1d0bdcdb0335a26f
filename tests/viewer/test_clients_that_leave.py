"""Clients that go away at any moment, rudely or not: nothing is printed, and others are served."""

from __future__ import annotations

import json
import logging
import socket
import struct
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from addendum.lab.proxy import open_proxy
from addendum.lab.server import open_lab, serve
from addendum.viewer.app import build
from addendum.viewer.rooms import Setup, open_house

pytestmark = pytest.mark.anyio

LONG = json.dumps(
    {
        "model": "gpt-4.1",
        "stream": True,
        "messages": [{"role": "user", "content": "hello " * 2_000}],
    }
).encode()
SAID = json.dumps({"text": "hello"}).encode()


def request(method: str, path: str, host: str, token: str, body: bytes, length: int) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        "authorization: Bearer x",
        f"x-addendum-token: {token}",
        f"content-length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def rudely(url: str, paths: list[tuple[str, str, bytes]], token: str) -> Iterator[bytes]:
    """What clients have sent when they go away."""
    host = urlsplit(url).netloc
    yield from (b"", b"GET", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"x" * 70_000)
    yield b"GET / HTTP/1.1\r\nhost: " + b"h" * 100_000
    for method, path, body in paths:
        for part, length in ((0, len(body)), (len(body) // 2, len(body)), (len(body), len(body))):
            yield request(method, path, host, token, body[:part], length)
        yield request(method, path, host, token, body[:1], 500_000)


def leave(url: str, data: bytes, *, reset: bool, read: int) -> None:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5) as made:
        made.sendall(data)
        if read and data.endswith(b"}"):
            made.recv(read)
        if reset:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Served = tuple[str, str, list[tuple[str, str, bytes]], str]
"""Address, a path that is served, what is asked rudely, and the token."""


@asynccontextmanager
async def lab(folder: Path) -> AsyncGenerator[Served]:
    async with open_lab() as served:
        path = "/openai/v1/chat/completions"
        yield served.url, "/", [("POST", path, LONG)], ""


@asynccontextmanager
async def proxy(folder: Path) -> AsyncGenerator[Served]:
    async with open_lab() as served:
        environ = {"OPENAI_BASE_URL": served.base_url("openai")}
        async with open_proxy(folder / "calls.jsonl", environ) as opened:
            parts = urlsplit(opened.variables["OPENAI_BASE_URL"])
            ask = [("POST", f"{parts.path}/chat/completions", LONG)]
            yield f"http://{parts.netloc}", f"{parts.path}/models", ask, ""


@asynccontextmanager
async def page(folder: Path) -> AsyncGenerator[Served]:
    setup = Setup(route="openai-chat:gpt-4.1", store="memory://", lab=True)
    async with open_house(setup) as house:
        guard = build(house)
        async with serve(guard, release=house.close) as url:
            session = await house.begin("hello", None)
            paths = [
                ("POST", "/new", SAID),
                ("POST", f"/s/{session}/send", SAID),
                ("POST", f"/s/{session}/nosuch", SAID),
                ("GET", "/", b""),
                ("GET", f"/s/{session}", b""),
                ("GET", f"/s/{session}/events?view=chat", b""),
                ("GET", f"/s/{session}/events?view=trajectory", b""),
                ("GET", "/static/style.css", b""),
            ]
            yield url, "/sessions", paths, guard.token


@pytest.mark.parametrize("made", [lab, proxy, page], ids=lambda made: made.__name__)
async def test_whoever_leaves_is_no_story(
    made: object,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert callable(made)
    caplog.set_level(logging.WARNING)
    async with made(tmp_path) as (url, good, paths, token):
        for reset in (True, False):
            for read in (0, 10):
                for data in rudely(url, paths, token):
                    await anyio.to_thread.run_sync(
                        lambda data=data, reset=reset, read=read: leave(
                            url, data, reset=reset, read=read
                        )
                    )
        async with httpx2.AsyncClient(timeout=10) as client:
            assert (await client.get(f"{url}{good}")).status_code < 500
    assert capfd.readouterr() == ("", "")
    assert [each.getMessage() for each in caplog.records] == []
