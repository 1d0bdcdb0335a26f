from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.errors import StreamBroken
from addendum.wire.sse import SseEvent, SseParser

STREAM = (
    b"\xef\xbb\xbf: hello\r\n"
    b'event: one\ndata: {"a":\r\ndata:1}\n\n'
    b"data\r\rid: 7\rdata:  two \xc3\xa9\r\n\r\n"
    b"event: empty\n\n"
    b"unknown: x\nretry: 10\nid: a\0b\ndata: \xf0\x9f\x98\x80\n\n"
    b"data: last"
)
EVENTS = [
    SseEvent("one", b'{"a":\n1}'),
    SseEvent(None, b""),
    SseEvent(None, " two é".encode(), "7"),
    SseEvent(None, "😀".encode(), "7"),
    SseEvent(None, b"last", "7"),
]


def parse(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


def test_the_framing_rules() -> None:
    assert parse(STREAM) == EVENTS


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_a_split_at_any_byte_changes_nothing(cut: int) -> None:
    assert parse(STREAM[:cut], STREAM[cut:]) == EVENTS


def test_byte_by_byte() -> None:
    assert parse(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


@given(
    st.lists(st.sampled_from([b"data:", b"event: e", b"id:1", b":", b"\r", b"\n", b"\r\n", b"x"])),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_any_stream_split_anyhow(tokens: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(tokens)
    places = [0, *sorted(cuts), len(stream)]
    assert parse(*(stream[a:b] for a, b in pairwise(places))) == parse(stream)


def test_an_event_is_told_as_soon_as_its_blank_line_is_here() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [SseEvent(None, b"a")]
    assert parser.feed(b"\ndata: b\n\n") == [SseEvent(None, b"b")]
    assert parser.close() == []


@pytest.mark.parametrize(
    "stream", [b"data: 123456789012", b"data: 12345\ndata: 123456\n\n", b": a comment, long"]
)
def test_an_event_over_the_limit_breaks_the_stream(stream: bytes) -> None:
    parser = SseParser(limit=12)
    with pytest.raises(StreamBroken, match="over the limit of 12 bytes"):
        for i in range(len(stream)):
            parser.feed(stream[i : i + 1])


def test_the_limit_is_for_one_event_not_for_the_stream() -> None:
    parser = SseParser(limit=12)
    assert len(parser.feed(b"data: 12345\n\n" * 100)) == 100


def test_a_large_event_in_small_chunks() -> None:
    parser = SseParser()
    body = b"x" * 20_000_000
    events = []
    stream = b"data: " + body + b"\n\n"
    for i in range(0, len(stream), 16_384):
        events += parser.feed(stream[i : i + 16_384])
    assert [len(event.data) for event in events] == [20_000_000]
