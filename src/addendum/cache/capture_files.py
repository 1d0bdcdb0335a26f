"""Captured requests out of files that somebody else wrote.

====================  ===========================================================================
file                  what is read
====================  ===========================================================================
JSON lines            a body a line; or `{url, headers, body, usage | response, time, status}`
JSON                  one body, a list of either, or `{"requests": [...]}` (an export of ours)
HAR                   the entries that ask a model for something; others are left out
vcr cassette          YAML or JSON with `interactions`; likewise
====================  ===========================================================================

The form is told by what is in a file, not by its name. A file is data: sized, never executed, and
what cannot be read is one error that names file and line.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Raw

from addendum import encoding
from addendum.cache.capture import Capture, asks_model, read_known, wire_of
from addendum.cache.reported import usage_in, usage_of
from addendum.errors import ContentError
from addendum.log.values import Usage
from addendum.wire.reading import items, slices
from addendum.wire.segment import Json, fields, objects

MAX_FILE = 1024 * 1024 * 1024
"""Bytes that a file of JSON lines may have; each line obeys the limit of one JSON text."""

MAX_WHOLE = 256 * 1024 * 1024
"""Bytes that a file may have which has to be read as one JSON value."""

MAX_YAML = 32 * 1024 * 1024
"""Bytes that a YAML file may have: it is read a hundred times slower."""

_KEPT = re.compile(r"content-type|content-encoding|user-agent|(?:anthropic|openai)-[a-z-]+")
_SECRET = re.compile(r"key|token|auth|cookie|secret|organization|project")
_BYTE = re.compile(r"\(byte (\d+)\)")
_CASSETTE = re.compile(rb"^(?:interactions|http_interactions):", re.MULTILINE)


def read_captures(path: str | Path) -> tuple[Capture, ...]:
    """Read a file of captured requests.

    Args:
        path: The file.

    Returns:
        Requests to models in the order in which they were sent, as far as the file tells.

    Raises:
        ContentError: It cannot be read; the message names file and line.
        ModuleNotFoundError: It is YAML, and PyYAML is not installed.
    """
    name = Path(path)
    found = list(_captures(name))
    if not found:
        raise ContentError(f"{name}: no request to a model in it; capture requests with bodies")
    times = [each.time for each in found if each.time is not None]
    if len(times) == len(found):
        # A request is written when its answer has ended.
        order = sorted(range(len(found)), key=lambda at: times[at])
        return tuple(found[at] for at in order)
    return tuple(found)


def _captures(name: Path) -> Iterator[Capture]:
    data = _read(name)
    start = data.lstrip()[:1]
    first, _, rest = data.lstrip().partition(b"\n")
    if start not in (b"{", b"["):
        if not _CASSETTE.search(data):
            raise ContentError(
                f"{name}:1: neither JSON lines nor HAR, a cassette or an export; name another file"
            )
        yield from _interactions(name, _yaml(name, data))
    elif _is_line(first) and (rest.strip() or not _is_container(first)):
        yield from _lines(name, data)
    elif start == b"{" and rest.lstrip()[:1] == b"{":
        yield from _lines(name, data)  # the first line is damaged, and is named
    else:
        yield from _whole(name, data)


def _read(name: Path) -> bytes:
    try:
        size = name.stat().st_size
        if size > MAX_FILE:
            raise ContentError(f"{name}: {size:,} bytes are over the limit of {MAX_FILE:,}; cut it")
        data = name.read_bytes()
    except OSError as error:
        raise ContentError(f"cannot read {name}: {error.strerror or error}") from error
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ContentError(f"{name}:1: it is UTF-16; save it as UTF-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def _is_line(line: bytes) -> bool:
    try:
        return isinstance(encoding.decode(line), dict)
    except ContentError:
        return False


def _is_container(line: bytes) -> bool:
    value = fields(encoding.decode(line))
    return any(name in value for name in ("log", "requests", "interactions"))


# -- JSON ---------------------------------------------------------------------------------------


def _lines(name: Path, data: bytes) -> Iterator[Capture]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            yield _capture(where, encoding.decode(line), line.strip())
        except ContentError as error:
            raise ContentError(f"{where}: {error}") from error


def _whole(name: Path, data: bytes) -> Iterator[Capture]:
    try:
        value = encoding.decode(data, limit=MAX_WHOLE)
    except ContentError as error:
        raise ContentError(f"{name}:{_line_of(data, str(error))}: {error}") from error
    if isinstance(value, list):
        yield from _listed(name, "item", cast("list[Any]", value), items(Raw(data)))
        return
    holder = fields(value)
    if isinstance(fields(holder.get("log")).get("entries"), list):
        yield from _har(name, holder["log"]["entries"])
    elif isinstance(holder.get("interactions"), list):
        yield from _interactions(name, holder)
    elif isinstance(holder.get("requests"), list):
        texts = items(slices(data)["requests"])
        yield from _listed(name, "request", holder["requests"], texts)
    else:
        yield from _listed(name, "item", [value], [Raw(data)])


def _listed(
    name: Path, word: str, values: Sequence[Any], texts: Sequence[Raw]
) -> Iterator[Capture]:
    for number, (value, text) in enumerate(zip(values, texts, strict=True), 1):
        where = f"{name}: {word} {number}"
        try:
            yield _capture(where, value, bytes(text))
        except ContentError as error:
            raise ContentError(f"{where}: {error}") from error


def _line_of(data: bytes, error: str) -> int:
    """Return the line that an error is about: where it says so, else the last one."""
    found = _BYTE.search(error)
    end = int(found.group(1)) if found else len(data.rstrip())
    return data.count(b"\n", 0, end) + 1


def _capture(where: str, value: Any, text: bytes) -> Capture:
    """Return the capture that a JSON value is: a body, or an object around one.

    Args:
        where: File and line, or item.
        value: The value, decoded.
        text: The same as text: a body keeps its very bytes.
    """
    said = fields(value)
    if "body" not in said:
        wire_of("", {}, said)  # raises where it is none
        return Capture(where, text)
    given = said["body"]
    body = bytes(slices(text)["body"]) if isinstance(given, dict) else _body(given)
    if body is None:
        raise ContentError("its `body` is no JSON object; capture bodies as JSON or as text")
    url, headers = _text(said.get("url")), _headers(said.get("headers"))
    known = None if "addendum" not in said else read_known(said["addendum"])
    wire = known.wire if known is not None else wire_of(url, headers, fields(encoding.decode(body)))
    return Capture(
        where=where,
        body=body,
        url=url,
        headers=headers,
        usage=_usage(wire, said),
        time=_time(said.get("time")),
        answered=_time(said.get("answered")),
        status=_status(said.get("status")),
        session=_text(said.get("session")) or (None if known is None else known.session),
        known=known,
    )


def _usage(wire: str, said: Json) -> Usage:
    if isinstance(said.get("usage"), dict):
        return usage_of(wire, said["usage"])
    response = said.get("response")
    if isinstance(response, str):
        return usage_in(wire, response)
    return usage_of(wire, fields(response).get("usage"))


def _body(value: Any) -> bytes | None:
    """Return a body's bytes: an object is written compactly in its own key order."""
    if isinstance(value, dict):
        return encoding.encode(value)
    if isinstance(value, str):
        value = encoding.clean(value).encode()
    if not isinstance(value, bytes) or value.lstrip()[:1] != b"{":
        return None
    return value if isinstance(encoding.decode(value), dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _status(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> float | None:
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value).timestamp()
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if numeric else None
    except (ValueError, OverflowError, OSError):
        return None


def _headers(value: Any) -> dict[str, str]:
    """Return headers that tell something and keep no secret; lists hold one value each."""
    found: dict[str, str] = {}
    pairs: list[tuple[Any, Any]] = list(fields(value).items())
    pairs += [(each.get("name"), each.get("value")) for each in objects(value)]
    for name, given in pairs:
        listed = cast("list[Any]", given) if isinstance(given, list) else [given]
        one = listed[0] if listed else None
        key = str(name).lower()
        if isinstance(one, str) and _KEPT.fullmatch(key) and not _SECRET.search(key):
            found[key] = one
    return found


# -- HAR and cassettes --------------------------------------------------------------------------


def _har(name: Path, entries: Sequence[Any]) -> Iterator[Capture]:
    for number, entry in enumerate(entries, 1):
        said = fields(entry)
        request, response = fields(said.get("request")), fields(said.get("response"))
        content, post = fields(response.get("content")), fields(request.get("postData"))
        posted = _unpacked(post.get("text"), _text(post.get("encoding")))
        answer = _unpacked(content.get("text"), _text(content.get("encoding")))
        yield from _exchange(
            f"{name}: entry {number}",
            _text(request.get("url")),
            request.get("headers"),
            posted,
            answer,
            said.get("startedDateTime"),
            _status(response.get("status")),
            fields(said.get("_addendum")),
        )


def _interactions(name: Path, cassette: Mapping[str, Any]) -> Iterator[Capture]:
    listed = cassette.get("interactions") or cassette.get("http_interactions")
    for number, each in enumerate(objects(listed), 1):
        request, response = fields(each.get("request")), fields(each.get("response"))
        status = response.get("status")
        yield from _exchange(
            f"{name}: interaction {number}",
            _text(request.get("uri")) or _text(request.get("url")),
            request.get("headers"),
            _kept(request),
            _kept(response),
            each.get("recorded_at"),
            _status(fields(status).get("code") if isinstance(status, dict) else status),
            {},
            _headers(response.get("headers")).get("content-encoding", ""),
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
        body = _body(posted)
    except ContentError as error:
        if "/messages" in url or "/completions" in url:
            raise ContentError(f"{where}: {error}") from error
        return
    if body is None or not asks_model(url, encoding.decode(body)):
        return
    kept = _headers(headers)
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
        time=_time(time),
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


def _yaml(name: Path, data: bytes) -> Json:
    import yaml

    if len(data) > MAX_YAML:
        raise ContentError(
            f"{name}: {len(data):,} bytes of YAML are over the limit of {MAX_YAML:,}; "
            "record as JSON"
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return fields(yaml.load(data, Loader=loader))
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else min(mark.line + 1, len(data.splitlines()))
        what = getattr(error, "problem", None) or type(error).__name__
        raise ContentError(f"{name}:{line}: not valid YAML: {what}") from error
