"""The forms of credentials and the names that stand beside them, read from `forms.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

_RARE = "~QZJXqzKVj=x9876543210UWYGHBFPM_ENLDORSTCIA/.-:kvbwygpfmcuhldrsnioate "
"""Characters of literals, the rare ones of prose, code and JSON in front."""


_BY_CHANCE = 5
"""Characters up to which long base64 has an anchor by chance."""


class _Row(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sample: str
    source: str
    checked: str
    pattern: str = ""
    begin: str = ""
    end: str = ""
    anchors: tuple[str, ...] = ()
    before: int = 0
    word: bool = False
    check: str = ""


class _Names(Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    checked: str
    ends: tuple[str, ...]
    whole: tuple[str, ...]
    query: tuple[str, ...]
    harmless: tuple[str, ...]


class _Sealed(Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    checked: str
    fields: tuple[str, ...]
    beside: dict[str, tuple[str, ...]]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    form: tuple[_Row, ...]
    block: tuple[_Row, ...]
    names: _Names
    sealed: _Sealed


class Form(Struct, frozen=True):
    """One form of credential.

    Attributes:
        name: What it is.
        pattern: Its expression; the secret is its group, or all of it.
        anchors: Literals of which a match begins with one; empty if there are none.
        before: Characters in front of the match that belong to the secret.
        blob: Whether long base64 has an anchor of it by chance.
        word: Whether an English word ends in its first letters.
        check: Name of a further test, or empty.
        end: For a block, the literal that its secret ends in front of; `pattern` is its beginning.
        sample: What tests make one from.
    """

    name: str
    pattern: re.Pattern[str]
    anchors: tuple[str, ...]
    before: int
    blob: bool
    word: bool
    check: str
    end: str
    sample: str


class Finder(Struct, frozen=True):
    """Finds any of some literals fast.

    The expression begins with the rarest character of each, so that nearly all of a text is passed
    over at the speed of one comparison a character, and looks at both sides of it then.

    Attributes:
        pattern: The expression; the number of its last group says which literal it is.
        literals: Each with the place of that character in it, in the order of the groups.
    """

    pattern: re.Pattern[str]
    literals: tuple[tuple[str, int], ...]

    def which(self, match: re.Match[str]) -> tuple[str, int]:
        """Return the literal that was found, and where it begins."""
        literal, pivot = self.literals[(match.lastindex or 1) - 1]
        return literal, match.start() - pivot


class Forms(Struct, frozen=True):
    """All that is known.

    Attributes:
        anchors: Finds the least literals that the anchors of forms and blocks hold.
        by_anchor: The forms and blocks that such a literal may be of, and how far behind the
            beginning of an anchor of theirs it stands.
        free: Forms without an anchor.
        words: Finds the last words of names in text of small letters.
        ends: What the names of secrets end in.
        whole: Names that are so as a whole.
        query: Names in the query of an address, beside the others.
        harmless: Endings of names that are none.
        sealed: Fields that a provider seals.
        beside: Fields that it seals beside others (a name, or `type=VALUE`).
    """

    anchors: Finder
    by_anchor: Mapping[str, tuple[tuple[Form, int], ...]]
    free: tuple[Form, ...]
    words: Finder
    ends: tuple[str, ...]
    whole: frozenset[str]
    query: frozenset[str]
    harmless: tuple[str, ...]
    sealed: frozenset[str]
    beside: Mapping[str, tuple[str, ...]]

    @property
    def every(self) -> tuple[Form, ...]:
        """All forms and blocks."""
        anchored = [form for own in self.by_anchor.values() for form, _ in own]
        return (*dict.fromkeys(anchored), *self.free)


@functools.cache
def forms() -> Forms:
    """Return what is known of credentials; it is read once."""
    text = Path(__file__).with_name("forms.toml").read_text("utf-8")
    file = msgspec.convert(tomllib.loads(text), _File)
    every = tuple(_form(row) for row in (*file.form, *file.block))
    literals = {anchor for form in every for anchor in form.anchors}
    # The least that others hold stand for these.
    anchors = _finder({a for a in literals if not any(b != a and b in a for b in literals)})
    names = file.names
    return Forms(
        anchors,
        {
            literal: tuple(
                dict.fromkeys(
                    (form, anchor.index(literal))
                    for form in every
                    for anchor in form.anchors
                    if literal in anchor
                )
            )
            for literal, _ in anchors.literals
        },
        tuple(form for form in every if not form.anchors),
        _finder(_words(names), r"(?:[_-]?[0-9]{1,2})?(?![a-z0-9_-])"),
        names.ends,
        frozenset(names.whole),
        frozenset(names.query),
        names.harmless,
        frozenset(file.sealed.fields),
        file.sealed.beside,
    )


def _form(row: _Row) -> Form:
    pattern = re.compile(row.pattern or row.begin)
    blob = any(len(anchor) <= _BY_CHANCE for anchor in row.anchors)
    return Form(
        row.name, pattern, row.anchors, row.before, blob, row.word, row.check, row.end, row.sample
    )


def _finder(literals: set[str], behind: str = "") -> Finder:
    """Return what finds literals.

    Args:
        literals: The literals.
        behind: An expression for what has to follow each.
    """
    by_pivot: dict[str, list[tuple[str, int]]] = {}
    for literal in sorted(literals):
        at = min(range(len(literal)), key=lambda at: _RARE.find(literal[at]))
        by_pivot.setdefault(literal[at], []).append((literal, at))
    parts: list[str] = []
    order: list[tuple[str, int]] = []
    for pivot, own in by_pivot.items():
        sides = [
            f"(?<={re.escape(each[: at + 1])})(?={re.escape(each[at + 1 :])}{behind})()"
            for each, at in own
        ]
        parts.append(f"{re.escape(pivot)}(?:{'|'.join(sides)})")
        order += own
    return Finder(re.compile("|".join(parts)), tuple(order))


def _words(names: _Names) -> set[str]:
    """Return the last word of each name: `key` of `apikey`, `api_key`, `api key`, or `keys`."""
    every = {*names.ends, *names.whole, *names.query, "string"}
    last = {re.sub(".*(?=keys?$)", "", name) for name in every}
    # The shortest ending of each stands for all that end so.
    return {a for a in last if not any(b != a and a.endswith(b) for b in last)}
