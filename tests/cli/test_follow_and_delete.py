"""`show --follow` and `sessions delete`, beside another process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.agent.stage import stage
from tests.cli.commands import call, complaint, told

from addendum.stores import open_store

SAYS = "from addendum.app.main import main; main()"


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", SAYS, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.anyio
@pytest.mark.parametrize("as_json", [True, False])
async def test_d14_a_live_session_is_followed_from_another_process(
    tmp_path: Path, as_json: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    store = await open_store(url)
    options = ["--json"] if as_json else []
    async with stage() as here:
        agent = here.agent("anthropic:claude-opus-5-5")
        async with agent.open("live", store=store) as session:
            await session.run("the first message")
            with program("show", "live", "--follow", "--store", url, *options) as process:

                def hear(what: str) -> list[str]:
                    assert process.stdout
                    heard: list[str] = []
                    while what not in (heard[-1:] or [""])[0]:
                        line = process.stdout.readline()
                        assert line, heard
                        heard.append(line)
                    return heard

                first = await anyio.to_thread.run_sync(hear, "the first message")
                await session.run("the second message")
                more = await anyio.to_thread.run_sync(hear, "the second message")
                if as_json:
                    seqs = [json.loads(line)["seq"] for line in first + more]
                    assert seqs == list(range(len(seqs)))
                process.send_signal(signal.SIGINT)
                assert await anyio.to_thread.run_sync(process.wait) == 130
    await store.aclose()


def test_d14_a_deleted_session_is_gone_and_one_in_use_is_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"

    async def make() -> None:
        store = await open_store(url)
        lease = await store.acquire("one")
        await store.append(lease, 0, [b'{"seq":0,"time":1,"data":{"type":"session/start"}}'])
        await store.release(lease)
        held = await store.acquire("two")
        said = await anyio.to_thread.run_sync(
            lambda: complaint("sessions", "delete", "two", "--store", url)
        )
        assert "is held by pid" in said
        await store.release(held)
        await store.aclose()

    anyio.run(make)
    assert call("sessions", "delete", "on", "--store", url).stdout == (
        "deleted session one with 1 events\n"
    )
    assert [row["id"] for row in told("sessions", "--store", url)["sessions"]] == ["two"]
    assert "no session begins with 'one'" in complaint("sessions", "delete", "one", "--store", url)
