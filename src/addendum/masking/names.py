"""Values that are secrets by the name beside them: in JSON, assignments, headers, addresses."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from msgspec import Struct

from addendum.masking.forms import forms

MAX_NAME = 64
"""Characters of a name that are looked at, from its end."""

MAX_SEEN = 1024
"""Characters of a value that are looked at; if it is a secret, all of it is."""

_NOT_LETTER = re.compile(r"[^a-z0-9]")
_COUNT = re.compile(r"[_-]?[0-9]{1,2}")
_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.$-"


# -- which names, which values --------------------------------------------------------------------

PLACEHOLDER = re.compile(r"\[redacted [0-9a-f]{8}\**\]")
"""What stands in the place of a secret."""

_REFERENCE = re.compile(
    r"\$.*|\{\{.*|<[^>]*>|%\w+%|[*.xX•-]+|\[redacted .*"
    r"|(?:env|vault|op|ssm|secret|file|process\.env|os\.environ)\b[:./\[].*",
    re.DOTALL,
)
_PLAIN_WORDS = frozenset(
    "none null nil true false undefined string number integer boolean object array required"
    " optional default text password token secret value yes no bearer basic".split()
)
_WORDS = re.compile(r"[A-Za-z_. -]+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,23}")
_SCHEME = re.compile(
    r"\s*(?:Bearer|Basic|Token|Digest|ApiKey|Api-Key|Key|AWS4-HMAC-SHA256) +", re.I
)


def is_secret(name: str) -> bool:
    """Say whether a value beside a name is a secret."""
    return _is_secret(name[-MAX_NAME:])


@functools.lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    known, bare = forms(), _bare(name).rstrip("0123456789")
    if bare in known.whole:
        return True
    return bare.endswith(known.ends) and not bare.endswith(known.harmless)


def keeps(name: str, value: str) -> bool:
    """Say whether a value beside a secret's name is none itself: a word, a sentence, a reference.

    Args:
        name: The name.
        value: The value, or as much of it as `MAX_SEEN`.
    """
    said, own = value.strip(), _bare(name[-MAX_NAME:])
    if len(said) < 4 or said.lower() in _PLAIN_WORDS or _REFERENCE.fullmatch(said):
        return True
    if PLACEHOLDER.search(said):
        return True  # the secret in it is gone already
    if own == "token" and (len(said) < 8 or " " in said[behind_scheme(said) :]):
        return True  # a piece of text, as tokenizers call it
    if own.endswith(("cookie", "auth", "pass", "credential", "credentials")):
        if _WORDS.fullmatch(said):
            return True  # these names are words of prose and code as well
    if _VARIABLE.fullmatch(said) and _CODE_WORDS.search(said):
        return True  # the name of a variable that holds it
    sentence = said.count(" ") > 3
    return sentence and not own.endswith(("cookie", "authorization", "string", "phrase", "key"))


def is_pair(name: str, value: str) -> bool:
    """Say whether two strings side by side are a secret's name and the secret, not two names."""
    if not is_secret(name) or keeps(name, value):
        return False
    return behind_scheme(value) > 0 or not _FIELD.fullmatch(value)


def behind_scheme(value: str) -> int:
    """Return where the secret begins in a value, behind a scheme such as `Bearer`."""
    found = _SCHEME.match(value)
    return 0 if found is None or found.end() == len(value) else found.end()


def _bare(name: str) -> str:
    return _NOT_LETTER.sub("", name.lower())


# -- names in a text ------------------------------------------------------------------------------


class _Run(Struct, frozen=True):
    """A kind of value: as much of it as is looked at, and all of it."""

    seen: re.Pattern[str]
    whole: re.Pattern[str]


def _run(characters: str) -> _Run:
    return _Run(re.compile(f"(?:{characters}){{1,{MAX_SEEN}}}+"), re.compile(f"(?:{characters})++"))


_INSIDE = {
    '"""': _run(r'(?!""")[\s\S]'),
    "'''": _run(r"(?!''')[\s\S]"),
    '"': _run(r'[^"\\]|\\[\s\S]'),
    "'": _run(r"[^'\\]|\\[\s\S]"),
    "`": _run("[^`]"),
}
_BARE_RUN = _run(r"[^\s\"'`,;&<>(){}\[\]|\\]")
_SOLID_RUN = _run(r"[^\s\"'\\]")
_LINE_RUN = _run(r"[^\r\n\"'\\]")
_ELEMENT_RUN = _run("[^<>]")

_QUOTE = re.compile("[bru]?(\"\"\"|'''|[\"'`])")
_SIGN = r"=>|:=|={1,2}|:|[\"']?[ ,]{1,4}[\"']?value[\"']?\s{0,4}[=:]"
_BETWEEN = re.compile(rf"(?P<quote>[\"'`]?)\s{{0,8}}(?P<sign>{_SIGN})(?P<room>\s{{0,8}})")
_PAIR = re.compile(r"[\"']\s{0,4},\s{0,4}(?=b?[\"'])")
_OPTION = re.compile(r"[ =]{1,4}(?=[^\s-])")

_HEADERS = frozenset(
    "authorization proxyauthorization cookie setcookie xapikey apikey xauthtoken"
    " xaccesstoken".split()
)
_ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{5,}")
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CODE_WORDS = re.compile(
    r"pass|secret|token|key|cred|auth|env|conf|sett|get|self|arg|opt|param|user|input|data|req"
    r"|resp|this|none|null|true|false|value|string|str\b|int\b",
    re.IGNORECASE,
)

