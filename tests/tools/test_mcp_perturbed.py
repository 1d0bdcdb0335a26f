"""Good answers of servers with one thing changed: nothing that was understood is lost.

A random place of a random answer is dropped, made null or of another type, repeated, reordered or
split, framed as one of the ways frames it, and cut into chunks anywhere. ADDENDUM_PERTURBED says
how often (10,000; `make perturb-servers` does it 1,000,000 times).
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse
from tests.tools.pictures import b64, png
from tests.tools.test_mcp_stdio import CLASSIC, plain, served

from addendum.errors import ContentError
from addendum.tools.mcp import messages as messages
from addendum.tools.mcp.framing import Events, Lines
from addendum.tools.mcp.link import Link
from addendum.tools.mcp.messages import read_messages
from addendum.tools.mcp.offers import prompt_text, resource_outcome
from addendum.tools.mcp.raw import handshake
from addendum.tools.mcp.results import call_outcome
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio

COUNT = int(os.environ.get("ADDENDUM_PERTURBED", "10000"))
VERSIONS = ("2024-11-05", "2025-11-25")
PICTURE = b64(png())

Path = tuple[str | int, ...]


class Sample(NamedTuple):
    """A good result: how it is read, and what is read of each entry of its list, in order."""

    result: dict[str, Any]
    listed: str
    marks: tuple[str, ...]
    read: Callable[[dict[str, Any]], str]


def listed(result: dict[str, Any]) -> str:
    link = Link(ServerSpec(name="s", command=("x",)), lambda: None)
    link.screened("tools/list", result)
    return " ".join(entry["name"] for entry in link._good)


SAMPLES = (
    Sample(
        {
            "content": [
                {"type": "text", "text": "MARK-0", "annotations": {"priority": 0.5}},
                {"type": "image", "data": PICTURE, "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "mem://a", "text": "MARK-2"}},
                {"type": "resource_link", "uri": "mem://MARK-3", "name": "a", "size": 3},
                {"type": "audio", "data": "AAAA", "mimeType": "audio/MARK-4"},
                {"type": "text", "text": "MARK-5"},
            ],
            "structuredContent": {"rows": [1, {"a": None}]},
            "isError": False,
        },
        "content",
        ("MARK-0", "image/png", "MARK-2", "MARK-3", "MARK-4", "MARK-5"),
        lambda result: call_outcome(result).text,
    ),
    Sample(
        {
            "tools": [
                {
                    "name": f"MARK-{place}",
                    "description": "d",
                    "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
                    "annotations": {"readOnlyHint": True},
                }
                for place in range(4)
            ],
            "nextCursor": "more",
        },
        "tools",
        tuple(f"MARK-{place}" for place in range(4)),
        listed,
    ),
    Sample(
        {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "MARK-0"}},
                {"role": "assistant", "content": {"type": "text", "text": "MARK-1"}},
                {"role": "user", "content": {"type": "text", "text": "MARK-2"}},
            ]
        },
        "messages",
        ("MARK-0", "MARK-1", "MARK-2"),
        prompt_text,
    ),
    Sample(
        {
            "contents": [
                {"uri": "mem://a", "mimeType": "text/plain", "text": "MARK-0"},
                {"uri": "mem://MARK-1", "blob": PICTURE},
            ]
        },
        "contents",
        ("MARK-0", "MARK-1"),
        lambda result: resource_outcome(result).text,
    ),
    Sample(
        {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "s", "version": "1"},
            "instructions": "hello",
        },
        "",
        (),
        lambda result: json.dumps(handshake(result, VERSIONS, [])),
    ),
)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from places(item, (*path, place))


ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    10**40,
    "",
    "x",
    "\ud800",
    [],
    {},
    [None],
    {"a": {}},
    [[[]]],
    "9" * 5000,
)


def changed(value: Any, path: Path, chance: random.Random) -> tuple[Any, str]:
    """Return a copy with one thing changed at a path, and what was done."""
    copy = json.loads(json.dumps(value))
    parent = copy
    for step in path[:-1]:
        parent = parent[step]
    last = path[-1]
    item = parent[last]
    does = ["drop", "odd", "odd", "wrap"]
    if isinstance(item, list):
        does += ["repeat", "reorder", "split", "alone"]
    if isinstance(item, dict):
        does += ["reorder", "add"]
    if isinstance(item, str):
        does += ["cut"]
    done = chance.choice(does)
    match done:
        case "drop":
            del parent[last]
        case "odd":
            parent[last] = chance.choice(ODD)
        case "wrap":
            parent[last] = [item]
        case "repeat":
            parent[last] = [each for each in item for _ in range(2)]
        case "reorder" if isinstance(item, list):
            chance.shuffle(item)
        case "reorder":
            parent[last] = dict(reversed(list(item.items())))
        case "split":
            half = len(item) // 2
            parent[last] = [item[:half], *item[half:]]
        case "alone":
            parent[last] = item[0] if item else None
        case "add":
            item[chance.choice(["extra", "_meta", "type ", ""])] = chance.choice(ODD)
        case _:
            parent[last] = item[: len(item) // 2]
    return copy, done


def cut(data: bytes, chance: random.Random) -> Iterator[bytes]:
    while data:
        size = chance.choice((1, 2, 7, 100, len(data)))
        yield data[:size]
        data = data[size:]


def framed(text: bytes, way: str, chance: random.Random) -> bytearray:
    """Return a message as it is read from chunks of what a way makes of it."""
    if way == "json":
        return bytearray(text)
    if way == "stdio":
        lines = Lines(messages.noise())
        found = [each for chunk in cut(text + b"\n", chance) for each in lines.feed(chunk)]
        assert len(found) == 1 and isinstance(found[0], bytearray)
        return found[0]
    events = Events(messages.noise())
    body = b": hello\r\nid: 7\r\ndata: " + text + b"\r\n\r\n"
    made = [event for chunk in cut(body, chance) for event in events.feed(chunk)]
    assert len(made) == 1
    return made[0].data


def kept(sample: Sample, path: Path, done: str) -> list[str]:
    """Return what must still be read: every entry of the list that was not touched."""
    if not sample.listed or path[0] != sample.listed:
        return list(sample.marks)
    if len(path) == 1:
        if done in ("repeat", "reorder"):
            return list(sample.marks)
        if done == "split":
            # The first half is a list in the list, which is no entry.
            return list(sample.marks[len(sample.marks) // 2 :])
        # One entry in place of the list is read; what is no entry cannot be.
        return list(sample.marks[:1]) if done == "alone" else []
    return [mark for place, mark in enumerate(sample.marks) if place != path[1]]


async def test_one_thing_changed_costs_nothing_else() -> None:
    chance = random.Random(7)
    paths = [list(places(sample.result)) for sample in SAMPLES]
    for number in range(COUNT):
        which = chance.randrange(len(SAMPLES))
        sample = SAMPLES[which]
        path = chance.choice(paths[which])
        result, done = changed(sample.result, path, chance)
        way = chance.choice(("stdio", "json", "sse"))
        about = (number, way, path, done, result)
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
        (made,) = read_messages(framed(text, way, chance))
        assert isinstance(made, JSONRPCResponse), about
        try:
            read = sample.read(made.result)
        except ContentError:
            # A list that is none is refused as a whole; it is told, and the earlier one stays.
            assert sample.listed == "tools" and path == ("tools",), about
            continue
        for mark in kept(sample, path, done):
            assert mark in read, about


async def test_an_envelope_with_one_thing_changed_is_read_or_refused() -> None:
    chance = random.Random(11)
    for number in range(COUNT // 5):
        good: dict[str, Any] = chance.choice(
            [
                {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}},
                {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no"}},
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
                {"jsonrpc": "2.0", "id": "a", "method": "ping", "params": {}},
            ]
        )
        bad, done = changed(good, chance.choice(list(places(good))), chance)
        text = json.dumps(bad).encode()
        if chance.random() < 0.2:
            text = text[: chance.randrange(len(text))]
            done = "cut off"
        way = chance.choice(("stdio", "json", "sse"))
        try:
            for made in read_messages(framed(text, way, chance) if text else bytearray()):
                if isinstance(made, JSONRPCError):
                    assert made.error.message, (number, done, bad)
        except ContentError:
            pass


async def test_a_server_whose_answers_are_changed_is_used_to_the_end(tmp_path: Any) -> None:
    """One process, one connection: no answer ends either."""
    chance = random.Random(13)
    listing = tmp_path / "tools.json"
    listing.write_text(json.dumps([plain("answer")]))
    sample = SAMPLES[0]
    paths = list(places(sample.result))
    async with served((sys.executable, "-S", "-E", str(CLASSIC), str(listing))) as connection:
        await connection.ready(20)
        first = connection.pid
        for _ in range(150):
            path = chance.choice(paths)
            result, done = changed(sample.result, path, chance)
            arguments = json.dumps({"result": json.dumps(result)}).encode()
            found = await connection.call("answer", arguments, timeout=20)
            assert found.code is None, (path, done, found)
            assert all(mark in found.text for mark in kept(sample, path, done)), (path, done)
        assert (connection.pid, connection.state.status) == (first, "ready")
