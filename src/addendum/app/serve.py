"""`addendum serve`: the web page, with Chat and Trajectory."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from addendum.cli.flags import HOST, NAME, PATH, TOKEN
from addendum.cli.terminal import LAB_ROUTE, echo, run_async, store_option
from addendum.lines import one_line

if TYPE_CHECKING:
    from addendum.host.asking import AskMode
    from addendum.viewer.rooms import Setup

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@click.command()
@click.option(
    "--host", type=HOST, default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8_420, show_default=True)
@store_option
@click.option("--lab", "in_lab", is_flag=True, help="The lab answers: no key, no network.")
@click.option(
    "--route", type=NAME, metavar="R", help="Route of new conversations: provider:model[+FACT]."
)
@click.option(
    "--mcp", type=PATH, metavar="FILE", help="MCP servers: .mcp.json or any mcpServers file."
)
@click.option("--instructions", metavar="TEXT|@FILE", help="The prompt; a session keeps its own.")
@click.option(
    "--ask",
    type=click.Choice(["always", "changes", "never"]),
    default="changes",
    show_default=True,
    help="Before a tool runs, ask: always; unless its server calls it read-only; or never.",
)
@click.option(
    "--token",
    type=TOKEN,
    envvar="ADDENDUM_TOKEN",
    metavar="TEXT",
    help="What visitors have to bring; needed where other machines can reach the page.",
)
def serve(
    host: str,
    port: int,
    store: str | None,
    in_lab: bool,
    route: str | None,
    mcp: Path | None,
    instructions: str | None,
    ask: AskMode,
    token: str | None,
) -> None:
    """Serve the web page: chat, switch MCP servers, and read what each request cost.

    It is reached from this machine alone unless --host says otherwise, which needs --token: whoever
    opens the page can run tools here. The traffic is not encrypted.
    """
    for module in ("jinja2", "markdown_it", "nh3"):
        # Asked for first: what is missing is then named with the extra that brings all of it.
        importlib.import_module(module)
    from addendum.viewer.rooms import Setup
    from addendum.viewer.safety import is_loopback

    if not is_loopback(host) and token is None:
        raise click.UsageError(
            f"another host than this machine, {host!r}, needs --token TEXT: whoever opens the page "
            "runs tools"
        )
    if in_lab and route is None:
        route = LAB_ROUTE
    setup = Setup(route, store, in_lab, mcp, instructions, ask)
    run_async(_serve, setup, host, port, token)


async def _serve(setup: Setup, host: str, port: int, token: str | None) -> None:
    from addendum.lab.server import serve as listening
    from addendum.viewer.app import build
    from addendum.viewer.rooms import open_house

    async with open_house(setup) as house:
        app = build(house, host=host, access=token)
        async with listening(app, host=host, port=port, release=house.close) as url:
            lab = "the lab answers, its figures are simulated; " if setup.lab else ""
            echo(f"addendum on {one_line(url, 200)} ({lab}Ctrl+C ends it)")
            if token is not None:
                echo("visitors open it with ?access=TOKEN, once")
            # Whoever started this waits for the address.
            sys.stdout.flush()
            with anyio.open_signal_receiver(*_SIGNALS) as signals:
                async for _ in signals:
                    return
