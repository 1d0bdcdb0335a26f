"""A transport that writes down what a client sends to a model: one line a request.

    client = httpx2.Client(transport=RecordingTransport(httpx2.HTTPTransport(), "calls.jsonl"))
    anthropic.Anthropic(http_client=client)

It carries sync and async clients of httpx2, and of httpx. Bytes pass through as they are and when
they come; a line is written when the answer has ended. Credentials are never written: of headers
only those that say how a body is read, of an address neither user nor query, of a body nothing
that has the form of a key.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx2
from msgspec import Raw

from addendum import encoding
from addendum.allowed import shown
from addendum.cache.capture import asks_model, wire_of
from addendum.cache.reported import MAX_ANSWER, usage_in
from addendum.cache.secrets import bare_address, masked, redacted
from addendum.checked import Location, checks_arguments
from addendum.errors import AddendumError, ConfigurationError
from addendum.log.values import Usage
from addendum.wire.segment import fields

_PRIVATE = 0o600
"""Whoever captures talks with a model captures what was said in them."""

_CARRIES = ("handle_request", "handle_async_request")
_KEPT = ("content-type", "anthropic-version", "anthropic-beta", "openai-beta")


class RecordingTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Carries requests by another transport and writes down those that ask a model.

    Args:
        inner: A transport of httpx2 or httpx, sync or async.
        path: File of JSON lines; lines are added at its end.
        clock: Seconds since the epoch.
    """

    @checks_arguments
    def __init__(
        self, inner: Any, path: Location, *, clock: Callable[[], float] = time.time
    ) -> None:
        if not any(callable(getattr(inner, name, None)) for name in _CARRIES):
            raise ConfigurationError(
                f"RecordingTransport(inner={shown(inner)}): must be a transport of httpx2 or httpx"
            )
        self._inner = inner
        self._path = Path(path)
        if not self._path.absolute().parent.is_dir():
            raise ConfigurationError(f"there is no folder {self._path.parent}; make it first")
        self._clock = clock
        self._lock = threading.Lock()

    def handle_request(self, request: Any) -> Any:
        """Carry a request of a sync client."""
        line = _begun(request, request.read(), self._clock())
        if line is None:
            return self._inner.handle_request(request)
        try:
            response = self._inner.handle_request(request)
        except BaseException:
            self._write(line, None, b"", "")
            raise
        return self._followed(response, line, "SyncByteStream")

    async def handle_async_request(self, request: Any) -> Any:
        """Carry a request of an async client."""
        line = _begun(request, await request.aread(), self._clock())
        if line is None:
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException:
            self._write(line, None, b"", "")
            raise
        return self._followed(response, line, "AsyncByteStream")

    def close(self) -> None:
        """Close the other transport."""
        self._inner.close()

    async def aclose(self) -> None:
        """Close the other transport."""
        await self._inner.aclose()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    def _followed(self, response: Any, line: dict[str, Any], base: str) -> Any:
        status, coding = response.status_code, response.headers.get("content-encoding", "")

        def ended(answer: bytes) -> None:
            self._write(line, status, answer, coding)

        response.stream = _stream_class(response, base)(response.stream, ended)
        return response

    def _write(self, line: dict[str, Any], status: int | None, answer: bytes, coding: str) -> None:
        wire, body = line.pop("wire"), line["body"]
        usage = usage_in(wire, answer, coding) if answer else Usage()
        said = {
            "status": 0 if status is None else status,
            "usage": {
                "prompt": usage.prompt,
                "cache_read": usage.cache_read,
                "cache_write": usage.cache_write,
                "output": usage.output,
            },
            "answered": self._clock(),
        }
        # Masked here, when the client has its answer: it waits for nothing.
        sent = {**line, "body": Raw(_one_line(redacted(body))), **said}
        data = encoding.encode(sent) + b"\n"
        # One write a line, so that several clients may share a file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._lock, os.fdopen(os.open(self._path, flags, _PRIVATE), "ab", 0) as file:
            file.write(data)


def _begun(request: Any, body: bytes, now: float) -> dict[str, Any] | None:
    """Return what is known of a request when it leaves; None if it asks no model."""
    url = str(request.url)
    if request.method != "POST":
        return None
    try:
        value = encoding.decode(body)
        if not asks_model(url, value):
            return None
        headers = {name: masked(request.headers[name]) for name in _KEPT if name in request.headers}
        wire = wire_of(url, headers, fields(value))
    except AddendumError:
        return None
    return {
        "wire": wire,
        "url": bare_address(url),
        "headers": headers,
        "body": body,
        "time": now,
    }


def _one_line(body: bytes) -> bytes:
    """Return JSON text without line ends between its tokens; within strings JSON has none."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ")


class _Heard:
    """Collects an answer as it passes by, and tells of it once."""

    def __init__(self, ended: Callable[[bytes], None]) -> None:
        self._ended = ended
        self._parts: list[bytes] = []
        self._size = 0
        self._done = False

    def hear(self, chunk: bytes) -> None:
        if self._size < MAX_ANSWER:
            self._parts.append(chunk)
            self._size += len(chunk)

    def end(self) -> None:
        if not self._done:
            self._done = True
            self._ended(b"".join(self._parts))


_CLASSES: dict[tuple[str, str], type] = {}


def _stream_class(response: Any, base: str) -> type:
    """Return a stream class for the library that made a response.

    A client takes only streams of its own library, so this is one place that has to inherit; and
    the library is known only when a response is there.
    """
    library = type(response).__module__.partition(".")[0]
    found = _CLASSES.get((library, base))
    if found is None:
        parent = getattr(importlib.import_module(library), base)
        methods = _SYNC if base == "SyncByteStream" else _ASYNC
        found = _CLASSES[library, base] = type(f"Recorded{base}", (parent,), dict(methods))
    return found


def _init(self: Any, inner: Any, ended: Callable[[bytes], None]) -> None:
    self.inner, self.heard = inner, _Heard(ended)


def _iterate(self: Any) -> Iterator[bytes]:
    for chunk in self.inner:
        self.heard.hear(chunk)
        yield chunk
    self.heard.end()


def _close(self: Any) -> None:
    try:
        self.inner.close()
    finally:
        self.heard.end()


async def _aiterate(self: Any) -> AsyncIterator[bytes]:
    async for chunk in self.inner:
        self.heard.hear(chunk)
        yield chunk
    self.heard.end()


async def _aclose(self: Any) -> None:
    try:
        await self.inner.aclose()
    finally:
        self.heard.end()


_SYNC: dict[str, Any] = {"__init__": _init, "__iter__": _iterate, "close": _close}
_ASYNC: dict[str, Any] = {"__init__": _init, "__aiter__": _aiterate, "aclose": _aclose}
