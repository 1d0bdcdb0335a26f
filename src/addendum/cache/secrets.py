"""Keeps credentials out of captures: of headers, addresses and whatever else is written.

What has the form of a credential wherever it stands is known to `addendum.masking`; here is what
more is known of HTTP.
"""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from addendum.masking import masked
from addendum.masking import masked_json as redacted
from addendum.wire.segment import fields, objects

__all__ = ["bare_address", "kept_headers", "masked", "redacted", "split"]

_KEPT = re.compile(r"content-type|content-encoding|user-agent|(?:anthropic|openai)-[a-z-]+")
_CLOSED = re.compile(r"key|token|auth|cookie|secret|organization|project")


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
            found[key] = masked(one)
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
