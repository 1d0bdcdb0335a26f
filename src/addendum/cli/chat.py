"""`addendum chat`: a conversation in the terminal, on a real route or in the lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from addendum.cli.flags import BASE_URL, NAME, PATH
from addendum.cli.terminal import LAB_ROUTE, store_option

if TYPE_CHECKING:
    from addendum.host.asking import AskMode


@click.command()
@click.option(
    "--route", type=NAME, metavar="R", help="provider:model[+FACT]; a new session needs it."
)
@click.option(
    "--mcp", type=PATH, metavar="FILE", help="MCP servers: .mcp.json or any mcpServers file."
)
@click.option("--resources", is_flag=True, help="Let the model read the servers' resources.")
@click.option(
    "--session", "session_id", type=NAME, metavar="ID", help="Go on with it, or name a new one."
)
@click.option("--lab", "in_lab", is_flag=True, help="The lab answers: no key, no network.")
@click.option(
    "--base-url", type=BASE_URL, metavar="URL", help="Another address for the route's provider."
)
@click.option("--instructions", metavar="TEXT|@FILE", help="The prompt; a session keeps its own.")
@click.option(
    "--ask",
    type=click.Choice(["always", "changes", "never"]),
    help="Before a tool runs, ask: always; unless its server calls it read-only (the default in a"
    " terminal); or never (the default in the lab and in a pipe).",
)
@store_option
def chat(
    route: str | None,
    mcp: Path | None,
    resources: bool,
    session_id: str | None,
    in_lab: bool,
    base_url: str | None,
    instructions: str | None,
    ask: AskMode | None,
    store: str | None,
) -> None:
    """Chat in the terminal; switch MCP servers on and off in mid-conversation.

    The key comes from the environment. /help lists the commands. In the lab a free model answers
    in short text and obeys `/call NAME JSON`.
    """
    from addendum.cli.chat_console import run_chat
    from addendum.cli.chat_room import Wanted

    if in_lab and base_url is not None:
        raise click.UsageError("--lab and --base-url exclude each other")
    if in_lab and route is None and session_id is None:
        route = LAB_ROUTE
    wanted = Wanted(route, mcp, session_id, in_lab, base_url, instructions, store, ask, resources)
    code = run_chat(wanted)
    raise click.exceptions.Exit(code)