Place = tuple[int, int]


def named(text: str) -> Iterator[Place]:
    """Yield where values stand in a text that are secrets by their names."""
    words, last = forms().words, 0
    for match in words.pattern.finditer(small(text)):
        word, start = words.which(match)
        if start < last:
            continue
        end = start + len(word)
        number = _COUNT.match(text, end)
        beside = _beside(text, start, end if number is None else number.end())
        if beside is not None:
            yield beside
            last = beside[1]


def small(text: str) -> str:
    """Return a text in small letters, each in its place."""
    lower = text.lower()
    # One capital letter of Turkish becomes two characters.
    return lower if len(lower) == len(text) else text.replace("\u0130", "I").lower()


def _beside(text: str, start: int, end: int) -> Place | None:
    """Return the value of the name whose last word is there, if it is a secret."""
    begin = _begin(text, start)
    name, before = text[begin:end], text[begin - 1 : begin]
    if before in ("?", "&") and text[end : end + 1] == "=":
        if not (_bare(name) in forms().query or is_secret(name)):
            return None
        return _chosen(text, end + 1, name, _BARE_RUN)
    if not is_secret(name):
        # `api key` is two words.
        if before != " " or not is_secret(text[_begin(text, begin - 1) : end]):
            return None
    if name.startswith("--") and (option := _OPTION.match(text, end)):
        return _chosen(text, option.end(), name, _SOLID_RUN)
    if text.startswith(">", end):
        return _element(text, end + 1, name)
    if before in ("'", '"') and (pair := _PAIR.match(text, end)):
        return _chosen(text, pair.end(), name, None, pair=True)
    between = _BETWEEN.match(text, end)
    if between is None:
        return None
    at, sign, room = between.end(), between["sign"], between["room"]
    own = _bare(name)
    if before in ("'", '"', "`") and not between["quote"] and text.startswith(before, at):
        return None  # `'Cookie:'`, the name and its sign in quotes
    quoted = _QUOTE.match(text, at) is not None
    if own in _HEADERS and sign == ":" and not between["quote"] and not quoted:
        # Of a header the whole line is the value; settings call theirs so as well.
        header = _header(text, at, own)
        if header is not None:
            return header
    if quoted or between["quote"] or len(sign) > 2:
        return _chosen(text, at, name, _BARE_RUN)
    if "\n" in room or "\r" in room:
        return None
    tight = sign == "=" and not room
    if tight and _ENVIRONMENT.fullmatch(name):
        return _chosen(text, at, name, _SOLID_RUN)
    return _assigned(text, begin, at, name, tight=tight)


def _begin(text: str, end: int) -> int:
    """Return where the name begins that ends at a place."""
    front = text[max(0, end - MAX_NAME) : end]
    return end - len(front) + len(front.rstrip(_NAME))


def _chosen(text: str, at: int, name: str, run: _Run | None, *, pair: bool = False) -> Place | None:
    """Return the value at a place, in quotes or, where a run says of what, without."""
    quote = _QUOTE.match(text, at)
    if quote is not None:
        at, run = quote.end(), _INSIDE[quote[1]]
    found = None if run is None else run.seen.match(text, at)
    if found is None or run is None:
        return None
    value = found[0]
    if keeps(name, value) or (pair and not is_pair(name, value)):
        return None
    return at + behind_scheme(value), _end(text, found, run)


def _end(text: str, found: re.Match[str], run: _Run) -> int:
    """Return where a value ends of which the beginning was looked at."""
    if found.end() - found.start() < MAX_SEEN:
        return found.end()
    whole = run.whole.match(text, found.start())
    return found.end() if whole is None else whole.end()


def _element(text: str, at: int, name: str) -> Place | None:
    """Return the text of an element of XML that is called so."""
    match = _ELEMENT_RUN.seen.match(text, at)
    if match is None or keeps(name, match[0]):
        return None
    end = _end(text, match, _ELEMENT_RUN)
    return (at, end) if text.startswith("</", end) else None


def _header(text: str, at: int, name: str) -> Place | None:
    """Return the value of a header, which goes to the end of its line."""
    match = _LINE_RUN.seen.match(text, at)
    if match is None:
        return None
    begin = behind_scheme(match[0])
    secret = match[0][begin:].rstrip()
    is_cookie = name.endswith("cookie")
    solid = "=" in secret if is_cookie else len(secret) >= 6 and not re.search(r"\s", secret)
    if keeps(name, secret) or not solid:
        return None
    return at + begin, _end(text, match, _LINE_RUN)


def _assigned(text: str, begin: int, at: int, name: str, *, tight: bool) -> Place | None:
    """Return the value that a line of settings or code assigns without quotes.

    Args:
        text: The text.
        begin: Where the name begins.
        at: Where the value begins.
        name: The name.
        tight: Whether nothing stands between them but `=`.
    """
    match = _BARE_RUN.seen.match(text, at)
    if match is None or len(match[0]) < 6 or keeps(name, match[0]):
        return None
    end = _end(text, match, _BARE_RUN)
    value, following = text[at:end].rstrip(".:!?"), text[end : end + 1]
    if _CODE.fullmatch(value):
        # A name of code, or a password that is a word.
        if following in ("(", "[") or _CODE_WORDS.search(value):
            return None
        if not any(map(str.isdigit, value)):
            line = text.rfind("\n", max(0, begin - MAX_NAME), begin) + 1
            alone = not text[line:begin].strip(" \t-") and following in ("", "\n", "\r")
            if not (tight or alone):
                return None
    return at, at + len(value)
