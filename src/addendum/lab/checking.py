"""Checks captured requests, each route by its own cache rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from addendum import encoding
from addendum.cache.capture import Capture, wire_of
from addendum.cache.capture_files import iter_captures
from addendum.cache.examine import Examined, examine
from addendum.cache.reported import usage_of
from addendum.cache.rules import CacheRules
from addendum.errors import ContentError, UnknownRoute
from addendum.lab.records import rules_of
from addendum.routes import resolve
from addendum.wire.segment import fields


def rules_by_name(route: str) -> CacheRules | None:
    """Return how a route caches; None if nothing is known of it."""
    try:
        return rules_of(resolve(route, environ={}).cache)
    except UnknownRoute:
        return None


def check_files(
    paths: Sequence[str | Path],
    allow: Collection[str] = (),
    seen: Callable[[int, str, str], None] | None = None,
) -> Examined:
    """Check files of captured requests, each read as far as it is checked.

    Args:
        paths: The files; conversations do not go on from one to the next.
        allow: Causes and rules that may not hold.
        seen: Called for each request with its number, where it came from and its conversation.

    Raises:
        ConfigurationError: Nobody knows a name in `allow`.
        ContentError: A file cannot be read; the message names it, and the line.
    """
    return examine((iter_captures(path) for path in paths), rules_by_name, allow, seen)


def check_requests(requests: Iterable[Any], allow: Collection[str] = ()) -> Examined:
    """Check requests that are at hand.

    Args:
        requests: In the order sent: bodies (bytes, text or decoded), requests of httpx2 or httpx,
            or what a lab captured.
        allow: Causes and rules that may not hold.

    Raises:
        ConfigurationError: Nobody knows a name in `allow`.
        ContentError: One of them is no request to a model.
    """
    captures = [_capture(each, f"request {n}") for n, each in enumerate(requests, 1)]
    return examine([captures], rules_by_name, allow)


def _capture(given: Any, where: str) -> Capture:
    try:
        if isinstance(given, dict | bytes | str):
            body = encoding.encode(given) if isinstance(given, dict) else given
            body = body.encode() if isinstance(body, str) else body
            wire_of("", {}, fields(encoding.decode(body)))
            return Capture(where, body)
        body = getattr(given, "body", None)
        if not isinstance(body, bytes):
            body = getattr(given, "content", None)
        if not isinstance(body, bytes):
            raise ContentError(
                "it is no request; give bodies, requests of httpx2, or what a lab captured"
            )
        url = str(getattr(given, "url", None) or getattr(given, "path", ""))
        headers = {str(k).lower(): str(v) for k, v in dict(given.headers).items()}
        usage = getattr(given, "usage", None)
        wire = wire_of(url, headers, fields(encoding.decode(body)))
        return Capture(
            where=where,
            body=body,
            url=url,
            headers=headers,
            usage=usage_of(wire, usage),
            time=getattr(given, "time", None),
            status=getattr(given, "status", None),
        )
    except ContentError as error:
        raise ContentError(f"{where}: {error}") from error
