"""Masking a text that comes in pieces: what may still become a secret is held back."""

from __future__ import annotations

from addendum.masking.find import spans
from addendum.masking.mask import replacement

MAX_HELD = 8192
"""Characters of one unbroken word that are held back at most."""

_BEFORE = 4096
"""Characters in front of a piece that are looked at with it: a name, the beginning of a block."""

_WORD = "".join(map(chr, range(33, 127)))


class Incoming:
    """Masks a text as it comes in; no part of a secret is shown before all of it is known."""

    def __init__(self) -> None:
        self._shown = ""  # the end of what was given out, unmasked
        self._waiting = ""

    def feed(self, piece: str) -> str:
        """Take more of the text and return what can be shown of it now."""
        self._waiting += piece
        held = self._waiting[-MAX_HELD:]
        return self._give(len(self._waiting) - len(held) + len(held.rstrip(_WORD)))

    def end(self) -> str:
        """Return what was held back."""
        return self._give(len(self._waiting))

    def _give(self, count: int) -> str:
        """Give out so many characters of what waits, and all of a secret that goes beyond them."""
        if not count:
            return ""
        text, before = self._shown + self._waiting, len(self._shown)
        parts: list[str] = []
        last, end = before, before + count
        for span in spans(text):
            if span.end <= before or span.start >= end:
                continue
            if span.start >= before:
                parts += [text[last : span.start], replacement(span, text)]
            # Else its beginning was replaced, or shown before anything told what it is.
            last = span.end
            end = max(end, last)
        parts.append(text[last:end])
        self._waiting = text[end:]
        self._shown = text[max(0, end - _BEFORE) : end]
        return "".join(parts)
