"""Read the TOML files beside this one: providers, and rows of model ids with what they can do.

A row's capabilities are its provider's, then those of the profile it names, then its own. Its cache
rules, what it takes of a tool's definition and which shapes of a history it refuses are its wire's,
then its provider's, then its own.
The first row that matches a model counts.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import msgspec
from msgspec import Meta, Struct, structs

from addendum.checked import checks_arguments, nearest, words
from addendum.errors import ConfigurationError
from addendum.paths import home, read_text, told
from addendum.routes.model import (
    Beta,
    CacheRules,
    Capabilities,
    Certainty,
    Count,
    Endpoint,
    Wire,
    untold,
)
from addendum.routes.schemas import SchemaRules
from addendum.routes.shapes import ShapeRules
from addendum.routes.wires import wire_data, wires

FILES = ("providers.toml", "clouds.toml", "gateways.toml", "compatible.toml")
"""Files of this release, in the order in which their providers are listed."""

FILE_VARIABLE = "ADDENDUM_ROUTES"
_ADVICE = f"correct {FILE_VARIABLE}"
"""Environment variable that names a file with further providers."""

MAX_FILE = 1024 * 1024
"""Bytes that such a file may have."""

_Tokens: TypeAlias = Annotated[int, Meta(gt=0)]
_Name: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class ModelRow(Struct, frozen=True):
    """A set of models with the same facts.

    Attributes:
        models: Ids that are known to belong here.
        pattern: Matches every id that belongs here, dated and suffixed ones included.
        capabilities: What they can be told.
        cache: How they are cached.
        schemas: What the endpoint takes of a tool's definition.
        shapes: Which shapes of a history it refuses.
        max_tokens: Output limit where the caller sets none.
        window: Tokens of prompt and output together that it surely takes; 0 if that is not known.
        source: Where the facts come from.
        checked: Day on which the source was read.
        certainty: How sure they are.
    """

    models: tuple[str, ...]
    pattern: re.Pattern[str]
    capabilities: Capabilities
    cache: CacheRules
    schemas: SchemaRules
    shapes: ShapeRules
    max_tokens: int | None
    window: int
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
    cache_key: str
    cache_key_header: str
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
    schemas: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    max_tokens: _Tokens | None = None
    window: Count | None = None
    source: str | None = None
    checked: str | None = None
    certainty: Certainty | None = None


class _ProviderEntry(Struct, frozen=True, forbid_unknown_fields=True):
    name: _Name
    wire: Wire
    endpoint: Endpoint
    id_pattern: str
    source: str
    checked: str
    certainty: Certainty
    cache: dict[str, Any]
    model: tuple[_RowEntry, ...]
    capabilities: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    profile: dict[str, dict[str, Any]] = {}
    prefix: str = ""
    suffix: str = ""
    max_tokens: _Tokens | None = None
    window: Count = 0
    max_tokens_field: str = "max_tokens"
    cache_key: str = ""
    cache_key_header: str = ""
    usage: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    provider: tuple[_ProviderEntry, ...]


@checks_arguments
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
        found = {entry.name: _provider(entry) for entry in entries}
    except msgspec.ValidationError as error:
        raise _wrong(f"{error}{_instead(str(error))}") from error
    except (tomllib.TOMLDecodeError, re.error) as error:
        raise _wrong(str(error)) from error
    except RecursionError:
        raise _wrong("it is nested too deeply") from None
    if len(found) < len(entries):
        raise _wrong("two providers have the same name; rename one of them")
    return found


def _instead(error: str) -> str:
    """Return what may stand in the place of a wrong key or word, by msgspec's error."""
    known: dict[str, Any] = {}
    kinds = (_RowEntry, _ProviderEntry, Endpoint, CacheRules, Capabilities, Beta, ShapeRules)
    for kind in kinds:
        known |= get_type_hints(kind, include_extras=True)
    if found := re.match("Object contains unknown field `(.*?)`", error):
        return nearest(found[1], known)
    found = re.match(r"Invalid enum value .* - at `.*\.(\w+)(?:\[\.\.\.\])?`", error)
    if found is None or found[1] not in known:
        return ""
    return f"; it takes {words(known[found[1]])}"


