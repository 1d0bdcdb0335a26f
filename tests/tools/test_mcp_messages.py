"""Where bytes become messages: what is read in spite of its form, and what is refused."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import anyio
import pytest
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from addendum.errors import ContentError
from addendum.tools.mcp import messages as messages
from addendum.tools.mcp.framing import Events, Lines, decompressor
from addendum.tools.mcp.messages import (
    DEEPEST,
    MAX_MESSAGE,
    Allowance,
    read_messages,
    unreadable,
)
from addendum.tools.mcp.raw import BARE

pytestmark = pytest.mark.anyio


def read(text: str | bytes) -> Any:
    (made,) = read_messages(bytearray(text.encode() if isinstance(text, str) else text))
    return made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (
            '{"jsonrpc":"2.0","id":1,"result":{"a":1}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": 1}),
        ),
        ('{"id":"1","result":{}}', JSONRPCResponse(jsonrpc="2.0", id="1", result={})),
        ('{"id":1.0,"result":{},"extra":[]}', JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ('{"jsonrpc":"2.0","id":1}', JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ('{"id":1,"result":null}', JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ('{"id":1,"result":"text"}', JSONRPCResponse(jsonrpc="2.0", id=1, result={BARE: "text"})),
        ('{"id":1,"result":[7]}', JSONRPCResponse(jsonrpc="2.0", id=1, result={BARE: [7]})),
        (
            '\ufeff{"jsonrpc":"2.0","id":1,"result":{}}\r',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={}),
        ),
        (
            'starting... {"jsonrpc":"2.0","id":1,"result":{}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={}),
        ),
        (
            r'{"id":1,"result":{"a":"\ud83d","b":"\ud83d\ude00"}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": "\ufffd", "b": "\U0001f600"}),
        ),
        (
            '{"id":1,"result":{"a":Infinity}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": float("inf")}),
        ),
        (
            '{"id":1,"result":{"a":1e999}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": float("inf")}),
        ),
        (
            f'{{"id":1,"result":{{"a":{"7" * 5000}}}}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": float("inf")}),
        ),
        (
            f'{{"id":1,"result":{{"a":{"7" * 4300}}}}}',
            JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": int("7" * 4300)}),
        ),
        ('{"method":"m"}', JSONRPCNotification(jsonrpc="2.0", method="m")),
        ('{"method":"m","id":null}', JSONRPCNotification(jsonrpc="2.0", method="m")),
        ('{"method":"m","params":[1]}', JSONRPCNotification(jsonrpc="2.0", method="m")),
        ('{"method":"m","id":true}', JSONRPCNotification(jsonrpc="2.0", method="m")),
        (
            '{"method":"m","id":"x","params":{"a":1}}',
            JSONRPCRequest(jsonrpc="2.0", id="x", method="m", params={"a": 1}),
        ),
    ],
)
async def test_a_message_is_read_in_spite_of_its_form(text: str, made: Any) -> None:
    assert read(text) == made


@pytest.mark.parametrize(
    ("error", "code", "words", "ident"),
    [
        ({"code": -32000, "message": "no"}, -32000, "no", 1),
        ({"code": "-32000", "message": "no"}, -32000, "no", 1),
        ({"code": 1.5, "message": "no"}, 1, "no", 1),
        ({"code": None, "message": None}, -32000, "no reason given", 1),
        ({"message": {"a": 1}}, -32000, "{'a': 1}", 1),
        ("no", -32000, "no", 1),
        (["no"], -32000, "['no']", 1),
        ({"code": 10**400, "message": "no"}, 10**400, "no", 1),
        ({"code": -32000, "message": "no"}, -32000, "no", None),
    ],
)
async def test_an_error_is_read_in_spite_of_its_form(
    error: Any, code: int, words: str, ident: int | None
) -> None:
    made = read(json.dumps({"jsonrpc": "2.0", "id": ident, "error": error}))
    assert isinstance(made, JSONRPCError)
    assert (made.error.code, made.error.message, made.id) == (code, words, ident)


async def test_a_batch_is_its_messages() -> None:
    text = b'[{"id":1,"result":{}}, 7, null, {"a":1}, {"method":"m"}]'
    made = read_messages(bytearray(text))
    assert [type(each).__name__ for each in made] == ["JSONRPCResponse", "JSONRPCNotification"]


@pytest.mark.parametrize(
    "text",
    [b"", b"hello", b"7", b"null", b"{}", b"[]", b'{"id":true,"result":{}}', b"{" * 99, b'"'],
)
async def test_what_is_no_message_is_refused(text: bytes) -> None:
    with pytest.raises(ContentError):
        read_messages(bytearray(text))


async def test_what_lies_too_deep_costs_its_part_only() -> None:
    for levels in (DEEPEST, 1_000, 100_000):
        deep = "[" * levels + "1]" + "]" * (levels - 1)
        made = read(f'{{"id":1,"result":{{"a":{deep},"b":"]}}[{{","c":[[2]]}}}}')
        assert (made.result["b"], made.result["c"]) == ("]}[{", [[2]])
        inside = made.result["a"]
        reached = 0
        while isinstance(inside, list):
            inside, reached = inside[0], reached + 1
        assert (inside, reached) == (None, DEEPEST - 2)


@pytest.mark.parametrize(
    "inside",
    [
        '"' + "a" * (MAX_MESSAGE - 100) + '"',
        '"' + "\\\\" * (MAX_MESSAGE // 2 - 100) + '"',
        "[" + ",".join('{"a":1}' for _ in range(40_000)) + "]",
        "[" + ",".join("[]" for _ in range(100_000)) + "]",
        '"' + "\U0001f600" * 1_500_000 + '"',
        '"' + "中" * 3_000_000 + '"',
    ],
)
async def test_the_limits_themselves_are_good(inside: str) -> None:
    assert read(f'{{"id":1,"result":{{"a":{inside}}}}}').result["a"] is not None


@pytest.mark.parametrize(
    "inside",
    [
        '"' + "a" * MAX_MESSAGE + '"',
        "[" + "{}," * 200_000 + "1]",
        "[" + "1," * 700_000 + "1]",
        "[" + '"",' * 300_000 + "1]",
        '"\U0001f600' + "a" * 7_000_000 + '"',
        r'"\ud83d\ude00' + "a" * 7_000_000 + '"',
        "[" * 5_000_000 + "]" * 5_000_000,
    ],
)
async def test_what_would_take_too_much_is_refused(inside: str) -> None:
    with pytest.raises(ContentError, match="more than"):
        read(f'{{"id":1,"result":{{"a":{inside}}}}}')


@pytest.mark.parametrize(
    ("line", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":', 7),
        (b'{"id":"7","result":{"x":', 7),
        (b'{"result":{"x":1,"id":7},', None),
        (b'{"result":[[[,"id":7,"jsonrpc":"2.0"}', 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":', None),
        (b"nothing", None),
    ],
)
async def test_an_answer_that_cannot_be_read_is_told_to_who_asked(
    line: bytes, ident: int | None
) -> None:
    made = unreadable(line, bytearray(line), "why")
    assert (made and made.id) == ident


def taken(lines: Lines, *chunks: bytes) -> list[Any]:
    return [
        bytes(line) if isinstance(line, bytearray) else line.id
        for chunk in chunks
        for line in lines.feed(chunk)
    ]


async def test_lines_are_cut_wherever_the_chunks_are() -> None:
    text = b'one\ntwo\r\n\n\nthree {"a": 1}\nrest'
    whole = taken(Lines(messages.noise()), text)
    assert whole == [b"one", b"two\r", b'three {"a": 1}']
    single = [text[place : place + 1] for place in range(len(text))]
    assert taken(Lines(messages.noise()), *single) == whole


async def test_a_line_that_is_too_long_costs_itself() -> None:
    lines = Lines(messages.noise())
    block = b"x" * (1024 * 1024)
    long = [b'{"id":3,"result":{"x":"', *[block] * 21, b'"}}\n', b"next\n"]
    assert taken(lines, *long) == [3, b"next"]
    late = [b'{"result":{"x":"', *[block] * 21, b'"},"id":4}\n', b"next\n"]
    assert taken(lines, *late) == [4, b"next"]
    with pytest.raises(ContentError, match="more than"):
        taken(lines, *[block] * 90)


async def test_noise_has_an_end_and_grows_again() -> None:
    allowed = Allowance(100, 1_000, "bytes")
    allowed.take(100)
    with pytest.raises(ContentError, match="more than 100 bytes at once"):
        allowed.take(50)
    allowed = Allowance(100, 1_000, "bytes")
    allowed.take(100)
    await anyio.sleep(0.06)
    allowed.take(50)
    with pytest.raises(ContentError):
        taken(Lines(messages.noise()), *[b"\n" * 65536] * 10)


STREAM = (
    b"\xef\xbb\xbf: hello\r\n"
    b"event: message\nid: 1\nretry: 250\ndata: {\ndata:  }\n\n"
    b"data:x\r\rid: 2\n\n"
    b"id\nunknown: 1\ndata\n\n"
    b"retry: 99999999999999999999\nretry: x\ndata: y\n\n"
    b"data: cut off"
)


def events(chunks: list[bytes]) -> list[tuple[bytes, str | None, float | None]]:
    reader = Events(messages.noise())
    found = [event for chunk in chunks for event in reader.feed(chunk)]
    found += reader.last()
    return [(bytes(each.data), each.ident, each.retry) for each in found]


async def test_events_are_read_wherever_the_chunks_are() -> None:
    whole = events([STREAM])
    assert whole == [
        (b"{\n }", "1", 0.25),
        (b"x", "1", 0.25),
        (b"", None, 0.25),
        (b"y", None, 30.0),
        (b"cut off", None, 30.0),
    ]
    assert events([STREAM[place : place + 1] for place in range(len(STREAM))]) == whole
    for cut in range(len(STREAM)):
        assert events([STREAM[:cut], STREAM[cut:]]) == whole


@pytest.mark.parametrize(
    "chunk", [b": ping\n\n", b"\n", b"data: \n\n", b"event: x\n", b"a" * 65536 + b"\n"]
)
async def test_a_stream_without_a_message_has_an_end(chunk: bytes) -> None:
    reader = Events(messages.noise())
    with pytest.raises(ContentError):
        for _ in range(10_000_000 // len(chunk)):
            for event in reader.feed(chunk):
                reader.noise.take(messages.LINE + len(event.data))


async def test_an_event_has_a_limit() -> None:
    for chunk in (b"data: " + b"a" * 65536 + b"\n", b"a" * 65536):
        reader = Events(messages.noise())
        with pytest.raises(ContentError, match="more than"):
            for _ in range(400):
                list(reader.feed(chunk))


BODY = bytes(range(256)) * 1024


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", BODY),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY)),
        ("X-GZIP", gzip.compress(BODY)),
        ("gzip", gzip.compress(BODY[:1000]) + gzip.compress(BODY[1000:])),
        ("deflate", zlib.compress(BODY)),
        ("deflate", zlib.compress(BODY)[2:-4]),
    ],
)
async def test_what_is_compressed_is_read_in_small_pieces(encoding: str, body: bytes) -> None:
    for size in (1, 7, 1000, len(body)):
        feed = decompressor(encoding)
        chunks = [body[place : place + size] for place in range(0, len(body), size)]
        pieces = [piece for chunk in chunks[:70_000] for piece in feed(chunk)]
        assert b"".join(pieces) == (
            BODY if len(chunks) <= 70_000 else BODY[: len(b"".join(pieces))]
        )
        assert max(map(len, pieces)) <= max(65536, size)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "x" * 99])
async def test_what_cannot_be_decompressed_is_refused(encoding: str) -> None:
    with pytest.raises(ContentError, match="was not asked for"):
        decompressor(encoding)


async def test_what_is_not_compressed_though_it_is_said_to_be_is_refused() -> None:
    with pytest.raises(ContentError, match="broken"):
        list(decompressor("gzip")(b"this is no gzip at all"))
