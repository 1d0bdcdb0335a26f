"""Texts as what they decode to, with the way back to where each character stood."""

from __future__ import annotations

import re
from bisect import bisect_right
from html import unescape as entity

_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "0": "\0"}

_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"
_JSON = re.compile(_PAIR + r'|\\["\\/bfnrt]')
_LOOSE = re.compile(
    _PAIR + r"""|\\["\\/bfnrt0'`_.-]|\\x[0-9a-fA-F]{2}|%[0-7][0-9A-Fa-f]"""
    r"|&(?:quot|amp|lt|gt|apos|#[0-9]{1,5}|#[xX][0-9A-Fa-f]{1,4});"
)
_HIDING = re.compile(
    r"\\(?:(?:u00|x)[0-7][0-9a-fA-F]|[_.-])|%[0-7][0-9A-Fa-f]|&#(?:[xX][2-7][0-9A-Fa-f]|[0-9]{2,3});"
)
_QUOTING = re.compile(r"""\\["'\\/`]|&quot;|&apos;""")


class View:
    """A text after one step of decoding.

    Attributes:
        text: What it decodes to.
    """

    def __init__(self, text: str, at: list[int], begins: list[int], ends: list[int]) -> None:
        self.text = text
        self._at = at  # places in `text` of the characters that were escapes
        self._begins = begins  # where each escape began
        self._ends = ends  # and ended

    def back(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the text stood before decoding."""
        return self._begin(start), self._end(end - 1)

    def _begin(self, at: int) -> int:
        place = bisect_right(self._at, at) - 1
        if place < 0:
            return at
        if self._at[place] == at:
            return self._begins[place]
        return self._ends[place] + at - self._at[place] - 1

    def _end(self, last: int) -> int:
        place = bisect_right(self._at, last) - 1
        if place >= 0 and self._at[place] == last:
            return self._ends[place]
        return self._begin(last) + 1


def json_string(raw: str) -> View:
    """Return what the inside of a JSON string says."""
    return _view(raw, _JSON)


def loose(text: str) -> View | None:
    """Return a text with backslashes, percent signs and entities undone, if that shows more.

    Nobody says how such a text is encoded, so what looks like an escape of any kind is one. Line
    ends and the like hide nothing: a secret may stand behind half of an escape.
    """
    if not (hides(text) or _QUOTING.search(text)):
        return None
    return _view(text, _LOOSE)


def hides(text: str) -> bool:
    """Say whether a character that a key or a name may have is written as an escape in a text.

    So is one in front of which the escape ends in what looks like letters of one.
    """
    return _HIDING.search(text) is not None


def _view(text: str, escape: re.Pattern[str]) -> View:
    parts: list[str] = []
    at: list[int] = []
    begins: list[int] = []
    ends: list[int] = []
    size = last = 0
    for match in escape.finditer(text):
        start, end = match.span()
        parts.append(text[last:start])
        size += start - last
        parts.append(_character(match[0]))
        at.append(size)
        begins.append(start)
        ends.append(end)
        size += 1
        last = end
    parts.append(text[last:])
    return View("".join(parts), at, begins, ends)


def _character(escape: str) -> str:
    """Return the one character that an escape stands for."""
    first = escape[0]
    if first == "%":
        return chr(int(escape[1:], 16))
    if first == "&":
        found = entity(escape)
        return found if len(found) == 1 else "\ufffd"
    kind = escape[1]
    if kind == "u":
        code = int(escape[2:6], 16)
        if len(escape) > 6:
            return chr(0x10000 + (code - 0xD800 << 10) + int(escape[8:12], 16) - 0xDC00)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    if kind == "x":
        return chr(int(escape[2:], 16))
    return _SIMPLE.get(kind, kind)
