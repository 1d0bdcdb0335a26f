"""Small real files, made here."""

from __future__ import annotations

import base64
import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 1, height: int = 1, *, noise: int = 0) -> bytes:
    """Return a grey picture; `noise` bytes of a text chunk make it larger."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (
        b"".join(b"\0" + b"\x80" * width for _ in range(height)) if width * height < 10**6 else b""
    )
    text = _chunk(b"tEXt", b"n\0" + b"x" * noise) if noise else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + text
        + _chunk(b"IDAT", zlib.compress(rows))
        + _chunk(b"IEND", b"")
    )


def jpeg(width: int = 2, height: int = 3) -> bytes:
    """Return the frame of a JPEG."""
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\0"
    return (
        b"\xff\xd8\xff\xe0\0\x04ab"
        + b"\xff\xc0"
        + struct.pack(">H", len(frame) + 2)
        + frame
        + b"\xff\xda\0\x02scan\xff\xd9"
    )


def gif(width: int = 4, height: int = 5) -> bytes:
    """Return a GIF with one picture."""
    screen = struct.pack("<HH", width, height) + b"\0\0\0"
    picture = b"," + struct.pack("<HHHH", 0, 0, width, height) + b"\0" + b"\x02\x02\x4c\x01\0"
    return b"GIF89a" + screen + picture + b";"


def webp(width: int = 6, height: int = 7) -> bytes:
    """Return the frame of a lossless WebP."""
    bits = (width - 1) | (height - 1) << 14
    body = b"WEBPVP8L" + struct.pack("<I", 5) + b"\x2f" + struct.pack("<I", bits) + b"\0"
    return b"RIFF" + struct.pack("<I", len(body)) + body


PDF = b"%PDF-1.4\n1 0 obj <<>> endobj\ntrailer <<>>\n%%EOF\n"


def b64(raw: bytes) -> str:
    """Return bytes as they travel."""
    return base64.b64encode(raw).decode()
