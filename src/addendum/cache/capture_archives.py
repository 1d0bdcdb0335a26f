"""Captured requests in archives: HAR, and the cassettes of vcrpy and its kin.

Entries that ask no model for anything are left out. An archive is data: sized, never executed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from addendum import encoding
from addendum.cache.capture import Capture, asks_model, read_known, wire_of
from addendum.cache.reported import usage_in, usage_of
from addendum.cache.secrets import kept_headers
from addendum.errors import ContentError
from addendum.log.values import Usage
from addendum.wire.segment import Json, fields, objects

MAX_YAML = 32 * 1024 * 1024
"""Bytes that a YAML file may have: it is read a hundred times slower."""

MAX_UNFOLDED = 8 * MAX_YAML
"""Bytes that it may have when each reference in it is replaced by what it stands for."""


def body_of(value: Any) -> bytes | None:
    """Return a body's bytes: an object is written compactly in its own key order."""
    if isinstance(value, dict):
        return encoding.encode(value)
    if isinstance(value, str):
        value = encoding.clean(value).encode()
    if not isinstance(value, bytes) or value.lstrip()[:1] != b"{":
        return None
    return value if isinstance(encoding.decode(value), dict) else None


def text_in(value: Any) -> str:
    """Return a text, empty if the value is none."""
    return value if isinstance(value, str) else ""


def status_of(value: Any) -> int | None:
    """Return an HTTP status, None if the value is no number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def time_of(value: Any) -> float | None:
    """Return seconds since the epoch of a number or of ISO 8601; None if it is neither."""
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value).timestamp()
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if numeric else None
    except (ValueError, OverflowError, OSError):
        return None


def har(name: Path, entries: Sequence[Any]) -> Iterator[Capture]:
    """Yield the requests to models among the entries of an HTTP archive.

    Raises:
        ContentError: One of them cannot be read; the message names file and entry.
    """
    for number, entry in enumerate(entries, 1):
        said = fields(entry)
        request, response = fields(said.get("request")), fields(said.get("response"))
        content, post = fields(response.get("content")), fields(request.get("postData"))
        posted = _unpacked(post.get("text"), text_in(post.get("encoding")))
        answer = _unpacked(content.get("text"), text_in(content.get("encoding")))
        yield from _exchange(
            f"{name}: entry {number}",
            text_in(request.get("url")),
            request.get("headers"),
            posted,
            answer,
            said.get("startedDateTime"),
            status_of(response.get("status")),
            fields(said.get("_addendum")),
        )


def interactions(name: Path, cassette: Mapping[str, Any]) -> Iterator[Capture]:
    """Yield the requests to models among a cassette's interactions.

    Raises:
        ContentError: One of them cannot be read; the message names file and interaction.
    """
    listed = cassette.get("interactions") or cassette.get("http_interactions")
    for number, each in enumerate(objects(listed), 1):
        request, response = fields(each.get("request")), fields(each.get("response"))
        status = response.get("status")
        yield from _exchange(
            f"{name}: interaction {number}",
            text_in(request.get("uri")) or text_in(request.get("url")),
            request.get("headers"),
            _kept(request),
            _kept(response),
            each.get("recorded_at"),
            status_of(fields(status).get("code") if isinstance(status, dict) else status),
            {},
            kept_headers(response.get("headers")).get("content-encoding", ""),
        )


def _kept(side: Json) -> Any:
    """Return the body of one side of an interaction, in the forms that recorders write."""
    if "parsed_body" in side:
        return side["parsed_body"]
    body = side.get("body")
    if isinstance(body, dict):
        held = cast(Json, body)
        packed = held.get("base64_string")
        return _unpacked(packed, "base64") if packed is not None else held.get("string", held)
    return body


def _exchange(
    where: str,
    url: str,
    headers: Any,
    posted: Any,
    answer: Any,
    time: Any,
    status: int | None,
    known: Json,
    coding: str = "",
) -> Iterator[Capture]:
    """Yield the capture of a request to a model; nothing for any other traffic."""
    try:
        body = body_of(posted)
    except ContentError as error:
        if "/messages" in url or "/completions" in url:
            raise ContentError(f"{where}: {error}") from error
        return
    if body is None or not asks_model(url, encoding.decode(body)):
        return
    kept = kept_headers(headers)
    try:
        wire = wire_of(url, kept, fields(encoding.decode(body)))
        own = read_known(known) if known else None
    except ContentError as error:
        raise ContentError(f"{where}: {error}") from error
    if isinstance(answer, dict):
        usage = usage_of(wire, cast(Json, answer).get("usage"))
    else:
        usage = usage_in(wire, answer, coding) if isinstance(answer, str | bytes) else Usage()
    session = None if own is None else own.session
    yield Capture(
        where=where,
        body=body,
        url=url,
        headers=kept,
        usage=usage,
        time=time_of(time),
        status=status,
        session=session,
        known=own,
    )


def _unpacked(value: Any, coding: str) -> Any:
    if coding != "base64" or not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value)
    except (binascii.Error, ValueError):
        return None


def read_yaml(name: Path, data: bytes) -> Json:
    """Read a YAML file as an object; nothing in it is executed.

    Raises:
        ContentError: It is too large or not valid; the message names file and line.
        ModuleNotFoundError: PyYAML is not installed.
    """
    import yaml

    if len(data) > MAX_YAML:
        raise ContentError(
            f"{name}: {len(data):,} bytes of YAML are over the limit of {MAX_YAML:,}; "
            "record as JSON"
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value = yaml.load(data, Loader=loader)
        _refuse_unfolding(name, value)
        return fields(value)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else min(mark.line + 1, len(data.splitlines()))
        what = getattr(error, "problem", None) or type(error).__name__
        raise ContentError(f"{name}:{line}: not valid YAML: {what}") from error


def _refuse_unfolding(name: Path, value: Any) -> None:
    """Refuse references that stand for themselves or for far more than was written.

    Raises:
        ContentError: There are such references.
    """
    sizes: dict[int, int] = {}

    def size(each: Any) -> int:
        if isinstance(each, str | bytes):
            return len(each) + 2
        if not isinstance(each, dict | list | tuple | set):
            return 4
        known = sizes.get(id(cast(Any, each)))
        if known == 0:
            raise ContentError(f"{name}: a reference in it stands for itself; record as JSON")
        if known is not None:
            return known
        sizes[id(cast(Any, each))] = 0
        held = cast(Json, each)
        parts = [*held.keys(), *held.values()] if isinstance(each, dict) else held
        total = sizes[id(cast(Any, each))] = 2 + sum(map(size, parts))
        return total

    if size(value) > MAX_UNFOLDED:
        raise ContentError(
            f"{name}: its references stand for more than {MAX_UNFOLDED:,} bytes; record as JSON"
        )
