"""`addendum tools`: what a session could call at any moment, and pins of server tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec import Struct, structs

from addendum.cache.compare import BYTES_A_TOKEN
from addendum.cli.flags import NAME, NEW_FILE, PATH
from addendum.cli.stored import read_log
from addendum.cli.terminal import (
    echo,
    json_option,
    print_json,
    run_async,
    store_option,
    table,
    wrapped,
)
from addendum.encoding import encode
from addendum.errors import ConfigurationError
from addendum.lines import one_line
from addendum.log.events import (
    CompactionSummary,
    RequestContext,
    RequestHeader,
    ToolCall,
    ToolLeftOut,
    ToolPolicy,
    TurnStart,
)
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema
from addendum.tell.figures import number
from addendum.tell.left_out import left_out

_MONEY = ("cost", "rebinding_cost")
_PATIENCE = 60.0
"""Seconds that a server may take to list its tools."""


class ToolState(Struct, frozen=True):
    """One tool at one moment of a session.

    Attributes:
        name: Its name.
        state: `active` (the model calls it by its name), `deferred` (it can be called, but was
            not told in full: it is flagged so, or stands behind `call_tool` on a dispatch route),
            `left out` (the endpoint refused its definition), `disabled` (refused) or `removed`.
        server: The server it comes from, by its name's beginning; None for a function tool.
        since_seq: The header from which on it is in this state.
        since_turn: That header's turn.
        calls: How often it was started so far.
        weight: Tokens of its definition, estimated by bytes; 0 where none is sent. What was
            told in the history stays there, also when the tool was removed.
    """

    name: str
    state: str
    server: str | None
    since_seq: int
    since_turn: int
    calls: int
    weight: int

    @property
    def dead(self) -> bool:
        """Whether its definition is sent and cannot be used, or was not so far."""
        return self.weight > 0 and (self.state == "removed" or not self.calls)


class _ById(click.Group):
    """A group whose first argument may also be a session's id."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return `pin`, or what shows a session."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "of", self.commands["of"], args


@click.group(
    cls=_ById,
    options_metavar="ID [--at SEQ | --what-if SWITCH [--route R] [--mcp FILE]] [--store URL]"
    " [--json]",
    no_args_is_help=True,
)
def tools() -> None:
    """Say which tools a session could call, now or at SEQ: active, deferred, disabled, removed.

    --what-if enable:SERVER or disable:SERVER says what that switch would cost, before it is made;
    --mcp FILE names servers that were never on so far.

    `addendum tools pin [FILE]` takes the present lists of MCP servers as their pins.
    """


