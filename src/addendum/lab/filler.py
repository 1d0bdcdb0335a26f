"""Text of about a stated size, always the same: for scenarios, where only sizes matter."""

from __future__ import annotations

import hashlib

_WORDS = (
    "account answer archive batch border branch budget build cable cargo change chapter client "
    "column commit copy county courier credit cycle deadline deposit detail draft engine entry "
    "export field figure filter folder forecast format freight garden grant harbour index invoice "
    "item journal kernel label ledger letter level limit margin market meadow member method metric "
    "minute module month morning notice number office option order outline owner packet page panel "
    "partner pattern payment period permit plan policy port profile project quarter query queue "
    "record region release report request result review river route sample schedule section sensor "
    "session signal source stage station status stock summary survey table target task ticket "
    "timber total tracker transfer valley value vendor version village volume warehouse window"
).split()

_TOKEN = 4
"""Bytes of a token by the lab's rule."""


def fill(text: str, tokens: int) -> str:
    """Return a text of about `tokens` tokens that begins with `text`; never less than `text`.

    Args:
        text: How it begins. Another beginning gives other words behind it.
        tokens: Size by the lab's rule, four bytes a token.
    """
    size = _TOKEN * tokens
    parts = [text]
    length = len(text.encode())
    sentence = 0
    while length < size:
        digest = hashlib.sha256(f"{text}\n{sentence}".encode()).digest()
        words = [_WORDS[byte % len(_WORDS)] for byte in digest[:12]]
        part = f" {' '.join(words).capitalize()}."
        parts.append(part)
        length += len(part)
        sentence += 1
    whole = "".join(parts)
    # All that was added is ASCII, so bytes and characters are cut alike.
    surplus = length - size
    return whole if surplus <= 0 or len(parts) == 1 else whole[: len(whole) - surplus].rstrip()
