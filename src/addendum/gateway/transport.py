"""The gateway inside a client that is there already: a transport of httpx2 or httpx.

    client = anthropic.Anthropic(http_client=addendum.http_client())

Whoever has a client of their own wraps its transport:
`httpx.Client(transport=AddendumTransport(httpx.HTTPTransport()))`.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Self
from urllib.request import getproxies

import httpx2

from addendum import net
from addendum.allowed import shown
from addendum.checked import checks_arguments
from addendum.errors import ConfigurationError
from addendum.gateway.drive import Gateway, GatewayExchange, Marks
from addendum.gateway.planner import Prepare, ToolChanges
from addendum.stores.nodes import NodeStore

_CARRIES = ("handle_request", "handle_async_request")
_TIMEOUT = httpx2.Timeout(600.0, connect=5.0)
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
"""As the vendors' SDKs have them."""

_CLASSES: dict[tuple[str, str], type] = {}


class _Common:
    def __init__(self, inner: Any, core: Gateway) -> None:
        if not any(callable(getattr(inner, name, None)) for name in _CARRIES):
            raise ConfigurationError(
                f"AddendumTransport(inner={shown(inner)}): must be a transport of httpx2 or httpx"
            )
        self._inner = inner
        self._core = core

    def _begin(self, request: Any, body: bytes) -> GatewayExchange | None:
        if request.method != "POST":
            return None
        headers = {name.lower(): value for name, value in request.headers.items()}
        exchange = self._core.begin(str(request.url), headers, body)
        return None if exchange is None or exchange.plain else exchange


class AddendumTransport(_Common, httpx2.BaseTransport):
    """Carries requests of a sync client, and goes on with the conversations that they are part of.

    Args:
        inner: The transport that carries them on, of httpx2 or httpx.
        store: As for `http_client`.
        tool_changes: As for `http_client`.
        marks: As for `http_client`.
        prepare: As for `http_client`.
        trusted: As for `http_client`.
    """

    @checks_arguments
    def __init__(
        self,
        inner: Any,
        store: str | NodeStore | None = None,
        *,
        tool_changes: ToolChanges = "auto",
        marks: Marks = "ours",
        prepare: Prepare = "always",
        trusted: bool = False,
    ) -> None:
        core = Gateway(
            store, tool_changes=tool_changes, marks=marks, prepare=prepare, trusted=trusted
        )
        super().__init__(inner, core)

    def handle_request(self, request: Any) -> Any:
        """Carry a request."""
        exchange = self._begin(request, request.read())
        if exchange is None:
            return self._inner.handle_request(request)
        response = self._send(request, exchange, exchange.body)
        while not exchange.streams:
            stream = response.stream
            try:
                whole = b"".join(stream)
            finally:
                stream.close()
            unpack = _Unpacking(response)
            body = exchange.feed(unpack.feed(whole) + unpack.close()) + exchange.end()
            if exchange.again is None:
                return _made(response, body)
            response = self._send(request, exchange, exchange.again)
        made = _stream_class(response, "SyncByteStream", _SYNC)
        response.stream = made(self._send, request, exchange, response)
        _bare(response)
        return response

    def _send(self, request: Any, exchange: GatewayExchange, body: bytes) -> Any:
        response = self._inner.handle_request(_changed(request, exchange, body))
        exchange.start(response.status_code, response.headers.get("content-type", ""))
        return response

    def close(self) -> None:
        """Close the other transport, and the store."""
        self._inner.close()
        self._core.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)
        self._core.close()


class AsyncAddendumTransport(_Common, httpx2.AsyncBaseTransport):
    """As `AddendumTransport`, for async clients."""

    @checks_arguments
    def __init__(
        self,
        inner: Any,
        store: str | NodeStore | None = None,
        *,
        tool_changes: ToolChanges = "auto",
        marks: Marks = "ours",
        prepare: Prepare = "always",
        trusted: bool = False,
    ) -> None:
        core = Gateway(
            store, tool_changes=tool_changes, marks=marks, prepare=prepare, trusted=trusted
        )
        super().__init__(inner, core)

    async def handle_async_request(self, request: Any) -> Any:
        """Carry a request."""
        exchange = self._begin(request, await request.aread())
        if exchange is None:
            return await self._inner.handle_async_request(request)
        response = await self._send(request, exchange, exchange.body)
        while not exchange.streams:
            stream = response.stream
            try:
                whole = b"".join([each async for each in stream])
            finally:
                await stream.aclose()
            unpack = _Unpacking(response)
            body = exchange.feed(unpack.feed(whole) + unpack.close()) + exchange.end()
            if exchange.again is None:
                return _made(response, body)
            response = await self._send(request, exchange, exchange.again)
        made = _stream_class(response, "AsyncByteStream", _ASYNC)
        response.stream = made(self._send, request, exchange, response)
        _bare(response)
        return response

    async def _send(self, request: Any, exchange: GatewayExchange, body: bytes) -> Any:
        response = await self._inner.handle_async_request(_changed(request, exchange, body))
        exchange.start(response.status_code, response.headers.get("content-type", ""))
        return response

    async def aclose(self) -> None:
        """Close the other transport, and the store."""
        await self._inner.aclose()
        self._core.close()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)
        self._core.close()


