"""Keys from the environment, wrapped so that they do not end up in a log or a traceback."""

from __future__ import annotations

import os
from collections.abc import Mapping

from addendum.errors import MissingCredential
from addendum.routes.model import Route
from addendum.routes.signing import access_keys, signature

DUMMY = "addendum-loopback"
"""Sent to a loopback address where no key is set."""


class Secret:
    """A value that shows itself only when asked.

    It is no plain string and no struct, so the JSON encoder refuses it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def credentials(
    route: Route, *, body: bytes = b"", environ: Mapping[str, str] | None = None
) -> tuple[tuple[str, Secret], ...]:
    """Return the headers that prove who sends a request to `route`.

    Args:
        route: The route.
        body: The request's body, for routes whose requests are signed.
        environ: Environment to read keys from; the process's own if None.

    Returns:
        Pairs of a header's lower-case name and its value; empty where no key is needed.

    Raises:
        MissingCredential: No variable of the route is set, or its value cannot be a header.
        ConfigurationError: A request is to be signed, and what signs it is not installed.
    """
    endpoint = route.endpoint
    if endpoint.auth == "none":
        return ()
    source = os.environ if environ is None else environ
    for variable in endpoint.key_variables:
        key = source.get(variable, "").strip()
        if not key:
            continue
        if not key.isascii() or not key.isprintable():
            raise MissingCredential(
                f"{variable} holds characters that no key has; set it again", route=route.name
            )
        return (_header(endpoint.auth, key),)
    if endpoint.loopback:
        return (_header(endpoint.auth, DUMMY),)
    if endpoint.key_optional:
        return ()
    keys = access_keys(source) if endpoint.auth == "aws" else None
    if keys is not None:
        signed = signature(route.url, body, keys, endpoint, source)
        return tuple((name, Secret(value)) for name, value in signed)
    raise MissingCredential(
        f"{route.name} needs a key; set {' or '.join(endpoint.key_variables)}"
        + (", or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" if endpoint.auth == "aws" else ""),
        route=route.name,
    )


def _header(auth: str, key: str) -> tuple[str, Secret]:
    if auth in ("x-api-key", "x-goog-api-key", "api-key"):
        return (auth, Secret(key))
    return ("authorization", Secret(f"Bearer {key}"))
