"""How bytes are cut into messages: lines of a process, events of a stream, compressed bodies.

What is cut out is read by `messages`, whose limits hold here, too: nothing grows beyond a
message, and what is no message is counted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from mcp_types import JSONRPCError

from addendum.errors import ContentError
from addendum.lines import one_line
from addendum.tools.mcp.messages import LINE, MAX_MESSAGE, Allowance, unreadable

MAX_SKIPPED = 4 * MAX_MESSAGE
"""Bytes of a line that is too long which are passed over in search of its end."""

_CHUNK = 64 * 1024


class Lines:
    """Cuts what a process writes into lines; one that is too long is passed over.

    Attributes:
        noise: Taken from for empty lines, and by whoever finds that a line is no message.
    """

    def __init__(self, noise: Allowance) -> None:
        self.noise = noise
        self._pending = bytearray()
        self._head = b""
        self._skipped = 0

    def feed(self, chunk: bytes) -> Iterator[bytearray | JSONRPCError]:
        """Yield the lines that `chunk` completes, an error in place of an answer too long.

        Raises:
            ContentError: A line has no end, or there are too many that are empty.
        """
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._grow(part)
            if self._skipped:
                error = unreadable(
                    self._head, self._pending, f"a message of more than {MAX_MESSAGE:,} bytes"
                )
                self._head, self._skipped = b"", 0
                if error is not None:
                    yield error
            elif self._pending:
                yield self._take()
            else:
                self.noise.take(LINE)
            self._pending = bytearray()
        self._grow(rest)

    def _take(self) -> bytearray:
        # Not held here any longer: who reads it may let go of it.
        line, self._pending = self._pending, bytearray()
        return line

    def _grow(self, part: bytes) -> None:
        self._pending += part
        if len(self._pending) <= MAX_MESSAGE and not self._skipped:
            return
        self._head = self._head or bytes(self._pending[:200])
        self._skipped += len(self._pending)
        # The end of an envelope may name its id.
        self._pending = self._pending[-200:]
        if self._skipped > MAX_SKIPPED:
            raise ContentError(f"the server sent a message of more than {MAX_MESSAGE:,} bytes")


class Event:
    """What one server-sent event brought.

    Attributes:
        data: Its data, joined by line breaks.
        ident: The stream's id after it, or None.
        retry: Seconds to wait before the stream is asked for again, or None.
    """

    def __init__(self, data: bytearray, ident: str | None, retry: float | None) -> None:
        self.data = data
        self.ident = ident
        self.retry = retry


class Events:
    """Turns chunks of a stream, split anywhere, into its events.

    As the HTML standard has it, but `data` stays bytes. Not the parser of the wire, which is a
    layer above, holds a whole event line by line, and takes any number of comments.

    Attributes:
        noise: Taken from for everything but data.
    """

    MAX_RETRY = 30.0

    def __init__(self, noise: Allowance) -> None:
        self.noise = noise
        self._line = bytearray()
        self._data: bytearray | None = None
        self._ident: str | None = None
        self._retry: float | None = None
        self._after_cr = False
        self._began = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that `chunk` completes.

        Raises:
            ContentError: An event is over `MAX_MESSAGE`, or there is too much that is none.
        """
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        *complete, rest = _LINE_END.split(chunk)
        for part in complete:
            self._grow(part)
            event = self._ended()
            if event is not None:
                yield event
        self._grow(rest)

    def last(self) -> Iterator[Event]:
        """Yield the event that the stream's end completes: some leave out its empty line."""
        if self._line:
            self._ended()
        event = self._ended()
        if event is not None:
            yield event

    def _grow(self, part: bytes) -> None:
        self._line += part
        if len(self._line) + len(self._data or b"") > MAX_MESSAGE:
            raise ContentError(f"the server sent a message of more than {MAX_MESSAGE:,} bytes")

    def _ended(self) -> Event | None:
        line, self._line = self._line, bytearray()
        if not self._began:
            self._began = True
            if line.startswith(b"\xef\xbb\xbf"):
                del line[:3]
        if not line:
            self.noise.take(LINE)
            data, self._data = self._data, None
            return None if data is None else Event(data, self._ident, self._retry)
        if line.startswith(b"data:") or bytes(line) == b"data":
            del line[: 6 if line.startswith(b"data: ") else 5]
            if self._data is None:
                self._data = line
            else:
                self._data += b"\n"
                self._data += line
            return None
        self.noise.take(LINE + len(line))
        name, _, value = bytes(line).partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id" and len(value) <= 4096 and b"\0" not in value:
            self._ident = value.decode(errors="replace") or None
        elif name == b"retry" and value.isdigit():
            self._retry = min(self.MAX_RETRY, int(value[:9]) / 1000)
        return None


_LINE_END = re.compile(rb"\r\n|\r|\n")


def decompressor(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    """Return what takes a body's chunks and yields small pieces of what they say.

    Args:
        encoding: The `content-encoding` header, empty if there is none.

    Raises:
        ContentError: It cannot be read here. Nothing compressed was asked for.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _plain
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ContentError(
            f"the server compressed its answer ({one_line(name, 40)}), which was not asked for"
        )
    return _Inflater(bare=name == "deflate").feed


def _plain(chunk: bytes) -> Iterator[bytes]:
    yield chunk


class _Inflater:
    """zlib in pieces: a chunk that says a thousand times its size is never held as a whole."""

    def __init__(self, *, bare: bool) -> None:
        self._bare = bare
        self._head = b""
        self._zlib: Any = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what a chunk says.

        Raises:
            ContentError: It is not what it is said to be.
        """
        piece = b""
        # A piece that is full may have left some inside.
        while chunk or len(piece) == _CHUNK:
            if self._zlib is None:
                self._head += chunk
                if len(self._head) < 2:
                    return
                chunk, self._head = self._head, b""
                self._zlib = zlib.decompressobj(self._form(chunk))
            try:
                piece = self._zlib.decompress(chunk, _CHUNK)
            except zlib.error as error:
                raise ContentError(f"the server's compressed answer is broken: {error}") from None
            if piece:
                yield piece
            chunk = self._zlib.unconsumed_tail
            if self._zlib.eof:
                piece, chunk, self._zlib = b"", self._zlib.unused_data, None

    def _form(self, head: bytes) -> int:
        # Some send `deflate` without the header that the standard asks for.
        headed = head[:2] == b"\x1f\x8b" or (
            head[0] & 15 == 8 and not (head[0] << 8 | head[1]) % 31
        )
        return -zlib.MAX_WBITS if self._bare and not headed else 32 + zlib.MAX_WBITS