@checks_arguments
def http_client(
    inner: Any = None,
    store: str | NodeStore | None = None,
    *,
    tool_changes: ToolChanges = "auto",
    marks: Marks = "ours",
    prepare: Prepare = "always",
    trusted: bool = False,
) -> httpx2.Client:
    """Return an HTTP client for a vendor's SDK: its conversations keep their cache.

    Args:
        inner: The transport that carries requests on, of httpx2; by default one with the proxies
            of the environment.
        store: Where what is known of conversations is kept, so that a restart or another process
            goes on with them: `sqlite:///path.db`. Without one, this process alone knows.
        tool_changes: How changes of the tool list are told: natively where the route is known to
            take it and else through a dispatcher (`auto`), only `native`, only by `dispatch`, or
            `off`: every request leaves as it came.
        marks: Whose cache marks are sent: `ours` in place of the client's, the `client`'s, or `off`
            for none.
        prepare: Whether a conversation is ready for changes from its first request on (`always`),
            or from its first change on, which then is one declared break (`on-change`).
        trusted: Whether an address that is not a provider's own takes what the provider takes.

    Raises:
        ConfigurationError: `inner` is no transport, or no store has such an address.
        StoreError: The store cannot be opened.
    """
    carrier = net.SyncWays(getproxies(), limits=_LIMITS) if inner is None else inner
    transport = AddendumTransport(
        carrier, store, tool_changes=tool_changes, marks=marks, prepare=prepare, trusted=trusted
    )
    return httpx2.Client(transport=transport, timeout=_TIMEOUT, follow_redirects=True)


@checks_arguments
def async_http_client(
    inner: Any = None,
    store: str | NodeStore | None = None,
    *,
    tool_changes: ToolChanges = "auto",
    marks: Marks = "ours",
    prepare: Prepare = "always",
    trusted: bool = False,
) -> httpx2.AsyncClient:
    """As `http_client`, for async clients."""
    carrier = net.Ways(getproxies(), limits=_LIMITS) if inner is None else inner
    transport = AsyncAddendumTransport(
        carrier, store, tool_changes=tool_changes, marks=marks, prepare=prepare, trusted=trusted
    )
    return httpx2.AsyncClient(transport=transport, timeout=_TIMEOUT, follow_redirects=True)


# -- requests and responses of either library -----------------------------------------------------


def _changed(request: Any, exchange: GatewayExchange, body: bytes) -> Any:
    """Return a client's request with another body."""
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() not in {"content-length", "accept-encoding", *exchange.headers}
    ]
    headers += [*exchange.headers.items(), ("accept-encoding", "identity")]
    return type(request)(
        request.method, request.url, headers=headers, content=body, extensions=request.extensions
    )


class _Unpacking:
    """Unpacks the body of a response, where it is packed all the same."""

    def __init__(self, response: Any) -> None:
        bits = _PACKED.get(response.headers.get("content-encoding", "").strip().lower())
        self._inner = None if bits is None else zlib.decompressobj(bits)

    def feed(self, chunk: bytes) -> bytes:
        return chunk if self._inner is None else self._inner.decompress(chunk)

    def close(self) -> bytes:
        return b"" if self._inner is None else self._inner.flush()


_PACKED: Mapping[str, int] = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


def _bare(response: Any) -> None:
    """Take away what a response says of a body that is another one now."""
    if response.headers.get("content-encoding", "").strip().lower() in _PACKED:
        del response.headers["content-encoding"]
    for name in ("content-length", "transfer-encoding"):
        if name in response.headers:
            del response.headers[name]


def _made(response: Any, body: bytes) -> Any:
    """Return a response with another body."""
    _bare(response)
    headers = list(response.headers.multi_items())
    return type(response)(
        response.status_code, headers=headers, content=body, extensions=response.extensions
    )


def _stream_class(response: Any, base: str, methods: Mapping[str, Any]) -> type:
    """Return a stream class for the library that made a response.

    A client takes only streams of its own library, and the library is known only when a response
    is there.
    """
    library = type(response).__module__.partition(".")[0]
    known = _CLASSES.get((library, base))
    if known is None:
        parent = getattr(importlib.import_module(library), base)
        known = _CLASSES[library, base] = type(f"Driven{base}", (parent,), dict(methods))
    return known


def _init(self: Any, send: Any, request: Any, exchange: GatewayExchange, response: Any) -> None:
    self.send, self.request, self.exchange = send, request, exchange
    self.inner, self.unpack = response.stream, _Unpacking(response)


def _iterate(self: Any) -> Iterator[bytes]:
    while True:
        for chunk in self.inner:
            if out := self.exchange.feed(self.unpack.feed(chunk)):
                yield out
        rest = self.exchange.feed(self.unpack.close()) + self.exchange.end()
        if rest:
            yield rest
        if self.exchange.again is None:
            return
        self.inner.close()
        response = self.send(self.request, self.exchange, self.exchange.again)
        self.inner, self.unpack = response.stream, _Unpacking(response)


def _close(self: Any) -> None:
    self.inner.close()


async def _aiterate(self: Any) -> AsyncIterator[bytes]:
    while True:
        async for chunk in self.inner:
            if out := self.exchange.feed(self.unpack.feed(chunk)):
                yield out
        rest = self.exchange.feed(self.unpack.close()) + self.exchange.end()
        if rest:
            yield rest
        if self.exchange.again is None:
            return
        await self.inner.aclose()
        response = await self.send(self.request, self.exchange, self.exchange.again)
        self.inner, self.unpack = response.stream, _Unpacking(response)


async def _aclose(self: Any) -> None:
    await self.inner.aclose()


_SYNC: dict[str, Any] = {"__init__": _init, "__iter__": _iterate, "close": _close}
_ASYNC: dict[str, Any] = {"__init__": _init, "__aiter__": _aiterate, "aclose": _aclose}
