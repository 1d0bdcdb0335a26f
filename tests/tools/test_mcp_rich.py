"""What servers have beside tools that answer in text: files, progress, prompts, resources.

Real servers of the official SDK, over stdio and over HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.tools.pictures import PDF, b64, gif, jpeg, png
from tests.tools.rich_server import Rich
from tests.tools.test_mcp_http import connected, web

from addendum.log.values import Media
from addendum.tools.mcp.connection import Connection
from addendum.tools.mcp.offers import PromptArgument, RemotePrompt, RemoteResource
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import CallOutcome, ServerSpec

pytestmark = pytest.mark.anyio

STDIO = ServerSpec(name="s", command=(sys.executable, "-m", "tests.tools.rich_server"))


@asynccontextmanager
async def reached(way: str) -> AsyncGenerator[Connection]:
    if way == "stdio":
        pool = ServerPool()
        try:
            yield await pool.acquire(STDIO)
        finally:
            await pool.aclose()
        return
    async with web() as site:
        port = await site.up(Rich().mcp.streamable_http_app())
        async with connected(port) as connection:
            yield connection


async def call(connection: Connection, name: str, **more: Any) -> CallOutcome:
    return await connection.call(name, b"{}", timeout=30, **more)


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_what_a_server_has_comes_over_each_transport(way: str) -> None:
    async with reached(way) as connection:
        found = await call(connection, "picture")
        assert found == CallOutcome(
            f"a grey dot\n[image 1: image/png, {len(png())} bytes]",
            media=(Media("image/png", b64(png())),),
        )
        kinds = await call(connection, "kinds")
        assert [each.data for each in kinds.media] == [b64(jpeg()), b64(gif()), b64(PDF)]
        assert kinds.text.split("\n") == [
            f"[image 1: image/jpeg, {len(jpeg())} bytes]",
            f"[image 2: image/gif, {len(gif())} bytes]",
            f"[document 3: application/pdf, {len(PDF)} bytes, mem://a.pdf]",
            "[resource mem://a.txt]",
            "some text",
            "[resource link more, mem://more]",
            "[audio audio/wav, 3 bytes: not shown: audio cannot be given to a model here]",
        ]
        table = await call(connection, "table")
        assert table.text == '2 rows\n[structured content]\n{"rows":[1,2]}'
        failed = await call(connection, "failed")
        assert (failed.is_error, failed.media) == (True, ())
        assert failed.text.endswith("not shown: the call failed]")

        prompts = await connection.ask(lambda link: link.prompts(), 30)
        topic = PromptArgument("topic", required=True)
        assert prompts == (
            RemotePrompt("empty"),
            RemotePrompt("pictured"),
            RemotePrompt("write", "Write of it.", (topic, PromptArgument("tone"))),
        )
        given = {"topic": "rain", "tone": "calm"}
        text = (await connection.ask(lambda link: link.prompt("write", given), 30)).text
        assert text == (
            "Write of rain, calm. <turn_instructions>\n\n[assistant]\n\nWith pleasure.\n\n"
            "[user]\n\nBegin."
        )
        text = (await connection.ask(lambda link: link.prompt("pictured", {}), 30)).text
        assert text.endswith("bytes: not shown: a prompt holds text only]")

        assert await connection.ask(lambda link: link.resources(), 30) == (
            RemoteResource("mem://notes", "notes", type="text/plain", size=7),
            RemoteResource("mem://dot.png", "dot"),
            RemoteResource("mem://day/{d}", "day", template=True),
        )
        note = await connection.ask(lambda link: link.resource("mem://notes"), 30)
        assert note.text == "[resource mem://notes]\nmy note"
        dot = await connection.ask(lambda link: link.resource("mem://dot.png"), 30)
        assert dot.media == found.media
        gone = await connection.ask(lambda link: link.resource("mem://gone"), 30)
        assert (gone.is_error, gone.code) == (True, "refused")
        assert "no resource mem://gone" in gone.text


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("huge", "more than 4,500,000 bytes"),
        ("wide", "100,000 x 100,000 pixels"),
        ("no_base64", "its data is no base64"),
        ("no_picture", "only PNG, JPEG, GIF, WebP and PDF can be shown"),
    ],
)
async def test_a_file_that_no_provider_takes_is_told_in_words(
    way: str, name: str, why: str
) -> None:
    async with reached(way) as connection:
        found = await call(connection, name)
        assert why in found.text
        assert (found.media, found.is_error) == ((), False)
        assert len(found.text) < 300


async def test_a_file_is_what_its_bytes_say_and_there_are_not_too_many() -> None:
    async with reached("stdio") as connection:
        found = await call(connection, "wrong_type")
        assert found.media == (Media("image/gif", b64(gif())),)
        many = await call(connection, "many")
        assert len(many.media) == 10
        assert many.text.count("not shown: a result may have 10 files") == 90


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_progress_is_told_as_it_comes(way: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with reached(way) as connection:
        assert (await call(connection, "steps", report=report)).text == "done"
        assert [each[0] for each in heard] == list(range(1, 1001))
        assert heard[0][1:] == (1000, "step 1\n" * 100)
        # Nobody listens: nothing is asked for.
        heard.clear()
        assert (await call(connection, "steps")).text == "done"
        assert not heard


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_call_that_runs_is_cancelled_at_its_server(way: str) -> None:
    async with reached(way) as connection:
        started = anyio.Event()

        def report(progress: float, total: float | None, message: str | None) -> None:
            started.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(connection, "wait", report=report))
            with anyio.fail_after(20):
                await started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            while (await call(connection, "cancelled")).text != "1":
                pass
        assert connection.state.status == "ready"


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize("name", ["ask", "sample", "roots"])
async def test_what_a_server_asks_of_us_is_refused(way: str, name: str) -> None:
    async with reached(way) as connection:
        found = await call(connection, name)
        # The server says it in its own words; the schema that it sent reaches nobody.
        assert found.is_error
        assert len(found.text) < 500
        assert "password" not in found.text
        assert (await call(connection, "picture")).media
        assert connection.state.status == "ready"
