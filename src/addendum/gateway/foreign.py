"""What a client sent: which wire and route it means, and the digests that tell it again."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import urlsplit

from msgspec import Struct

from addendum.errors import AddendumError
from addendum.routes import Route, resolve
from addendum.routes.data import providers
from addendum.wire.driven import CLIENT_WIRES
from addendum.wire.splice import ClientRequest

_CREDENTIALS = ("authorization", "x-api-key", "api-key")


def wire_at(url: str) -> str | None:
    """Return the wire of the API at an address, or None where it is none that can be driven."""
    path = urlsplit(url).path.rstrip("/")
    return next((name for name, each in CLIENT_WIRES.items() if path.endswith(each.path)), None)


@lru_cache(maxsize=1024)
def route_at(url: str, wire: str, model: str, trusted: bool) -> Route | None:
    """Return the route that a request means, or None if nothing is known of it.

    The address decides where it is a provider's own. Elsewhere the first provider of the wire that
    knows the model by name says how it caches; what it can be told counts on this machine, or where
    the caller vouches for the address.

    Args:
        url: Where the request goes.
        wire: Its wire.
        model: The model's id.
        trusted: Whether the caller vouches for the address.
    """
    parts = urlsplit(url)
    own_wire = CLIENT_WIRES[wire]
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(own_wire.path)}"
    candidates = [each for each in providers().values() if each.wire == wire]
    own = [
        each
        for each in candidates
        if each.endpoint.base_url
        and urlsplit(each.endpoint.base_url).hostname == parts.hostname
        and not each.endpoint.key_optional
    ]
    named = [
        each
        for each in candidates
        if not each.endpoint.key_optional
        and each.endpoint.base_url
        and each.row(model) is not None
        and each.row(model) is not each.row("a-model-that-nobody-has")
    ]
    anybody = [each for each in candidates if each.name == own_wire.anybody]
    for provider in (*own, *named, *anybody):
        try:
            return resolve(f"{provider.name}:{model}", base_url=base, trusted=trusted, environ={})
        except AddendumError:
            continue
    return None


class Chain(Struct, frozen=True):
    """Digests of a request, keyed: nothing can be guessed from them.

    Attributes:
        scope: Of who asks which model, on which wire.
        root: Of the scope, the system text and the tools that can only stand in front.
        ends: Of the root and the first elements, by their number; the root itself is number 0.
        line: Of the system text, keyed by the credential alone: the same in every process.
    """

    scope: str
    root: str
    ends: tuple[bytes, ...]
    line: str


def chain(key: bytes, wire: str, headers: Mapping[str, str], request: ClientRequest) -> Chain:
    """Return the digests of a request.

    Args:
        key: The store's key.
        wire: The wire.
        headers: Headers, names in lower case: the credential is part of the scope.
        request: The request.
    """
    credential = "\n".join(headers.get(name, "") for name in _CREDENTIALS)
    scope = keyed(key, b"scope", wire.encode(), credential.encode(), request.model.encode())
    fixed = sorted(tool.digest() for tool in request.tools if tool.schema is None)
    root = keyed(key, scope.encode(), request.system, *(each.encode() for each in fixed))
    ends = [end := bytes.fromhex(root)]
    for element in request.elements:
        ends.append(end := linked(key, end, element.identity))
    return Chain(scope, root, tuple(ends), keyed(credential.encode(), b"line", request.system))


def linked(key: bytes, end: bytes, identity: bytes) -> bytes:
    """Return the digest of a prefix that goes on with one more element."""
    # Two of 64 bytes at most: one block, so that thousands of elements cost little.
    return blake2b(end + identity, key=key[:32], digest_size=16).digest()


def keyed(key: bytes, *parts: bytes) -> str:
    """Return a keyed digest of some parts, as 32 hex digits."""
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, whole, hashlib.sha256).hexdigest()[:32]


def offered(key: bytes, digests: Sequence[str]) -> str:
    """Return the digest of a set of tools, whatever their order."""
    return keyed(key, *(each.encode() for each in sorted(digests)))
