"""Keeps credentials out of what is written: files of captures, findings, excerpts.

Two kinds are known: headers that carry them, and texts that have the form of a key wherever they
stand. A body that holds one is still checked by all its bytes; only what leaves is masked.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from addendum.wire.segment import fields, objects

_KEPT = re.compile(r"content-type|content-encoding|user-agent|(?:anthropic|openai)-[a-z-]+")
_CLOSED = re.compile(r"key|token|auth|cookie|secret|organization|project")

_FORMS = (
    r"sk-[A-Za-z0-9_-]{16,}",
    r"(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|xapp-|hf_|AIza|tvly-|pypi-)[A-Za-z0-9_-]{16,}",
    r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"(?<=Bearer )[A-Za-z0-9._~+/-]{16,}=*",
    r"(?<=uthorization: Basic )[A-Za-z0-9+/]{8,}=*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]{16,}",
    # A user and password in an address.
    r"(?<=://)[^/\s:@\"\\]{1,64}:[^/\s@\"\\]{3,}(?=@)",
)
_NAMES = r"(?:(?:api|access|private)[_-]?key|token|secret|password|passwd|authorization|cookie)"
_NAMED = (
    # A field that is called so, also where JSON is text within JSON; then a part of an address.
    rf'(\\*"(?i:[\w-]{{0,40}}{_NAMES})\\*"\s*:\s*\\*")(?!\[redacted )([^"\\]{{6,}})',
    rf'([?&](?i:[\w-]{{0,40}}{_NAMES}|key|sig|signature)=)(?!\[redacted )([^&\s"\\#]{{6,}})',
)
_WHOLE = rf"(?<![A-Za-z0-9_-])(?:{'|'.join(_FORMS)})"
_TEXT = re.compile(_WHOLE), *map(re.compile, _NAMED)
_BYTES = re.compile(_WHOLE.encode()), *(re.compile(each.encode()) for each in _NAMED)


def masked(text: str) -> str:
    """Return a text with each credential in it replaced by as many asterisks."""
    whole, *named = _TEXT
    text = whole.sub(lambda match: "*" * len(match[0]), text)
    for form in named:
        text = form.sub(lambda match: match[1] + "*" * len(match[2]), text)
    return text


def redacted(body: bytes) -> bytes:
    """Return JSON text with each credential in it replaced.

    The same credential gives the same text, and another one another text, so that what is compared
    stays what it was.
    """

    def named(secret: bytes) -> bytes:
        return b"[redacted %s]" % hashlib.sha256(secret).hexdigest()[:6].encode()

    whole, *parts = _BYTES
    body = whole.sub(lambda match: named(match[0]), body)
    for form in parts:
        body = form.sub(lambda match: match[1] + named(match[2]), body)
    return body


def kept_headers(value: Any) -> dict[str, str]:
    """Return headers that tell something and keep no secret, with names in lower case.

    Args:
        value: An object, whose lists hold one value each, or a list of `name` and `value`.
    """
    found: dict[str, str] = {}
    pairs: list[tuple[Any, Any]] = list(fields(value).items())
    pairs += [(each.get("name"), each.get("value")) for each in objects(value)]
    for name, given in pairs:
        listed = cast("list[Any]", given) if isinstance(given, list) else [given]
        one = listed[0] if listed else None
        key = str(name).lower()
        if isinstance(one, str) and _KEPT.fullmatch(key) and not _CLOSED.search(key):
            found[key] = one
    return found


def bare_address(url: str) -> str:
    """Return an address without user, query and what has the form of a key."""
    parts = split(url)
    return masked(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))


def split(url: str) -> SplitResult:
    """Return the parts of an address; all are empty if it is none."""
    try:
        found = urlsplit(url)
        _ = found.hostname, found.port
    except ValueError:
        return SplitResult("", "", "", "", "")
    return found
