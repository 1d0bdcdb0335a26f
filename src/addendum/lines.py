"""Foreign text as one line, for messages, for terminals and for models."""

from __future__ import annotations

from addendum import encoding
from addendum.masking import masked


def shortened(text: str, limit: int) -> str:
    """Return text as one line of at most `limit` characters, cut off with a mark."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: max(0, limit - 1)] + "…"


def one_line(text: str, limit: int = 300) -> str:
    """Return foreign text as one printable line of at most `limit` characters.

    Credentials are replaced before anything is cut off: no part of one is left.
    """
    line = " ".join(encoding.clean(masked(text)[: 4 * limit + 4]).split())
    return shortened("".join(c if c.isprintable() else "\ufffd" for c in line), limit)
