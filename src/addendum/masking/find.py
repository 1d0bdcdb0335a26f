"""Where secrets stand in a text, whatever it is encoded in."""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from addendum.masking import names, walk
from addendum.masking.forms import Form, forms
from addendum.masking.views import View, hides, json_string, loose

MAX_DEPTH = 8
"""Levels of JSON in the strings of JSON that are taken apart; below them a text is read loosely."""

MAX_LOOSE = 4
"""Times that a text is decoded of which nobody says how it is encoded."""

MAX_KEY = 2048
"""Characters of unbroken base64 up to which it is looked at whole."""

MAX_BLOCK = 64 * 1024
"""Characters of a block, such as a private key, without its end."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{64}")
_BLOB = re.compile(r"(?:data:[A-Za-z0-9.;=/+-]{0,128},)?([A-Za-z0-9+/_-]+={0,2})")
_ENDS_WORD = re.compile("[A-Za-z][aeiouAEIOU]")
_WORD = re.compile(r"[a-z]{12}|[A-Z]{12}")
_BLOCK = re.compile(r"[A-Za-z0-9+/=\s\\:,.-]{16,}")
_PORT = re.compile(r"[0-9]{1,5}[/?#]")


_SHARED = 24
"""Characters at the end of a key that may be the beginning of another one."""


class Span(Struct, frozen=True):
    """A secret in a text.

    Attributes:
        start: Its first character.
        end: The one behind its last.
        secret: What it is, decoded.
        around: What has to stand around the text that replaces it: quotes, where it is a number of
            JSON, escaped as often as that JSON is a string itself.
    """

    start: int
    end: int
    secret: str
    around: str = ""


def spans(text: str) -> list[Span]:
    """Return the secrets of a text, in order and apart from each other."""
    return _apart(_spans(text, 0))


class _Signs(Struct, frozen=True):
    """What a text has that a secret needs.

    Attributes:
        starts: Forms that it may hold, each with where.
        names: Whether a word in it ends the name of a secret.
        hidden: Whether it may hold either behind escapes.
    """

    starts: list[tuple[Form, int]]
    names: bool
    hidden: bool


def _signs(text: str) -> _Signs | None:
    """Return what points to secrets in a text; None if nothing does. It is not decoded."""
    known = forms()
    starts: list[tuple[Form, int]] = []
    for match in known.anchors.pattern.finditer(text):
        literal, at = known.anchors.which(match)
        starts += [(form, at - offset) for form, offset in known.by_anchor[literal]]
    for form in known.free:
        starts += [(form, match.start()) for match in form.pattern.finditer(text)]
    named = known.words.pattern.search(names.small(text)) is not None
    hidden = hides(text)
    return _Signs(starts, named, hidden) if starts or named or hidden else None


def _spans(text: str, depth: int) -> Iterator[Span]:
    if len(text) > MAX_KEY and (blob := _BLOB.fullmatch(text)):
        yield from _at_the_front(text, blob.start(1))
        return
    if depth == 0 and _is_json(text):
        yield from _in_json(text, depth)
        return
    signs = _signs(text)
    if signs is None:
        return
    if 0 < depth < MAX_DEPTH and _is_json(text):
        yield from _in_json(text, depth)
        return
    yield from _own(text, signs)
    views: list[View] = []
    while len(views) < MAX_LOOSE and (view := loose(views[-1].text if views else text)):
        views.append(view)
        if (signs := _signs(view.text)) is not None:
            for span in _own(view.text, signs):
                yield _back(span, views)


def _at_the_front(text: str, start: int) -> Iterator[Span]:
    """Yield the key that long base64 is, if it is one; by chance it holds the form of many."""
    front = text[: start + MAX_KEY]
    signs = _signs(front)
    for span in () if signs is None else _own(front, signs):
        if span.start <= start + 64:
            end = len(text) if span.end == len(front) else span.end
            yield Span(span.start, end, text[span.start : end])


def _back(span: Span, views: list[View]) -> Span:
    start, end = span.start, span.end
    for view in reversed(views):
        start, end = view.back(start, end)
    return Span(start, end, span.secret)


# -- text -----------------------------------------------------------------------------------------


def _own(text: str, signs: _Signs) -> Iterator[Span]:
    """Yield the secrets of a text as it stands."""
    if "[redacted " not in text:
        yield from _any(text, signs)
        return
    gone = [match.span() for match in names.PLACEHOLDER.finditer(text)]
    begins = [start for start, _ in gone]

    def inside(place: int) -> bool:
        at = bisect_right(begins, place) - 1
        return at >= 0 and place < gone[at][1]

    for span in _any(text, signs):
        if not (inside(span.start) or inside(span.end - 1)):
            yield span


def _any(text: str, signs: _Signs) -> Iterator[Span]:
    found: list[tuple[Span, Form]] = []
    ends: dict[str, int] = {}
    for form, start in signs.starts:
        # A key may have run into the next one: its last characters are looked at again.
        if start < 0 or start < ends.get(form.name, 0) - _SHARED:
            continue
        match = form.pattern.match(text, start)
        span = None if match is None else _at(form, text, match)
        if span is not None:
            ends[form.name] = max(ends.get(form.name, 0), span.end)
            found.append((span, form))
    last = 0
    for span, form in sorted(found, key=lambda each: each[0].start):
        start = span.start
        # Right behind a secret may stand one more: what is in front is no word and no base64 then.
        word = form.word and start > last and _in_word(text, span)
        blob = form.blob and start > last + 64 and _in_blob(text, start)
        if not (word or blob):
            last = max(last, span.end)
            yield span
    if signs.names:
        for start, end in names.named(text):
            yield Span(start, end, text[start:end])


def _at(form: Form, text: str, match: re.Match[str]) -> Span | None:
    """Return the secret of a match, or None if it is none after all."""
    start, end = match.span(match.re.groups)
    start -= form.before
    if form.end:
        start, end = match.end(), _block_end(form, text, match.end())
    secret, test = text[start:end], _CHECKS.get(form.check)
    if not secret.strip() or (test is not None and not test(secret)):
        return None
    return Span(start, end, secret)


def _block_end(block: Form, text: str, start: int) -> int:
    """Return where a block ends that begins at a place."""
    following = block.pattern.search(text, start, start + MAX_BLOCK)
    limit = start + MAX_BLOCK if following is None else following.start()
    end = text.find(block.end, start, limit)
    if end >= 0:
        return end
    # It was cut off: what can be of it is.
    found = _BLOCK.match(text, start, limit)
    return start if found is None else found.end()


def _in_word(text: str, span: Span) -> bool:
    """Say whether a word ends with the first letters of what was found."""
    rest = span.secret[8:]
    if any(map(str.isupper, rest)) and any(map(str.islower, rest)):
        return False
    return _ENDS_WORD.match(text, max(0, span.start - 2), span.start) is not None


def _in_blob(text: str, start: int) -> bool:
    """Say whether long base64 stands right in front of a place, and no words or names."""
    before = text[start - 64 : start] if start >= 64 else ""
    if not _BASE64.fullmatch(before) or _WORD.search(before):
        return False
    kinds = (str.isupper, str.islower, str.isdigit)
    upper, lower, digits = (sum(map(kind, before)) for kind in kinds)
    return upper >= 8 and lower >= 8 and digits >= 3 and upper + lower + digits >= 58


def _basic(secret: str) -> bool:
    """Say whether a text is a name and a password in base64."""
    try:
        said = base64.b64decode(secret + "=" * (-len(secret) % 4), altchars=None, validate=False)
        return b":" in said and said.decode().isprintable()
    except (binascii.Error, ValueError):
        return False


def _password(secret: str) -> bool:
    """Say whether what stands behind the colon of an address is no port."""
    return _PORT.match(secret) is None


_CHECKS: dict[str, Callable[[str], bool]] = {"basic": _basic, "password": _password}


# -- JSON -----------------------------------------------------------------------------------------


def _is_json(text: str) -> bool:
    """Say whether a text is a JSON object, list or string, and nothing else."""
    ends = text.lstrip()[:1] + text.rstrip()[-1:]
    if ends not in ("{}", "[]", '""'):
        return False
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


def _in_json(text: str, depth: int) -> Iterator[Span]:
    for string in walk.strings(text):
        raw = text[string.start : string.end]
        if string.scalar:
            yield Span(string.start, string.end, raw, '"')
            continue
        view = json_string(raw) if "\\" in raw else None
        value = raw if view is None else view.text
        if string.secret:
            begin = names.behind_scheme(value)
            spans = [Span(begin, len(value), value[begin:])]
        else:
            spans = _spans(value, depth + 1)
        if string.sealed:
            spans = [span for span in spans if not span.start]
        for span in spans:
            start, end = span.start, span.end
            if view is not None:
                start, end = view.back(start, end)
            around = span.around.replace("\\", "\\\\").replace('"', '\\"')
            yield Span(string.start + start, string.start + end, span.secret, around)


def _apart(found: Iterator[Span]) -> list[Span]:
    """Return spans in order; of those that overlap, what they cover together."""
    kept: list[Span] = []
    for span in sorted(found, key=lambda each: (each.start, -each.end)):
        if span.start >= span.end:
            continue
        last = kept[-1] if kept else None
        if last is None or span.start >= last.end:
            kept.append(span)
        elif span.end > last.end:
            more = span.secret if span.start == last.start else last.secret + span.secret
            kept[-1] = Span(last.start, span.end, more)
    return kept
