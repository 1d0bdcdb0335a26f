"""`addendum routes`: what is known of routes, with its source; and the way to find out more."""

from __future__ import annotations

from typing import Any, cast

import click

from addendum.cli.flags import NAME
from addendum.cli.probe import probe
from addendum.cli.terminal import echo, json_option, print_json, table, wrapped
from addendum.lines import one_line
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

    `addendum routes [NAME] [--json]` lists; NAME is a provider or a route. Without one, a row
    stands for all models of which the same is known. `addendum routes probe ROUTE` asks its
    endpoint.
    """


routes.add_command(probe)


@routes.command("list")
@click.argument("name", type=NAME, required=False)
@json_option
def list_routes(name: str | None, as_json: bool) -> None:
    """List routes and what their models can be told; NAME is a provider or a route."""
    found = describe(name)
    if as_json:
        print_json({"routes": found})
    elif len(found) == 1:
        echo(_details(found[0]))
    elif name is not None:
        echo(f"{_models(found)}\n\nMore of one: addendum routes ROUTE")
    else:
        echo(f"{_table(found)}\n\n{_MORE}")


_HEADS = ("route", "tool changes", "cache", "certainty")
_MORE = """\
A row stands for all models of which the same is known, MODEL for other names.
addendum routes PROVIDER names them, and the forms +FACT that they also take;
addendum routes ROUTE shows all that is known of one, with its sources."""


def _row(each: dict[str, Any]) -> list[str]:
    told = each["tool_update"] or "dispatch"
    return [one_line(each["route"], _NAME), told, each["cache"]["kind"], each["certainty"]]


def _table(found: list[dict[str, Any]]) -> str:
    # Two patterns of one provider may be known for the same.
    rows = list(dict.fromkeys(tuple(_row(each)) for each in found))
    return table(_HEADS, rows)


def _models(found: list[dict[str, Any]]) -> str:
    """Return the rows of a provider, with the names of all models and the forms they take."""
    head, *rows = table(_HEADS, [_row(each) for each in found]).split("\n")
    lines = [head]
    for row, each in zip(rows, found, strict=True):
        shown = each["route"].partition(":")[2]
        others = [name for name in each["models"] if name != shown]
        if shown == "MODEL":
            others = ["any other name" if each == ".+" else f"names like {each}" for each in others]
        if each["tool_update"] is not None:
            others.append(f"as {' '.join(f'+{form}' for form in each['forms'])} too")
        lines.append(row)
        if others:
            lines.append(wrapped(f"  {', '.join(others)}", 2))
    return "\n".join(lines)


def _details(route: dict[str, Any]) -> str:
    native = route["tool_update"] is not None
    facts = [
        ("route", route["route"]),
        ("wire", route["wire"]),
        ("models", ", ".join(route["models"])),
        ("tool changes", route["tool_update"] or "none natively: dispatch, or rebinding"),
        ("forms", " ".join(f"+{form}" for form in route["forms"])),
    ]
    if native:
        facts += [(key, str(route[key])) for key in ("definitions", "removals", "readd")]
        facts.append(("redefine", "in place" if route["redefine"] else "breaks the prefix"))
    cache: dict[str, Any] = route["cache"]
    facts += [(f"cache {key}", _said(value)) for key, value in cache.items() if value]
    facts += [(key, route[key]) for key in ("source", "checked", "certainty")]
    wide = max(len(name) for name, _ in facts)
    return "\n".join(wrapped(f"{name:{wide}}  {value}", wide + 2) for name, value in facts)


def _said(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast("list[Any]", value)))
    return f"{value:,}" if isinstance(value, int) else str(value)
