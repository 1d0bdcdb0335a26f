"""Captured requests out of files that somebody else wrote.

====================  ===========================================================================
file                  what is read
====================  ===========================================================================
JSON lines            a body a line; or `{url, headers, body, usage | response, time, status}`
JSON                  one body, a list of either, or `{"requests": [...]}` (an export of ours)
HAR                   the entries that ask a model for something; others are left out
vcr cassette          YAML or JSON with `interactions`; likewise
session log           what Claude Code or Codex leave on the disk: what answers counted, no bodies
====================  ===========================================================================

The form is told by what is in a file, not by its name. A file is data: sized, never executed, and
what cannot be read is one error that names file and line. JSON lines are read one at a time, so a
large file takes no more memory than its longest line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.cache.agent_logs import Counted, counted, is_session_log
from addendum.cache.capture import Capture, read_known, wire_of
from addendum.cache.capture_archives import (
    body_of,
    har,
    interactions,
    read_yaml,
    status_of,
    text_in,
    time_of,
)
from addendum.cache.reported import usage_in, usage_of
from addendum.cache.secrets import kept_headers
from addendum.errors import ContentError
from addendum.log.values import Usage
from addendum.paths import reason, shown
from addendum.wire.reading import items, slices
from addendum.wire.segment import Json, fields

MAX_FILE = 4 * 1024 * 1024 * 1024
"""Bytes that a file of JSON lines may have; each line obeys the limit of one JSON text."""

MAX_WHOLE = 256 * 1024 * 1024
"""Bytes that a file may have which has to be read as one JSON value."""

MAX_PARTS = 20_000_000
"""Openings and commas that it may have: many small values take far more memory than their text."""

_BYTE = re.compile(r"\(byte (\d+)\)")
_CASSETTE = re.compile(rb"^(?:interactions|http_interactions):", re.MULTILINE)
_MARK = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstandard", b"PK": "zip", b"BZ": "bzip2"}

Source: TypeAlias = Capture | Counted
"""A request with its body, or what a session log tells of one."""


class _Timed(Struct):
    time: Any = None


def iter_captures(path: str | Path) -> Iterator[Source]:
    """Read a file of captured requests, one at a time where it is JSON lines.

    Args:
        path: The file.

    Yields:
        Requests to models in the order in which they were sent, as far as the file tells.

    Raises:
        ContentError: It cannot be read; the message names file and line.
        ModuleNotFoundError: It is YAML, and PyYAML is not installed.
    """
    name = Path(path)
    empty = True
    if "\0" in str(name):
        raise ContentError(f"cannot read {shown(name)}: its name holds a NUL character")
    try:
        if not (name.is_file() or name.is_dir()) and name.exists():
            # A pipe may never be written to, and a device never end.
            raise ContentError(f"{name}: it is no regular file; write it to one first")
        with name.open("rb") as file:
            for capture in _captures(name, file):
                empty = False
                yield capture
    except OSError as error:
        raise ContentError(f"cannot read {shown(name)}: {reason(error)}") from error
    if empty:
        raise ContentError(f"{name}: no request to a model in it; capture requests with bodies")


def _captures(name: Path, file: BinaryIO) -> Iterator[Source]:
    size = name.stat().st_size
    if size > MAX_FILE:
        raise ContentError(f"{name}: {size:,} bytes are over the limit of {MAX_FILE:,}; cut it")
    _refuse_packed(name, file)
    first, more = _beginning(file)
    start = first[:1]
    if start not in (b"{", b"["):
        yield from _cassette(name, file)
        return
    value = _object(first)
    if value is not None and is_session_log(value):
        yield from counted(name, _numbered(name, file))
    elif value is not None and (more or not _is_container(value)):
        yield from _lines(name, file)
    elif start == b"{" and more == b"{":
        yield from _lines(name, file)  # the first line is damaged, and is named
    else:
        _rewind(file)
        if size > MAX_WHOLE:
            raise ContentError(
                f"{name}: {size:,} bytes in one JSON value are over the limit of {MAX_WHOLE:,}; "
                "write JSON lines"
            )
        yield from _in_order(list(_whole(name, file.read())))


def _refuse_packed(name: Path, file: BinaryIO) -> None:
    start = file.read(2)
    if start in _PACKED:
        raise ContentError(f"{name}:1: it is compressed ({_PACKED[start]}); unpack it first")
    if start in (b"\xff\xfe", b"\xfe\xff"):
        raise ContentError(f"{name}:1: it is UTF-16; save it as UTF-8")


def _rewind(file: BinaryIO) -> None:
    file.seek(0)
    if file.read(3) != _MARK:
        file.seek(0)


def _beginning(file: BinaryIO) -> tuple[bytes, bytes]:
    """Return the first line that is not blank, cut at the limit, and the next line's first byte."""
    _rewind(file)
    first, behind = b"", b""
    while not first and (line := file.readline(encoding.MAX_TEXT + 1)):
        first = line.strip()
    while not behind and (line := file.readline(encoding.MAX_TEXT + 1)):
        behind = line.lstrip()[:1]
    return first, behind


def _object(line: bytes) -> Json | None:
    try:
        value = encoding.decode(line)
    except ContentError:
        return None
    return cast(Json, value) if isinstance(value, dict) else None


def _is_container(value: Json) -> bool:
    return any(name in value for name in ("log", "requests", "interactions"))


