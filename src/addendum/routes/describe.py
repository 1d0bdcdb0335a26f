"""The table of routes, for people and for `addendum routes --json`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from addendum.errors import UnknownRoute
from addendum.routes.data import ModelRow, Provider, providers
from addendum.routes.model import CacheRules, Capabilities
from addendum.routes.probed import overlaid, read
from addendum.routes.resolve import DISPATCH, near, resolve
from addendum.routes.schemas import SchemaRules
from addendum.routes.shapes import ShapeRules


def describe(name: str | None = None) -> list[dict[str, Any]]:
    """Return what is known of routes, one entry a row of models.

    Args:
        name: A provider, or a route with any `+FACT`; None for everything.

    Returns:
        Entries with the keys `route` (a route of the row by name), `wire`, `models` (known ids,
        or the pattern where there are none), `tool_update`, `definitions`, `removals`, `readd`,
        `redefine` (these four mean nothing where `tool_update` is None), `cache` (the rules),
        `schemas` (what it takes of a tool's definition), `shapes` (what it
        refuses in a history), `source`, `checked`, `certainty` and `forms` (what the route also
        takes, as `+FACT`).

    Raises:
        UnknownRoute: No such provider or route.
        ConfigurationError: Results of a probe are kept for the route and cannot be read.
    """
    table = providers()
    if name is None:
        return [_row(provider, row) for provider in table.values() for row in provider.rows]
    if name in table:
        return [_row(table[name], row) for row in table[name].rows]
    if ":" not in name:
        raise UnknownRoute(f"no provider {name[:40]!r}{near(name, table)}")
    route = resolve(name, environ={})
    route = overlaid(route, read(route))
    return [
        _entry(
            route.full_name,
            route.wire,
            [route.model],
            route.capabilities,
            route.cache,
            route.schemas,
            route.shapes,
            (route.source, route.checked, route.certainty),
        )
    ]


def _row(provider: Provider, row: ModelRow) -> dict[str, Any]:
    models = list(row.models) or [row.pattern.pattern]
    example = row.models[0] if row.models else "MODEL"
    return _entry(
        f"{provider.name}:{example}",
        provider.wire,
        models,
        row.capabilities,
        row.cache,
        row.schemas,
        row.shapes,
        (row.source, row.checked, row.certainty),
    )


def _entry(
    route: str,
    wire: str,
    models: list[str],
    has: Capabilities,
    cache: CacheRules,
    schemas: SchemaRules,
    shapes: ShapeRules,
    evidence: tuple[str, str, str],
) -> dict[str, Any]:
    source, checked, certainty = evidence
    return {
        "route": route,
        "wire": wire,
        "models": models,
        "tool_update": has.tool_update,
        "definitions": has.definitions,
        "removals": has.removals,
        "readd": has.readd,
        "redefine": has.redefine,
        "cache": structs.asdict(cache),
        "schemas": structs.asdict(schemas),
        "shapes": structs.asdict(shapes),
        "source": source,
        "checked": checked,
        "certainty": certainty,
        "forms": [*(has.also if has.tool_update is not None else ()), DISPATCH],
    }
