from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from tests.tools.pictures import PDF, b64, gif, jpeg, png, webp

from addendum.errors import ContentError
from addendum.tools.files import MAX_IMAGE, read_file


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (png(), "image/png"),
        (png(3, 2), "image/png"),
        (jpeg(), "image/jpeg"),
        (gif(), "image/gif"),
        (webp(), "image/webp"),
        (PDF, "application/pdf"),
    ],
    ids=["png", "larger png", "jpeg", "gif", "webp", "pdf"],
)
def test_a_file_is_what_its_bytes_say(raw: bytes, media_type: str) -> None:
    file = read_file(b64(raw))
    assert (file.media_type, file.size) == (media_type, len(raw))
    assert base64.b64decode(file.data) == raw


def png_of(rows: bytes | None, *, depth: int = 8) -> bytes:
    """A picture of 2 x 2 with these compressed rows, or without any."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, depth, 0, 0, 0, 0))
    body = b"" if rows is None else chunk(b"IDAT", rows)
    return b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b"")


def webp_parts(*parts: tuple[bytes, bytes]) -> bytes:
    body = b"".join(kind + struct.pack("<I", len(data)) + data for kind, data in parts)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def test_pictures_in_parts_are_taken() -> None:
    rows = zlib.compress(b"\0\1\1" * 2)
    for half in range(1, len(rows)):
        whole = png_of(rows)
        start = whole.index(b"IDAT") - 4
        split = [rows[:half], rows[half:]]
        chunks = b"".join(png_of(each)[start : start + 12 + len(each)] for each in split)
        assert read_file(b64(whole[:start] + chunks + whole[start + 12 + len(rows) :]))
    canvas = b"\0" * 4 + b"\x07\0\0" + b"\x08\0\0"
    frame = webp()[20:25]
    assert read_file(b64(webp_parts((b"VP8X", canvas), (b"VP8L", frame))))
    assert read_file(
        b64(webp_parts((b"VP8X", canvas), (b"ANIM", b"\0" * 6), (b"ANMF", b"\0" * 24)))
    )
    lossy = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 3, 4)
    assert read_file(b64(webp_parts((b"VP8 ", lossy))))
    palette = b"GIF89a" + struct.pack("<HH", 2, 2) + b"\x80\0\0" + b"\1" * 6
    assert read_file(b64(palette + b"!\xf9\x04\0\0\0\0\0" + gif()[13:]))


CUT = png()[:-1]
BAD_SUM = bytearray(png(9, 9))
BAD_SUM[20] ^= 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "no data"),
        (7, "no data"),
        ("", "only PNG"),
        ("AAAA", "only PNG"),
        ("not base64!", "no base64"),
        ("é", "no base64"),
        (b64(png())[:-1], "no base64"),
        (b64(b"\x89PNG\r\n\x1a\n"), "damaged or cut off"),
        (b64(CUT), "damaged or cut off"),
        (b64(bytes(BAD_SUM)), "damaged or cut off"),
        (b64(jpeg()[:-2]), "damaged or cut off"),
        (b64(b"\xff\xd8\xff\xe0\xff\xffab\xff\xd9"), "damaged or cut off"),
        (b64(gif()[:-1]), "damaged or cut off"),
        (b64(webp()[:-9]), "damaged or cut off"),
        (b64(webp_parts((b"VP8X", b"\0" * 10))), "damaged or cut off"),
        (b64(webp_parts((b"VP8X", b""))), "damaged or cut off"),
        (b64(webp_parts((b"VP8 ", b"\1" * 14))), "damaged or cut off"),
        (b64(webp_parts((b"VP8L", b"\0" * 14))), "damaged or cut off"),
        (b64(gif()[:13] + b";"), "damaged or cut off"),
        (b64(gif()[:13] + b";" * 9), "damaged or cut off"),
        (b64(jpeg().split(b"\xff\xda")[0] + b"\xff\xd9"), "damaged or cut off"),
        (b64(png_of(b"")), "damaged or cut off"),
        (b64(png_of(b"no rows")), "damaged or cut off"),
        (b64(png_of(zlib.compress(b"\0\1\1"))), "damaged or cut off"),
        (b64(png_of(zlib.compress(b"\0\1\1" * 2), depth=3)), "damaged or cut off"),
        (b64(png_of(None)), "damaged or cut off"),
        (b64(PDF[:-6]), "cut off"),
        (b64(png(8_001, 1)), "8,001 x 1 pixels"),
        (b64(png(100_000, 100_000)), "100,000 x 100,000 pixels"),
        (b64(gif(0, 5)), "0 x 5 pixels"),
        (b64(png(noise=MAX_IMAGE)), "more than 3,750,000 bytes"),
        ("A" * 9_000_000, "more than 4,500,000 bytes"),
        (b64(b"<svg/>"), "only PNG"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_a_provider_would_refuse_is_refused_before(data: Any, why: str) -> None:
    with pytest.raises(ContentError, match=why):
        read_file(data)


def test_a_picture_of_the_largest_size_is_good() -> None:
    assert read_file(b64(png(8_000, 1))).media_type == "image/png"


def test_no_bytes_raise_anything_else() -> None:
    heads = [png(), jpeg(), gif(), webp(), PDF]
    for head in heads:
        for end in range(len(head)):
            for tail in (b"", b"\xff\xd9", b";", struct.pack(">I", 2**32 - 1)):
                try:
                    read_file(b64(head[:end] + tail))
                except ContentError:
                    pass
