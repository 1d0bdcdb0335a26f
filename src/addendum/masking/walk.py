"""JSON text, string by string: which may hold a secret, and which are one by their names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from addendum.masking import names
from addendum.masking.forms import forms
from addendum.masking.views import json_string

_TOKEN = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*+:)?|([{\[])|[}\]]', re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_NUMBER = re.compile(r"\s*(-?[0-9]{4,})(?=[\s,}])")

_NAMES = ("name", "key", "header", "field", "variable", "k")
_VALUES = ("value", "val", "v")
"""Fields of objects that stand for a name and its value each, as in a list of headers."""


class Place(Struct, frozen=True):
    """A string of JSON text, without its quotes, or a number.

    Attributes:
        start: Its first character.
        end: The one behind its last.
        secret: Whether it is a secret as a whole.
        scalar: Whether it is a number.
        sealed: Whether a provider made it: then nothing but a key that it is itself is a secret.
    """

    start: int
    end: int
    secret: bool = False
    scalar: bool = False
    sealed: bool = False


class _Level:
    """An object or a list that is open."""

    def __init__(self, is_object: bool, name: str) -> None:
        self.is_object = is_object
        self.name = name  # of the field that the next value is in
        self.seen: set[str] = set()  # names of its fields, and `type=VALUE`
        self.label = ""  # a name that a field or the first item tells
        self.value: Place | None = None  # the value beside it
        self.items = 0
        self.sealed: list[tuple[str, Place]] = []  # fields that may be a provider's


def strings(text: str) -> Iterator[Place]:
    """Yield the strings of JSON text that are to be looked at, in no order.

    Args:
        text: Valid JSON text.
    """
    level = _Level(False, "")
    levels = [level]
    for token in _TOKEN.finditer(text):
        kind = token.lastindex
        if kind == 1:
            start, end = token.span(1)
            level.items += 1
            if not level.is_object or end - start >= 4:
                yield from _string(level, token[1], start, end)
        elif kind == 2:
            name = token[1]
            level.name = json_string(name).text if "\\" in name else name
            level.seen.add(level.name)
            if len(name) >= 8:
                yield Place(*token.span(1))
            # A number may be many things; only a password is one that it could be.
            if _may_be_number(level.name) and (number := _NUMBER.match(text, token.end())):
                yield Place(*number.span(1), True, True)
        elif kind == 3:
            level.items += 1
            is_object = token[3] == "{"
            # Values of a list are in the list's own field.
            level = _Level(is_object, "" if is_object else level.name)
            levels.append(level)
        else:
            yield from _closed(text, level)
            levels.pop()
            level = levels[-1]


def _string(level: _Level, raw: str, start: int, end: int) -> Iterator[Place]:
    name, place = level.name, Place(start, end)
    if level.is_object:
        if name == "type" and len(raw) < 40:
            level.seen.add(f"type={raw}")
        if name.lower() in _NAMES:
            level.label = raw[: names.MAX_NAME]
        elif name.lower() in _VALUES:
            level.value = place
    elif level.items == 1:
        level.label = raw[-names.MAX_NAME :]
    elif level.items == 2:
        level.value = place
    known = forms()
    if (name in known.sealed or name in known.beside) and _BASE64.fullmatch(raw):
        level.sealed.append((name, place))
        return
    if name and names.is_secret(name) and not names.keeps(name, raw):
        yield Place(start, end, True)
    elif end - start >= 8:
        yield place


def _closed(text: str, level: _Level) -> Iterator[Place]:
    """Yield what is known of an object or list at its end alone."""
    known = forms()
    for name, place in level.sealed:
        beside = known.beside.get(name)
        sealed = beside is None or not level.seen.isdisjoint(beside)
        yield Place(place.start, place.end, sealed=sealed)
    if level.value is None or not level.label:
        return
    value = text[level.value.start : level.value.end]
    if level.is_object:
        secret = names.is_secret(level.label) and not names.keeps(level.label, value)
    else:
        secret = level.items == 2 and names.is_pair(level.label, value)
    if secret:
        yield Place(level.value.start, level.value.end, True)


def _may_be_number(name: str) -> bool:
    return name.lower().endswith(("password", "passwd", "passphrase", "passcode", "pwd"))
