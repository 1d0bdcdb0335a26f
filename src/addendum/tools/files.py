"""Files that a model may be shown, judged by their own bytes.

What a server says of a file is no proof, and a provider that is sent a file it cannot read refuses
the request, and with it every later one of that conversation. So a file is taken for what its
bytes say, it has to be whole, and within the limits of all providers:

===========  ============================================================================
images       PNG, JPEG, GIF or WebP; at most 3,750,000 bytes and 8,000 pixels a side
             (platform.claude.com, "Vision"; AWS, "Converse")
documents    PDF; at most 4,500,000 bytes (AWS, "Converse")
===========  ============================================================================
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib

from addendum.errors import ContentError
from addendum.log.values import Media

MAX_IMAGE = 3_750_000
"""Bytes of one image."""

MAX_DOCUMENT = 4_500_000
"""Bytes of one document."""

MAX_SIDE = 8_000
"""Pixels of an image's width, and of its height."""


def read_file(data: object) -> Media:
    """Return a file that a model can be shown.

    Args:
        data: Its bytes in base64; anything, as it comes from outside.

    Raises:
        ContentError: It is no file, none of the known ones, cut off or too large. The message
            goes behind "not shown:".
    """
    if not isinstance(data, str):
        raise ContentError("it has no data")
    if len(data) > MAX_DOCUMENT * 4 // 3 + 4:
        raise ContentError(f"it has more than {MAX_DOCUMENT:,} bytes")
    try:
        raw = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise ContentError("its data is no base64") from None
    media_type = _type(raw)
    if media_type == "application/pdf":
        if b"%%EOF" not in raw[-1024:]:
            raise ContentError("the PDF is cut off")
    else:
        if len(raw) > MAX_IMAGE:
            raise ContentError(f"the image has more than {MAX_IMAGE:,} bytes")
        try:
            size = _READERS[media_type](raw)
        except (struct.error, IndexError):
            size = None
        if size is None:
            raise ContentError("the image is damaged or cut off")
        if not all(0 < side <= MAX_SIDE for side in size):
            raise ContentError(
                f"the image has {size[0]:,} x {size[1]:,} pixels; 1 to {MAX_SIDE:,} a side can be "
                "shown"
            )
    return Media(media_type, base64.b64encode(raw).decode())


def _type(raw: bytes) -> str:
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if raw.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if raw.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        return "image/webp"
    if raw.startswith(b"%PDF-"):
        return "application/pdf"
    raise ContentError("only PNG, JPEG, GIF, WebP and PDF can be shown")


def _png(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG whose chunks are all there and undamaged."""
    at, size = 8, None
    while at < len(raw):
        length, kind = struct.unpack_from(">I4s", raw, at)
        (check,) = struct.unpack_from(">I", raw, at + 8 + length)
        if zlib.crc32(raw[at + 4 : at + 8 + length]) != check:
            return None
        if at == 8:
            if kind != b"IHDR":
                return None
            size = struct.unpack_from(">II", raw, 16)
        if kind == b"IEND":
            return size
        at += 12 + length
    return None


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a JPEG that has its end."""
    if b"\xff\xd9" not in raw[-64:]:
        return None
    at = 2
    while at < len(raw):
        marker, kind, length = struct.unpack_from(">BBH", raw, at)
        if marker != 0xFF:
            return None
        if kind == 0xFF:
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        else:
            at += 2 + length
    return None


def _gif(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a GIF that has its end."""
    if not raw.rstrip(b"\0").endswith(b";"):
        return None
    width, height = struct.unpack_from("<HH", raw, 6)
    return width, height


def _webp(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a WebP that is as long as it says."""
    (length,) = struct.unpack_from("<I", raw, 4)
    if length + 8 > len(raw):
        return None
    match raw[12:16]:
        case b"VP8X":
            return (
                1 + int.from_bytes(raw[24:27], "little"),
                1 + int.from_bytes(raw[27:30], "little"),
            )
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", raw, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", raw, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


_READERS = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
