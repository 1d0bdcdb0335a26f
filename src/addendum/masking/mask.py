"""What stands in a secret's place: the same for the same secret, and as long as it was."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from addendum.masking.find import Span, spans

KEY_FILE = "mask.key"
"""File in the user's own data folder with the key of the digests."""

_KEY_SIZE = 32


def masked(text: str) -> str:
    """Return a text with each secret in it replaced, and every other character as it was.

    A secret is replaced by `[redacted 0123abcd***]`: the digits are a digest of it under a key of
    the user's own, so the same secret is the same text again and another one another, and nobody
    who reads them can try passwords. The whole is as long as the secret was, and 19 characters for
    a shorter one.

    Args:
        text: Any text: prose, JSON, lines of a log, an address.
    """
    if len(text) < 5:
        return text
    found = spans(text)
    if not found:
        return text
    parts: list[str] = []
    last = 0
    for span in found:
        parts += [text[last : span.start], replacement(span, text)]
        last = span.end
    return "".join([*parts, text[last:]])


def masked_json(data: bytes) -> bytes:
    """Return JSON text, or any other text in UTF-8, with each secret in it replaced.

    Only what is a secret changes: order, spaces and escapes of the rest stay.
    """
    text = data.decode("utf-8", "surrogateescape")
    return masked(text).encode("utf-8", "surrogateescape")


def masked_value(value: Any) -> Any:
    """Return a decoded JSON value with each secret in it replaced."""
    return msgspec.json.decode(masked_json(msgspec.json.encode(value)))


def secrets_in(text: str) -> tuple[str, ...]:
    """Return the secrets of a text, decoded, each once."""
    return tuple(dict.fromkeys(span.secret for span in spans(text)))


def replacement(span: Span, text: str) -> str:
    """Return what stands in the place of a secret of a text."""
    digest = hmac.new(_key(), span.secret.encode("utf-8", "surrogatepass"), hashlib.sha256)
    name = f"[redacted {digest.hexdigest()[:8]}"
    size = len(text[span.start : span.end].encode("utf-8", "surrogatepass"))
    return span.around + name.ljust(max(0, size - 1), "*") + "]" + span.around


@functools.cache
def _key() -> bytes:
    """Return the user's key, made when it is first needed; where it cannot be kept, a passing one.

    It is kept so that two exports, or two processes that write into one capture, agree.
    """
    fresh = secrets.token_bytes(_KEY_SIZE)
    try:
        path = _folder() / KEY_FILE
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(fresh)
                # Whoever is first wins, and nobody reads half of it.
                os.link(name, path)
            except FileExistsError:
                pass
            finally:
                Path(name).unlink(missing_ok=True)
        found = path.read_bytes()[: _KEY_SIZE + 1]
    except (OSError, RuntimeError, ValueError):
        return fresh
    return found if len(found) == _KEY_SIZE else fresh


def _folder() -> Path:
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path("~/.local/share").expanduser()
    return base / "addendum"
