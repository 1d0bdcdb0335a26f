"""Files that a model may be shown, judged by their own bytes.

What a server says of a file is no proof, and a provider that is sent a file it cannot read refuses
the request, and with it every later one of that conversation. So a file is taken for what its
bytes say, all its parts have to be there, and it has to be within the limits of all providers:

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
        except (struct.error, IndexError, zlib.error):
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
    """Return width and height of a PNG whose chunks and rows are all there and undamaged."""
    at, size, rows, pixels = 8, None, None, zlib.decompressobj()
    needed = inflated = 0
    while at < len(raw):
        length, kind = struct.unpack_from(">I4s", raw, at)
        (check,) = struct.unpack_from(">I", raw, at + 8 + length)
        data = raw[at + 8 : at + 8 + length]
        if zlib.crc32(kind + data) != check or (at == 8) != (kind == b"IHDR"):
            return None
        if kind == b"IHDR":
            width, height, depth, colour, *_, laced = struct.unpack_from(">IIBBBBB", data)
            size = width, height
            if depth not in _DEPTHS.get(colour, ()):
                return None
            if not all(0 < side <= MAX_SIDE for side in size):
                return size
            bits = depth * _CHANNELS[colour]
            needed = width * height * bits // 8 if laced else (-(-width * bits // 8) + 1) * height
        elif kind == b"IDAT":
            rows = data
            while rows and not pixels.eof and inflated < _MOST_INFLATED:
                inflated += len(pixels.decompress(rows, _PIECE))
                rows = pixels.unconsumed_tail
        elif kind == b"IEND":
            whole = inflated >= min(needed, _MOST_INFLATED)
            return size if rows is not None and whole else None
        at += 12 + length
    return None


_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""Bits of a sample by colour type (W3C, "Portable Network Graphics")."""

_PIECE = 1024 * 1024
_MOST_INFLATED = 64 * _PIECE
"""Bytes of rows that are looked at: more would take longer than it is worth."""


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a JPEG that has a frame, a scan and its end."""
    if b"\xff\xd9" not in raw[-64:]:
        return None
    at, size = 2, None
    while at < len(raw):
        marker, kind, length = struct.unpack_from(">BBH", raw, at)
        if marker != 0xFF:
            return None
        if kind == 0xFF:
            at += 1
            continue
        if kind == 0xDA:
            return size
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", raw, at + 5)
            size = width, height
        at += 2 + length
    return None


def _gif(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a GIF that has a picture and its end."""
    width, height, flags = struct.unpack_from("<HHB", raw, 6)
    at, pictures = 13 + _palette(flags), 0
    while raw[at] != 0x3B:
        if raw[at] == 0x2C:
            pictures += 1
            at += 10 + _palette(raw[at + 9]) + 1
        elif raw[at] == 0x21:
            at += 2
        else:
            return None
        while raw[at]:
            at += 1 + raw[at]
        at += 1
    return (width, height) if pictures else None


def _palette(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _webp(raw: bytes) -> tuple[int, int] | None:
    """Return width and height of a WebP whose parts are all there, a picture among them."""
    (length,) = struct.unpack_from("<I", raw, 4)
    if length + 8 > len(raw):
        return None
    at, size, canvas = 12, None, None
    while at + 8 <= length + 8:
        kind, part = struct.unpack_from("<4sI", raw, at)
        data = raw[at + 8 : at + 8 + part]
        if len(data) < part:
            return None
        if kind == b"VP8X" and part >= 10:
            canvas = (
                1 + int.from_bytes(data[4:7], "little"),
                1 + int.from_bytes(data[7:10], "little"),
            )
        elif kind == b"VP8L" and data[:1] == b"\x2f":
            (bits,) = struct.unpack_from("<I", data, 1)
            size = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        elif kind == b"VP8 " and data[3:6] == b"\x9d\x01\x2a":
            wide, high = struct.unpack_from("<HH", data, 6)
            size = wide & 0x3FFF, high & 0x3FFF
        elif kind == b"ANMF":
            size = size or canvas
        at += 8 + part + part % 2
    return None if size is None else canvas or size


_READERS = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
