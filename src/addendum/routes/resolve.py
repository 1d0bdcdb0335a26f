"""From a route's name and address to all that is known of it.

A name is `provider:model[+FACT...]`. A FACT is a weaker form that the route also takes; none makes
a route stronger. Native capabilities belong to the endpoint, not to the model's name, so an address
decides as well:

===========================================  ===================================================
address                                      capabilities
===========================================  ===================================================
the provider's own (the default)             the row's
loopback (127.0.0.0/8, ::1, `localhost`)     the row's: a stand-in on this machine speaks for
                                             the provider it plays
any other                                    none but the wire's own form, unless the caller says
                                             `trusted=True`: gateways drop or refuse the blocks
`compatible`, at any address                 none, ever
===========================================  ===================================================

Cache rules and limits of the model stay in every case: a gateway in front of it does not change
them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import structs

from addendum.checked import SHALLOW, checks_arguments
from addendum.errors import ConfigurationError, UnknownRoute
from addendum.routes.data import ModelRow, Provider, providers
from addendum.routes.model import Capabilities, Endpoint, Route

DISPATCH = "dispatch"
"""The one FACT that every route takes."""

_REGION = re.compile(r"[a-z0-9-]{1,40}")

MAX_NAME = 300
"""Characters that the name of a route may have."""


@checks_arguments
def resolve(
    name: str,
    *,
    base_url: str | None = None,
    trusted: bool = False,
    environ: Annotated[Mapping[str, str], SHALLOW] | None = None,
    known: Annotated[Mapping[str, Provider], SHALLOW] | None = None,
) -> Route:
    """Return the route that `name` means.

    Args:
        name: `provider:model`, with any number of `+FACT`.
        base_url: Another address; else the provider's variables, then its own address.
        trusted: The caller vouches that the address takes what the provider itself takes.
        environ: Environment to read addresses from; the process's own if None.
        known: Providers by name; those of this release if None.

    Raises:
        UnknownRoute: No such provider, model or FACT; the message says who lists them.
        ConfigurationError: The address cannot be used.
    """
    table = providers() if known is None else known
    provider, model, facts = _parse(name, table)
    row = provider.row(model)
    if row is None:
        raise UnknownRoute(
            f"{provider.name} has no model {model!r}"
            f"{near(model, [each for row in provider.rows for each in row.models], provider.name)};"
            " a model behind another OpenAI-compatible address is compatible:MODEL"
        )
    endpoint = _endpoint(
        provider.endpoint, base_url, os.environ if environ is None else environ, trusted
    )
    capabilities = _weakened(row, facts, f"{provider.name}:{model}")
    if not endpoint.vouched:
        capabilities = undeclared(capabilities)
    return Route(
        provider=provider.name,
        model=model,
        facts=facts,
        wire=provider.wire,
        endpoint=endpoint,
        capabilities=capabilities,
        cache=row.cache,
        schemas=row.schemas,
        shapes=row.shapes,
        max_tokens=row.max_tokens,
        max_tokens_field=provider.max_tokens_field,
        window=row.window,
        cache_key=provider.cache_key,
        cache_key_header=provider.cache_key_header,
        id_pattern=provider.id_pattern,
        usage=provider.usage,
        source=row.source,
        checked=row.checked,
        certainty=row.certainty,
    )


def undeclared(capabilities: Capabilities) -> Capabilities:
    """Return what is left where nobody vouches for the endpoint: the wire's plain form."""
    return structs.replace(
        without_tool_updates(capabilities),
        prompt_update=False,
        tail="kept",
        betas=(),
    )


def without_tool_updates(capabilities: Capabilities) -> Capabilities:
    """Return `capabilities` of a route that is told of tool changes by dispatch or rebinding."""
    return structs.replace(
        capabilities,
        tool_update=None,
        definitions="by-reference",
        removals="text",
        readd="text",
        redefine=False,
        also=(),
        placeholder=False,
        betas=tuple(beta for beta in capabilities.betas if beta.needed_for == "clear_at"),
    )


def by_reference(capabilities: Capabilities) -> Capabilities:
    """Return the weaker form in which additions name a deferred declaration.

    A definition cannot be changed in place then (Anthropic's 07-01 beta alone).
    """
    return structs.replace(
        capabilities,
        definitions="by-reference",
        redefine=False,
        also=tuple(form for form in capabilities.also if form != "by-reference"),
        betas=tuple(beta for beta in capabilities.betas if beta.needed_for != "by-value"),
    )


