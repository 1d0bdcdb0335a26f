"""`addendum routes`: what is known of routes, with its source; and the way to find out more."""

from __future__ import annotations

from typing import Any

import click

from addendum.cli.probe import probe
from addendum.cli.terminal import json_option, line, print_json, table, wrapped
from addendum.routes import describe

_NAME = 300
"""Characters of a route's name: a name that is cut is none."""


class ListOrProbe(click.Group):
    """A group whose arguments are those of `list` unless they begin with `probe`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in front where it is left out."""
        if args[:1] not in (["list"], ["probe"], ["-h"], ["--help"]):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListOrProbe)
def routes() -> None:
    """List routes and what their models can be told, or probe one.

    `addendum routes [NAME] [--json]` lists; NAME is a provider or a route. `addendum routes probe
    ROUTE` asks its endpoint.
    """


routes.add_command(probe)


@routes.command("list")
@click.argument("name", required=False)
@json_option
def list_routes(name: str | None, as_json: bool) -> None:
    """List routes and what their models can be told; NAME is a provider or a route."""
    found = describe(name)
    if as_json:
        print_json({"routes": found})
    elif len(found) == 1:
        click.echo(_details(found[0]))
    else:
        click.echo(_table(found))


def _table(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            line(each["route"], _NAME),
            each["tool_update"] or "dispatch",
            each["cache"]["kind"],
            each["certainty"],
        ]
        for each in found
    ]
    heads = ("route", "tool changes", "cache", "certainty")
    return f"{table(heads, rows)}\n\nMore of one: addendum routes ROUTE"


def _details(route: dict[str, Any]) -> str:
    native = route["tool_update"] is not None
    facts = [
        ("route", route["route"]),
        ("wire", route["wire"]),
        ("models", ", ".join(route["models"])),
        ("tool changes", route["tool_update"] or "none natively: dispatch, or rebinding"),
    ]
    if native:
        facts += [(key, str(route[key])) for key in ("definitions", "removals", "readd")]
        facts.append(("redefine", "in place" if route["redefine"] else "breaks the prefix"))
    cache: dict[str, Any] = {**route["cache"], "lifetimes": ", ".join(route["cache"]["lifetimes"])}
    facts += [(f"cache {key}", _said(value)) for key, value in cache.items() if value]
    facts += [(key, route[key]) for key in ("source", "checked", "certainty")]
    wide = max(len(name) for name, _ in facts)
    return "\n".join(wrapped(f"{name:{wide}}  {value}", wide + 2) for name, value in facts)


def _said(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
