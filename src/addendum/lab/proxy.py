"""A proxy on 127.0.0.1 that writes down what a program sends to models.

    async with open_proxy("calls.jsonl", os.environ) as proxy:
        ...  # run a program with proxy.variables in its environment

The program is told of it by the variables that vendors' SDKs read their base URL from; what those
variables say otherwise is where requests go on to. Bytes pass through both ways as they are.
Nothing listens beyond this machine, and only who knows the address's first part is served.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import getproxies

import anyio
import httpx2
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from addendum import net
from addendum.cache.recording import RecordingTransport
from addendum.errors import ConfigurationError
from addendum.lab.server import HOST, serve
from addendum.masking import masked
from addendum.routes.data import providers

MAX_REQUEST = 256 * 1024 * 1024
"""Bytes of a request that pass through."""

_ALIASES = {"OPENAI_BASE_URL": ("OPENAI_API_BASE",), "ANTHROPIC_BASE_URL": ("ANTHROPIC_API_URL",)}
"""Older names that some frameworks still read."""

_HOPS = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding"
    " upgrade".split()
)
_MADE_ANEW = _HOPS | {"host", "content-length"}
_WAIT = httpx2.Timeout(None, connect=30.0)


class Proxy(Struct, frozen=True):
    """A proxy that listens.

    Attributes:
        variables: What a program's environment needs, so that its requests come here.
        targets: Where they go on to, by the variable.
    """

    variables: Mapping[str, str]
    targets: Mapping[str, str]


def targets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the address behind each variable that an SDK reads its base URL from.

    Signed requests are left out: their signature holds for the host that they were made for.
    """
    found: dict[str, str] = {}
    for provider in providers().values():
        endpoint = provider.endpoint
        for name in () if endpoint.auth == "aws" else endpoint.base_url_variables:
            address = environ.get(name) or endpoint.base_url
            if name not in found and address and "{" not in address:
                found[name] = address.rstrip("/")
    return found


@asynccontextmanager
async def open_proxy(path: str | Path, environ: Mapping[str, str]) -> AsyncGenerator[Proxy]:
    """Serve a proxy in this event loop (asyncio) for as long as the context lasts.

    Args:
        path: File of JSON lines; lines are added at its end.
        environ: The environment that the program would have.
    """
    behind = targets(environ)
    key = secrets.token_urlsafe(9)
    carrier = net.Ways(getproxies(), limits=httpx2.Limits(max_connections=None))
    async with httpx2.AsyncClient(
        transport=RecordingTransport(carrier, path), timeout=_WAIT, follow_redirects=False
    ) as client:

        async def carry(request: Request) -> ASGIApp:
            return await _carried(client, behind.get(request.path_params["name"]), request)

        methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
        routes = [Route(f"/{key}/{{name}}{{rest:path}}", carry, methods=methods)]
        async with serve(Starlette(routes=routes)) as url:
            variables = {name: f"{url}/{key}/{name}" for name in behind}
            for name, others in _ALIASES.items():
                variables |= {other: variables[name] for other in others}
            for name in ("NO_PROXY", "no_proxy"):
                variables[name] = ",".join(filter(None, [environ.get(name), HOST]))
            yield Proxy(variables, behind)


async def _carried(client: httpx2.AsyncClient, target: str | None, request: Request) -> ASGIApp:
    if target is None:
        return _error(404, "the proxy of `addendum record` has no such address")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_REQUEST:
            return _error(413, f"the request is longer than {MAX_REQUEST:,} bytes")
    query = f"?{request.url.query}" if request.url.query else ""
    headers = [(k, v) for k, v in request.headers.items() if k not in _MADE_ANEW]
    url = f"{target}{request.path_params['rest']}{query}"
    outgoing = client.build_request(request.method, url, headers=headers, content=bytes(body))
    try:
        answer = await client.send(outgoing, stream=True)
    except (httpx2.TransportError, ConfigurationError) as error:
        reason = str(error) or type(error).__name__
        return _error(502, masked(f"`addendum record` cannot reach {outgoing.url.host}: {reason}"))
    return _Passing(answer)


class _Passing:
    """An answer that passes through as it comes; an ASGI application."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer on; whoever asked may leave, then it is asked for no longer."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, receive, tasks.cancel_scope)
            try:
                await self._pass(send)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._answer.aclose()
            tasks.cancel_scope.cancel()

    async def _pass(self, send: Send) -> None:
        headers = [
            (name.lower(), value)
            for name, value in self._answer.headers.raw
            if name.decode("latin-1").lower() not in _HOPS
        ]
        status = self._answer.status_code
        await send({"type": "http.response.start", "status": status, "headers": headers})
        try:
            async for chunk in self._answer.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx2.TransportError:
            return  # A body that does not end makes the server drop the connection, as it was.
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": {"type": "proxy_error", "message": text}}, status)