def _in_order(captures: list[Capture]) -> list[Capture]:
    """Return captures by the time at which they were sent, where all have one."""
    times = [each.time for each in captures if each.time is not None]
    if len(times) < len(captures):
        return captures
    return [captures[at] for at in sorted(range(len(captures)), key=lambda at: times[at])]


# -- JSON lines ---------------------------------------------------------------------------------


def _lines(name: Path, file: BinaryIO) -> Iterator[Capture]:
    order = _order(file)
    lines = _numbered(name, file) if order is None else _picked(name, file, order)
    for number, line in lines:
        where = f"{name}:{number}"
        try:
            yield _capture(where, encoding.decode(line), line)
        except ContentError as error:
            raise ContentError(f"{where}: {error}") from error


def _numbered(name: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers."""
    _rewind(file)
    number = 0
    while line := file.readline(encoding.MAX_TEXT + 2):
        number += 1
        _refuse_long(f"{name}:{number}", line)
        if stripped := line.strip():
            yield number, stripped


def _picked(
    name: Path, file: BinaryIO, order: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    for number, offset in order:
        file.seek(offset)
        line = file.readline(encoding.MAX_TEXT + 2)
        _refuse_long(f"{name}:{number}", line)
        yield number, line.strip()


def _refuse_long(where: str, line: bytes) -> None:
    if len(line) > encoding.MAX_TEXT + 1:
        limit = encoding.MAX_TEXT
        raise ContentError(f"{where}: the line is longer than {limit:,} bytes; cut what it holds")


def _order(file: BinaryIO) -> list[tuple[int, int]] | None:
    """Return numbers and places of lines by the time they tell.

    A request is written when its answer has ended, so lines may be out of order. None if they are
    in order already, or if one of them tells no time.
    """
    _rewind(file)
    times, offsets, numbers = array("d"), array("q"), array("q")
    number, sorted_so_far = 0, True
    while True:
        offset = file.tell()
        line = file.readline(encoding.MAX_TEXT + 2)
        if not line:
            break
        number += 1
        if not line.strip():
            continue
        try:
            time = time_of(msgspec.json.decode(line, type=_Timed).time)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        if time is None:
            return None
        sorted_so_far = sorted_so_far and (not times or times[-1] <= time)
        times.append(time)
        offsets.append(offset)
        numbers.append(number)
    if sorted_so_far:
        return None
    places = sorted(range(len(times)), key=lambda at: times[at])
    return [(numbers[at], offsets[at]) for at in places]


# -- one JSON value -----------------------------------------------------------------------------


def _whole(name: Path, data: bytes) -> Iterator[Capture]:
    parts = sum(map(data.count, (b"{", b"[", b",")))
    if parts > MAX_PARTS:
        raise ContentError(
            f"{name}: {parts:,} parts of one JSON value are over the limit of {MAX_PARTS:,}; "
            "write JSON lines"
        )
    try:
        value = encoding.decode(data, limit=MAX_WHOLE)
    except ContentError as error:
        end = data.find(b"\n")
        if end > encoding.MAX_TEXT and data[end:].strip():
            _refuse_long(f"{name}:1", data)
        raise ContentError(f"{name}:{_line_of(data, str(error))}: {error}") from error
    if isinstance(value, list):
        yield from _listed(name, "item", cast("list[Any]", value), items(Raw(data)))
        return
    holder = fields(value)
    if isinstance(fields(holder.get("log")).get("entries"), list):
        yield from har(name, holder["log"]["entries"])
    elif isinstance(holder.get("interactions"), list):
        yield from interactions(name, holder)
    elif isinstance(holder.get("requests"), list):
        texts = items(slices(data)["requests"])
        yield from _listed(name, "request", holder["requests"], texts)
    else:
        yield from _listed(name, "item", [value], [Raw(data)])


def _cassette(name: Path, file: BinaryIO) -> Iterator[Capture]:
    _rewind(file)
    head = file.read(encoding.MAX_TEXT)
    if not _CASSETTE.search(head):
        raise ContentError(
            f"{name}:1: neither JSON lines nor HAR, a cassette or an export; name another file"
        )
    yield from _in_order(list(interactions(name, read_yaml(name, head + file.read()))))


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
        return Capture(where, text, plain=said)
    given = said["body"]
    body = bytes(slices(text)["body"]) if isinstance(given, dict) else body_of(given)
    if body is None:
        raise ContentError("its `body` is no JSON object; capture bodies as JSON or as text")
    plain = cast(Json, given) if isinstance(given, dict) else fields(encoding.decode(body))
    url, headers = text_in(said.get("url")), kept_headers(said.get("headers"))
    known = None if "addendum" not in said else read_known(said["addendum"])
    wire = known.wire if known is not None else wire_of(url, headers, plain)
    return Capture(
        where=where,
        body=body,
        url=url,
        headers=headers,
        usage=_usage(wire, said),
        time=time_of(said.get("time")),
        answered=time_of(said.get("answered")),
        status=status_of(said.get("status")),
        session=text_in(said.get("session")) or (None if known is None else known.session),
        known=known,
        plain=plain,
    )


def _usage(wire: str, said: Json) -> Usage:
    if isinstance(said.get("usage"), dict):
        return usage_of(wire, said["usage"])
    response = said.get("response")
    if isinstance(response, str):
        return usage_in(wire, response)
    return usage_of(wire, fields(response).get("usage"))
