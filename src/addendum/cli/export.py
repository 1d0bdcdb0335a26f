"""`addendum export`: a session's requests as a file that others read."""

from __future__ import annotations

from typing import Literal

import click

from addendum.agent.replay import Replayed, known_route, replay
from addendum.cache.export import Outgoing, har, json_lines, json_text
from addendum.cli.stored import read_log
from addendum.cli.terminal import run_async, store_option
from addendum.errors import ConfigurationError


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(("json", "jsonl", "har")),
    default="jsonl",
    show_default=True,
    help="The file's form; all hold the same.",
)
@store_option
def export(session: str, form: Literal["json", "jsonl", "har"], store: str | None) -> None:
    """Write a session's requests to stdout, as they were sent, with what each one cost.

    Credentials are no part of it. `addendum check` reads every form.
    """
    _, log = run_async(read_log, store, session)
    requests = [_outgoing(each) for each in replay(log)]
    if not requests:
        raise ConfigurationError(f"session {log.session} has sent no request yet; nothing to write")
    if form == "jsonl":
        for each in json_lines(requests):
            click.echo(each)
    else:
        click.echo(json_text(log.session, requests) if form == "json" else har(requests))


def _outgoing(request: Replayed) -> Outgoing:
    route = known_route(request.record.route)
    headers = {"content-type": "application/json", **dict(route.endpoint.headers)}
    if request.betas:
        headers["anthropic-beta"] = ",".join(request.betas)
    return Outgoing(request.record, route.url if route.endpoint.base_url else "", headers)
