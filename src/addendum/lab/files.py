"""What the lab's providers refuse of files: bytes that are not what their type says.

Limits: platform.claude.com "Vision" (5 MB and 8,000 pixels an image, 100 images a request); AWS
"Converse" (3.75 MB and 8,000 pixels an image, 20 a message). The narrower one stands for all.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from addendum.lab.refusal import Refusal

_BEGINS = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF....WEBP",
    "application/pdf": rb"%PDF-",
}
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST_BYTES = {"image": 3_750_000, "application": 4_500_000}
_URL = re.compile(r"data:([a-z]+/[a-z]+);base64,(.*)", re.DOTALL)


def check_file(path: str, media_type: Any, data: Any, takes: tuple[str, ...] = ()) -> None:
    """Check a file.

    Args:
        path: Where it stands.
        media_type: What it is said to be.
        data: Its bytes in base64.
        takes: The types that are taken; none for all that are known.

    Raises:
        Refusal: It is of another type, no base64, or too large.
    """
    known = takes or tuple(_BEGINS)
    if media_type not in known:
        raise Refusal(f"{path}.media_type: Input should be {' or '.join(known)}")
    try:
        raw = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Refusal(f"{path}.data: invalid base64 data") from None
    if not re.match(_BEGINS[media_type], raw, re.DOTALL):
        raise Refusal(f"{path}: the file does not match the media type {media_type}")
    most = _MOST_BYTES[media_type.partition("/")[0]]
    if len(raw) > most:
        raise Refusal(f"{path}: file exceeds the maximum of {most} bytes")


def check_data_url(path: str, url: Any, takes: tuple[str, ...] = ()) -> None:
    """Check a file that stands in a `data:` address; other addresses are let be.

    Raises:
        Refusal: As `check_file`.
    """
    if not isinstance(url, str):
        raise Refusal(f"{path}: a string is needed")
    if url.startswith("data:"):
        found = _URL.fullmatch(url)
        if found is None:
            raise Refusal(f"{path}: expected a base64-encoded data URL")
        check_file(path, found[1], found[2], takes)