def _weakened(row: ModelRow, facts: Iterable[str], name: str) -> Capabilities:
    capabilities = row.capabilities
    for fact in facts:
        if fact == DISPATCH:
            capabilities = without_tool_updates(capabilities)
        elif fact not in row.capabilities.also:
            forms = ", ".join(f"+{form}" for form in (*row.capabilities.also, DISPATCH))
            raise UnknownRoute(f"{name} does not take +{fact}; it takes {forms}")
        elif capabilities.tool_update is not None:
            capabilities = by_reference(capabilities)
            if fact == "addition-only":
                capabilities = structs.replace(
                    capabilities,
                    tool_update="addition-only",
                    removals="omit",
                    readd="redeclare",
                    also=(),
                )
    return capabilities


def _parse(name: str, table: Mapping[str, Provider]) -> tuple[Provider, str, tuple[str, ...]]:
    if len(name) > MAX_NAME or not _plain(name):
        raise UnknownRoute(
            f"{name[:40]!r} cannot be the name of a route; write provider:model,"
            " such as anthropic:claude-opus-5-5"
        )
    head, colon, rest = name.partition(":")
    model, *facts = rest.split("+")
    if not colon or not model:
        raise UnknownRoute(
            f"{name!r} is no route; write provider:model, such as anthropic:claude-opus-5-5;"
            " `addendum routes` lists them"
        )
    if head not in table:
        raise UnknownRoute(f"no provider {head!r}{near(head, table)}")
    return table[head], model, tuple(dict.fromkeys(facts))


def near(word: str, there: Iterable[str], of: str = "") -> str:
    """Return what a wrong name may stand for, or else who lists those that there are.

    Args:
        word: The name.
        there: The right ones.
        of: The provider, if these are its models.
    """
    found = difflib.get_close_matches(word, list(there), n=3, cutoff=0.6)
    if found:
        return f"; did you mean {' or '.join(found)}?"
    return f"; `{f'addendum routes {of}'.rstrip()}` lists them"


def _endpoint(
    own: Endpoint, base_url: str | None, environ: Mapping[str, str], trusted: bool
) -> Endpoint:
    if own.base_url:
        own = structs.replace(own, base_url=checked_base_url(own.base_url))
    if base_url is None:
        given = (environ.get(variable, "").strip() for variable in own.base_url_variables)
        base_url = next((value for value in given if value), None)
    if base_url is None:
        return structs.replace(own, base_url=_placed(own, environ))
    endpoint = structs.replace(own, base_url=checked_base_url(base_url))
    is_own = bool(own.base_url) and endpoint.url == own.url
    return structs.replace(endpoint, vouched=trusted or is_own or endpoint.loopback)


def _placed(own: Endpoint, environ: Mapping[str, str]) -> str:
    """Return a provider's address with region and project filled in; empty if one is not known."""
    address = own.base_url
    host = urlsplit(address).netloc
    for place, variables in (
        ("{region}", own.region_variables),
        ("{project}", own.project_variables),
    ):
        if place in address:
            given = (environ.get(variable, "").strip() for variable in variables)
            value = next((each for each in given if _REGION.fullmatch(each)), None)
            if value is None:
                return ""
            other = dict(own.region_hosts).get(value) if place == "{region}" else None
            address = address.replace(host, other) if other is not None else address
            address = address.replace(place, value)
    return address


def checked_base_url(base_url: str) -> str:
    """Return `base_url` without a trailing slash, its host in lower case.

    Raises:
        ConfigurationError: It is no http(s) address, or holds credentials, a query or a fragment
            (it is logged when an endpoint is downgraded).
    """
    base_url = base_url.strip()
    try:
        parts = urlsplit(base_url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ConfigurationError(f"the base URL cannot be read ({error}); correct it") from None
    if parts.scheme not in ("http", "https") or not host or not _plain(base_url):
        # What may hold a key is not repeated.
        named = "" if set("@?#") & set(base_url) else f", not {base_url[:60]!r}"
        raise ConfigurationError(f"a base URL is http:// or https:// and a host{named}; correct it")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the base URL for {host} holds credentials, a query or a fragment; leave them out"
            " (keys come from the environment)"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bracketed}{'' if port is None else f':{port}'}" + parts.path.rstrip(
        "/"
    )


def _plain(text: str) -> bool:
    return text.isprintable() and " " not in text
