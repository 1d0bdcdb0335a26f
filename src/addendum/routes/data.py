"""Read `providers.toml` and `clouds.toml`: providers, and rows of model ids with what they can do.

A row's capabilities are its provider's, then those of the profile it names, then its own; its
cache rules are its provider's, then its own. The first row that matches a model counts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

from addendum.errors import ConfigurationError
from addendum.routes.model import CacheRules, Capabilities, Certainty, Endpoint, Wire


class ModelRow(Struct, frozen=True):
    """A set of models with the same facts.

    Attributes:
        models: Ids that are known to belong here.
        pattern: Matches every id that belongs here, dated and suffixed ones included.
        capabilities: What they can be told.
        cache: How they are cached.
        max_tokens: Output limit where the caller sets none.
        source: Where the facts come from.
        checked: Day on which the source was read.
        certainty: How sure they are.
    """

    models: tuple[str, ...]
    pattern: re.Pattern[str]
    capabilities: Capabilities
    cache: CacheRules
    max_tokens: int | None
    source: str
    checked: str
    certainty: Certainty


class Provider(Struct, frozen=True):
    """A provider: an endpoint with its quirks, and its models in the order of matching."""

    name: str
    wire: Wire
    endpoint: Endpoint
    id_pattern: str
    max_tokens_field: str
    usage: str
    rows: tuple[ModelRow, ...]

    def row(self, model: str) -> ModelRow | None:
        """Return the first row that matches `model`, or None."""
        return next((row for row in self.rows if row.pattern.fullmatch(model)), None)


class _RowEntry(Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[str, ...] = ()
    pattern: str = ""
    profile: str = ""
    capabilities: dict[str, Any] = {}
    cache: dict[str, Any] = {}
    max_tokens: int | None = None
    source: str | None = None
    checked: str | None = None
    certainty: Certainty | None = None


class _ProviderEntry(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    wire: Wire
    endpoint: Endpoint
    id_pattern: str
    source: str
    checked: str
    certainty: Certainty
    cache: dict[str, Any]
    model: tuple[_RowEntry, ...]
    capabilities: dict[str, Any] = {}
    profile: dict[str, dict[str, Any]] = {}
    prefix: str = ""
    suffix: str = ""
    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    usage: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    provider: tuple[_ProviderEntry, ...]


def load(text: str) -> Mapping[str, Provider]:
    """Read provider data.

    Args:
        text: TOML in the form of `providers.toml`.

    Returns:
        Providers by name, in the order of the file.

    Raises:
        ConfigurationError: It is no TOML, or has a key, value or pattern that does not fit.
    """
    try:
        entries = msgspec.convert(tomllib.loads(text), _File).provider
        return {entry.name: _provider(entry) for entry in entries}
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, re.error, KeyError) as error:
        raise ConfigurationError(f"route data cannot be read; correct it: {error}") from error


def _provider(entry: _ProviderEntry) -> Provider:
    return Provider(
        name=entry.name,
        wire=entry.wire,
        endpoint=entry.endpoint,
        id_pattern=re.compile(entry.id_pattern).pattern,
        max_tokens_field=entry.max_tokens_field,
        usage=entry.usage,
        rows=tuple(_row(entry, row) for row in entry.model),
    )


def _row(provider: _ProviderEntry, row: _RowEntry) -> ModelRow:
    known = "|".join(re.escape(model) for model in row.models)
    patterns = [f"{provider.prefix}(?:{known}){provider.suffix}"] if known else []
    patterns += [row.pattern] if row.pattern else []
    profile = provider.profile[row.profile] if row.profile else {}
    return ModelRow(
        models=row.models,
        pattern=re.compile("|".join(patterns)),
        capabilities=msgspec.convert(
            provider.capabilities | profile | row.capabilities, Capabilities
        ),
        cache=msgspec.convert(provider.cache | row.cache, CacheRules),
        max_tokens=row.max_tokens or provider.max_tokens,
        source=row.source or provider.source,
        checked=row.checked or provider.checked,
        certainty=row.certainty or provider.certainty,
    )


@cache
def providers() -> Mapping[str, Provider]:
    """Return the providers that this release knows, by name."""
    folder = resources.files("addendum.routes")
    return {
        name: provider
        for file in ("providers.toml", "clouds.toml")
        for name, provider in load(folder.joinpath(file).read_text("utf-8")).items()
    }
