"""The index behind tool search: BM25 over names, descriptions and arguments.

An index is made once for a set of tools and kept while the set is the same. Words are compared
without case, accents and common English endings; text in scripts without spaces is compared by
pairs of characters. The same tools and the same query give the same order in every process: ties
go by name.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from addendum import encoding
from addendum.errors import ContentError
from addendum.log.values import ToolSchema

Entry: TypeAlias = tuple[ToolSchema, str | None]
"""A tool that may be found, and the server it comes from."""

_K1, _B = 3.0, 0.75
_WEIGHTS = {"name": 9, "server": 3, "lead": 6, "description": 1, "argument": 1, "detail": 1}
_LEAD = 200
_LIKENESS = 0.5
_MOST_KEPT = 1_000  # terms whose scores an index keeps
_MOST_TERMS = 2_000  # of one tool: a longer text gains nothing but time
_MOST_TEXT = 20_000
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_NO_WORD = re.compile(r"[\W_]+")
# Scripts written without spaces: Thai to Myanmar, Khmer, kana, Han, Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_DENSE}]+|[^{_DENSE}]+")
_IS_DENSE = re.compile(f"[{_DENSE}]")
_PLAIN = re.compile(r"[a-z]{4,}")
_SENTENCE = re.compile(r"[.!?](?=\s)|\n")
# Words that say nothing about a tool; a query of nothing else keeps them.
_COMMON = (
    "a about all also an and any are as at be been by can could do does for from get has have how "
    "i if in into is it its me my no not of on or our out please s should so some t than that the "
    "their them then there these they this to up us use using want was we what when where which "
    "who whom why will with would you your"
)


def terms(text: str) -> Iterator[str]:
    """Yield the stems of words, or pairs of characters where there are no spaces.

    `GitHub` gives `git`, `hub` and `github`: another may write it in one.
    """
    for parts in _words(text):
        for part in parts if len(parts) == 1 else (*parts, "".join(parts)):
            yield from _stems(part)


def _words(text: str) -> Iterator[list[str]]:
    """Yield each word, in small letters without accents, as the parts its capitals show."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = unicodedata.normalize("NFC", re.sub("[\u0300-\u036f]", "", text))
    for word in _WORD.findall(text):
        yield _CAMEL.sub(" ", word).casefold().split()


def _stems(word: str) -> Iterator[str]:
    return iter((_stem(word),)) if word.isascii() else _runs(word)


def _runs(word: str) -> Iterator[str]:
    for run in _RUN.findall(word):
        if not _IS_DENSE.match(run):
            yield _stem(run)
        elif len(run) == 1:
            yield run
        else:
            yield from (run[place : place + 2] for place in range(len(run) - 1))


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    """Return a word without the endings that English adds to it."""
    if not _PLAIN.fullmatch(word):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word[-1] == "s" and word[-2] not in "sui":
        word = word[:-1]
    if word.endswith("ment") and len(word) > 8:
        word = word[:-4]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3 and re.search("[aeiouy]", stem):
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    if word.endswith(("sion", "tion")) and len(word) > 5:
        word = word[:-3]
    return word[:-1] if word[-1] == "e" and len(word) > 3 else word


_STOP = frozenset(_stem(word) for word in _COMMON.split())
# Words that tools are named by and people use for each other: one group a line.
_ALIKE = """
add create insert make new
remove delete drop erase clear
get fetch read retrieve show view display
update edit change modify patch set
run execute exec start launch
stop end kill terminate cancel abort
find search query look
list enumerate
send post
answer reply respond
download fetch
save store remember memory
undo revert rollback
copy duplicate clone
move rename
check validate verify test
picture image photo screenshot
folder directory
field column property attribute
row record entry
person user member people
page url website site
message mail
history log
"""


def _alike() -> dict[str, tuple[str, ...]]:
    alike: dict[str, tuple[str, ...]] = {}
    for line in _ALIKE.strip().splitlines():
        group = [_stem(word) for word in line.split()]
        for word in group:
            alike[word] = alike.get(word, ()) + tuple(each for each in group if each != word)
    return alike


_SYNONYMS = _alike()


@lru_cache(maxsize=32_768)
def _document(name: str, description: str, parameters: bytes) -> Counter[str]:
    """Return how much a tool says of each term."""
    document: Counter[str] = Counter()
    description = description.strip()
    end = _SENTENCE.search(description, 0, _LEAD)
    lead = end.start() if end else _LEAD
    server, _, own = name.rpartition("__")
    fields = [
        ("name", own),
        ("server", server),
        ("lead", description[:lead]),
        ("description", description[lead:]),
    ]
    for kind, text in (*fields, *_argument_texts(parameters)):
        weight = _WEIGHTS[kind]
        for term in terms(text[:_MOST_TEXT]):
            if len(document) < _MOST_TERMS or term in document:
                document[term] += weight
    return document


def _spelled(name: str) -> str:
    return _NO_WORD.sub("_", name.casefold())


def _argument_texts(parameters: bytes) -> list[tuple[str, str]]:
    """Return names and descriptions of arguments, nested ones included."""
    try:
        stack: list[Any] = [encoding.decode(parameters or b"{}")]
    except ContentError:
        return []
    argument_texts: list[tuple[str, str]] = []
    while stack and len(argument_texts) < 500:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(cast("list[Any]", node))
        if not isinstance(node, dict):
            continue
        schema = cast("dict[str, Any]", node)
        properties = schema.get("properties")
        if isinstance(properties, dict):
            argument_texts.extend(("argument", name) for name in cast("dict[str, Any]", properties))
        if isinstance(detail := schema.get("description"), str):
            argument_texts.append(("detail", detail))
        stack.extend(schema.values())
    return argument_texts


class _Postings(NamedTuple):
    places: array[int]
    shares: array[float]


