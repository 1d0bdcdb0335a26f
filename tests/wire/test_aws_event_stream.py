from __future__ import annotations

import json
import zlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.errors import StreamBroken
from addendum.lab.aws_frames import frame
from addendum.wire.aws_event_stream import EXCEPTION, AwsEventParser
from addendum.wire.sse import SseEvent


def framed(headers: bytes, payload: bytes) -> bytes:
    prelude = (16 + len(headers) + len(payload)).to_bytes(4, "big")
    prelude += len(headers).to_bytes(4, "big")
    whole = prelude + zlib.crc32(prelude).to_bytes(4, "big") + headers + payload
    return whole + zlib.crc32(whole).to_bytes(4, "big")


def text_header(name: str, value: str) -> bytes:
    data = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + len(data).to_bytes(2, "big") + data


STREAM = frame("messageStart", {"role": "assistant"}) + frame("messageStop", {"stopReason": "é"})
EVENTS = [
    SseEvent("messageStart", b'{"role":"assistant"}'),
    SseEvent("messageStop", '{"stopReason":"é"}'.encode()),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_frames_may_be_split_anywhere(cuts: list[int]) -> None:
    parser = AwsEventParser()
    found: list[SseEvent] = []
    for start, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        found += parser.feed(STREAM[start:end])
    assert found + parser.close() == EVENTS


@pytest.mark.parametrize("at", range(len(frame("x", {}))))
def test_any_flipped_byte_breaks_the_stream(at: int) -> None:
    data = bytearray(frame("x", {}))
    data[at] ^= 1
    parser = AwsEventParser()
    with pytest.raises(StreamBroken):
        parser.feed(bytes(data))
        parser.close()


def test_a_cut_frame_breaks_the_stream() -> None:
    parser = AwsEventParser()
    assert parser.feed(STREAM[:-1]) == EVENTS[:1]
    with pytest.raises(StreamBroken, match="cut in the middle of an event"):
        parser.close()


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(StreamBroken, match="over the limit of 40 bytes"):
        AwsEventParser(40).feed(STREAM[:12])


def test_headers_of_every_type_are_passed_over() -> None:
    others = b"".join(
        b"\x01" + name + bytes([kind]) + value
        for name, kind, value in (
            (b"a", 0, b""),
            (b"b", 1, b""),
            (b"c", 2, b"x"),
            (b"d", 3, b"xx"),
            (b"e", 4, b"xxxx"),
            (b"f", 5, b"x" * 8),
            (b"g", 6, b"\x00\x03abc"),
            (b"h", 8, b"x" * 8),
            (b"i", 9, b"x" * 16),
        )
    )
    headers = others + text_header(":event-type", "metadata")
    assert AwsEventParser().feed(framed(headers, b"{}")) == [SseEvent("metadata", b"{}")]


@pytest.mark.parametrize("headers", [b"\x01a\x0a", b"\x01a\x07\x00\x09abc", b"\x05ab"])
def test_headers_that_cannot_be_read_break_the_stream(headers: bytes) -> None:
    with pytest.raises(StreamBroken, match="headers that cannot be read"):
        AwsEventParser().feed(framed(headers, b"{}"))


@pytest.mark.parametrize(
    ("name", "code"),
    [("throttlingException", 429), ("validationException", 400), ("somethingNew", 500)],
)
def test_an_exception_becomes_an_error_object(name: str, code: int) -> None:
    (event,) = AwsEventParser().feed(frame(name, {"message": "no"}, kind="exception"))
    error: Any = {"type": name, "code": code, "message": "no"}
    assert (event.event, json.loads(event.data)) == (EXCEPTION, {"error": error})


def test_an_error_without_a_payload_is_read_from_its_headers() -> None:
    headers = b"".join(
        text_header(name, value)
        for name, value in (
            (":message-type", "error"),
            (":error-code", "InternalFailure"),
            (":error-message", "broken"),
        )
    )
    (event,) = AwsEventParser().feed(framed(headers, b""))
    assert json.loads(event.data)["error"]["message"] == "broken"
