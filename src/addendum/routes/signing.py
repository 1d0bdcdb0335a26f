"""Signatures of AWS (version 4) for requests that no bearer token goes with.

The signing itself is `requests-aws4auth`, an extra: nothing of it is needed with a token. Access
keys come from the environment alone; whoever has them in a profile exports them (`aws configure
export-credentials --format env`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from addendum.errors import ConfigurationError, install_hint
from addendum.routes.model import Endpoint

_SIGNED = frozenset({"authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"})


class AccessKeys(Struct, frozen=True):
    """Access keys, with the token of temporary ones."""

    id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "AccessKeys(***)"


def access_keys(environ: Mapping[str, str]) -> AccessKeys | None:
    """Return the access keys of an environment; None if one of the two is missing."""
    key, secret, token = (
        environ.get(name, "").strip()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    )
    return AccessKeys(key, secret, token) if key and secret else None


def signature(
    url: str, body: bytes, keys: AccessKeys, endpoint: Endpoint, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the headers that sign a POST of `body` to `url`.

    Args:
        url: The full address, its path encoded.
        body: What is posted.
        keys: The access keys.
        endpoint: The service, and the variables that may name the region where the address does
            not.
        environ: Environment to read them from.

    Raises:
        ConfigurationError: The extra is not installed, or the region is not known.
    """
    try:
        requests: Any = importlib.import_module("requests")
        auth: Any = importlib.import_module("requests_aws4auth")
    except ImportError as error:
        raise ConfigurationError(
            f"access keys need requests-aws4auth ({install_hint('bedrock')});"
            " AWS_BEARER_TOKEN_BEDROCK works without it"
        ) from error
    request = requests.Request("POST", url, data=body).prepare()
    signer = auth.AWS4Auth(
        keys.id,
        keys.secret,
        _region(url, endpoint, environ),
        endpoint.service,
        session_token=keys.token or None,
    )
    signed: Mapping[str, Any] = signer(request).headers
    return tuple(
        (name.lower(), value if isinstance(value, str) else value.decode())
        for name, value in signed.items()
        if name.lower() in _SIGNED
    )


def _region(url: str, endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    host = (urlsplit(url).hostname or "").split(".")
    if len(host) > 2 and host[0].startswith("bedrock-"):
        return host[1]
    for variable in endpoint.region_variables:
        if region := environ.get(variable, "").strip():
            return region
    raise ConfigurationError(
        f"the region is not known; set {' or '.join(endpoint.region_variables)}"
    )