@tools.command("of", hidden=True)
@click.argument("session", type=NAME, metavar="ID")
@click.option("--at", type=click.IntRange(min=0), metavar="SEQ", help="As of this event.")
@click.option(
    "--what-if", type=NAME, metavar="SWITCH", help="What enable:SERVER or disable:SERVER costs."
)
@click.option("--route", type=NAME, metavar="R", help="On this route; else on the session's own.")
@click.option(
    "--mcp",
    type=PATH,
    metavar="FILE",
    help="MCP servers that may be asked about although they were never on.",
)
@store_option
@json_option
def of(
    session: str,
    at: int | None,
    what_if: str | None,
    route: str | None,
    mcp: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Say which tools session ID could call, now or as of event SEQ."""
    _, log = run_async(read_log, store, session)
    if what_if is not None:
        _preview(log, what_if, route, mcp, as_json)
        return
    if route is not None or mcp is not None:
        given = "--mcp" if route is None else "--route"
        raise ConfigurationError(f"{given} goes with a switch only; add --what-if SWITCH")
    last = max(0, len(log) - 1)
    if at is not None and at > last:
        raise ConfigurationError(
            f"there is no event {at}; the log ends at {last}, so write --at {last} or less"
        )
    moment = last if at is None else at
    found = states(log, moment)
    lost = left_out(log.events[: moment + 1])
    dead = sum(each.weight for each in found if each.dead)
    if as_json:
        print_json(
            {
                "session": log.session,
                "at": moment,
                "tools": [{**structs.asdict(each), "dead": each.dead} for each in found],
                "weight": sum(each.weight for each in found),
                "dead_weight": dead,
                "left_out": [_lost(each) for each in lost],
            }
        )
    elif not found:
        echo("no tools yet")
    else:
        echo("\n".join(_shown(found, dead)))
    if not as_json:
        for each in lost:
            what = "told in part" if each.partly else "left out"
            said = f"{one_line(each.name, 60)} is {what}: {one_line(each.why, 300)}"
            echo(wrapped(said, 2))


def _shown(tool_states: Sequence[ToolState], dead: int) -> Iterator[str]:
    rows = [
        [
            one_line(each.name, 28),
            each.state,
            one_line(each.server or "", 10),
            f"turn {each.since_turn} ({each.since_seq})",
            number(each.calls),
            number(each.weight) if each.weight else "",
        ]
        for each in tool_states
    ]
    heads = ("tool", "state", "server", "since (event)", "calls", "weight")
    yield table(heads, rows, right=(4, 5))
    whole = sum(each.weight for each in tool_states)
    yield f"about {number(whole)} tokens of definitions are sent"
    yield f"dead weight, removed or never called: {number(dead)}"


def _lost(each: ToolLeftOut) -> dict[str, Any]:
    """Return what `--json` says of a tool that is not offered, or not told in full."""
    return {
        "name": each.name,
        "why": each.why,
        "server": each.server or None,
        "route": each.route or None,
        "partly": each.partly,
    }


def _preview(
    log: SessionLog, switch: str, route: str | None, mcp: Path | None, as_json: bool
) -> None:
    from addendum.cli.switch_cost import told
    from addendum.cli.what_if import what_if
    from addendum.tools.mcp.file import server_specs

    servers = [spec.name for spec in server_specs(mcp)] if mcp is not None else []
    seen = run_async(what_if, log, switch, route, servers)
    if as_json:
        cost = structs.asdict(seen.cost)
        dollars = {k: None if cost[k] is None else float(cost[k]) for k in _MONEY}
        print_json({"session": log.session, **structs.asdict(seen), "cost": {**cost, **dollars}})
        return
    verb = "on" if seen.on else "off"
    size = f"{number(seen.tools)} tools, about {number(seen.weight)} tokens of definitions"
    known = size if seen.tools else "its tools are not in this log"
    echo(one_line(f"{seen.server} {verb} at the next request on {seen.route}", 79))
    echo(f"  {known}, told as {seen.strategy}")
    echo(wrapped(f"  {told(seen.cost)}", 2))


def states(log: SessionLog, at: int) -> list[ToolState]:
    """Return every tool that a session has had up to an event, in the order of appearance.

    Args:
        log: The log.
        at: Seq of the last event that counts.
    """
    head: dict[str, ToolSchema] | None = None
    context: RequestContext | None = None
    sent: dict[str, ToolSchema] = {}
    active: dict[str, ToolSchema] = {}
    since: dict[str, tuple[int, int]] = {}
    calls: dict[str, int] = {}
    disabled: frozenset[str] = frozenset()
    turn = 0
    for event in log.events[: at + 1]:
        data = event.data
        if isinstance(data, TurnStart):
            turn = data.turn
        elif isinstance(data, ToolCall):
            calls[data.name] = calls.get(data.name, 0) + 1
        elif isinstance(data, RequestContext):
            context = data
        elif isinstance(data, CompactionSummary):
            sent = dict(active)  # What was told in front of it is told no more.
        elif isinstance(data, ToolPolicy):
            moved = disabled ^ frozenset(data.disabled)
            since.update({name: (event.seq, turn) for name in moved if name in since})
            disabled = frozenset(data.disabled)
        elif isinstance(data, RequestHeader):
            after = {tool.name: tool for tool in data.header.tools}
            if head is None or data.head:
                head = {name: tool for name, tool in after.items() if not tool.defer_loading}
            moved = {name for name in {*active, *after} if active.get(name) != after.get(name)}
            # In the order of the header, so that the list reads as the model's does.
            for name in [*after, *active]:
                if name in moved:
                    since[name] = (event.seq, turn)
            active = after
            sent = {**sent, **after} if _stays(context) else dict(after)
    bound = head or {}

    def state(name: str) -> str:
        if name not in active:
            return "removed"
        if name in disabled:
            return "disabled"
        own = bound.get(name)
        dispatched = context is not None and context.projection == "dispatch"
        if context is not None and active[name].definition() in context.withheld:
            return "deferred" if dispatched else "left out"
        if own is not None and own.identity() == active[name].identity():
            return "active"
        return "deferred" if dispatched or active[name].defer_loading else "active"

    def weight(name: str) -> int:
        return 0 if name not in sent else -(-len(encode(sent[name])) // BYTES_A_TOKEN)

    return [
        ToolState(name, state(name), _server(name), *since[name], calls.get(name, 0), weight(name))
        for name in since
    ]


def _stays(context: RequestContext | None) -> bool:
    """Say whether a definition is still sent when its tool was removed."""
    return context is not None and context.projection != "rebind" and context.removals != "omit"


def _server(name: str) -> str | None:
    server, found, _ = name.partition("__")
    return server if found and server else None


@tools.command()
@click.argument("file", required=False, type=NEW_FILE)
@click.option(
    "--mcp",
    default=".mcp.json",
    show_default=True,
    type=PATH,
    metavar="FILE",
    help="The file with the servers (mcpServers).",
)
@store_option
@json_option
def pin(file: Path | None, mcp: Path, store: str | None, as_json: bool) -> None:
    """Ask the MCP servers for their tools and take these lists as their pins.

    New sessions begin with the pinned lists. With FILE they are written there instead of into the
    store: `Agent(catalogue=FILE)` reads it, and so many machines share one head.

    A server that cannot be asked keeps the pin that it has; exit code 1 says that there is one.
    """
    pinned, failed = run_async(_pin, file, mcp, store)
    if as_json:
        print_json(
            {"file": None if file is None else str(file), "pinned": pinned, "failed": failed}
        )
    else:
        for each in pinned:
            echo(f"{one_line(each['server'], 40)}: {number(each['tools'])} tools")
        for each in failed:
            said = f"{one_line(each['server'], 40)}: not pinned: {one_line(each['error'], 300)}"
            echo(wrapped(said, 2))
        if pinned:
            echo(f"written to {file}" if file is not None else "pinned for new sessions")
        if failed:
            echo(f"correct what failed in {one_line(str(mcp), 50)}, then pin again")
    if failed:
        raise click.exceptions.Exit(1)


async def _pin(
    file: Path | None, mcp: Path, store: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pin what can be pinned; return that, and what cannot with its error."""
    from addendum.stores import DEFAULT_URL, open_store
    from addendum.tools.catalogue import KIND, Pin, encode_pin, read_catalogue, write_catalogue
    from addendum.tools.mcp.file import server_specs
    from addendum.tools.mcp.pool import ServerPool

    specs = server_specs(mcp)
    pins: dict[str, Pin] = {}
    failed: list[dict[str, Any]] = []
    pool = ServerPool()
    try:
        for spec in specs:
            connection = await pool.acquire(spec)
            state = await connection.ready(_PATIENCE)
            if state.status != "ready":
                why = state.error or f"it did not answer within {_PATIENCE:g} s"
                failed.append({"server": spec.name, "error": why})
            else:
                pins[spec.name] = Pin.of(state)
    finally:
        await pool.aclose()
    pinned = [{"server": name, "tools": len(found.tools)} for name, found in pins.items()]
    if file is not None and pins:
        before = read_catalogue(file) if failed and await anyio.Path(file).exists() else {}
        names = [each["server"] for each in failed if each["server"] in before]
        write_catalogue(file, {name: before[name] for name in names} | pins)
    elif pins:
        kept = await open_store(store or DEFAULT_URL)
        try:
            for spec in specs:
                if spec.name in pins:
                    await kept.put(KIND, spec.key(), encode_pin(pins[spec.name]))
        finally:
            await kept.aclose()
    return pinned, failed
