"""Bytes from a server as messages: the one place where they become some, whatever way they came.

A line of a process, a body over HTTP and an event of a stream are read here by the same rules,
behind decompression. No server can make the host hold more than these:

============  =====================================================================
message       20 MiB of JSON text (a result may carry 14 MB of files, in base64)
weight        what it would take in memory, estimated before it is read: 24 MiB
levels        what lies deeper than `DEEPEST` is read as null
numbers       NaN, Infinity and what no number of ours holds are read as infinite
noise         bytes that are no message: 1 MiB, and 64 KiB more each second
unasked       notifications and requests: 5,000, and 500 more each second
============  =====================================================================

An answer over a limit costs that answer: its caller is told. What is too deep or not finite costs
the part that holds it: whoever reads that part refuses it by the rules of `encoding`.

Imports the MCP SDK's types: import it only behind `link`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

import anyio
import msgspec
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from addendum.encoding import MAX_DEPTH, mend_surrogates, too_deep
from addendum.errors import ContentError
from addendum.lines import one_line
from addendum.tools.mcp.raw import BARE

MAX_MESSAGE = 20 * 1024 * 1024
"""Bytes of JSON text, decompressed, that one message may have."""

MAX_WEIGHT = 24 * 1024 * 1024
"""Bytes that one message may take once it is read, by the estimate of `weigh`."""

DEEPEST = MAX_DEPTH + 50
"""Levels that are read at all: more than any part may have, so that its reader sees the excess."""

NOISE = (1024 * 1024, 64 * 1024)
"""Bytes that are no message: so many at once, and so many more each second."""

LINE = 50
"""Bytes that each line of noise counts for beside its own: it takes time, however short it is."""

UNASKED = (5_000, 500)
"""Messages that nobody asked for: so many at once, and so many more each second."""


class Refused(msgspec.Struct, frozen=True):
    """Why a request has no answer of the server's, as `data` of the error in its place.

    Attributes:
        status: The HTTP status; None if there was none: the way to the server broke.
        sent: Whether all of the request may have reached the server.
        code: The protocol's error code in the body, if there was one.
    """

    status: int | None
    sent: bool = True
    code: int | None = None


class Unusable(msgspec.Struct, frozen=True):
    """Marks, as `data` of an error, that the answer came and could not be read."""


class Allowance:
    """So much at once, and so much more each second.

    Args:
        most: What may be taken at once.
        rate: What comes back each second.
        what: Names it in the error.
    """

    def __init__(self, most: int, rate: int, what: str) -> None:
        self._most = most
        self._rate = rate
        self._what = what
        self._left = float(most)
        self._since = anyio.current_time()

    def take(self, amount: int) -> None:
        """Take `amount`.

        Raises:
            ContentError: That is more than is left.
        """
        now = anyio.current_time()
        grown = self._left + (now - self._since) * self._rate
        self._left, self._since = min(float(self._most), grown) - amount, now
        if self._left < 0:
            raise ContentError(
                f"the server sent more than {self._most:,} {self._what} at once; it is too much"
            )


def noise() -> Allowance:
    """Return the allowance of one stream for bytes that are no message."""
    return Allowance(*NOISE, "bytes that are no message")


def unasked() -> Allowance:
    """Return the allowance of one connection for messages that nobody asked for."""
    return Allowance(*UNASKED, "messages that nobody asked for")


def read_messages(raw: bytearray) -> list[JSONRPCMessage]:
    """Return the messages in a JSON text: one, or those of a batch.

    Entries of a batch that are no messages are left out. Words in front of a message on the same
    line (a progress bar, a prompt) are passed over.

    Args:
        raw: The text, of at most `MAX_MESSAGE` bytes.

    Raises:
        ContentError: It is over a limit, no JSON, or holds no message.
    """
    if len(raw) > MAX_MESSAGE:
        raise ContentError(f"a message of more than {MAX_MESSAGE:,} bytes")
    try:
        decoded = _decode(raw)
    except ContentError:
        start = raw.find(b'{"jsonrpc"', 1)
        if start < 0:
            raise
        decoded = _decode(raw[start:])
    entries = cast("list[Any]", decoded) if isinstance(decoded, list) else [decoded]
    messages = [made for entry in entries if (made := _message(entry)) is not None]
    if not messages:
        raise ContentError("no message of the protocol")
    return messages


def _decode(raw: bytearray) -> Any:
    pruned = _pruned(raw)
    mended = mend_surrogates(pruned)
    try:
        return msgspec.json.decode(mended)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        # Python's own reader takes NaN and Infinity, which many servers write, and numbers of
        # any size: what holds one is dropped later, and not all that came with it.
        return json.loads(mended, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise ContentError(f"no JSON: {error}") from error


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else math.inf


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]|[0-9]++', re.DOTALL)
_WIDE = re.compile(rb"[\xf0-\xff]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")

# Bytes of memory, measured: an object with one entry; a slot and a number; a text's frame.
_CONTAINER, _ITEM, _TEXT = 200, 40, 60
_CUT = 40
"""What lies too deep takes no memory, but time to pass over."""
_DIGITS = 4_300
"""Digits of an integer that Python reads."""


def weigh(raw: bytearray) -> list[tuple[int, int, bytes]]:
    """Estimate what a JSON text takes in memory once it is read, without reading it.

    Args:
        raw: Text that may be no JSON at all.

    Returns:
        Where it must be mended before it is read, and with what: what lies deeper than `DEEPEST`,
        and integers that Python does not read.

    Raises:
        ContentError: It is more than `MAX_WEIGHT`; the rest was not looked at.
    """
    weight = depth = 0
    cut_from = 0
    cuts: list[tuple[int, int, bytes]] = []
    for token in _TOKEN.finditer(raw):
        start, end = token.span()
        first = raw[start]
        if first in b"[{":
            depth += 1
            weight += _CONTAINER if depth <= DEEPEST else _CUT
            if depth == DEEPEST + 1:
                cut_from = start
        elif first in b"]}":
            if depth == DEEPEST + 1:
                cuts.append((cut_from, end, b"null"))
            depth -= 1
        elif depth > DEEPEST:
            continue
        elif first == 0x22:
            weight += _TEXT + _text_weight(raw, start, end)
        elif first == 0x2C:
            weight += _ITEM
        elif end - start > _DIGITS:
            cuts.append((start, end, b"1e999"))
        if weight > MAX_WEIGHT:
            raise ContentError(
                f"a message that would take more than {MAX_WEIGHT:,} bytes of memory"
            )
    return cuts


def _text_weight(raw: bytearray, start: int, end: int) -> int:
    size = end - start
    if size <= 64:
        return size
    # One character beyond Latin makes all of a text wider.
    escaped = raw.find(b"\\u", start, end) >= 0
    if escaped or _NOT_ASCII.search(raw, start, end):
        return size * (4 if escaped or _WIDE.search(raw, start, end) else 2)
    return size


def _pruned(raw: bytearray) -> bytearray:
    """Return a text that is not too heavy, without what no reader could take in."""
    containers = raw.count(b"[") + raw.count(b"{")
    most = (
        containers * _CONTAINER + raw.count(b",") * _ITEM + raw.count(b'"') * _TEXT + 4 * len(raw)
    )
    if most <= MAX_WEIGHT and (containers <= DEEPEST or not too_deep(bytes(raw))):
        return raw
    cuts = weigh(raw)
    if not cuts:
        return raw
    kept = bytearray()
    last = 0
    for start, end, instead in cuts:
        kept += raw[last:start]
        kept += instead
        last = end
    kept += raw[last:]
    return kept


def _message(entry: object) -> JSONRPCMessage | None:
    """Return a decoded message; None for what is none. Odd parts of it cost nothing else."""
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    ident = given.get("id")
    if isinstance(ident, float) and ident.is_integer():
        ident = int(ident)
    known = isinstance(ident, int | str) and not isinstance(ident, bool)
    method = given.get("method")
    if isinstance(method, str):
        params = given.get("params")
        more: dict[str, Any] = {"params": params} if isinstance(params, dict) else {}
        if known:
            return JSONRPCRequest(jsonrpc="2.0", id=cast("Any", ident), method=method, **more)
        return JSONRPCNotification(jsonrpc="2.0", method=method, **more)
    if given.get("error") is not None:
        return JSONRPCError(
            jsonrpc="2.0", id=cast("Any", ident) if known else None, error=_error(given["error"])
        )
    if not known or not ("result" in given or "jsonrpc" in given):
        return None
    result = given.get("result")
    if result is None:
        result = {}
    elif not isinstance(result, dict):
        result = {BARE: result}
    return JSONRPCResponse(
        jsonrpc="2.0", id=cast("Any", ident), result=cast("dict[str, Any]", result)
    )


_NO_CODE = -32000
"""The first of the numbers that the protocol leaves to servers, for an error without one."""


def _error(given: Any) -> ErrorData:
    if not isinstance(given, dict):
        given = {"message": given}
    fields = cast("dict[str, Any]", given)
    code, words = fields.get("code"), fields.get("message")
    try:
        code = int(cast("Any", code))
    except (TypeError, ValueError, OverflowError):
        code = _NO_CODE
    if not isinstance(words, str):
        words = "" if words is None else str(words)
    return ErrorData(code=code, message=words or "no reason given", data=fields.get("data"))


# Where an envelope has its id: in front of what it holds or behind it, never inside.
_ID_AT_START = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d{1,15})"?\s*,'
)
_ID_AT_END = re.compile(
    rb',\s*"id"\s*:\s*"?(\d{1,15})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)


def unreadable(start: bytes | bytearray, end: bytearray, why: str) -> JSONRPCError | None:
    """Return an error in place of an answer that cannot be read (too large, nested, cut).

    Whoever asked would otherwise wait until the time is up.

    Args:
        start: The beginning of the text, or all of it.
        end: The end of it, or all of it.
        why: What is wrong with it.

    Returns:
        None if it is no answer, or does not say to what.
    """
    named = _ID_AT_START.match(start) or _ID_AT_END.search(end, max(0, len(end) - 100))
    if named is None or b'"method"' in start[:100]:
        return None
    return unusable(int(named[1]), why)


def unusable(ident: int | str, why: str) -> JSONRPCError:
    """Return the error that stands for an answer which came and cannot be used."""
    error = ErrorData(code=PARSE_ERROR, message=one_line(why), data=Unusable())
    return JSONRPCError(jsonrpc="2.0", id=ident, error=error)