def _wrong(why: str) -> ConfigurationError:
    return ConfigurationError(f"route data cannot be read; correct it: {why}")


def _provider(entry: _ProviderEntry) -> Provider:
    if entry.wire not in wires():
        raise _wrong(f"{entry.name} has no wire {entry.wire!r}; there are {', '.join(wires())}")
    return Provider(
        name=entry.name,
        wire=entry.wire,
        endpoint=entry.endpoint,
        id_pattern=re.compile(entry.id_pattern).pattern,
        max_tokens_field=entry.max_tokens_field,
        cache_key=entry.cache_key,
        cache_key_header=entry.cache_key_header,
        usage=entry.usage,
        rows=tuple(_row(entry, row) for row in entry.model),
    )


def _row(provider: _ProviderEntry, row: _RowEntry) -> ModelRow:
    if not (row.models or row.pattern):
        raise _wrong(f"a row of {provider.name} has neither models nor a pattern")
    if row.profile and row.profile not in provider.profile:
        raise _wrong(f"{provider.name} has no profile {row.profile!r}")
    known = "|".join(re.escape(model) for model in row.models)
    patterns = [f"{provider.prefix}(?:{known}){provider.suffix}"] if known else []
    patterns += [row.pattern] if row.pattern else []
    profile = provider.profile[row.profile] if row.profile else {}
    has = msgspec.convert(provider.capabilities | profile | row.capabilities, Capabilities)
    if why := untold(provider.wire, has.tool_update, has.definitions, has.removals):
        raise _wrong(f"{provider.name}: {why}")
    wire = wire_data(provider.wire)
    schemas = structs.asdict(wire.schemas) | provider.schemas | row.schemas
    shapes = structs.asdict(wire.shapes) | provider.shapes | row.shapes
    return ModelRow(
        models=row.models,
        pattern=re.compile("|".join(patterns)),
        capabilities=has,
        cache=msgspec.convert(wire.cache | provider.cache | row.cache, CacheRules),
        schemas=_pattern_checked(msgspec.convert(schemas, SchemaRules)),
        shapes=msgspec.convert(shapes, ShapeRules),
        max_tokens=row.max_tokens or provider.max_tokens,
        window=provider.window if row.window is None else row.window,
        source=row.source or provider.source,
        checked=row.checked or provider.checked,
        certainty=row.certainty or provider.certainty,
    )


def _pattern_checked(rules: SchemaRules) -> SchemaRules:
    re.compile(rules.keys)
    return rules


def providers() -> Mapping[str, Provider]:
    """Return providers by name: those of this release, and those of the file `$ADDENDUM_ROUTES`.

    Raises:
        ConfigurationError: That file cannot be read, or has a provider of this release.
    """
    named = os.environ.get(FILE_VARIABLE, "").strip()
    if not named:
        return _known()
    path = home(named)
    with told("read", path, _ADVICE):
        changed = path.stat().st_mtime_ns
    return _joined(path, changed)


@cache
def _known() -> Mapping[str, Provider]:
    folder = resources.files("addendum.routes")
    return {
        name: provider
        for file in FILES
        for name, provider in load(folder.joinpath(file).read_text("utf-8")).items()
    }


@lru_cache(maxsize=8)
def _joined(path: Path, changed: int) -> Mapping[str, Provider]:
    """Return all providers, those of a file among them; `changed` tells its versions apart."""
    text = read_text(path, limit=MAX_FILE, advice=_ADVICE)
    try:
        own = load(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    for name in own:
        if name in _known():
            raise ConfigurationError(f"{path}: there is a provider {name!r} already; rename yours")
    return {**_known(), **own}
