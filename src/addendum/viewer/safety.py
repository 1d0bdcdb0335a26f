"""What stands in front of every page: whose request it is, how large it is, what a page may do.

A browser that was sent here by a foreign page comes with that page's `Origin`, or with a `Host`
that is not ours (DNS rebinding); both are refused. A change needs the token that only our own
pages hold. A page may load nothing but our own files: no inline script or style, no other host.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

import click
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from addendum.cli.main import fault
from addendum.encoding import digest
from addendum.errors import AddendumError

MAX_BODY = 2 * 1024 * 1024
"""Bytes that the body of a request to us may have."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""What a page of ours may do."""

TOKEN_HEADER = "x-addendum-token"
COOKIE = "addendum_access"

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Say whether an address to listen on is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """An ASGI application in front of ours.

    Args:
        app: Ours.
        host: The address that is listened on.
        access: A secret that every visitor has to bring once; None on loopback.

    Attributes:
        token: What a change has to bring; our pages hold it.
    """

    def __init__(self, app: ASGIApp, *, host: str, access: str | None = None) -> None:
        self._app = app
        self._host = host
        self._access = access
        self.token = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] == "websocket":
            # Nothing here speaks it, and no page of ours asks for it.
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _hardened(send)
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        try:
            await self._app(scope, _bounded(receive), send)
        except ClientDisconnect:
            return  # Whoever asked has gone.
        except AddendumError as error:
            click.echo(f"addendum: {' '.join(str(error).split())}", err=True)
        except Exception as error:
            # The page was told that it failed; whoever runs the server reads why.
            click.echo(f"addendum: {fault(error)}", err=True)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._knows(host):
            return _no(421, "this is not the address of this page")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return _no(403, "the request comes from another page")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # A link from elsewhere may lead here; what it asks for must change nothing.
            if scope["method"] not in ("GET", "HEAD") or headers.get("sec-fetch-dest") not in (
                "document",
                None,
            ):
                return _no(403, "the request comes from another page")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > MAX_BODY:
            return _no(413, f"the request has more than {MAX_BODY:,} bytes")
        if self._access is not None and (answer := self._entry(scope, headers)) is not None:
            return answer
        if scope["method"] not in ("GET", "HEAD"):
            given = headers.get(TOKEN_HEADER, "")
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                return _no(403, "the page is too old; load it again")
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return _no(415, "the request is no JSON")
        return None

    def _knows(self, host: str) -> bool:
        """Say whether a `Host` is one by which this page is reached."""
        try:
            parts = urlsplit(f"//{host}")
            name = (parts.hostname or "").lower()
            parts.port  # noqa: B018  (raises where it is no port)
        except ValueError:
            return False
        if not name or parts.path or parts.username is not None or parts.query or parts.fragment:
            return False
        if name in _LOOPBACK or name == self._host.lower():
            return True
        if is_loopback(self._host):
            return False
        # Rebinding needs a name that somebody else controls: an address is none.
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            return name in (socket.gethostname().lower(), f"{socket.gethostname().lower()}.local")

    def _entry(self, scope: Scope, headers: Headers) -> Response | None:
        """Let in whoever brings the secret, and remember them by a cookie."""
        assert self._access is not None
        kept = digest(f"addendum {self._access}")
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            found = None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("access", [""])[0]
        known = found is not None and hmac.compare_digest(found.value.encode(), kept.encode())
        if known and not given:
            return None
        # The secret goes out of the address, also where it was not needed: links would carry it on.
        if known or hmac.compare_digest(given.encode(), self._access.encode()):
            answer = RedirectResponse("/" + scope["path"].lstrip("/\\"), 303)
            answer.set_cookie(COOKIE, kept, httponly=True, samesite="strict", path="/")
            return answer
        return _no(401, "open the address with ?access=TOKEN that `addendum serve` was given")


def _no(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status, headers={"connection": "close"})


def _hardened(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return with_headers


def _bounded(receive: Receive) -> Receive:
    """Cut off a body that is longer than it may be, whatever its header said."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY:
                raise HTTPException(413, f"the request has more than {MAX_BODY:,} bytes")
        return message

    return counted
