"""`addendum sessions`: what a store holds."""

from __future__ import annotations

import click
from msgspec import structs

from addendum.cli.stored import all_rows
from addendum.cli.terminal import (
    json_option,
    line,
    number,
    print_json,
    run_async,
    store_option,
    table,
    when,
)


@click.command()
@store_option
@json_option
def sessions(store: str | None, as_json: bool) -> None:
    """List the sessions of a store, the one that was used last first."""
    rows = run_async(all_rows, store)
    if as_json:
        print_json({"sessions": [structs.asdict(row) for row in rows]})
    elif not rows:
        click.echo("no sessions yet")
    else:
        cells = [
            [line(row.id, 32), when(row.updated), number(row.events), line(row.parent or "", 20)]
            for row in rows
        ]
        heads = ("session", "last used (UTC)", "events", "forked from")
        click.echo(table(heads, cells, right=(2,)))
