"""`addendum export`: a session's requests, or the whole of it, as a file that others read."""

from __future__ import annotations

from typing import Literal

import click

from addendum.agent.replay import Replayed, known_route, replay
from addendum.cache.export import Outgoing, har, json_lines, json_text
from addendum.cli.flags import NAME
from addendum.cli.stored import read_log
from addendum.cli.terminal import run_async, store_option
from addendum.errors import ConfigurationError
from addendum.log.session_log import SessionLog
from addendum.masking import masked_json


@click.command()
@click.argument("session", type=NAME, metavar="ID")
@click.option("--jsonl", "form", flag_value="jsonl", default=True, help="JSON lines (the default).")
@click.option("--json", "form", flag_value="json", help="One JSON object.")
@click.option("--har", "form", flag_value="har", help="An HTTP archive.")
@click.option("--html", "form", flag_value="html", help="One page to read, with the conversation.")
@click.option("--unredacted", is_flag=True, help="Keep what looks like a credential.")
@click.option(
    "--language",
    type=click.Choice(("en", "zh")),
    default="en",
    show_default=True,
    help="Language of the page.",
)
@store_option
def export(
    session: str,
    form: Literal["json", "jsonl", "har", "html"],
    unredacted: bool,
    language: str,
    store: str | None,
) -> None:
    """Write a session to stdout: its requests as they were sent, or a page that shows all of it.

    `addendum check` reads JSON lines, JSON and HAR. Credentials of the route are no part of any,
    and what looks like one elsewhere is replaced, the same one by the same text.
    """
    _, log = run_async(read_log, store, session)
    if form == "html":
        from addendum.tell.words import words
        from addendum.viewer.export import html

        click.echo(html(log, words(language), redact=not unredacted))
        return
    requests = _requests(log)
    if form == "jsonl":
        texts = json_lines(requests)
    else:
        texts = iter([json_text(log.session, requests) if form == "json" else har(requests)])
    for each in texts:
        click.echo(each if unredacted else masked_json(each))


def _requests(log: SessionLog) -> list[Outgoing]:
    requests = [_outgoing(each) for each in replay(log)]
    if not requests:
        raise ConfigurationError(f"session {log.session} has sent no request yet; nothing to write")
    return requests


def _outgoing(request: Replayed) -> Outgoing:
    route = known_route(request.record.route)
    headers = {"content-type": "application/json", **dict(route.endpoint.headers)}
    if request.betas:
        headers["anthropic-beta"] = ",".join(request.betas)
    return Outgoing(request.record, route.url if route.endpoint.base_url else "", headers)
