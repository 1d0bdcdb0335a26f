"""Thousands of event streams at once: so many are served, the others are told, nothing falls."""

from __future__ import annotations

import resource

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from tests.viewer.staged import long_log, stage, stored

from addendum.lab.server import serve
from addendum.stores import MemoryStore
from addendum.viewer.pages import MAX_STREAMS

pytestmark = pytest.mark.anyio


async def test_thousands_of_streams_leave_the_page_alive() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 10_000) if hard != resource.RLIM_INFINITY else 10_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    clients = min(2_000, (max(soft, wanted) - 200) // 2)
    store = MemoryStore()
    await stored(store, long_log(2))
    statuses: list[bytes] = []
    try:
        async with stage(store=store) as staged:
            async with serve(staged.guard, release=staged.house.close) as url:
                port = int(url.rpartition(":")[2])

                async def ask(path: str) -> anyio.abc.SocketStream:
                    stream = await anyio.connect_tcp("127.0.0.1", port)
                    await stream.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
                    return stream

                streams: list[anyio.abc.SocketStream] = []
                for _ in range(clients):
                    stream = await ask("/s/long/events?view=ledger&after=0")
                    streams.append(stream)
                    statuses.append((await stream.receive(64))[:12])
                assert staged.house.streams == MAX_STREAMS
                page = await ask("/s/long")
                assert (await page.receive())[:12] == b"HTTP/1.1 200"
                await page.aclose()
                for stream in streams:
                    await stream.aclose()
                with anyio.fail_after(20):
                    while staged.house.streams:
                        await anyio.lowlevel.checkpoint()
                again = await ask("/s/long/events?view=ledger")
                assert (await again.receive())[:12] == b"HTTP/1.1 200"
                await again.aclose()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert statuses.count(b"HTTP/1.1 200") == MAX_STREAMS
    assert statuses.count(b"HTTP/1.1 503") == clients - MAX_STREAMS