def _longest_first(found: _Postings) -> int:
    return -len(found.places)


class Index:
    """Tools, and where each term stands in them.

    Args:
        tools: The tools, each name once. Their order does not count.
    """

    __slots__ = ("_documents", "_lengths", "_names", "_order", "_postings", "_scores", "_spelled",
                 "_terms")  # fmt: skip

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._order = sorted(range(len(tools)), key=lambda place: tools[place].name)
        self._names = [tools[place].name for place in self._order]
        self._documents = [
            _document(tool.name, tool.description, bytes(tool.parameters))
            for tool in map(tools.__getitem__, self._order)
        ]
        totals = [document.total() for document in self._documents]
        mean = sum(totals) / max(1, len(totals)) or 1.0
        self._lengths = [_K1 * (1 - _B + _B * total / mean) for total in totals]
        self._postings: dict[str, _Postings] = {}
        for place, document in enumerate(self._documents):
            length = self._lengths[place]
            for term, count in document.items():
                found = self._postings.get(term)
                if found is None:
                    found = self._postings[term] = _Postings(array("L"), array("d"))
                found.places.append(place)
                found.shares.append(count * (_K1 + 1) / (count + length))
        self._terms = sorted(self._postings)
        self._scores: dict[tuple[str, ...], _Postings] = {}
        self._spelled: dict[str, list[int]] = {}
        for place, name in enumerate(self._names):
            for each in {name, name.rpartition("__")[2]}:
                self._spelled.setdefault(_spelled(each), []).append(place)

    def best(self, query: str, most: int) -> tuple[int, list[int]]:
        """Return how many tools match, and the places of the best as the tools were given.

        The best is a name that the query spells, the full one before one without its server; then
        it goes by score, then by name.

        Args:
            query: What is looked for.
            most: Places to return at most.
        """
        wanted = self.wanted(query)
        scores: dict[int, float] = {}
        # The longest first: it is taken over as it is.
        for found in sorted((self._meant(term, wanted) for term in wanted), key=_longest_first):
            if not scores:
                scores = dict(zip(*found, strict=True))
                continue
            known = scores.get
            for place, score in zip(*found, strict=True):
                scores[place] = known(place, 0.0) + score
        for place in self._exact(query):
            scores[place] = math.inf
        least = sorted(scores.values(), reverse=True)[:most][-1:] or [math.inf]
        # Rounding makes equal what differs only by the order of its sums.
        first = [place for place, score in scores.items() if score >= least[0] - 1e-8]
        first.sort(key=lambda place: (-round(scores[place], 9), place))
        return len(scores), [self._order[place] for place in first[:most]]

    def wanted(self, query: str) -> list[str]:
        """Return the terms that a query looks for, in their order."""
        found: set[str] = set()
        for parts in _words(query):
            whole = list(_stems("".join(parts)))
            if len(parts) == 1 or all(term in self._postings for term in whole):
                found.update(whole)
            else:
                found.update(term for part in parts for term in _stems(part))
        return sorted(found - _STOP or found)

    def _exact(self, query: str) -> list[int]:
        wanted = _spelled(query)
        found = self._spelled.get(wanted, [])
        full = [p for p in found if _spelled(self._names[p]) == wanted]
        return full or found

    def _meant(self, term: str, query: Collection[str]) -> _Postings:
        """Return where a term stands, or a word like it, and what the better one scores there.

        What a query says in two words is one thing, counted at the first of them.
        """
        alike = _SYNONYMS.get(term, ())
        key = (term, *(other for other in alike if other in query))
        meant = self._scores.get(key)
        if meant is None:
            best: dict[int, float] = {}
            if all(term < other for other in key[1:]):
                for each in (term, *alike):
                    postings = self._found(each)
                    weight = self._rarity(len(postings.places))
                    weight *= 1.0 if each in key else _LIKENESS
                    for place, share in zip(*postings, strict=True):
                        if (score := share * weight) > best.get(place, 0.0):
                            best[place] = score
            meant = _Postings(array("L", best), array("d", best.values()))
            if len(self._scores) < _MOST_KEPT:
                self._scores[key] = meant
        return meant

    def _found(self, term: str) -> _Postings:
        known = self._postings.get(term)
        if known is not None:
            return known
        counts: Counter[int] = Counter()
        for longer in self._longer(term):
            for place in self._postings[longer].places:
                counts[place] += self._documents[place][longer]
        shares = [
            count * (_K1 + 1) / (count + self._lengths[place]) for place, count in counts.items()
        ]
        return _Postings(array("L", counts), array("d", shares))

    def _rarity(self, tools: int) -> float:
        return math.log(1 + (len(self._order) - tools + 0.5) / (tools + 0.5))

    def _longer(self, term: str) -> list[str]:
        """Return the terms that begin with a term that no tool has; for a sign, that hold it."""
        if len(term) >= 3:
            longer: list[str] = []
            for place in range(bisect_left(self._terms, term), len(self._terms)):
                if not self._terms[place].startswith(term):
                    break
                longer.append(self._terms[place])
            return longer
        if _IS_DENSE.match(term):
            return [each for each in self._terms if term in each]
        return []


class Indexes:
    """The last few indexes. They can be asked from any thread."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._latest: tuple[tuple[list[Entry], Index], ...] = ()

    def of(self, entries: Sequence[Entry]) -> Index:
        """Return the index of these tools; a known one if they are equal, in the same order."""
        wanted = entries if isinstance(entries, list) else list(entries)
        latest = self._latest
        found = next((each for each in latest if each[0] == wanted), None)
        if found is None:
            found = (list(wanted), Index([tool for tool, _ in wanted]))
        self._latest = (found, *(each for each in latest if each is not found))[: self._most]
        return found[1]
