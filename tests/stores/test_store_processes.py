"""Several real processes on one SQLite file: takeover, kills, pins at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from addendum.errors import SessionBusy
from addendum.stores import SqliteStore

pytestmark = pytest.mark.anyio

WRITER = """
import sys, anyio
from addendum.stores import open_store

async def main():
    store = await open_store(sys.argv[1])
    lease = await store.acquire("s")
    print(lease.token, flush=True)
    length = len(await store.read("s"))
    for command in sys.stdin:
        if command == "append\\n":
            try:
                await store.append(lease, length, [b"%d" % length])
                length += 1
                print("ok", flush=True)
            except Exception as error:
                print(type(error).__name__, error, flush=True)
        elif command == "flood\\n":
            while True:  # until it is killed; a line for each acknowledged batch
                batch = [b"%d" % (length + i) for i in range(1 + length % 5)]
                await store.append(lease, length, batch)
                length += len(batch)
                sys.stdout.write(f"{length}\\n")
                sys.stdout.flush()

anyio.run(main)
"""

PIN = """
import sys, anyio
from addendum.stores import open_store

async def main():
    sys.stdin.readline()
    store = await open_store(sys.argv[1])
    print((await store.put("catalogue", "k", sys.argv[2].encode(), keep=True)).decode())
    await store.aclose()

anyio.run(main)
"""


class Child:
    """A process that obeys one line at a time."""

    def __init__(self, script: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout and self.process.stderr
        return self.process.stdout.readline().strip() or self.process.stderr.read()

    def rest(self) -> list[str]:
        assert self.process.stdout
        return self.process.stdout.read().split()

    def __enter__(self) -> Child:
        self.process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.__exit__(None, None, None)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/kept.db"


async def test_a_second_process_waits_for_the_first_to_end(url: str) -> None:
    store = await SqliteStore.open(url)
    with Child(WRITER, url) as first:
        token = int(first.hear())
        first.say("append")
        assert first.hear() == "ok"
        with pytest.raises(SessionBusy) as caught:
            await store.acquire("s")
        text = str(caught.value)
        assert f"session 's' is held by pid {first.process.pid} on " in text
        assert "end that process" in text
        assert await store.read("s") == [b"0"], "reading needs no lease"
    lease = await store.acquire("s")  # killed a moment ago, its minute is not over
    assert lease.token == token + 1
    await store.append(lease, 1, [b"1"])
    with Child(WRITER, url) as second:
        assert "SessionBusy" in second.hear() and second.process.wait() != 0
    assert await store.read("s") == [b"0", b"1"]
    await store.aclose()


async def test_a_process_that_was_taken_over_is_refused(url: str) -> None:
    store = await SqliteStore.open(url)
    with Child(WRITER, url) as first:
        token = int(first.hear())
        first.say("append")
        assert first.hear() == "ok"
        # To this process the holder looks like one on a host that fell silent.
        assert store._db
        store._db.execute("UPDATE leases SET machine = 'another boot', expires = 1")
        lease = await store.acquire("s")
        assert lease.token == token + 1
        await store.append(lease, 1, [b"mine"])
        first.say("append")
        assert first.hear() == (
            f"SessionBusy session 's' was taken over by {lease.holder}; "
            "open the session again to go on"
        )
    assert await store.read("s") == [b"0", b"mine"]
    await store.append(lease, 2, [b"still mine"])
    await store.aclose()


async def test_a_kill_in_the_middle_of_appends_loses_nothing_acknowledged(url: str) -> None:
    token, before = 0, 0
    for kill_after in (1, 40, 150):
        with Child(WRITER, url) as writer:
            taken = int(writer.hear())
            assert taken > token
            token = taken
            writer.say("flood")
            for _ in range(kill_after):
                assert int(writer.hear()) > before
            writer.process.kill()
            heard = writer.rest()
        acknowledged = int(heard[-1]) if heard and heard[-1].isdigit() else before
        store = await SqliteStore.open(url)
        events = await store.read("s")
        assert len(events) >= acknowledged
        assert events == [b"%d" % seq for seq in range(len(events))]
        assert (await store.sessions())[0].events == len(events)
        await store.aclose()
        before = len(events)
    assert before > 150


async def test_processes_that_pin_at_once_agree_on_the_first(url: str) -> None:
    """The file does not exist yet: they also race to make it and its tables."""
    children = [Child(PIN, url, f"from {number}") for number in range(4)]
    try:
        for child in children:
            child.say("go")
        answers = {child.hear() for child in children}
    finally:
        for child in children:
            child.__exit__()
    store = await SqliteStore.open(url)
    kept = await store.get("catalogue", "k")
    assert kept and answers == {kept.decode()}
    await store.aclose()
