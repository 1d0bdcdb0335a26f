"""`addendum sessions`: what a store holds, and what it cost."""

from __future__ import annotations

import click
from msgspec import structs

from addendum.agent.replay import known_route
from addendum.cache.spent import Totals, totals_of
from addendum.cli.costs import dollars, short, total_fields
from addendum.cli.flags import NAME
from addendum.cli.stored import all_rows, delete, reading
from addendum.cli.terminal import (
    echo,
    json_option,
    print_json,
    run_async,
    store_option,
    table,
    width,
)
from addendum.errors import AddendumError, SessionMissing, StoreError
from addendum.lines import one_line
from addendum.log.store import SessionRow
from addendum.tell.figures import number, when

_ROOMY = 100
"""Columns from which on the time of day is shown."""


@click.group(invoke_without_command=True)
@store_option
@json_option
@click.pass_context
def sessions(ctx: click.Context, store: str | None, as_json: bool) -> None:
    """List the sessions of a store with their cost, the one that was used last first."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = store
        return
    rows = run_async(_counted, store)
    if as_json:
        print_json({"sessions": [structs.asdict(row) | _fields(sums) for row, sums in rows]})
    elif not rows:
        echo("no sessions yet")
    else:
        wide = width()
        # The time of day stands where there is room for it.
        until = 16 if wide >= _ROOMY else 10
        heads = ("session", "used", "prompt", "read", "wrote", "out", "cost", "saved", "rebind*")
        cells = [
            [
                one_line(row.id, max(18, min(32, wide - 65))),
                when(row.updated)[5:until],
                *_cells(sums),
            ]
            for row, sums in rows
        ]
        echo(table(heads, cells, right=(2, 3, 4, 5, 6, 7, 8)))
        echo("* an estimate of what rebinding the tools would have cost more")


@sessions.command("delete")
@click.argument("session", type=NAME, metavar="ID")
@store_option
@click.pass_context
def delete_session(ctx: click.Context, session: str, store: str | None) -> None:
    """Delete a session with all of its events; there is no way back.

    ID is the session's id, or as much of its beginning as no other has. Forks of it stay: they
    have copies of what they share.
    """
    row = run_async(delete, store or ctx.obj, session)
    echo(f"deleted session {one_line(row.id, 60)} with {number(row.events)} events")


async def _counted(url: str | None) -> list[tuple[SessionRow, Totals | None]]:
    """Return all sessions with their sums; None for one that this release cannot read."""
    rows = await all_rows(url)
    if not rows:
        return []
    counted: list[tuple[SessionRow, Totals | None]] = []
    async with reading(url) as store:
        for row in rows:
            try:
                counted.append((row, totals_of(await store.read(row.id), known_route)))
            except SessionMissing:
                pass  # It was deleted meanwhile.
            except AddendumError as error:
                # One that is damaged, or has lost events, hides no other.
                if isinstance(error, StoreError) and error.session != row.id:
                    raise
                counted.append((row, None))
    return counted


def _fields(sums: Totals | None) -> dict[str, object]:
    return {"totals": None if sums is None else total_fields(sums)}


def _cells(sums: Totals | None) -> list[str]:
    if sums is None:
        return ["-"] * 7
    cost = sums.cost
    return [
        short(sums.prompt),
        short(sums.cache_read),
        short(sums.cache_write),
        short(sums.output),
        dollars(None if cost is None else cost.amount),
        dollars(None if cost is None else cost.saved),
        dollars(sums.rebinding),
    ]
