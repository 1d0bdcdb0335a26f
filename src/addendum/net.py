"""HTTP clients: which way a request takes, by the proxies that the environment names.

The rules are curl's, read from `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` in either
case (and from the system's settings where Python knows them). Two differ: this machine is never
reached through a proxy, and a proxy that cannot be used is an error only where it would be.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.request import getproxies

import httpx2

from addendum.errors import ConfigurationError

_LAST_PORT = 65_535
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Way(NamedTuple):
    """A proxy that a request goes through.

    Attributes:
        name: The variable that names it.
        url: What it says; may hold a password.
    """

    name: str
    url: str

    def shown(self) -> str:
        """Return name and value for people, without a user's name and password."""
        return f"{self.name}={re.sub(r'//[^/@]*@', '//', self.url)[:80]}"


def client(**options: Any) -> httpx2.AsyncClient:
    """Return a client whose requests take the way that the environment says.

    Args:
        options: As for `httpx2.AsyncClient`; `limits` and `verify` count for every way.
    """
    given = {name: options.pop(name) for name in ("limits", "verify") if name in options}
    return httpx2.AsyncClient(transport=Ways(getproxies(), **given), **options)


@functools.cache
def trusted() -> ssl.SSLContext:
    """Read the trusted certificates once: it takes longer than all that a request costs here."""
    return httpx2.create_ssl_context()


class Ways(httpx2.AsyncBaseTransport):
    """Carries requests directly or through proxies, each opened when it is first needed.

    Args:
        proxies: Addresses by scheme (`http`, `https`, `all`), and under `no` what is reached
            without one, as `urllib.request.getproxies` gives them.
        limits: Of connections, for each way.
        verify: What certificates are checked against.
    """

    def __init__(
        self,
        proxies: Mapping[str, str],
        *,
        limits: httpx2.Limits | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._proxies = proxies
        self._limits = limits or httpx2.Limits(max_connections=100, max_keepalive_connections=20)
        self._verify = verify
        self._ways: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on its way.

        Raises:
            ConfigurationError: It would go through a proxy that cannot be used.
        """
        way = proxy_for(request.url, self._proxies)
        key = "" if way is None else way.url
        if key not in self._ways:
            self._ways[key] = self._opened(way)
        return await self._ways[key].handle_async_request(request)

    def _opened(self, way: Way | None) -> httpx2.AsyncHTTPTransport:
        return opened(way, self._limits, self._verify, httpx2.AsyncHTTPTransport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        ways, self._ways = list(self._ways.values()), {}
        for way in ways:
            await way.aclose()


class SyncWays(httpx2.BaseTransport):
    """As `Ways`, for sync clients.

    Args:
        proxies: As for `Ways`.
        limits: Of connections, for each way.
    """

    def __init__(self, proxies: Mapping[str, str], *, limits: httpx2.Limits) -> None:
        self._proxies = proxies
        self._limits = limits
        self._ways: dict[str, httpx2.HTTPTransport] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on its way.

        Raises:
            ConfigurationError: It would go through a proxy that cannot be used.
        """
        way = proxy_for(request.url, self._proxies)
        key = "" if way is None else way.url
        carrier = self._ways.get(key)
        if carrier is None:
            made = opened(way, self._limits, None, httpx2.HTTPTransport)
            # Of two threads that come first, one wins.
            carrier = self._ways.setdefault(key, made)
        return carrier.handle_request(request)

    def close(self) -> None:
        """Close all connections."""
        ways, self._ways = list(self._ways.values()), {}
        for way in ways:
            way.close()


_Carrier = TypeVar("_Carrier", httpx2.HTTPTransport, httpx2.AsyncHTTPTransport)


def opened(
    way: Way | None,
    limits: httpx2.Limits,
    verify: ssl.SSLContext | None,
    kind: type[_Carrier],
) -> _Carrier:
    """Return what carries requests by one way.

    Args:
        way: The proxy; None for none.
        limits: Of connections.
        verify: What certificates are checked against.
        kind: Whether it is sync or async.

    Raises:
        ConfigurationError: The proxy cannot be used.
    """
    checked = verify or trusted()
    if way is None:
        return kind(verify=checked, limits=limits)
    leave = "or unset it; NO_PROXY=HOST leaves one host out"
    try:
        proxy = httpx2.Proxy(way.url)
        if not proxy.url.host or (proxy.url.port or 0) > _LAST_PORT:
            raise ValueError("no host, or no port")
        return kind(verify=checked, limits=limits, proxy=proxy)
    except ImportError:
        raise ConfigurationError(
            f"{way.shown()} is a SOCKS proxy, which needs the package socksio: pip install "
            f"socksio, name an http:// proxy, {leave}"
        ) from None
    except (httpx2.InvalidURL, ValueError):
        raise ConfigurationError(
            f"{way.shown()} is no proxy that can be used here; name one as http://HOST:PORT, "
            f"https:// or socks5://, {leave}"
        ) from None


def proxy_for(url: httpx2.URL, proxies: Mapping[str, str]) -> Way | None:
    """Return the proxy for an address; None if it is reached directly.

    Args:
        url: The address.
        proxies: As for `Ways`.
    """
    found = next((name for name in (url.scheme, "all") if proxies.get(name, "").strip()), None)
    if found is None or _is_here(url.host) or _is_excluded(url, proxies.get("no", "")):
        return None
    value = proxies[found].strip()
    return Way(_variable(found), value if "://" in value else f"http://{value}")


def through(address: str) -> str:
    """Return ` through NAME=PROXY` where an address is reached so, else ''; for messages."""
    try:
        way = proxy_for(httpx2.URL(address), getproxies())
    except (httpx2.InvalidURL, ValueError):
        return ""
    return "" if way is None else f" through {way.shown()}"


def _variable(scheme: str) -> str:
    """Return the variable that names a scheme's proxy; lower case goes in front."""
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), names[1])


def _is_here(host: str) -> bool:
    """Say whether a host is this machine."""
    name = host.rstrip(".").lower()
    address = _address(name)
    if address is None:
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def _is_excluded(url: httpx2.URL, rules: str) -> bool:
    """Say whether `no_proxy` names a host: by name, suffix, address or network, or with a port."""
    host = url.host.rstrip(".").lower()
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return any(_matches(rule.lower(), host, port) for rule in re.split(r"[\s,]+", rules) if rule)


def _matches(rule: str, host: str, port: int | None) -> bool:
    rule = rule.rpartition("://")[2]
    if rule == "*":
        return True
    address = _address(host)
    with contextlib.suppress(ValueError):
        network = ipaddress.ip_network(rule.strip("[]"), strict=False)
        return address is not None and address in network
    name, _, digits = rule.rpartition(":")
    if name and digits.isdigit():
        if int(digits) != port:
            return False
        rule = name
    inner = _address(rule)
    if inner is not None or address is not None:
        return inner == address
    rule = rule.removeprefix("*").strip(".")
    return bool(rule) and (host == rule or host.endswith(f".{rule}"))


def _address(host: str) -> _Address | None:
    """Return a host's address, if it is one."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
